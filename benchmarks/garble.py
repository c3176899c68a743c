"""Half-gates garbling (Zahur, Rosulek, Evans 2015) of the same circuits: garble, and evaluate garbled.

This proves the counts: two ciphertexts of 16 bytes for each AND go over a socket, and what the evaluator
decodes is what the circuit computes. It is NOT a serving path and NOT secure as it stands: the evaluator's
input labels are handed over without oblivious transfer, so the evaluator gets both labels of each bit.

Free XOR with a global offset whose lowest bit is 1. The hash of a label is TMMO of Guo, Katz, Wang and
Yu (2020), pi(pi(x) + i) + pi(x) with AES under a public key, and the tweak i is different for
every AND gate of every lane of every run in the batch, and for its two halves.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from privit.cost.gates.circuits.functions import function, input_wires, masked, setting
from privit.cost.gates.circuits.gates import Bits, Gates, Wire, from_wires

LABEL_BYTES = 16
_WORDS = 2


class _Hash:
    """TMMO over AES with a public key; counts the tweaks it hands out."""

    def __init__(self, key: bytes):
        # ECB on independent blocks is the bare permutation that the construction asks for.
        self._aes = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
        self._next_tweak = 0

    def tweaks(self, count: int) -> np.ndarray:
        """`2 * count` tweaks that were never handed out before, shape (2, count)."""
        start = self._next_tweak
        self._next_tweak += 2 * count
        return np.arange(start, self._next_tweak, dtype=np.uint64).reshape(2, count)

    def _permute(self, blocks: np.ndarray) -> np.ndarray:
        return np.frombuffer(self._aes.update(blocks.tobytes()), np.uint64).reshape(blocks.shape)

    def __call__(self, labels: np.ndarray, tweaks: np.ndarray) -> np.ndarray:
        once = self._permute(labels)
        mixed = once.copy()
        mixed[..., 0] ^= tweaks
        return self._permute(mixed) ^ once


def _chosen(labels: np.ndarray) -> np.ndarray:
    """All ones where a label's permute bit is 1, all zeros elsewhere."""
    # Words side by side: numpy is many times slower on rows of two that it has to broadcast.
    return np.repeat(np.negative(labels[:, 0] & np.uint64(1)), _WORDS).reshape(labels.shape)


def _pair(a: Wire, b: Wire) -> tuple[np.ndarray, np.ndarray, tuple[int, ...]]:
    shape = np.broadcast_shapes(a.shape, b.shape)
    flat = (shape[0] * shape[1], _WORDS)
    return np.broadcast_to(a, shape).reshape(flat), np.broadcast_to(b, shape).reshape(flat), shape


class Garbler(Gates):
    """Makes the garbled tables; a wire holds the labels that stand for 0."""

    def __init__(self, send: Callable[[bytes], object], key: bytes):
        self._send = send
        self._hash = _Hash(key)
        self.offset = np.frombuffer(secrets.token_bytes(LABEL_BYTES), np.uint64).copy()
        self.offset[0] |= np.uint64(1)
        self.one = self.offset

    def labels(self, batch: int, lanes: int) -> np.ndarray:
        """Fresh labels for 0 of one input bit."""
        random = secrets.token_bytes(batch * lanes * LABEL_BYTES)
        return np.frombuffer(random, np.uint64).reshape(batch, lanes, _WORDS).copy()

    def xor_wires(self, a: Wire, b: Wire) -> Wire:
        """XOR of labels, which needs no table."""
        return a ^ b

    def and_wires(self, a: Wire, b: Wire) -> Wire:
        """The label for 0 of a AND b, with one table sent for each lane."""
        a, b, shape = _pair(a, b)
        first, second = self._hash.tweaks(len(a))
        offset = np.tile(self.offset, len(a)).reshape(a.shape)
        labels = np.stack([a, a ^ offset, b, b ^ offset])
        h = self._hash(labels, np.stack([first, first, second, second]))
        generator = h[0] ^ h[1] ^ (_chosen(b) & offset)
        evaluator = h[2] ^ h[3] ^ a
        self._send(generator.tobytes())
        self._send(evaluator.tobytes())
        result = h[0] ^ (_chosen(a) & generator) ^ h[2] ^ (_chosen(b) & (evaluator ^ a))
        return result.reshape(shape)


