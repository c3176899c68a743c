"""Where things are: HOST:PORT texts, the folder for state, log files."""

from __future__ import annotations

import logging
import os
from logging.handlers import RotatingFileHandler
from pathlib import Path

from privit.errors import ArtifactError, RequestError

LOG_BYTES, LOG_FILES = 4 << 20, 3


def parse_address(text: str) -> tuple[str, int]:
    """Host and port of HOST:PORT or [IPV6]:PORT."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise RequestError(f"{text!r} is not an address", "give HOST:PORT, such as 127.0.0.1:9000")
    return host.strip("[]"), int(port)


def state_folder() -> Path:
    """Where logs and ledgers are kept unless a folder is given: the user's state directory."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "privit"


def part_of(folder: Path, side: str) -> Path:
    """The server/ or client/ part of an artifact, given that part or the whole."""
    folder = Path(folder)
    part = folder if (folder / "public.json").is_file() else folder / side
    if not (part / "manifest.json").is_file():
        raise ArtifactError(
            f"{folder} is not a privit artifact: it has no manifest.json", "make one: privit export"
        )
    return part


def log_to(path: Path) -> logging.Handler:
    """Sends privit's log lines to a rotating file that only this user can read, too."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
    handler = RotatingFileHandler(path, maxBytes=LOG_BYTES, backupCount=LOG_FILES)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logger = logging.getLogger("privit")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    return handler


def rotated(path: Path) -> Path:
    """The same path, free for new lines: a long file there is moved aside first."""
    if path.is_file() and path.stat().st_size > LOG_BYTES:
        path.replace(path.with_suffix(".old.log"))
    return path
