"""Examples are pictures that can be asked about."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from paging import png
from serving import digit_like

from privit.artifact import Public
from privit.data.images import decode_image
from privit.errors import RequestError
from privit.page.examples import MOST, examples, media_type


def test_a_model_of_digits_comes_with_one_example_of_each(tiny_public: Public) -> None:
    found = examples(replace(tiny_public, notes={"data": "digits"}))
    assert list(found) == [f"digits {number}.png" for number in range(10)]
    assert {decode_image(data, name).size for name, data in found.items()} == {(8, 8)}


def test_other_models_have_none_unless_a_folder_is_given(tiny_public: Public, tmp_path: Path) -> None:
    assert examples(tiny_public) == {}
    for number in range(MOST + 3):
        (tmp_path / f"{number:02}.png").write_bytes(png(digit_like(number)))
    (tmp_path / "notes.txt").write_text("no image")
    assert list(examples(tiny_public, tmp_path)) == [f"{number:02}.png" for number in range(MOST)]


def test_a_folder_that_offers_nothing_is_refused_in_words(tiny_public: Public, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="holds no image"):
        examples(tiny_public, tmp_path)
    with pytest.raises(RequestError, match="is not a folder"):
        examples(tiny_public, tmp_path / "missing")
    (tmp_path / "broken.png").write_bytes(b"no image")
    with pytest.raises(RequestError, match=r"broken\.png is not an image"):
        examples(tiny_public, tmp_path)


def test_a_browser_is_told_the_kind_of_an_example() -> None:
    assert [media_type(name) for name in ("a.PNG", "b.jpg", "c.webp")] == [
        "image/png",
        "image/jpeg",
        "image/webp",
    ]
