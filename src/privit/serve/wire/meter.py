"""Counts what the engine sends, from the bytes of its own connections.

The engine's link (yacl over brpc) speaks baidu_std: "PRPC", body length, meta length, meta, body. A body is a
PushRequest {1: sender, 2: key, 3: value}; pushes whose key begins with ACK only acknowledge. What is
left is exactly what the engine itself reports as send actions and send bytes (tests/serve/test_tunnel.py).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

MAGIC = b"PRPC"
PRELUDE = struct.Struct(">4sII")
KEY_LIMIT = 256
"""Bytes of a body that are enough to see sender, key and the length of the value."""
META_LIMIT = 64 << 10
"""The engine's metas have some dozens of bytes; one that claims more is not waited for."""


@dataclass(frozen=True)
class Counts:
    """What one party sent: bytes on the wire, and the engine's own bytes and send actions in them."""

    wire_bytes: int = 0
    engine_bytes: int = 0
    actions: int = 0

    def __sub__(self, other: Counts) -> Counts:
        return Counts(
            self.wire_bytes - other.wire_bytes,
            self.engine_bytes - other.engine_bytes,
            self.actions - other.actions,
        )

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.wire_bytes + other.wire_bytes,
            self.engine_bytes + other.engine_bytes,
            self.actions + other.actions,
        )


class PushMeter:
    """Reads one direction of one engine connection and keeps no more than the head of a push."""

    def __init__(self) -> None:
        self.actions = 0
        self.engine_bytes = 0
        self._buffer = bytearray()
        self._skip = 0
        self._last_key = b""
        self._lost = False

    def feed(self, data: bytes) -> None:
        """Counts the pushes whose head ends in `data`; stops counting where the stream is not baidu_std."""
        if self._lost:
            return
        if self._skip >= len(data):
            self._skip -= len(data)
            return
        self._buffer += data[self._skip :]
        self._skip = 0
        while self._take_push():
            pass

    def _take_push(self) -> bool:
        if len(self._buffer) < PRELUDE.size:
            return False
        magic, body, meta = PRELUDE.unpack_from(self._buffer)
        if magic != MAGIC or meta > min(body, META_LIMIT):
            self._lost = True
            self._buffer.clear()
            return False
        head = PRELUDE.size + min(body, meta + KEY_LIMIT)
        if len(self._buffer) < head:
            return False
        key, value_bytes = push_head(bytes(self._buffer[PRELUDE.size + meta : head]))
        if not key.startswith(b"ACK"):
            # A long message comes as several pushes under one key: one action.
            self.actions += key != self._last_key
            self.engine_bytes += value_bytes
            self._last_key = key
        whole = PRELUDE.size + body
        self._skip = max(0, whole - len(self._buffer))
        del self._buffer[:whole]
        return bool(self._buffer)


def push_head(body: bytes) -> tuple[bytes, int]:
    """Key and length of the value of a PushRequest of which `body` is the beginning."""
    key, position = b"", 0
    while position < len(body):
        tag, position = _varint(body, position)
        number, position = _varint(body, position)
        if tag == 0x12:
            key, position = body[position : position + number], position + number
        elif tag == 0x1A:
            return key, number
        elif tag & 7:
            break
    return key, 0


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while position < len(data):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    return value, position
