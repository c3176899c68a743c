"""Pictures to try the page with: a folder's, or those that come with privit for its bundled data."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from privit.artifact import Public
from privit.data.images import open_image
from privit.data.sources import IMAGE_SUFFIXES
from privit.errors import RequestError

MOST = 12
"""More than fit in two rows are not shown."""
BUNDLED = ("digits",)
TYPES = {".jpg": "image/jpeg", ".tif": "image/tiff", ".ppm": "image/x-portable-pixmap"}


def examples(public: Public, folder: Path | None = None) -> dict[str, bytes]:
    """Names and contents of the first pictures in a folder, or of the model's bundled ones, if it has any."""
    if folder is not None:
        return _of(folder)
    data = public.notes.get("data")
    if data not in BUNDLED:
        return {}
    bundled = resources.files("privit.page") / data
    files = sorted((file for file in bundled.iterdir() if file.name.endswith(".png")), key=lambda f: f.name)
    return {f"{data} {file.name}": file.read_bytes() for file in files}


def media_type(name: str) -> str:
    """What a browser is told that an example is."""
    suffix = Path(name).suffix.lower()
    return TYPES.get(suffix, f"image/{suffix.lstrip('.')}")


def _of(folder: Path) -> dict[str, bytes]:
    if not folder.is_dir():
        raise RequestError(f"{folder} is not a folder", "give a folder of images with --examples")
    paths = sorted(path for path in folder.iterdir() if path.suffix.lower() in IMAGE_SUFFIXES)[:MOST]
    if not paths:
        raise RequestError(f"{folder} holds no image", "give a folder of images with --examples")
    for path in paths:
        open_image(path)  # a picture that cannot be asked about is no example
    return {path.name: path.read_bytes() for path in paths}
