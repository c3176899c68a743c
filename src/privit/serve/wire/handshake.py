"""What two parties must agree on before a session, and who refuses what by which name."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

from privit.artifact import FORMAT_VERSION, Artifact
from privit.errors import HandshakeError

WIRE_VERSION = 2

# Compared in this order, so that the first difference named is the one that explains the others.
NAMES = (
    "format",
    "protocol",
    "spec",
    "plan",
    "preprocessing",
    "class names",
    "ranges",
    "guard",
    "jax version",
    "spu version",
    "runtime configuration",
    "compiler options",
    "batch",
    "program",
)
BATCH = "batch"
"""How many images a query holds; a description without it means one, as before there were batches."""
_HINTS = {
    "format": "upgrade the older privit of the two",
    "protocol": "start both sides with the same --protocol",
    "jax version": "install the same version on both sides: pip install 'privit[serve]'",
    "spu version": "install the same version on both sides: pip install 'privit[serve]'",
    "runtime configuration": "install the same version of privit on both sides",
    "compiler options": "install the same version of privit on both sides",
    "program": "install the same version of privit on both sides",
}
BATCH_DIGITS = 4
_ASK = "ask the server's owner for the matching client folder"


def describe(
    artifact: Artifact,
    protocol: str,
    program_hash: str,
    runtime_config: bytes,
    compiler_options: str,
    images: int = 1,
) -> dict[str, str]:
    """Every name of NAMES with a version, a name or a sha256; made from public things only."""
    public = artifact.public
    values = {
        "format": str(FORMAT_VERSION),
        "protocol": protocol,
        "spec": _hash(public.spec.to_json()),
        "plan": artifact.plan.hash(),
        "preprocessing": _hash(asdict(public.preprocessing)),
        "class names": _hash(list(public.class_names)),
        "ranges": _hash(public.ranges),
        "guard": "on" if public.guard else "off",
        "jax version": version("jax"),
        "spu version": version("spu"),
        "runtime configuration": hashlib.sha256(runtime_config).hexdigest(),
        "compiler options": hashlib.sha256(compiler_options.encode()).hexdigest(),
        BATCH: str(images),
        "program": program_hash,
    }
    assert tuple(values) == NAMES
    return {name: value for name, value in values.items() if (name, value) != (BATCH, "1")}


def batch_of(description: Mapping[str, str]) -> int:
    """How many images the queries of a session hold that is described so."""
    text = description.get(BATCH, "1")
    if not (text.isascii() and text.isdigit() and len(text) <= BATCH_DIGITS and int(text)):
        raise HandshakeError("the batch that was asked for is not a number of images", "upgrade the client")
    return int(text)


def of_batch(description: Mapping[str, str], asked: Mapping[str, str]) -> dict[str, str]:
    """A description of one image's program as that of the batch that is asked for.

    Its program is not compiled yet, so the one that is asked for stands for it; it is compared when it is.
    """
    if batch_of(asked) == 1:
        return dict(description)
    return dict(description) | {name: asked[name] for name in (BATCH, "program") if name in asked}


def check_batch(asked: Mapping[str, str], most: int, who: str) -> int:
    """How many images a session's queries are to hold, if `who` takes so many."""
    images = batch_of(asked)
    if images > most:
        raise HandshakeError(
            f"a batch of {images} images was asked for, but {who} takes {most} in one query at most",
            f"ask with --batch {most}, or ask its owner to start it with a larger --batch",
        )
    return images


def first_difference(ours: Mapping[str, str], theirs: Mapping[str, str]) -> str | None:
    """The first name on which two descriptions differ, or None."""
    return next((name for name in NAMES if ours.get(name) != theirs.get(name)), None)


def mismatch(name: str, server_value: str, client_value: str, folder: str) -> HandshakeError:
    """The error that both sides show, in the words of the client's user."""
    return HandshakeError(
        f"the server runs {name} {short(server_value)}, but {folder} describes {name} {short(client_value)}",
        _HINTS.get(name, _ASK),
    )


def check(server: Mapping[str, str], client: Mapping[str, str], folder: str) -> None:
    """Refuses by name a client and a server that do not describe the same computation."""
    name = first_difference(server, client)
    if name is not None:
        raise mismatch(name, server.get(name, "?"), client.get(name, "?"), folder)


def short(value: str) -> str:
    """A hash cut to what a person compares; anything else as it is, at most 40 characters."""
    is_hash = len(value) == 64 and all(c in "0123456789abcdef" for c in value)
    return f"{value[:8]}..." if is_hash else "".join(c for c in value[:40] if c.isprintable()) or "?"


def _hash(data: Any) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()
