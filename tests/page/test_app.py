"""What programs and the page itself get from POST /predict, with a real server behind it."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import numpy as np
from paging import Page, page_of, png, running_page
from serving import TOLERANCE, Served, digit_like, expected_logits

from privit.page.app import UPLOAD_BYTES
from privit.page.seen import ROW_BYTES, ROWS


def test_a_program_gets_one_json_object(served: Served, page: Page) -> None:
    status, found = page.predict(png(digit_like(4)))
    assert status == 200
    logits = expected_logits(served, digit_like(4))
    expected = np.exp(logits) / np.exp(logits).sum()
    np.testing.assert_allclose(list(found["probabilities"].values()), expected, atol=TOLERANCE)
    assert list(found["probabilities"]) == list(served.artifact.public.class_names)
    assert found["class_name"] == max(found["probabilities"], key=found["probabilities"].get)
    assert (found["protocol"], found["private"], found["inside"]) == ("cheetah", True, None)
    assert found["rounds"] > 100
    assert found["seconds"] > 0


def test_the_page_hears_of_progress_and_of_the_bytes_that_crossed(page: Page) -> None:
    picture = digit_like(5)
    events = list(page.events(png(picture)))
    assert events[0]["event"] == "picture"
    assert events[-1]["event"] == "answer"
    moves = [event for event in events if event["event"] == "progress" and event["work"] == "query"]
    shares = [event["share"] for event in moves]
    assert shares == sorted(shares)
    assert shares[-1] > 0.3
    seen = events[-1]["seen"]
    sample = base64.b64decode(seen["sample"])
    assert len(sample) == ROWS * ROW_BYTES
    # One way of two, framing included: what the client sent lies below what crossed.
    assert 0.3 * events[-1]["wire_bytes"] < seen["sent_bytes"] < events[-1]["wire_bytes"]
    # Ciphertexts: every value of a byte is about as frequent as every other.
    counts = np.bincount(np.frombuffer(sample, np.uint8), minlength=256)
    assert counts.max() < 0.05 * len(sample)
    assert picture.tobytes() not in sample


def test_what_is_no_picture_is_refused_in_words_and_nothing_is_sent(page: Page) -> None:
    status, found = page.predict(b"certainly no picture")
    assert status == 400
    assert found["error"] == "the file is not an image of a known kind (PNG, JPEG, WEBP, GIF, BMP, TIFF, PPM)"
    assert found["hint"] == "save it as PNG or JPEG"
    assert page.predict(b"")[1]["error"] == "no picture was sent"
    (only,) = page.events(b"certainly no picture")
    assert only["event"] == "error"


def test_a_file_that_is_too_large_is_refused_before_and_while_it_is_read(page: Page) -> None:
    headers = {"Content-Length": str(UPLOAD_BYTES + 1)}
    response, body = page.request("POST", page.with_token("/predict"), b"", headers)
    assert response.status == 413
    assert "larger than 32 MB" in json.loads(body)["error"]
    status, found = page.predict(bytes(UPLOAD_BYTES))
    assert status == 400, found["error"]


def test_a_server_that_is_away_is_said_so(tmp_path: Path, served: Served, nobody: str) -> None:
    with running_page(tmp_path / "page", served.client_folder, nobody) as page:
        status, found = page.predict(png(digit_like(1)))
    assert status == 502
    assert f"nobody answers at {nobody}" in found["error"]


def test_a_server_of_another_model_is_said_so(tmp_path: Path, served: Served, other_plan: Path) -> None:
    with page_of(served, tmp_path / "page", other_plan) as page:
        status, found = page.predict(png(digit_like(1)))
    assert status == 502
    assert "the server runs plan" in found["error"]
    assert found["hint"] == "ask the server's owner for the matching client folder"


def test_a_server_that_goes_in_the_middle_is_said_so_and_found_again(tmp_path: Path, served: Served) -> None:
    picture = png(digit_like(2))
    with (
        served.another(tmp_path / "first") as first,
        page_of(first, tmp_path / "page") as page,
    ):
        for event in page.events(picture):
            if event["event"] == "progress" and event["work"] == "query":
                first.server.process.kill()
        assert event["event"] == "error"
        assert event["error"]
        port = int(first.server.address.split(":")[1])
        with served.another(tmp_path / "second", port=port):
            assert page.predict(picture)[0] == 200
        # This server has gone, too, with a session open and idle.
        with served.another(tmp_path / "third", port=port):
            assert page.predict(picture)[0] == 200


def test_no_picture_is_written_to_disk_and_no_token_to_a_log(page: Page) -> None:
    canary = digit_like(77)
    assert page.predict(png(canary))[0] == 200
    forms = [png(canary), png(canary)[40:80], canary.tobytes(), base64.b64encode(png(canary))[:40]]
    files = [path for path in page.folder.rglob("*") if path.is_file()]
    assert files, "the engine's log at least is there"
    for path in files:
        data = path.read_bytes()
        assert not [form for form in forms if form in data], path
        assert path.name == "page.log" or page.token.encode() not in data
    assert (page.folder / "page.log").read_text().count(page.token) == 1
