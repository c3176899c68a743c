"""Runs the page on this machine, for this machine alone."""

from __future__ import annotations

import contextlib
import secrets
import socket
from collections.abc import Callable
from pathlib import Path

import uvicorn

from privit.page.app import make_app
from privit.page.asker import Asker
from privit.page.examples import examples as find_examples

HOST = "127.0.0.1"
"""There is no setting for another: whoever reaches the page can ask in the user's name."""
GRACE_SECONDS = 2


def run_page(
    model: Path,
    server: str,
    protocol: str = "cheetah",
    certs: Path | None = None,
    helper: str | None = None,
    port: int = 0,
    examples: Path | None = None,
    on_ready: Callable[[str], None] | None = None,
) -> None:
    """Shows the page until it is interrupted.

    Args:
        port: 0 lets the system choose; `on_ready` is called with the whole address, token included.
        examples: a folder of pictures to offer; the bundled ones of the model's data unless given.
    """
    asker = Asker(model, server, protocol, certs, helper)
    pictures = find_examples(asker.artifact.public, examples)
    token = secrets.token_urlsafe(24)
    with socket.create_server((HOST, port)) as listener:
        chosen = listener.getsockname()[1]
        config = uvicorn.Config(
            make_app(asker, token, chosen, pictures),
            loop="asyncio",
            http="h11",
            ws="none",
            lifespan="on",
            # Lines of access would hold the token.
            access_log=False,
            log_config=None,
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=GRACE_SECONDS,
        )
        if on_ready is not None:
            on_ready(f"http://{HOST}:{chosen}/?token={token}")
        with contextlib.suppress(KeyboardInterrupt):  # how a page is meant to end
            uvicorn.Server(config).run(sockets=[listener])
