"""`privit VERB ...`: reads the arguments, calls one function, shows what it returns.

Data go to stdout, progress and logs to stderr. Exit 0 done, 1 the work failed, 2 the request was wrong.
"""

from __future__ import annotations

import errno
import io
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path

import tyro

from privit.cli import build, building, costing, measuring, reporting, serving, sweeping
from privit.cli.asking import querying
from privit.cli.output import error_line
from privit.cli.repeated import joined_flags
from privit.errors import MissingExtra, PrivitError

_EXTRAS = {
    "torch": "train",
    "timm": "train",
    "transformers": "train",
    "accelerate": "train",
    "spu": "serve",
    "jax": "serve",
    "datasets": "data",
    "sklearn": "data",
    "matplotlib": "report",
    "starlette": "page",
    "uvicorn": "page",
}


VERBS: dict[str, Callable[..., None]] = {
    name: function
    for verbs in (build, building, serving, querying, measuring, costing, sweeping, reporting)
    for name, function in verbs.VERBS.items()
}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one verb and gives its exit code."""
    app = tyro.extras.SubcommandApp()
    for name, function in VERBS.items():
        app.command(name=name)(function)
    arguments = list(sys.argv[1:] if argv is None else argv)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A file's name need not be UTF-8; showing it must not fail after the work is done.
        sys.stdout.reconfigure(errors="backslashreplace")
    if arguments in (["--version"], ["version"]):
        from privit import __version__

        print(__version__)
        return 0
    try:
        arguments = joined_flags(arguments, VERBS) or ["--help"]
        app.cli(prog="privit", description=_DESCRIPTION, args=arguments, config=_STYLE)
        return 0
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 2
    except KeyboardInterrupt:
        error_line("stopped", "the same command goes on where it stopped")
        return 130
    except PrivitError as error:
        error_line(error.message, error.hint)
        return error.exit_code
    except ModuleNotFoundError as error:
        root = (error.name or "").split(".")[0]
        if root not in _EXTRAS:
            return _unexpected(error)
        missing = MissingExtra(root, _EXTRAS[root])
        error_line(missing.message, missing.hint)
        return missing.exit_code
    except BrokenPipeError:
        # The reader of our stdout went away (`privit ... | head`): nothing is left to say.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        return _disk(error)
    except Exception as error:
        return _unexpected(error)


def log_path() -> Path:
    """Where tracebacks go: $PRIVIT_LOG, or privit/privit.log in the user's state folder."""
    named = os.environ.get("PRIVIT_LOG")
    if named:
        return Path(named)
    # Only a traceback needs it, and only then is a part of serving loaded.
    from privit.serve.wire.addresses import state_folder

    return state_folder() / "privit.log"


def _disk(error: OSError) -> int:
    hints = {
        errno.ENOSPC: "free some space; what was finished is kept, and the same command goes on",
        errno.EACCES: "choose a folder you may write to",
        errno.EROFS: "choose a folder you may write to",
        errno.ENOENT: "check the path",
        errno.EADDRINUSE: "choose another port, or stop the program that uses this one",
    }
    if error.errno not in hints:
        return _unexpected(error)
    where = f": {error.filename}" if error.filename else ""
    error_line(f"{error.strerror or error}{where}", hints[error.errno])
    return 2 if error.errno in (errno.ENOENT, errno.EACCES, errno.EROFS) else 1


def _unexpected(error: BaseException) -> int:
    path = log_path()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            file.write(f"--- {datetime.now().isoformat(timespec='seconds')}\n")
            file.write("".join(traceback.format_exception(error)))
        hint = f"the traceback is in {path}; please report it"
    except OSError:
        hint = "set PRIVIT_LOG to a file you may write to for the traceback"
    error_line(f"something unexpected went wrong ({type(error).__name__})", hint)
    return 1


_DESCRIPTION = (
    "Give it a pretrained vision transformer, a data set and what a private prediction may cost; "
    "get back a model that fits the budget, and a server and a client that run it privately."
)
_STYLE = (tyro.conf.OmitArgPrefixes, tyro.conf.FlagCreatePairsOff)
