"""Garbled circuits: 32 bytes an AND, the plain result, and a tweak that is never used twice."""

from __future__ import annotations

import io

import numpy as np
import pytest
from benchmarks.garbled_run import run_two_processes

from benchmarks import garble as garbling
from privit.cost.gates.circuits.functions import FUNCTIONS, SETTINGS, count, draw_inputs, input_wires, masked
from privit.cost.gates.circuits.gates import Plain, from_wires

KEY = bytes(range(16))


@pytest.mark.parametrize(
    ("name", "where", "shape"),
    [
        ("relu", "fixed31-prime31", (1000, 1)),
        ("relu", "fixed32-ring32", (1000, 1)),
        ("gelu", "fixed32-ring32", (100, 1)),
        ("softmax", "fixed32-ring32", (1, 197)),
    ],
)
def test_two_processes_move_32_bytes_an_and_and_decode_the_plain_result(
    name: str, where: str, shape: tuple[int, int]
) -> None:
    values = FUNCTIONS[name].sample(np.random.default_rng(0), shape)
    run = run_two_processes(name, where, values)
    assert run.equal_to_plain
    assert run.ands == count(name, where, shape[1]).ands
    assert run.table_bytes == 32 * run.ands * shape[0]
    assert "without oblivious transfer" in run.to_json()["security"]


def garble_in_memory(name: str, where: str, values: np.ndarray) -> tuple[bytes, np.ndarray, np.ndarray, dict]:
    """The garbler's stream, the evaluator's share and the plain result."""
    entry, place = FUNCTIONS[name], SETTINGS[where]
    first, second, mask = draw_inputs(entry, place, values, np.random.default_rng(0))
    plain = from_wires(masked(Plain(), entry, place, *input_wires(place, first, second, mask)))
    job = {"function": name, "setting": where, "key": KEY.hex()}
    stream = io.BytesIO()
    garbling.garble(job, first, mask, stream.write)
    return stream.getvalue(), second, plain, job


def test_a_changed_table_does_not_decode_to_the_plain_result() -> None:
    data, second, plain, job = garble_in_memory("relu", "fixed32-ring32", np.full((64, 1), 3.0))
    result, _ = garbling.evaluate(job, second, 1, io.BytesIO(data).read)
    assert np.array_equal(result, plain)
    middle = len(data) // 2
    broken = data[:middle] + bytes(b ^ 0xFF for b in data[middle : middle + 4096]) + data[middle + 4096 :]
    result, _ = garbling.evaluate(job, second, 1, io.BytesIO(broken).read)
    assert not np.array_equal(result, plain)


@pytest.mark.parametrize("side", ["garbler", "evaluator"])
def test_no_tweak_is_used_for_two_gates_lanes_or_halves(side: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data, second, _, job = garble_in_memory("softmax", "fixed32-ring32", np.ones((3, 5)))
    seen: list[np.ndarray] = []
    original = garbling._Hash.__call__

    def record(self: garbling._Hash, labels: np.ndarray, tweaks: np.ndarray) -> np.ndarray:
        # The garbler hashes both labels of a wire under the same tweak: each counts once.
        seen.append(tweaks[::2] if len(tweaks) == 4 else tweaks)
        return original(self, labels, tweaks)

    monkeypatch.setattr(garbling._Hash, "__call__", record)
    if side == "garbler":
        garble_in_memory("softmax", "fixed32-ring32", np.ones((3, 5)))
    else:
        garbling.evaluate(job, second, 5, io.BytesIO(data).read)
    used = np.concatenate([tweaks.ravel() for tweaks in seen])
    assert len(np.unique(used)) == len(used)
    assert len(used) == 2 * 3 * count("softmax", "fixed32-ring32", 5).ands


def test_free_xor_offset_ends_in_one_and_labels_are_fresh() -> None:
    garbler = garbling.Garbler(lambda data: None, KEY)
    assert garbler.offset[0] & np.uint64(1) == 1
    labels = garbler.labels(4, 4)
    assert len(np.unique(labels.reshape(-1, 2), axis=0)) == 16


def test_the_hash_depends_on_the_tweak() -> None:
    hashed = garbling._Hash(KEY)(np.ones((2, 3, 2), np.uint64), np.arange(6, dtype=np.uint64).reshape(2, 3))
    assert len(np.unique(hashed.reshape(-1, 2), axis=0)) == 6
