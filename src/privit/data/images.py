"""From a picture file to the numbers a model reads; the same code on the training and the client side."""

from __future__ import annotations

import io
import stat
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError

from privit.artifact import Preprocessing
from privit.errors import RequestError

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "PPM")
"""The kinds of file that are read; Pillow knows more, some of which start other programs."""

MOST_ELONGATED = 100
"""Longer over shorter side at most: a line of pixels would grow enormous when its short side is enlarged."""

MODES = {1: "L", 3: "RGB"}
"""Pillow's mode for each number of channels a model may read."""

Picture = str | Path | bytes | Image.Image | np.ndarray
"""A file's path, a file's bytes, a Pillow image, or 8-bit values (H, W) or (H, W, C), C 1, 3 or 4."""


def plain_picture(picture: Picture, name: str = "the image") -> Image.Image:
    """One still picture, upright, as 8-bit grey ("L") or "RGB"; the door through which every picture comes.

    `name` is what error messages call a picture that is no file.
    """
    if isinstance(picture, Image.Image):
        return _readable(lambda: picture, name)
    if isinstance(picture, np.ndarray):
        return plain_image(_from_array(picture, name), name)
    if isinstance(picture, bytes):
        return decode_image(picture, name)
    if isinstance(picture, (str, Path)):
        return open_image(picture)
    raise RequestError(
        f"{name} is of type {type(picture).__name__}",
        "give a path, the bytes of an image file, a Pillow image or an array of 8-bit values",
    )


def open_image(path: Path | str) -> Image.Image:
    """The picture in a file, upright, as 8-bit grey or RGB; refuses what is not one still picture."""
    path = Path(path)
    try:
        found = _kind_of_file(path)
        data = b"" if found else path.read_bytes()
    except FileNotFoundError:
        found, data = "does not exist", b""
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise RequestError(f"{path} cannot be read: {reason}", "give the path of one image") from error
    if found:
        raise RequestError(f"{path} {found}, but an image file was expected", "give the path of one image")
    return decode_image(data, str(path))


def _kind_of_file(path: Path) -> str:
    """What a path leads to, if it is no plain file: reading a pipe or a device could wait for ever."""
    mode = path.stat().st_mode
    kinds = {
        "is a folder": stat.S_ISDIR,
        "is a named pipe (FIFO)": stat.S_ISFIFO,
        "is a socket": stat.S_ISSOCK,
        "is a device": lambda mode: stat.S_ISCHR(mode) or stat.S_ISBLK(mode),
    }
    return next((found for found, matches in kinds.items() if matches(mode)), "")


def decode_image(data: bytes, name: str) -> Image.Image:
    """The picture that encoded bytes hold; `name` is what error messages call it."""
    Image.init()
    # A Pillow that was built without a library lacks that kind.
    known = [kind for kind in FORMATS if kind in Image.OPEN]
    return _readable(lambda: Image.open(io.BytesIO(data), formats=known), name)


def _readable(opened: Callable[[], Image.Image], name: str) -> Image.Image:
    """The picture as `plain_image` gives it; whatever Pillow says against reading it becomes one error."""
    try:
        with warnings.catch_warnings():
            # Damaged notes (EXIF) do not change the picture; Pillow warns about them.
            warnings.simplefilter("ignore", UserWarning)
            # A picture of 90 million pixels is no model input; Pillow only warns about it.
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            image = opened()
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


def _from_array(values: np.ndarray, name: str) -> Image.Image:
    shape = values.shape
    if values.dtype != np.uint8 or not (len(shape) == 2 or (len(shape) == 3 and shape[2] in (1, 3, 4))):
        raise RequestError(
            f"{name} is an array of {values.dtype} with shape {shape}",
            "give 8-bit values of shape (height, width) or (height, width, channels), "
            "with 1 (grey), 3 (RGB) or 4 (RGBA) channels",
        )
    if values.size == 0:
        raise RequestError(f"{name} is an array of shape {shape}, so it shows nothing", "give another image")
    return Image.fromarray(values[:, :, 0] if shape[2:] == (1,) else values)


def plain_image(image: Image.Image, name: str = "the image") -> Image.Image:
    """The same picture upright, as 8-bit grey ("L") or "RGB"; what is transparent becomes white."""
    if 0 in image.size:
        raise RequestError(f"{name} has size {image.size}, so it shows nothing", "give another image")
    if max(image.size) > MOST_ELONGATED * min(image.size):
        width, height = image.size
        raise RequestError(f"{name} is a strip of {width} x {height} pixels", "cut out the part that matters")
    if image.width * image.height > (Image.MAX_IMAGE_PIXELS or np.inf):
        raise RequestError(
            f"{name} is too large: {image.width} x {image.height} pixels", "make the image smaller first"
        )
    # Most pictures carry no orientation, and reading the tag is cheaper than transposing by nothing. The
    # transposed picture carries none, so that a second pass changes nothing.
    if image.getexif().get(ExifTags.Base.Orientation, 1) != 1:
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


def resize_image(picture: Picture, preprocessing: Preprocessing) -> np.ndarray:
    """Pixels as the model's size and channels ask: uint8 (S, S, C), resized and cropped from the middle."""
    size = preprocessing.size
    image = plain_picture(picture)
    if image.mode != MODES[preprocessing.channels]:
        image = image.convert(MODES[preprocessing.channels])
    # Rounded like timm's evaluation transform (shorter side down) and torchvision's (longer side down).
    shorter = int(np.floor(size / preprocessing.crop))
    width, height = image.size
    if min(width, height) != shorter:
        longer = int(shorter * max(width, height) / min(width, height))
        width, height = (shorter, longer) if width <= height else (longer, shorter)
        image = image.resize((width, height), Image.Resampling[preprocessing.interpolation.upper()])
    left, top = round((width - size) / 2.0), round((height - size) / 2.0)
    pixels = np.asarray(image)[top : top + size, left : left + size]
    return pixels.reshape(size, size, preprocessing.channels)


def normalise(pixels: np.ndarray, preprocessing: Preprocessing) -> np.ndarray:
    """Model input float32 (..., C, S, S) from pixels uint8 (..., S, S, C)."""
    mean = np.asarray(preprocessing.mean, dtype=np.float32)
    std = np.asarray(preprocessing.std, dtype=np.float32)
    values = (pixels.astype(np.float32) / np.float32(255) - mean) / std
    return np.ascontiguousarray(np.moveaxis(values, -1, -3))


def preprocess(picture: Picture, preprocessing: Preprocessing) -> np.ndarray:
    """Model input float32 (C, S, S) from one picture, equal to timm's evaluation transform."""
    check_preprocessing(preprocessing)
    return normalise(resize_image(picture, preprocessing), preprocessing)


def check_preprocessing(preprocessing: Preprocessing) -> None:
    """Refuses numbers that describe no way to make an input, all problems at once."""
    if problems := preprocessing.problems():
        raise RequestError("; ".join(problems), "correct the preprocessing of the model")
