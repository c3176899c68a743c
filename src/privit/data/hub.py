"""Asking the Hugging Face hub without making a user wait for a network that is not there."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

TIMEOUT_SECONDS = 5.0


@contextlib.contextmanager
def hub_access() -> Iterator[bool]:
    """Inside, the hub's libraries use the network if there is one (yields True) and else only their cache.

    Without this they try an unreachable hub five times for each file, which takes a minute.
    """
    try:
        from huggingface_hub import constants
    except ImportError:
        yield False
        return
    places: list[tuple[Any, str]] = [(constants, "HF_HUB_OFFLINE")]
    with contextlib.suppress(ImportError):
        from datasets import config

        places.append((config, "HF_HUB_OFFLINE"))
    before = [getattr(place, name) for place, name in places]
    reachable = not any(before) and _reachable(constants.ENDPOINT)
    try:
        for place, name in places:
            setattr(place, name, not reachable)
        yield reachable
    finally:
        for (place, name), value in zip(places, before, strict=True):
            setattr(place, name, value)


def _reachable(address: str) -> bool:
    from huggingface_hub import get_session

    try:
        get_session().head(address, timeout=TIMEOUT_SECONDS)
    except Exception:  # the session's library, and with it the error, has changed between versions
        return False
    return True
