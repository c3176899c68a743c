"""Keeps the engine's own chatter out of a user's terminal, and its profile readable in one place."""

from __future__ import annotations

import atexit
import shutil
import tempfile
import threading
from pathlib import Path

from spu import libspu

_lock = threading.Lock()
_path: Path | None = None


def quiet_engine(path: Path | None = None) -> Path:
    """The file that the engine logs to in this process; the first call decides which, later ones only ask.

    Without `path` the file is temporary and goes when the process ends. The engine's trace of the
    link, which would hold what crosses the wire, is never given a file.
    """
    global _path
    with _lock:
        if _path is None:
            if path is None:
                folder = Path(tempfile.mkdtemp(prefix="privit-engine-"))
                atexit.register(shutil.rmtree, folder, ignore_errors=True)
                path = folder / "engine.log"
            path.touch(mode=0o600, exist_ok=True)
            options = libspu.logging.LogOptions()
            options.enable_console_logger = False
            options.system_log_path = str(path)
            libspu.logging.setup_logging(options)
            _path = path
        return _path
