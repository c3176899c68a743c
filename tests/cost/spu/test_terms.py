"""The tables of terms that estimates are made of."""

from __future__ import annotations

import pytest

from privit.cost.spu.table import PROTOCOLS, shipped_table
from privit.cost.spu.terms import operator_terms, protocol_terms


@pytest.mark.parametrize("name", PROTOCOLS)
def test_every_operation_of_a_protocol_has_its_terms_and_more_values_never_cost_less(name: str) -> None:
    columns, rows = protocol_terms(name)
    assert columns == ("operation", "size", "sent_bytes", "rounds", "seconds")
    by_name: dict[str, list[tuple[float, ...]]] = {}
    for operation, _, *figures in rows:
        by_name.setdefault(operation, []).append(tuple(figures))
    assert by_name.keys() >= shipped_table(name).operations.keys() | {"matmul_weight", "max"}
    for figures in by_name.values():
        assert [f[0] for f in figures] == sorted(f[0] for f in figures)


def test_the_papers_terms_are_its_constants_and_what_is_not_says_so() -> None:
    _, rows = operator_terms("paper")
    assert ("gelu", 1, 270, "as given") in rows
    assert ("softmax", 197, 18_586, "as given") in rows
    assert next(row for row in rows if row[:2] == ("softmax", 65))[3] == "extrapolated"