class Evaluator(Gates):
    """Evaluates garbled tables; a wire holds the one label the evaluator knows."""

    one = np.zeros(_WORDS, np.uint64)

    def __init__(self, receive: Callable[[int], bytes], key: bytes):
        self._receive = receive
        self._hash = _Hash(key)
        self.table_bytes = 0

    def _table(self, count: int) -> np.ndarray:
        data = self._receive(count * LABEL_BYTES)
        self.table_bytes += len(data)
        return np.frombuffer(data, np.uint64).reshape(count, _WORDS)

    def xor_wires(self, a: Wire, b: Wire) -> Wire:
        """XOR of labels, which needs no table."""
        return a ^ b

    def and_wires(self, a: Wire, b: Wire) -> Wire:
        """The label of a AND b, with one table read for each lane."""
        a, b, shape = _pair(a, b)
        h = self._hash(np.stack([a, b]), self._hash.tweaks(len(a)))
        generator, evaluator = self._table(len(a)), self._table(len(a))
        result = h[0] ^ (_chosen(a) & generator) ^ h[1] ^ (_chosen(b) & (evaluator ^ a))
        return result.reshape(shape)


def _known_labels(zero: Bits, offset: np.ndarray, bits: Bits) -> list[np.ndarray]:
    return [label ^ (bit[..., None] * offset) for label, bit in zip(zero, bits, strict=True)]


def garble(job: dict, first: np.ndarray, mask: np.ndarray, send: Callable[[bytes], object]) -> None:
    """The garbler's side: holds one share and the mask, writes labels, tables and decoding bits."""
    entry, where = function(job["function"]), setting(job["setting"])
    garbler = Garbler(send, bytes.fromhex(job["key"]))
    own, other, own_mask = input_wires(where, first, np.zeros_like(first), mask)
    wires = [[garbler.labels(*bit.shape) for bit in bits] for bits in (own, other, own_mask)]
    for known in _known_labels(wires[0] + wires[2], garbler.offset, own + own_mask):
        send(known.tobytes())
    for label in wires[1]:
        # Without oblivious transfer: the evaluator receives both labels and picks its own.
        send(label.tobytes() + (label ^ garbler.offset).tobytes())
    for bit in masked(garbler, entry, where, *wires):
        if not isinstance(bit, int):
            send((bit[..., 0] & np.uint64(1)).astype(np.uint8).tobytes())


def evaluate(
    job: dict, second: np.ndarray, mask_lanes: int, receive: Callable[[int], bytes]
) -> tuple[np.ndarray, int]:
    """The evaluator's side: the residues that come out, and the bytes of the tables it read."""
    entry, where = function(job["function"]), setting(job["setting"])
    evaluator = Evaluator(receive, bytes.fromhex(job["key"]))
    batch, lanes = second.shape
    mask_shape = np.zeros((batch, mask_lanes), np.int64)
    own = input_wires(where, second, second, mask_shape)[1]

    def labels(count: int) -> np.ndarray:
        return np.frombuffer(receive(batch * count * LABEL_BYTES), np.uint64).reshape(batch, count, _WORDS)

    first = [labels(lanes) for _ in range(where.recovery.width)]
    mask = [labels(mask_lanes) for _ in range(where.recovery.mask_width)]
    chosen = [np.where(bit[..., None], *[labels(lanes), labels(lanes)][::-1]) for bit in own]
    out = masked(evaluator, entry, where, first, chosen, mask)
    decoded: Bits = []
    for bit in out:
        if not isinstance(bit, int):
            flips = np.frombuffer(receive(bit.shape[0] * bit.shape[1]), np.uint8).reshape(bit.shape[:2])
            bit = ((bit[..., 0] & np.uint64(1)) ^ flips).astype(bool)
        decoded.append(bit)
    return from_wires(decoded), evaluator.table_bytes
