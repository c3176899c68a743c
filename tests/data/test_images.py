"""One picture becomes the same numbers everywhere, whatever file it comes from."""

from __future__ import annotations

import contextlib
import io
import os
import re
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from privit.artifact import Preprocessing
from privit.data.images import (
    decode_image,
    normalise,
    open_image,
    plain_image,
    plain_picture,
    preprocess,
    resize_image,
)
from privit.errors import RequestError

IMAGENET = Preprocessing(32, 3, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


def picture(width: int, height: int, mode: str = "RGB", seed: int = 0) -> Image.Image:
    """A smooth random picture."""
    small = np.random.default_rng(seed).integers(0, 256, (4, 5, 3), dtype=np.uint8)
    return Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC).convert(mode)


def encoded(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    """The bytes of a file that holds the picture."""
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


@settings(max_examples=25, deadline=None)
@given(
    st.integers(8, 90),
    st.integers(8, 90),
    st.sampled_from(["bicubic", "bilinear"]),
    st.sampled_from([1.0, 0.95, 0.9, 0.875]),
    st.sampled_from([24, 32, 33]),
)
def test_preprocessing_equals_timms_evaluation_transform(
    width: int, height: int, interpolation: str, crop: float, size: int
) -> None:
    from timm.data import create_transform

    image = picture(width, height)
    ours = replace(IMAGENET, size=size, interpolation=interpolation, crop=crop)
    theirs = create_transform(
        (3, size, size), interpolation=interpolation, crop_pct=crop, mean=ours.mean, std=ours.std
    )
    difference = preprocess(image, ours) - theirs(image).numpy()
    in_pixels = np.abs(difference * np.asarray(ours.std, np.float32)[:, None, None]).max()
    assert in_pixels < 1e-6 < 1 / 255


def test_a_grey_picture_has_three_equal_channels_for_a_colour_model() -> None:
    pixels = resize_image(picture(40, 40, "L"), IMAGENET)
    assert pixels.shape == (32, 32, 3)
    assert (pixels[..., 0] == pixels[..., 1]).all()


def test_a_colour_picture_is_read_as_grey_by_a_grey_model() -> None:
    grey = Preprocessing(8, 1, (0.5,), (0.5,))
    pixels = resize_image(picture(8, 8), grey)
    assert np.array_equal(pixels[..., 0], np.asarray(picture(8, 8).convert("L")))


def test_normalised_values_are_pixels_over_255_less_mean_over_deviation() -> None:
    pixels = np.array([[[[0], [255]], [[51], [102]]]], dtype=np.uint8)
    values = normalise(pixels, Preprocessing(2, 1, (0.2,), (0.5,)))
    assert values.dtype == np.float32
    np.testing.assert_allclose(values, [[[[-0.4, 1.6], [0.0, 0.4]]]], atol=1e-6)


def test_transparent_parts_become_white() -> None:
    image = Image.new("RGBA", (2, 1), (255, 0, 0, 255))
    image.putpixel((0, 0), (0, 0, 0, 0))
    found = decode_image(encoded(image), "a.png")
    assert [found.getpixel((x, 0)) for x in (0, 1)] == [(255, 255, 255), (255, 0, 0)]


def test_a_palette_with_a_transparent_colour_is_read_as_it_is_shown() -> None:
    image = Image.new("P", (2, 1))
    image.putpalette([0, 0, 0, 10, 200, 30])
    image.putpixel((1, 0), 1)
    found = decode_image(encoded(image, transparency=0), "a.png")
    assert [found.getpixel((x, 0)) for x in (0, 1)] == [(255, 255, 255), (10, 200, 30)]


def test_16_bit_grey_keeps_its_shades() -> None:
    values = np.array([[0, 257, 32896, 65535]], dtype=np.uint16)
    found = decode_image(encoded(Image.fromarray(values)), "a.png")
    assert np.asarray(found).tolist() == [[0, 1, 128, 255]]


def test_a_black_and_white_picture_uses_the_whole_range() -> None:
    image = Image.new("1", (2, 1))
    image.putpixel((1, 0), 1)
    assert np.asarray(decode_image(encoded(image), "a.png")).tolist() == [[0, 255]]


def test_a_cmyk_jpeg_becomes_rgb() -> None:
    assert decode_image(encoded(picture(8, 8, "CMYK"), "JPEG"), "a.jpg").mode == "RGB"


def test_a_photograph_is_turned_as_its_exif_tag_says() -> None:
    image = Image.new("RGB", (4, 2), (0, 0, 0))
    image.paste((255, 255, 255), (0, 0, 2, 2))
    tag = Image.Exif()
    tag[0x0112] = 6  # to be turned by 90 degrees to the right
    found = decode_image(encoded(image, exif=tag), "a.png")
    assert found.size == (2, 4)
    assert np.asarray(found)[:2].min() == 255
    assert np.asarray(found)[2:].max() == 0


def test_the_same_picture_in_a_file_and_in_memory_is_equal(tmp_path: Path) -> None:
    image = picture(20, 30)
    image.save(tmp_path / "a.png")
    assert np.array_equal(np.asarray(open_image(tmp_path / "a.png")), np.asarray(image))


def test_an_animation_is_refused_with_its_number_of_frames() -> None:
    frames = [picture(8, 8, seed=seed) for seed in range(3)]
    data = encoded(frames[0], "GIF", save_all=True, append_images=frames[1:])
    with pytest.raises(RequestError, match=r"a.gif is animated \(3 frames\), but a still image was expected"):
        decode_image(data, "a.gif")


def test_a_phones_picture_with_a_preview_beside_it_is_the_first_of_the_two() -> None:
    data = encoded(picture(16, 16), "MPO", save_all=True, append_images=[picture(4, 4)])
    assert decode_image(data, "a.jpg").size == (16, 16)


@pytest.mark.parametrize("data", [b"", b"hello", b"\x89PNG\r\n\x1a\n", b"%PDF-1.7"])
def test_what_is_no_image_is_refused(data: bytes) -> None:
    with pytest.raises(RequestError, match=r"a.png is (not an image|a damaged image)") as caught:
        decode_image(data, "a.png")
    assert "PNG" in caught.value.hint


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_a_file_that_was_cut_short_is_refused(kind: str) -> None:
    data = encoded(picture(64, 64), kind)
    with pytest.raises(RequestError, match="damaged image"):
        decode_image(data[: len(data) // 2], "a")


def test_an_enormous_picture_is_refused_without_being_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    with pytest.raises(RequestError, match="too large"):
        decode_image(encoded(picture(11, 11)), "a.png")


def test_a_kind_of_file_that_starts_other_programs_is_not_opened() -> None:
    with pytest.raises(RequestError, match="not an image of a known kind"):
        decode_image(encoded(picture(8, 8), "EPS"), "a.eps")


def test_a_strip_that_would_grow_enormous_is_refused() -> None:
    with pytest.raises(RequestError, match="a strip of 101 x 1 pixels"):
        decode_image(encoded(picture(101, 1)), "a.png")


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(
        [("PNG", "RGBA"), ("PNG", "P"), ("JPEG", "RGB"), ("WEBP", "RGB"), ("TIFF", "RGB"), ("GIF", "P")]
    ),
    st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), max_size=6),
    st.floats(0.1, 1),
)
def test_whatever_is_in_a_file_it_is_a_picture_or_a_clear_error(
    kind: tuple[str, str], changes: list[tuple[float, int]], kept: float
) -> None:
    tag = Image.Exif()
    tag[0x0112] = 6
    data = bytearray(encoded(picture(16, 12, kind[1]), kind[0], exif=tag))
    for place, value in changes:
        data[int(place * len(data))] = value
    with contextlib.suppress(RequestError):
        found = decode_image(bytes(data[: int(kept * len(data))]), "a")
        assert preprocess(found, IMAGENET).shape == (3, 32, 32)


