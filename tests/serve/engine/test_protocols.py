from __future__ import annotations

import pytest
from spu import libspu

from privit.errors import RequestError
from privit.serve.engine.protocols import DEFAULT, PROTOCOLS, Protocol, protocol, require_private


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


@pytest.mark.parametrize("entry", PROTOCOLS, ids=lambda entry: entry.name)
def test_the_engine_is_told_the_protocol_its_ring_and_nothing_that_speaks_or_guesses(entry: Protocol) -> None:
    config = entry.runtime_config()
    kinds = {"cheetah": "CHEETAH", "aby3": "ABY3", "semi2k-benchmark": "SEMI2K"}
    assert config.protocol == getattr(libspu.ProtocolKind, kinds[entry.name])
    assert config.field == libspu.FieldType.FM64
    # A log of operations, a trace of values and a truncation that may be wrong are all for measuring.
    assert not config.enable_pphlo_profile
    assert not config.enable_pphlo_trace
    assert not config.trunc_allow_msb_error
    assert entry.runtime_config(profile=True).enable_pphlo_profile


def test_protocols_differ_in_what_the_handshake_compares() -> None:
    settings = {entry.runtime_config().SerializeToString() for entry in PROTOCOLS}
    assert len(settings) == len(PROTOCOLS)
