"""Verbs of those who serve: serve, helper, certs, health."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tyro.conf import Positional

from privit.cli.output import note, show_fields, show_json


def serve(
    folder: Positional[Path],
    port: int = 9000,
    host: str = "127.0.0.1",
    protocol: str = "cheetah",
    certs: Path | None = None,
    sessions: int = 4,
    queue: int = 16,
    places_each: int = 2,
    queries: int | None = None,
    batch: int = 8,
    helper: str | None = None,
) -> None:
    """Hold the weights and answer private queries.

    Args:
        folder: The artifact's server folder.
        port: The one port that clients connect to.
        host: Where to listen; any address but loopback needs --certs.
        protocol: cheetah (two parties) or aby3 (with a neutral helper).
        certs: Folder made by `privit certs`, for mutual TLS.
        sessions: How many clients are served at the same time.
        queue: How many more may wait.
        places_each: How many sessions and places in line one certificate may hold.
        queries: How many images each client may ask about, kept over restarts.
        batch: How many images one query may hold.
        helper: HOST:PORT of the neutral third party, for aby3.
    """
    from privit.serve.parties.limits import Limits
    from privit.serve.parties.server import serve as run_server

    limits = Limits(sessions=sessions, queue=queue, places_each=places_each, queries=queries, batch=batch)
    run_server(
        folder,
        port,
        host=host,
        protocol=protocol,
        certs=certs,
        limits=limits,
        helper=helper,
        on_ready=lambda chosen: note(f"ready on {host}:{chosen}, protocol {protocol}"),
    )


def helper(
    folder: Positional[Path],
    port: int = 9100,
    host: str = "127.0.0.1",
    certs: Path | None = None,
    sessions: int = 4,
    batch: int = 8,
) -> None:
    """Be aby3's neutral third party: holds neither weights nor images.

    Args:
        folder: The artifact's client folder.
        port: The port that server and clients connect to.
        host: Where to listen; any address but loopback needs --certs.
        certs: Folder made by `privit certs`, for mutual TLS.
        sessions: How many sessions at the same time.
        batch: How many images one query may hold.
    """
    from privit.serve.parties.helper import run_helper
    from privit.serve.parties.limits import Limits

    run_helper(
        folder,
        port,
        host=host,
        certs=certs,
        limits=Limits(sessions=sessions, batch=batch),
        on_ready=lambda chosen: note(f"ready on {host}:{chosen}"),
    )


def certs(
    out: Positional[Path],
    server: tuple[str, ...] = ("localhost",),
    client: tuple[str, ...] = ("client",),
    helper: tuple[str, ...] = (),
) -> None:
    """Make a small certificate authority and certificates for mutual TLS.

    Args:
        out: Folder for ca/, server/ and one folder per client.
        server: Host names and addresses of the server.
        client: Names of clients; later calls in the same folder add more.
        helper: Host names and addresses of aby3's neutral third party.
    """
    from privit.serve.wire.certs import make_certs

    folders = make_certs(out, server, client, helper)
    show_fields("certificates", {str(name): str(folder) for name, folder in folders.items()})
    note("give each party its own folder; the folder ca stays with you")


def health(server: Positional[str], certs: Path | None = None, json: bool = False) -> None:
    """Ask a server how it is.

    Args:
        server: HOST:PORT of the server.
        certs: Folder made by `privit certs`, for mutual TLS.
        json: Print one JSON object.
    """
    from privit.serve.parties.client import health as ask

    answer = ask(server, certs=certs)
    if json:
        show_json(answer)
    else:
        show_fields(server, answer)


VERBS: dict[str, Callable[..., None]] = {
    "serve": serve,
    "helper": helper,
    "certs": certs,
    "health": health,
}