def test_floating_point_pictures_are_refused() -> None:
    with pytest.raises(RequestError, match="floating-point"):
        plain_image(Image.new("F", (2, 2)))


def test_an_empty_picture_is_refused() -> None:
    with pytest.raises(RequestError, match=r"size \(0, 3\)"):
        plain_image(Image.new("RGB", (0, 3)))


def test_a_missing_file_and_a_folder_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"nothing.png does not exist"):
        open_image(tmp_path / "nothing.png")
    with pytest.raises(RequestError, match="is a folder"):
        open_image(tmp_path)


def test_preprocessing_that_makes_no_sense_is_refused_with_every_problem() -> None:
    wrong = Preprocessing(0, 2, (0.5,), (0.0, 1.0), "cubic", 1.5)
    with pytest.raises(RequestError) as caught:
        preprocess(picture(8, 8), wrong)
    for part in ("'cubic' is unknown", "2 channels", "crop is 1.5", "size is 0", "mean has 1", "not above 0"):
        assert part in caught.value.message


TURNED = Image.Exif()
TURNED[0x0112] = 6  # to be turned by 90 degrees to the right


def test_one_picture_gives_the_same_numbers_whichever_way_it_comes(tmp_path: Path) -> None:
    upright = picture(40, 30)
    lying = upright.rotate(90, expand=True)
    path = tmp_path / "a.png"
    lying.save(path, exif=TURNED)
    expected = preprocess(np.asarray(upright), IMAGENET)
    with Image.open(path) as opened:
        copied = opened.copy()
        ways = [path, str(path), path.read_bytes(), opened, copied, plain_picture(opened)]
        for way in ways:
            assert np.array_equal(preprocess(way, IMAGENET), expected)


