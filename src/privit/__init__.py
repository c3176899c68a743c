"""Vision transformers that fit a private-inference budget, and the server and client that run them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from privit.artifact import Artifact, load_artifact
from privit.errors import PrivitError
from privit.machine.threads import wait_quietly
from privit.plan import Plan
from privit.spec import Spec

if TYPE_CHECKING:
    from privit.exporting import export
    from privit.serve.parties.client import connect
    from privit.train.finetune import finetune
    from privit.train.search import search
    from privit.train.teacher import train_teacher

__version__ = "0.2.0"
__all__ = [
    "Artifact",
    "Plan",
    "PrivitError",
    "Spec",
    "connect",
    "export",
    "finetune",
    "load_artifact",
    "search",
    "train_teacher",
]

# Before torch or the engine is loaded, which is when they read it.
wait_quietly()

# These need torch or the engine, so they are imported when first asked for: a client never installs torch.
_LAZY = {
    "connect": "privit.serve.parties.client",
    "train_teacher": "privit.train.teacher",
    "search": "privit.train.search",
    "finetune": "privit.train.finetune",
    "export": "privit.exporting",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'privit' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_LAZY[name]), name)
