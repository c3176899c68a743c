"""The private folder in which an engine's sockets live, gone with its owner even if that is killed.

The owner holds a lock on the folder for as long as it lives. The kernel drops the lock of a process that
is killed, so that the next engine of the same user can tell what was left behind from what is in use.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import tempfile
from pathlib import Path

from privit.errors import RequestError

PREFIX, SUFFIX = "privit-sockets-", ".sock"
LONGEST = 103 - len(f"/{PREFIX}12345678/99{SUFFIX}")
"""So long may the temporary directory's path be: an address of a socket has 104 bytes on some systems."""


class SocketFolder:
    """A new folder with mode 0700 in the temporary directory; `remove` ends it."""

    def __init__(self) -> None:
        place = tempfile.gettempdir()
        if len(os.fsencode(place)) > LONGEST:
            raise RequestError(
                f"the temporary directory {place} has a path of {len(os.fsencode(place))} bytes; the sockets "
                f"of an engine have room for {LONGEST}",
                "set TMPDIR to a shorter path, as in TMPDIR=/tmp",
            )
        remove_abandoned()
        # Under its final name only once it is locked: nobody can take it for abandoned in between.
        made = Path(tempfile.mkdtemp(prefix=f".{PREFIX}"))
        self._lock = _lock(made)
        self.path = made.rename(made.with_name(made.name.removeprefix(".")))

    def remove(self) -> None:
        """Removes the folder and its sockets; safe to call twice."""
        _clear(self.path)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def remove_abandoned() -> None:
    """Removes folders of this user whose owner is dead, and nothing but sockets with them."""
    for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            found = path.lstat()
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
                continue
            lock = _lock(path)
            if lock is not None:
                _clear(path)
                os.close(lock)


def _lock(path: Path) -> int | None:
    """A descriptor that holds the folder's lock, or None where someone else does."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def _clear(path: Path) -> None:
    for item in path.glob(f"*{SUFFIX}"):
        with contextlib.suppress(OSError):
            item.unlink()
    with contextlib.suppress(OSError):
        path.rmdir()
