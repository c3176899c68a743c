"""What is asked of a build: refused where no model could meet it, and read as budgets otherwise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from privit.building.request import ASKED, Request, check_request, one_amount
from privit.errors import RequestError
from privit.presets import NORM_SHARE


def asked(most: dict[str, float] | None = None, **more: Any) -> Request:
    return Request("vit:width=8", "digits", Path("out"), most or {}, **more)


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (asked(), "no budget was given"),
        (asked(keep=1.5), "a share from 0 to 1 was expected"),
        (asked(max_loss=-1.0), "points of accuracy from 0 to 100"),
        (asked({"bytes": 0.0}), "not a number above zero"),
        (asked({"bytes": 1e6}, preset="none"), "no preset is called 'none'"),
        (asked(max_loss=1.0, preset="paper"), "whose search trains anew"),
        (asked({"bytes": 1e6}, protocol="morse"), "morse"),
        (asked({"seconds": 1.0}, network="pigeons"), "pigeons"),
    ],
)
def test_what_cannot_be_built_for_is_refused(request_: Request, said: str) -> None:
    with pytest.raises(RequestError) as error:
        check_request(request_)
    assert said in str(error.value)
    assert error.value.exit_code == 2


def test_two_amounts_that_contradict_each_other_are_refused() -> None:
    assert one_amount("max-bytes", ()) is None
    assert one_amount("max-bytes", (6e7, 6e7)) == 6e7
    with pytest.raises(RequestError, match=r"--max-bytes was given 6e.07 and 5e.07, but a build"):
        one_amount("max-bytes", (6e7, 5e7))


def test_several_units_are_one_budget_with_caps() -> None:
    budget = asked({"bytes": 6e7, "seconds": 9.0}, keep=0.1).budget()
    assert (budget.name, budget.cost, budget.caps) == (ASKED, 9.0, {"bytes": 6e7})
    assert budget.sites == {"gelu": 0.1, "softmax": 0.1}


def test_an_accuracy_is_searched_by_seconds_beside_other_caps() -> None:
    request = asked({"bytes": 6e7}, max_loss=1.0, network="wan")
    assert request.price is not None
    assert (request.price.unit, request.price.network) == ("seconds", "wan")
    rung = request.budget(4.0)
    assert (rung.name, rung.cost, rung.caps) == ("seconds-4", 4.0, {"bytes": 6e7})


def test_a_share_of_sites_alone_leaves_a_known_share_of_norms() -> None:
    request = asked(keep=0.2)
    assert request.price is None
    assert request.budget().sites == {"gelu": 0.2, "softmax": 0.2, "norm": NORM_SHARE}
