"""The frames of the one connection between two parties: small typed messages and the engine's bytes.

A frame is kind (1 byte), channel (4 bytes), length (4 bytes), payload. Control frames carry one JSON
object of a known type with known fields; nothing that arrives can name a class or a function.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import AsyncIterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from privit.errors import ConnectionFailed, PrivitError

HEADER = struct.Struct(">BII")
CONTROL_LIMIT = 64 << 10
DATA_LIMIT = 256 << 10
BLOB_LIMIT = 256 << 20
"""Largest array that passes between a process and its own worker; it never meets the network."""


class Kind(IntEnum):
    """What a frame carries."""

    CONTROL = 0
    OPEN = 1
    DATA = 2
    CLOSE = 3
    BLOB = 4


LIMITS = {
    Kind.CONTROL: CONTROL_LIMIT,
    Kind.OPEN: 0,
    Kind.DATA: DATA_LIMIT,
    Kind.CLOSE: 0,
    Kind.BLOB: BLOB_LIMIT,
}
_TLS_RECORDS = frozenset({0x15, 0x16})
WIRE_KINDS = frozenset({Kind.CONTROL, Kind.OPEN, Kind.DATA, Kind.CLOSE})

# The messages that may cross the wire: type -> field -> Python type. Everything else is refused.
MESSAGES: dict[str, dict[str, type]] = {
    "hello": {"version": int, "purpose": str, "description": dict, "token": str, "rank": int},
    "wait": {"position": int},
    "welcome": {"session": str, "description": dict, "token": str},
    "health": {
        "protocol": str,
        "private": bool,
        "plan": str,
        "sessions": int,
        "session_limit": int,
        "queued": int,
    },
    "ready": {},
    "query": {"number": int},
    "go": {"number": int, "left": int},
    "bye": {},
    "error": {"code": str, "message": str, "hint": str, "name": str, "value": str},
}


STARTING = 0
"""The position of a wait that is not in line for a place: the server still compiles its program."""


class FrameError(ConnectionFailed):
    """Bytes that are not a frame of privit, or a message that it does not know."""


class RemoteError(ConnectionFailed):
    """What the other side reported; `code` is one of CODES, `name` and `value` say what differs.

    Its words are for the user of a client, who chose the server. A log takes `log_reason`.
    """

    def __init__(self, message: dict[str, Any]):
        super().__init__(_printable(message["message"]), _printable(message["hint"]))
        self.code = message["code"] if message["code"] in CODES else "unknown"
        self.name, self.value = _printable(message["name"]), _printable(message["value"])


def log_reason(error: PrivitError) -> str:
    """What a log may say of an error: our own words, or the code of what the other side reported."""
    return f"the other side reported {error.code}" if isinstance(error, RemoteError) else error.message


CODES = frozenset({"mismatch", "busy", "limit", "refused", "shutdown", "engine", "timeout", "protocol"})
TEXT_LIMIT = 500


def _printable(text: str) -> str:
    # What the other side says must not be able to write on a terminal or forge a log line.
    return "".join(c for c in text[:TEXT_LIMIT] if c.isprintable())


@dataclass(frozen=True)
class Frame:
    """One frame; `payload` is hidden from logs."""

    kind: Kind
    channel: int
    payload: bytes

    def __repr__(self) -> str:
        return f"Frame({self.kind.name}, channel {self.channel}, {len(self.payload)} bytes)"


def pack(kind: Kind, channel: int = 0, payload: bytes = b"") -> bytes:
    """The bytes of one frame."""
    return HEADER.pack(kind, channel, len(payload)) + payload


def _not_a_frame(start: bytes) -> FrameError:
    """Names what most often comes instead of a frame: TLS, where only one side has certificates."""
    if start[1:2] == b"\x03" and start[0] in _TLS_RECORDS:
        return FrameError(
            "the other side speaks TLS, this side does not", "give both sides --certs, or neither"
        )
    return FrameError(
        "the other side sent bytes that are not privit's", "is this the port of a privit server?"
    )


def check_header(header: bytes, allowed: frozenset[Kind] = WIRE_KINDS) -> tuple[Kind, int, int]:
    """Kind, channel and length from nine bytes; refuses what cannot be a frame before reading on."""
    number, channel, length = HEADER.unpack(header)
    if number not in allowed or length > LIMITS[Kind(number)]:
        raise _not_a_frame(header)
    return Kind(number), channel, length


async def read_frame(reader: asyncio.StreamReader, allowed: frozenset[Kind] = WIRE_KINDS) -> Frame | None:
    """The next frame, or None where the stream ends between frames."""
    try:
        header = await reader.readexactly(HEADER.size)
    except asyncio.IncompleteReadError as error:
        if error.partial:
            _check_end(error.partial, allowed)
        return None
    kind, channel, length = check_header(header, allowed)
    try:
        payload = await reader.readexactly(length)
    except asyncio.IncompleteReadError:
        raise FrameError("the connection ended in the middle of a frame") from None
    return Frame(kind, channel, payload)


async def read_frames(
    reader: asyncio.StreamReader, allowed: frozenset[Kind] = WIRE_KINDS
) -> AsyncIterator[Frame]:
    """Every frame until the stream ends between two, as many at a time as have arrived."""
    buffer = bytearray()
    while data := await reader.read(DATA_LIMIT):
        buffer += data
        while len(buffer) >= HEADER.size:
            kind, channel, length = check_header(bytes(buffer[: HEADER.size]), allowed)
            end = HEADER.size + length
            if len(buffer) < end:
                break
            payload = bytes(buffer[HEADER.size : end])
            del buffer[:end]
            yield Frame(kind, channel, payload)
    if buffer:
        _check_end(bytes(buffer), allowed)


def _check_end(partial: bytes, allowed: frozenset[Kind]) -> None:
    if partial[0] not in allowed:
        raise _not_a_frame(partial) from None
    raise FrameError("the connection ended in the middle of a frame") from None


def read_frame_blocking(sock: socket.socket) -> Frame | None:
    """The next frame from a socket between a process and its own worker, or None at its end."""
    header = _read_exactly(sock, HEADER.size)
    if header is None:
        return None
    kind, channel, length = check_header(header, frozenset({Kind.CONTROL, Kind.BLOB}))
    payload = _read_exactly(sock, length)
    return None if payload is None else Frame(kind, channel, payload)


def _read_exactly(sock: socket.socket, count: int) -> bytes | None:
    parts = bytearray()
    while len(parts) < count:
        part = sock.recv(min(count - len(parts), 1 << 20))
        if not part:
            return None
        parts += part
    return bytes(parts)


def encode_message(kind: str, **fields: Any) -> bytes:
    """The payload of a control frame; `fields` must be those that MESSAGES lists."""
    message = {"type": kind} | fields
    _check_message(message)
    payload = json.dumps(message, separators=(",", ":")).encode()
    if len(payload) > CONTROL_LIMIT:
        raise FrameError(f"a {kind} message has {len(payload)} bytes, more than {CONTROL_LIMIT}")
    return payload


def decode_message(payload: bytes) -> dict[str, Any]:
    """The message in a control frame, with exactly the fields that MESSAGES lists for its type."""
    try:
        message = json.loads(payload)
    except (ValueError, RecursionError):
        raise FrameError("the other side sent a control message that is not JSON") from None
    _check_message(message)
    return dict(message)


def _check_message(message: Any) -> None:
    kind = message.get("type") if isinstance(message, dict) else None
    schema = MESSAGES.get(kind) if isinstance(kind, str) else None
    if schema is None or message.keys() != schema.keys() | {"type"}:
        raise FrameError("the other side sent a control message that this version does not know")
    for name, expected in schema.items():
        value = message[name]
        if type(value) is not expected:
            raise FrameError(f"the field {name} of a {kind} message is not of type {expected.__name__}")
        if isinstance(value, dict) and not all(isinstance(v, str) for v in value.values()):
            raise FrameError(f"the field {name} of a {kind} message holds something other than text")
