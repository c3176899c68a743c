"""Tables: measured, fitted, written and read."""

from __future__ import annotations

from pathlib import Path

import pytest

from privit.cost.spu.cheetah import Cheetah
from privit.cost.spu.table import PROTOCOLS, Table, fit, read_table, save_table, shipped_table
from privit.errors import ArtifactError, RequestError
from privit.program.operation import Operation
from privit.serve.engine.protocols import protocol
from privit.serve.engine.simulator import Simulator
from privit.serve.measure.calibrate import calibrate, fit_entry
from privit.serve.measure.ciphertexts import refill_of
from privit.serve.measure.link import fit_link
from privit.serve.measure.probes import PROBES, WITH_COMPARISON, Sample, probe

OPERATIONS = {*PROBES, *WITH_COMPARISON} - set(WITH_COMPARISON.values())


def test_a_line_is_found_again() -> None:
    sizes = [1.0, 10.0, 1000.0]
    assert fit([(1.0, n) for n in sizes], [7 + 20 * n for n in sizes]) == pytest.approx((7, 20))


@pytest.mark.parametrize("name", PROTOCOLS)
def test_the_shipped_table_has_every_operation_and_its_engine(name: str) -> None:
    table = shipped_table(name)
    structural = (
        {n for n in OPERATIONS if n.startswith("matmul") or n == "max"} if table.ciphertexts else set()
    )
    assert set(table.operations) == OPERATIONS - structural
    assert table.engine.startswith("spu 0.9.5")
    for operation in OPERATIONS:
        sizes = (5, 6, 7) if operation.startswith("matmul") else (5, 6) if operation == "max" else (5,)
        cost = (
            Cheetah(table).cost(Operation(operation, sizes))
            if table.ciphertexts
            else table.linear(operation, sizes)
        )
        assert cost.most_bytes >= 0
        assert cost.seconds > 0


def test_a_table_survives_a_round_trip(tmp_path: Path) -> None:
    table = shipped_table("cheetah")
    save_table(table, tmp_path / "table.json")
    assert read_table(tmp_path / "table.json") == table


def test_what_is_not_a_table_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "table.json").write_text("{}")
    with pytest.raises(ArtifactError, match=r"table\.json is not a cost table"):
        read_table(tmp_path / "table.json")


def test_two_protocols_do_not_go_into_one_file(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="2 protocols do not go into one file"):
        calibrate(("aby3", "cheetah"), tmp_path / "table.json")


def test_an_operation_that_was_not_measured_is_refused() -> None:
    empty = Table("aby3", "spu", "", True, 0, 0, 1.0, {})
    with pytest.raises(RequestError, match="has no operation 'exp'"):
        empty.linear("exp", (1,))


USUAL = Sample((20_000,), (1_382_656.0, 262_656.0), (36.0, 36.0), 0.3, 0.4)
OF_ONE = Sample((20_000,), (1_648_915.0, 262_656.0), (1317.0, 36.0), 1.0, 1.2)
OF_BOTH = Sample((20_000,), (1_915_174.0, 262_656.0), (2598.0, 36.0), 1.7, 2.0)
OF_THE_CLIENT = Sample((20_000,), (1_382_656.0, 529_000.0), (36.0, 2598.0), 1.7, 2.0)


@pytest.mark.parametrize(
    "runs",
    [
        [USUAL, USUAL, OF_BOTH, USUAL, OF_THE_CLIENT, USUAL, OF_BOTH, USUAL],
        [USUAL, OF_ONE, USUAL, OF_ONE, USUAL, OF_ONE, USUAL],
    ],
)
def test_refills_are_counted_by_stream_whether_they_come_together_or_in_turn(runs: list[Sample]) -> None:
    found = refill_of(runs, lambda s: s.wall_seconds)
    assert found["refill_bytes"] == 266_259
    assert found["refill_rounds"] == 1281
    assert found["refill_seconds"] == pytest.approx(0.7)
    assert found["transfer_bytes_per_refill"] == 4 * 1_382_656 / 2


def test_a_shipped_table_is_of_an_idle_machine_and_knows_its_link() -> None:
    for name in PROTOCOLS:
        table = shipped_table(name)
        assert table.machine["clock"] == "wall"
        assert "not_from_one_run" not in table.machine
        assert 0.8 < table.slope < 1.6
        assert 0 < table.action_seconds < 5e-3
        assert 0.7 < table.program_factor < 2
        assert table.machine["between_processes_error"] < 0.15


def test_the_engine_still_costs_what_the_shipped_table_says() -> None:
    table, found = shipped_table("semi2k-benchmark"), protocol("semi2k-benchmark")
    cases = {
        "square": [(3,), (40,)],
        "max": [(2, 7), (3, 5)],
        "matmul": [(2, 3, 4), (5, 6, 7), (8, 9, 2), (3, 3, 9)],
    }
    with Simulator(found) as simulator:
        for name, sizes in cases.items():
            samples = [probe(simulator, name, size)[0] for size in sizes]
            entry = fit_entry(name, samples, found.parties, "wall", 2)
            assert entry.sent_bytes[0] == pytest.approx(table.entry(name).sent_bytes[0], abs=1e-3)
            assert entry.rounds == table.entry(name).rounds


def test_a_link_is_fitted_to_what_was_measured_and_never_negative() -> None:
    table = Table("aby3", "spu", "", True, 0, 0, 1.0, {})
    shapes = [(0.1, 400), (0.2, 300), (0.9, 250), (0.4, 420)]
    found = [{"alone": a, "rounds": r, "seconds": 1.2 * a + 0.001 * r, "delayed": []} for a, r in shapes]
    # 400 actions over a one-way delay of 10 and of 30 ms, each of which takes 1.1 of it.
    found[0]["delayed"] = [found[0]["seconds"] + 400 * 1.1 * delay for delay in (0.01, 0.03)]
    fitted = fit_link(table, found)
    assert (fitted.program_factor, fitted.slope) == (pytest.approx(1.2), pytest.approx(1.1))
    assert fitted.action_seconds == pytest.approx(0.001, rel=1e-3)
    assert fitted.machine["between_processes_error"] < 1e-3
    waiting = [f | {"seconds": 0.001 * f["rounds"]} for f in found]
    assert fit_link(table, waiting).program_factor == 0
