"""What the server allows: sessions, waiting, time and queries; and the ledger of queries on disk."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from privit.errors import WorkError, config_error
from privit.program.choices import MOST_IMAGES
from privit.serve.wire.addresses import keeping
from privit.serve.wire.tls import is_loopback


def engines_here(host: str, parties: int, sessions: int = 1) -> int:
    """How many engines may compute at once on the machine of a party whose peers are found at `host`."""
    return sessions * (parties if is_loopback(host) else 1)


@dataclass(frozen=True)
class Limits:
    """Limits of a server; times are in seconds, without `queries` there is no limit.

    Attributes:
        sessions: how many clients are served at once, one worker process each.
        queue: how many more may wait for a place.
        places_each: how many sessions and places in line one certificate may hold.
        address_share: the share of all places that one address may hold where there are no certificates.
        queries: how many images one certificate may ever ask about.
        batch: how many images one query may hold.
        hello_seconds: how long a new connection may say nothing.
        open_seconds: how long a client may take from its welcome to its engine's first connection.
        setup_seconds: how long compile, key exchange and OT may take.
        idle_seconds: how long an open session may ask nothing.
        query_seconds: how long one query may take.
        pair_seconds: how long a helper keeps the first party of a session waiting for the second.
        grace_seconds: how long a shutdown waits for running queries.
    """

    sessions: int = 4
    queue: int = 16
    places_each: int = 2
    address_share: float = 0.75
    queries: int | None = None
    batch: int = 8
    hello_seconds: float = 10.0
    open_seconds: float = 30.0
    setup_seconds: float = 300.0
    idle_seconds: float = 600.0
    query_seconds: float = 3600.0
    pair_seconds: float = 60.0
    grace_seconds: float = 30.0

    def __post_init__(self) -> None:
        problems = [
            f"{name} is {value}, below zero"
            for name, value in vars(self).items()
            if value is not None and value < 0
        ]
        if self.sessions < 1:
            problems.append("sessions is below 1: nobody could be served")
        if self.places_each < 1:
            problems.append("places_each is below 1: nobody could be served")
        if not 1 <= self.batch <= MOST_IMAGES:
            problems.append(f"batch is {self.batch}, not a number of images from 1 to {MOST_IMAGES}")
        if not 0 < self.address_share <= 1:
            problems.append(f"address_share is {self.address_share}, not a share above 0 and up to 1")
        if problems:
            raise config_error(problems)


class QueryLedger:
    """How many queries each certificate has asked, kept in one SQLite file across restarts.

    A query is counted before it runs: a client that breaks off has already seen messages of the protocol.
    One of several images counts as so many: nobody sees which of them are there to fill a batch up.
    """

    def __init__(self, path: Path):
        self._path = path
        with keeping(path.parent), self._writing():
            path.parent.mkdir(parents=True, exist_ok=True)
            self._database = sqlite3.connect(path, isolation_level=None, timeout=10)
            self._database.execute("PRAGMA synchronous=FULL")
            self._database.execute(
                "CREATE TABLE IF NOT EXISTS asked (client TEXT PRIMARY KEY, queries INTEGER NOT NULL)"
            )
            path.chmod(0o600)

    def asked(self, client: str) -> int:
        """Queries so far."""
        with self._writing():
            row = self._database.execute("SELECT queries FROM asked WHERE client = ?", (client,)).fetchone()
        return int(row[0]) if row else 0

    def take(self, client: str, limit: int | None, images: int = 1) -> int | None:
        """Counts a query and gives how many are left (-1 without a limit), or None if it was one too many."""
        if limit is not None and limit < images:
            return None
        # One statement, so that two sessions of one client cannot share the last query.
        with self._writing():
            row = self._database.execute(
                "INSERT INTO asked VALUES (?, ?) ON CONFLICT (client) DO UPDATE SET queries = queries + ? "
                "WHERE ? IS NULL OR queries + ? <= ? RETURNING queries",
                (client, images, images, limit, images, limit),
            ).fetchone()
        if row is None:
            return None
        return -1 if limit is None else limit - int(row[0])

    def close(self) -> None:
        """Closes the file."""
        self._database.close()

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """A query that cannot be counted is not answered."""
        try:
            yield
        except sqlite3.Error as error:
            raise WorkError(
                f"the ledger of queries {self._path} cannot be used: {error}",
                "make room or permission there, or choose another place with XDG_STATE_HOME",
            ) from error
