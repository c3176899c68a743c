"""One command in a folder at a time, and a sentence that says who is there."""

from __future__ import annotations

import fcntl
import json
import os
import platform
import shlex
import sys
from pathlib import Path
from weakref import WeakValueDictionary

from privit.errors import RequestError

LOCK_FILE = ".lock"


class FolderLock:
    """A folder that this process has to itself, until `release`, the last reference or the process is gone.

    The system lets go of the lock when the process ends, however it ends, and a forked worker does not hold
    on to it: so the file that stays behind means nothing, and is never deleted.
    """

    _file = -1

    def __init__(self, folder: Path):
        self._file = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError) as error:
            holder = _holder(os.pread(self._file, 1 << 16, 0))
            self.release()
            raise RequestError(
                f"{folder} is in use by {holder}", "wait until that is done, or give another folder"
            ) from error
        except OSError:
            self.release()
            raise
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, json.dumps(_this_command()).encode(), 0)

    def release(self) -> None:
        """Gives the folder free; safe to call twice."""
        if self.held:
            os.close(self._file)
            self._file = -1

    @property
    def held(self) -> bool:
        """Whether it has not been released yet."""
        return self._file >= 0

    def __enter__(self) -> FolderLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def __del__(self) -> None:
        self.release()


_held: WeakValueDictionary[Path, FolderLock] = WeakValueDictionary()


def lock_folder(folder: Path, again: bool = False) -> FolderLock:
    """The lock on a folder; refuses if another process has it, or this one, unless it may have it `again`."""
    # The system's lock belongs to the process: closing a second handle would give the first one's free.
    key = Path(folder).resolve()
    lock = _held.get(key)
    if lock is None or not lock.held:
        lock = _held[key] = FolderLock(Path(folder))
    elif not again:
        raise RequestError(f"{folder} is in use by this command itself", "give another folder")
    return lock


def _this_command() -> dict[str, str | int]:
    program = Path(sys.argv[0])
    name = program.parent.name if program.name == "__main__.py" else program.name
    return {"pid": os.getpid(), "host": platform.node(), "command": shlex.join([name, *sys.argv[1:]])}


def _holder(written: bytes) -> str:
    try:
        said = json.loads(written)
        return f"another command, {said['command']!r} (process {said['pid']} on {said['host']})"
    except (ValueError, TypeError, KeyError):
        return "another command"
