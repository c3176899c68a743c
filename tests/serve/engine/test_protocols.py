from __future__ import annotations

import pytest

from privit.errors import RequestError
from privit.serve.engine.protocols import DEFAULT, PROTOCOLS, protocol, require_private


def test_the_default_is_private_between_two_parties() -> None:
    found = protocol(DEFAULT)
    assert (found.name, found.private, found.parties) == ("cheetah", True, 2)


def test_only_the_benchmark_is_not_private() -> None:
    assert [entry.name for entry in PROTOCOLS if not entry.private] == ["semi2k-benchmark"]


def test_owner_typing_is_on_where_it_was_measured_to_pay() -> None:
    typed = {
        entry.name: entry.runtime_config().experimental_enable_colocated_optimization for entry in PROTOCOLS
    }
    assert typed == {"cheetah": True, "aby3": False, "semi2k-benchmark": False}


def test_an_unknown_protocol_is_refused_with_the_known_ones() -> None:
    with pytest.raises(RequestError, match="no protocol is called 'spdz'") as error:
        protocol("spdz")
    assert all(entry.name in error.value.hint for entry in PROTOCOLS)


def test_serving_on_the_benchmark_is_refused_and_says_why() -> None:
    with pytest.raises(RequestError, match="could read the image") as error:
        require_private("semi2k-benchmark")
    assert "cheetah" in error.value.hint


def test_equal_protocols_have_equal_settings_on_every_party() -> None:
    for entry in PROTOCOLS:
        first, second = entry.runtime_config(), entry.runtime_config()
        assert first.SerializeToString() == second.SerializeToString()
        assert not first.enable_pphlo_profile
        assert not first.enable_pphlo_trace
        assert not first.trunc_allow_msb_error
