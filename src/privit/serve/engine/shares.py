"""Values of the engine on their way in and out, typed by whether they may ever become bytes.

`OwnedInput` holds what must stay with its owner: on CHEETAH an owner-typed chunk *is* the plaintext in fixed
point. It has no way out but into the runtime of its own process. `TravellingShare` holds a random share
of an input or of the answer, which may be sent; it refuses to be made from an owner-typed value.
"""

from __future__ import annotations

import struct
from typing import Any, NoReturn, final

import numpy as np

from privit.errors import ConnectionFailed
from privit.program.ranges import FRACTION_BITS

MAGIC = b"PVS1"
CHUNK_LIMIT = 1 << 20
OWNER_TYPED = b"Priv2k"
"""Storage type of an owner-typed value in the engine's meta (libspu/mpc/semi2k/type.h, `Priv2kTy`)."""


@final
class OwnedInput:
    """An input in the form in which its owner's runtime holds it; it cannot be turned into bytes."""

    __slots__ = ("__share", "name")

    def __init__(self, name: str, share: Any):
        self.name = name
        self.__share = share

    def hand_to(self, runtime: Any) -> None:
        """Sets the value in the runtime of this process."""
        runtime.set_var(self.name, self.__share)

    def _refuse(self, *_: object) -> NoReturn:
        raise TypeError(f"the input {self.name} never leaves its owner")

    __reduce_ex__ = __reduce__ = __getstate__ = __copy__ = __deepcopy__ = __bytes__ = __iter__ = _refuse

    def __repr__(self) -> str:
        return f"OwnedInput({self.name})"


@final
class TravellingShare:
    """One party's random share: of an input, to be sent to it; of the answer, to be sent to the client."""

    __slots__ = ("chunks", "meta")

    def __init__(self, meta: bytes, chunks: tuple[bytes, ...]):
        if OWNER_TYPED in meta:
            raise TypeError("an owner-typed value is its owner's plaintext and is never sent")
        self.meta, self.chunks = meta, chunks

    @classmethod
    def of(cls, share: Any) -> TravellingShare:
        """The engine's share as something that may be sent."""
        return cls(bytes(share.meta), tuple(bytes(chunk) for chunk in share.share_chunks))

    def to_engine(self) -> Any:
        """The share as the engine takes it."""
        from spu import libspu

        share = libspu.Share()
        share.meta, share.share_chunks = self.meta, list(self.chunks)
        return share

    def to_bytes(self) -> bytes:
        """Length-prefixed meta and chunks."""
        parts = [self.meta, *self.chunks]
        return MAGIC + struct.pack(">I", len(parts)) + b"".join(struct.pack(">I", len(p)) + p for p in parts)

    @classmethod
    def from_bytes(cls, data: bytes) -> TravellingShare:
        """What `to_bytes` wrote; refuses anything else."""
        broken = ConnectionFailed("the other party sent a share that cannot be read")
        if len(data) < 8 or data[:4] != MAGIC:
            raise broken
        (count,) = struct.unpack_from(">I", data, 4)
        parts: list[bytes] = []
        position = 8
        while len(parts) < min(count, CHUNK_LIMIT) and position + 4 <= len(data):
            (length,) = struct.unpack_from(">I", data, position)
            position += 4
            if position + length > len(data):
                raise broken
            parts.append(data[position : position + length])
            position += length
        if len(parts) != count or count < 1 or position != len(data):
            raise broken
        try:
            return cls(parts[0], tuple(parts[1:]))
        except TypeError:
            raise broken from None

    def __repr__(self) -> str:
        return f"TravellingShare({sum(map(len, self.chunks))} bytes)"


def keep_input(io: Any, name: str, value: np.ndarray, owner: int) -> OwnedInput:
    """The owner's side of an owner-typed input: nothing of it will cross the wire."""
    return OwnedInput(name, _make_shares(io, value, owner)[owner])


def blank_input(io: Any, name: str, shape: tuple[int, ...], owner: int, rank: int) -> OwnedInput:
    """The other side of an owner-typed input: zeros of its public shape."""
    return OwnedInput(name, _make_shares(io, np.zeros(shape, np.float32), owner)[rank])


def split_input(
    io: Any, name: str, value: np.ndarray, rank: int
) -> tuple[OwnedInput, dict[int, TravellingShare]]:
    """The owner's own share of an input and the random shares for the other parties, by rank."""
    shares = make_shares(io, value)
    others = {r: TravellingShare.of(share) for r, share in enumerate(shares) if r != rank}
    return OwnedInput(name, shares[rank]), others


def make_shares(io: Any, value: np.ndarray, owner: int = -1) -> list[Any]:
    """Every party's share of a value in fixed point; owner-typed if it has an owner."""
    from spu import libspu

    return list(io.make_shares(on_grid(value), libspu.Visibility.VIS_SECRET, owner_rank=owner))


def on_grid(value: np.ndarray) -> np.ndarray:
    """The nearest numbers that fixed point has.

    The engine cuts off what it cannot hold, always towards zero, which over a product's many terms adds
    up: a logit of a DeiT-Tiny was off by 1.4 where rounding leaves 0.05.
    """
    steps = np.round(np.asarray(value, np.float64) * 2.0**FRACTION_BITS)
    return np.ascontiguousarray(steps / 2.0**FRACTION_BITS, np.float32)


def _make_shares(io: Any, value: np.ndarray, owner: int) -> list[Any]:
    shares = make_shares(io, value, owner)
    if any(OWNER_TYPED not in bytes(share.meta) for share in shares):
        raise AssertionError("owner typing is off in this runtime configuration")
    return shares
