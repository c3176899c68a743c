"""The page in a real browser, wide and narrow, by mouse and by keyboard, and when the server is not there."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser import Browser
from paging import Page, page_of, png, running_page
from serving import Served, digit_like, expected_logits

from privit.data.images import decode_image
from privit.page.app import UPLOAD_BYTES
from privit.page.examples import examples
from privit.serve.parties.limits import Limits

WIDTHS = [1200, 390]
ENDED = "!asking && (!byId('answer').hidden || !byId('trouble').hidden)"


def opened(browser: Browser, page: Page, width: int = 1200) -> None:
    """Opens the page and waits until it offers its examples."""
    browser.open(page.address, width)
    browser.wait_for(
        "[...document.querySelectorAll('#examples img')].filter(i => i.naturalWidth).length === 10"
    )


def shown(browser: Browser, name: str) -> str:
    """What an element of the page says, if it can be seen."""
    return str(browser.value(f"byId({name!r}).checkVisibility() ? byId({name!r}).innerText : ''"))


def fits(browser: Browser) -> bool:
    """Whether nothing stands out of the window's side."""
    return bool(browser.value("document.documentElement.scrollWidth <= innerWidth"))


def clear_class(served: Served, number: int) -> str:
    """The class that the program gives in the clear for a bundled example."""
    public = served.artifact.public
    data = list(examples(public).values())[number]
    logits = expected_logits(served, np.asarray(decode_image(data, "example")))
    return public.class_names[int(logits.argmax())]


@pytest.mark.parametrize("width", WIDTHS)
def test_an_example_is_answered_with_both_panes_drawn(
    browser: Browser, page: Page, served: Served, width: int
) -> None:
    opened(browser, page, width)
    assert fits(browser)
    watch = "window.shares = []; setInterval(() => asking && byId('bar').hasAttribute('value') && "
    browser.value(watch + "shares.push(byId('bar').value), 20); 0")
    browser.value("document.querySelectorAll('#examples button')[3].click()")
    browser.wait_for("asking")
    browser.wait_for(ENDED)
    assert shown(browser, "trouble") == ""
    assert shown(browser, "class-name") == clear_class(served, 3)
    shares = browser.value("shares")
    assert shares == sorted(shares)
    assert len(set(shares)) >= 2, "the bar moved"
    picture: dict[str, Any] = browser.value(
        "({width: byId('picture').naturalWidth, shown: byId('picture').checkVisibility()})"
    )
    assert picture == {"width": 8, "shown": True}
    points = browser.value("[...byId('seen').getContext('2d').getImageData(0, 0, 64, 64).data]")
    colours = np.array(points).reshape(-1, 4)
    assert (colours[:, 3] == 255).all(), "every point is drawn"
    assert len(np.unique(colours[:, :3], axis=0)) > 3000, "and it is noise"
    assert "MB in" in shown(browser, "seen-caption")
    assert "cheetah" in shown(browser, "facts")
    assert "semi-honest" in shown(browser, "facts")
    assert browser.value("byId('cost').innerText").count("MB") == 2
    assert browser.value("document.querySelectorAll('#chances tbody tr').length") == 5
    assert browser.value("document.querySelector('.chance').clientWidth") > 100, "bars have room"
    assert shown(browser, "guard") == "", "this program has no guard"
    assert fits(browser)


