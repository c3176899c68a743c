"""Where things are: HOST:PORT texts, the folder for state, log files."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import sys
import traceback
from collections.abc import Iterator
from logging.handlers import RotatingFileHandler
from pathlib import Path

from privit.errors import ArtifactError, RequestError, WorkError

LOG_BYTES, LOG_FILES = 4 << 20, 3
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG})


def parse_address(text: str) -> tuple[str, int]:
    """Host and port of HOST:PORT or [IPV6]:PORT."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not (port.isascii() and port.isdigit()) or not 0 < int(port) < 65536:
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


@contextlib.contextmanager
def keeping(folder: Path) -> Iterator[None]:
    """Turns a failure to write below a state folder into an error that names the folder."""
    try:
        yield
    except OSError as error:
        kind = WorkError if error.errno in _FULL else RequestError
        raise kind(
            f"cannot write to {folder}: {error.strerror or error}",
            "make room or permission there, or choose another place with XDG_STATE_HOME",
        ) from error


class LogFile(RotatingFileHandler):
    """A rotating file that only this user can read; a full disk is told once, and ends nothing."""

    def __init__(self, path: Path):
        with keeping(path.parent):
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
            super().__init__(path, maxBytes=LOG_BYTES, backupCount=LOG_FILES)
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        self._told = False

    def handleError(self, record: logging.LogRecord) -> None:
        """Called by logging when a line could not be written."""
        if not self._told:
            self._told = True
            reason = getattr(sys.exception(), "strerror", None) or "the line could not be written"
            sys.stderr.write(f"{self.baseFilename}: {reason}\n")

    def close(self) -> None:
        """Closes the file; lines that a full disk did not take are lost."""
        with contextlib.suppress(OSError):
            super().close()


def log_to(path: Path) -> logging.Handler:
    """Sends privit's log lines to a file, too."""
    handler = LogFile(path)
    logger = logging.getLogger("privit")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    return handler


def raised_at(error: BaseException | None) -> str:
    """The type and the places of an error, for a log; its message may quote what the other side sent."""
    frames = reversed(traceback.extract_tb(error.__traceback__ if error else None))
    return f"{type(error).__name__} at {' < '.join(f'{frame.name}:{frame.lineno}' for frame in frames)}"


def rotated(path: Path) -> Path:
    """The same path, free for new lines: a long file there is moved aside first."""
    with keeping(path.parent):
        if path.is_file() and path.stat().st_size > LOG_BYTES:
            path.replace(path.with_suffix(".old.log"))
    return path