@pytest.mark.parametrize("channels", [(), (1,)])
def test_a_grey_array_may_have_an_axis_of_one_channel(channels: tuple[int, ...]) -> None:
    grey = np.asarray(picture(40, 30, "L"))
    assert np.array_equal(
        preprocess(grey.reshape(30, 40, *channels), IMAGENET), preprocess(picture(40, 30, "L"), IMAGENET)
    )


def test_a_column_of_pixels_is_not_taken_for_channels() -> None:
    assert plain_picture(np.zeros((8, 1), np.uint8)).size == (1, 8)


def test_an_arrays_fourth_channel_is_its_opacity() -> None:
    assert plain_picture(np.zeros((2, 2, 4), np.uint8)).getpixel((0, 0)) == (255, 255, 255)


@pytest.mark.parametrize(
    "shape", [(3, 8, 8), (1, 8, 8), (8, 8, 5), (8, 8, 2), (8,), (1, 8, 8, 3), (8, 8, 1, 1), ()]
)
def test_an_array_of_an_odd_shape_is_refused_with_its_shape(shape: tuple[int, ...]) -> None:
    with pytest.raises(RequestError, match=re.escape(f"array of uint8 with shape {shape}")) as caught:
        preprocess(np.zeros(shape, np.uint8), IMAGENET)
    assert "(height, width, channels)" in caught.value.hint


@pytest.mark.parametrize("kind", [np.float32, np.int64, bool, object])
def test_an_array_of_other_values_than_8_bit_is_refused(kind: Any) -> None:
    with pytest.raises(RequestError, match="the image is an array of"):
        preprocess(np.zeros((8, 8), kind), IMAGENET)


@pytest.mark.parametrize("given", [None, [], [[0, 0], [0, 0]], 3, 0.5, {}, io.BytesIO(b"")])
def test_what_is_no_picture_at_all_is_refused_with_its_type(given: Any) -> None:
    with pytest.raises(RequestError, match=f"the image is of type {type(given).__name__}"):
        preprocess(given, IMAGENET)


@pytest.mark.parametrize("shape", [(0, 3), (3, 0, 3), (0, 0)])
def test_an_array_without_pixels_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(RequestError, match="it shows nothing"):
        preprocess(np.zeros(shape, np.uint8), IMAGENET)


def test_a_pillow_image_meets_the_same_checks_as_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = encoded(picture(64, 64))
    animated = encoded(picture(8, 8), "GIF", save_all=True, append_images=[picture(8, 8, seed=1)])
    closed = Image.open(io.BytesIO(data))
    closed.close()
    wrong = {
        "damaged": Image.open(io.BytesIO(data[: len(data) // 2])),
        "animated": Image.open(io.BytesIO(animated)),
        "damaged image": closed,
        "a strip": Image.new("RGB", (101, 1)),
        "size": Image.new("RGB", (0, 3)),
        "floating-point": Image.new("F", (2, 2)),
    }
    for words, image in wrong.items():
        with pytest.raises(RequestError, match=words):
            preprocess(image, IMAGENET)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    for large in (picture(11, 11), np.zeros((11, 11), np.uint8)):
        with pytest.raises(RequestError, match="too large"):
            preprocess(large, IMAGENET)


def test_a_pipe_a_device_and_a_socket_are_called_what_they_are(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        found = {"pipe.png": "is a named pipe", "s": "is a socket", "/dev/zero": "is a device"}
        for name, words in found.items():
            with pytest.raises(RequestError, match=f"{name} {words}.*, but an image file was expected"):
                open_image(tmp_path / name)


def test_a_file_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    (tmp_path / "loop.png").symlink_to(tmp_path / "loop.png")
    for name, words in [("loop.png", "symbolic links"), ("a" * 300, "name too long"), ("a\0b", "null")]:
        with pytest.raises(RequestError, match=rf"(?s)cannot be read: .*{words}"):
            open_image(tmp_path / name)