def test_the_keyboard_is_enough(browser: Browser, page: Page) -> None:
    opened(browser, page)
    reached = []
    for _ in range(12):
        browser.press("Tab")
        reached.append(browser.value("document.activeElement.id || document.activeElement.title"))
    assert reached[:2] == ["file", "digits 0.png"]
    assert reached[10] == "digits 9.png"
    opened(browser, page)
    for _ in range(3):
        browser.press("Tab")
    outline = browser.value("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid", "one sees where one is"
    browser.press("Enter")
    browser.wait_for("asking")
    browser.wait_for(ENDED)
    assert shown(browser, "trouble") == ""
    assert browser.value("document.activeElement.id") == "class-name", "the answer is read out"


def test_a_dropped_and_a_chosen_picture_are_answered_and_remembered_until_the_page_is_loaded_again(
    browser: Browser, page: Page, tmp_path: Path
) -> None:
    opened(browser, page)
    browser.drop(png(digit_like(1)), "<b>dropped</b>.png")
    browser.wait_for("asking")
    browser.drop(png(digit_like(2)), "second.png")
    assert "One picture at a time" in shown(browser, "says")
    browser.wait_for(ENDED)
    (tmp_path / "chosen.png").write_bytes(png(digit_like(2)))
    browser.choose("#file", tmp_path / "chosen.png")
    browser.wait_for("asking")
    browser.wait_for(ENDED)
    remembered = browser.value("[...document.querySelectorAll('#past-list li')].map(i => i.innerText)")
    assert [text.split(":")[0] for text in remembered] == ["chosen.png", "<b>dropped</b>.png"]
    kept = "[localStorage.length, sessionStorage.length, document.cookie].join()"
    assert browser.value(kept) == "0,0,"
    opened(browser, page)
    assert shown(browser, "past") == ""


def test_the_guards_word_has_its_place(browser: Browser, page: Page) -> None:
    opened(browser, page)
    browser.value("byId('answer').hidden = false; guard(false)")
    assert "do not rely on this answer" in shown(browser, "guard")
    browser.value("guard(true)")
    assert "stayed inside" in shown(browser, "guard")
    browser.value("guard(null)")
    assert shown(browser, "guard") == ""


@pytest.mark.parametrize("width", WIDTHS)
def test_what_is_no_picture_or_too_large_is_refused_in_words(
    browser: Browser, page: Page, tmp_path: Path, width: int
) -> None:
    opened(browser, page, width)
    browser.drop(b"no picture", "letter.txt", "text/plain")
    browser.wait_for("!byId('trouble').hidden")
    assert "The file is not an image of a known kind" in shown(browser, "error")
    assert shown(browser, "hint") == "Save it as PNG or JPEG."
    with (tmp_path / "huge.png").open("wb") as file:
        file.truncate(UPLOAD_BYTES + 1)
    browser.choose("#file", tmp_path / "huge.png")
    browser.wait_for("byId('error').innerText.includes('larger')")
    assert "huge.png is larger than 32 MB" in shown(browser, "error").lower().replace("mb", "MB")
    assert fits(browser)


@pytest.mark.parametrize("width", WIDTHS)
def test_a_server_that_is_away_is_said_so_on_the_page(
    browser: Browser, served: Served, nobody: str, tmp_path: Path, width: int
) -> None:
    with running_page(tmp_path / "page", served.client_folder, nobody) as page:
        opened(browser, page, width)
        browser.drop(png(digit_like(1)), "a.png")
        browser.wait_for(ENDED)
        assert f"Nobody answers at {nobody}" in shown(browser, "error")
        assert shown(browser, "again") == "Try again"
        assert fits(browser)


def test_a_server_that_refuses_is_said_so_on_the_page(
    browser: Browser, served: Served, other_plan: Path, tmp_path: Path
) -> None:
    with page_of(served, tmp_path / "page", other_plan) as page:
        opened(browser, page)
        browser.drop(png(digit_like(1)), "a.png")
        browser.wait_for(ENDED)
        assert "The server runs plan" in shown(browser, "error")
        assert "matching client folder" in shown(browser, "hint")


def test_a_busy_server_is_waited_for_and_a_full_one_is_said_so_until_it_has_room(
    browser: Browser, served: Served, tmp_path_factory: pytest.TempPathFactory
) -> None:
    # The test's own folder has its name, with which the path of a socket would be too long.
    tmp_path = tmp_path_factory.mktemp("busy")
    with contextlib.ExitStack() as stack:
        limits = Limits(sessions=1, queue=1)
        busy = stack.enter_context(served.another(tmp_path / "server", limits))
        taken = stack.enter_context(busy.connect(state=tmp_path / "other"))
        pages = [stack.enter_context(page_of(busy, tmp_path / name)) for name in ("first", "second")]
        opened(browser, pages[0])
        # What the page says may change again before a busy machine looks.
        browser.value(
            "window.heard = []; new MutationObserver(() => heard.push(byId('says').textContent))"
            ".observe(byId('says'), {childList: true, characterData: true, subtree: true}); 1"
        )
        browser.drop(png(digit_like(1)), "a.png")
        browser.wait_for("heard.some(words => words.includes('in line at 1'))")
        status, found = pages[1].predict(png(digit_like(1)))
        assert status == 503
        assert "as many as one client may have" in found["error"]
        closing = threading.Thread(target=taken.close)
        closing.start()
        browser.wait_for(ENDED)
        closing.join()
        assert shown(browser, "trouble") == ""
        assert shown(browser, "class-name") != ""


def test_try_again_asks_the_same_picture(
    browser: Browser, served: Served, nobody: str, tmp_path: Path
) -> None:
    with running_page(tmp_path / "page", served.client_folder, nobody, *served.flags) as page:
        opened(browser, page)
        browser.drop(png(digit_like(3)), "a.png")
        browser.wait_for(ENDED)
        with served.another(tmp_path / "server", port=int(nobody.split(":")[1])):
            browser.value("byId('again').click()")
            browser.wait_for("asking")
            browser.wait_for(ENDED)
            assert shown(browser, "error") == ""
            assert shown(browser, "class-name") != ""
            assert "a.png" in shown(browser, "past-list")


def test_a_page_whose_process_has_gone_says_so(
    browser: Browser, served: Served, nobody: str, tmp_path: Path
) -> None:
    with running_page(tmp_path / "page", served.client_folder, nobody) as page:
        opened(browser, page)
    browser.drop(png(digit_like(3)), "a.png")
    browser.wait_for(ENDED)
    assert shown(browser, "error") == "Privit page does not answer."
    browser.complaints.clear()  # of the connection that was refused
