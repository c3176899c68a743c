"""From a picture file to the numbers a model reads; the same code on the training and the client side."""

from __future__ import annotations

import io
import warnings
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from privit.artifact import Preprocessing
from privit.errors import RequestError

INTERPOLATIONS = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
    "box": Image.Resampling.BOX,
    "hamming": Image.Resampling.HAMMING,
}
"""The ways to resize, under the names that timm and Pillow share."""

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "PPM")
"""The kinds of file that are read; Pillow knows more, some of which start other programs."""

MOST_ELONGATED = 100
"""Longer over shorter side at most: a line of pixels would grow enormous when its short side is enlarged."""

MODES = {1: "L", 3: "RGB"}
"""Pillow's mode for each number of channels a model may read."""


def open_image(path: Path | str) -> Image.Image:
    """The picture in a file, upright, as 8-bit grey or RGB; refuses what is not one still picture."""
    path = Path(path)
    if not path.is_file():
        found = "is a folder" if path.is_dir() else "does not exist"
        raise RequestError(f"{path} {found}, but an image file was expected", "give the path of one image")
    return decode_image(path.read_bytes(), str(path))


def decode_image(data: bytes, name: str) -> Image.Image:
    """The picture that encoded bytes hold; `name` is what error messages call it."""
    try:
        with warnings.catch_warnings():
            # Damaged notes (EXIF) do not change the picture; Pillow warns about them.
            warnings.simplefilter("ignore", UserWarning)
            # A picture of 90 million pixels is no model input; Pillow only warns about it.
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            Image.init()
            # A Pillow that was built without a library lacks that kind.
            image = Image.open(io.BytesIO(data), formats=[kind for kind in FORMATS if kind in Image.OPEN])
            # Phones store a second, smaller frame in MPO files; the first is the picture.
            if getattr(image, "is_animated", False) and image.format != "MPO":
                frames = getattr(image, "n_frames", 2)
                raise RequestError(
                    f"{name} is animated ({frames} frames), but a still image was expected",
                    "save one frame of it as PNG",
                )
            image.load()
            return plain_image(image, name)
    except UnidentifiedImageError as error:
        raise RequestError(
            f"{name} is not an image of a known kind ({', '.join(FORMATS)})", "save it as PNG or JPEG"
        ) from error
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise RequestError(f"{name} is too large: {error}", "make the image smaller first") from error
    except RequestError:
        raise
    except Exception as error:  # Pillow's readers let struct.error, KeyError and others through
        raise RequestError(f"{name} is a damaged image: {error}", "save it again as PNG or JPEG") from error


def plain_image(image: Image.Image, name: str = "the image") -> Image.Image:
    """The same picture upright, as 8-bit grey ("L") or "RGB"; what is transparent becomes white."""
    if 0 in image.size:
        raise RequestError(f"{name} has size {image.size}, so it shows nothing", "give another image")
    if max(image.size) > MOST_ELONGATED * min(image.size):
        width, height = image.size
        raise RequestError(f"{name} is a strip of {width} x {height} pixels", "cut out the part that matters")
    # Most pictures carry no orientation, and reading the tag is cheaper than transposing by nothing.
    if image.format is not None and image.getexif():
        image = ImageOps.exif_transpose(image)
    if image.mode in ("L", "RGB"):
        return image
    if image.mode == "F":
        raise RequestError(
            f"{name} holds floating-point values, whose black and white are not defined",
            "save it as 8-bit or 16-bit PNG",
        )
    if image.mode.startswith("I"):
        return _from_16_bit(image, name)
    if image.mode in ("LA", "La", "PA", "RGBa") or "transparency" in image.info:
        image = image.convert("RGBA")
    if image.mode == "RGBA":
        white = Image.new("RGBA", image.size, (255, 255, 255, 255))
        image = Image.alpha_composite(white, image)
    return image.convert("L" if image.mode == "1" else "RGB")


def _from_16_bit(image: Image.Image, name: str) -> Image.Image:
    values = np.asarray(image).astype(np.int64)
    if values.min() < 0 or values.max() > 65535:
        raise RequestError(
            f"{name} has values from {values.min()} to {values.max()}, but 0 to 65535 were expected",
            "save it as 8-bit or 16-bit PNG",
        )
    return Image.fromarray(((values + 128) // 257).astype(np.uint8))


def resize_image(image: Image.Image, preprocessing: Preprocessing) -> np.ndarray:
    """Pixels as the model's size and channels ask: uint8 (S, S, C), resized and cropped from the middle."""
    size = preprocessing.size
    if image.mode != MODES[preprocessing.channels]:
        if image.mode not in ("L", "RGB"):
            image = plain_image(image)
        image = image.convert(MODES[preprocessing.channels])
    # Rounded like timm's evaluation transform (shorter side down) and torchvision's (longer side down).
    shorter = int(np.floor(size / preprocessing.crop))
    width, height = image.size
    if min(width, height) != shorter:
        longer = int(shorter * max(width, height) / min(width, height))
        width, height = (shorter, longer) if width <= height else (longer, shorter)
        image = image.resize((width, height), INTERPOLATIONS[preprocessing.interpolation])
    left, top = round((width - size) / 2.0), round((height - size) / 2.0)
    pixels = np.asarray(image)[top : top + size, left : left + size]
    return pixels.reshape(size, size, preprocessing.channels)


def normalise(pixels: np.ndarray, preprocessing: Preprocessing) -> np.ndarray:
    """Model input float32 (..., C, S, S) from pixels uint8 (..., S, S, C)."""
    mean = np.asarray(preprocessing.mean, dtype=np.float32)
    std = np.asarray(preprocessing.std, dtype=np.float32)
    values = (pixels.astype(np.float32) / np.float32(255) - mean) / std
    return np.ascontiguousarray(np.moveaxis(values, -1, -3))


def preprocess(image: Image.Image, preprocessing: Preprocessing) -> np.ndarray:
    """Model input float32 (C, S, S) from one picture, equal to timm's evaluation transform."""
    check_preprocessing(preprocessing)
    return normalise(resize_image(image, preprocessing), preprocessing)


def check_preprocessing(preprocessing: Preprocessing) -> None:
    """Refuses numbers that describe no way to make an input, all problems at once."""
    problems = []
    if preprocessing.interpolation not in INTERPOLATIONS:
        known = ", ".join(INTERPOLATIONS)
        problems.append(f"interpolation {preprocessing.interpolation!r} is unknown (known: {known})")
    if preprocessing.channels not in MODES:
        problems.append(f"{preprocessing.channels} channels: a picture has 1 (grey) or 3 (RGB)")
    if not 0 < preprocessing.crop <= 1:
        problems.append(f"crop is {preprocessing.crop}, but a share above 0 and up to 1 was expected")
    if preprocessing.size < 1:
        problems.append(f"size is {preprocessing.size} pixels")
    for name in ("mean", "std"):
        if len(getattr(preprocessing, name)) != preprocessing.channels:
            count = len(getattr(preprocessing, name))
            problems.append(f"{name} has {count} values for {preprocessing.channels} channels")
    if any(value <= 0 for value in preprocessing.std):
        problems.append("std has a value that is not above 0")
    if problems:
        raise RequestError("; ".join(problems), "correct the preprocessing of the model")
