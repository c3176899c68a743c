"""Tables: measured, fitted, written and read."""

from __future__ import annotations

from pathlib import Path

import pytest

from privit.cost.cheetah import Cheetah
from privit.cost.subject import Operation
from privit.cost.table import PROTOCOLS, Table, fit, read_table, save_table, shipped_table
from privit.errors import ArtifactError, RequestError
from privit.serve.calibrate import calibrate, fit_entry
from privit.serve.probes import PROBES, WITH_COMPARISON, probe
from privit.serve.protocols import protocol
from privit.serve.runtime import Simulator

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
