"""What may become bytes and what never does."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import spu
from hypothesis import given
from hypothesis import strategies as st

from privit.errors import ConnectionFailed
from privit.program.ranges import FRACTION_BITS
from privit.serve.compile.compile import Input, program_of
from privit.serve.engine.protocols import CLIENT, SERVER, protocol
from privit.serve.engine.reference import Reference
from privit.serve.engine.shares import (
    OwnedInput,
    TravellingShare,
    blank_input,
    keep_input,
    on_grid,
    split_input,
)

VALUE = np.linspace(-3, 3, 12, dtype=np.float32).reshape(3, 4)


class Runtime:
    """Stands where the engine's runtime takes a value, and keeps it."""

    def __init__(self) -> None:
        self.values: dict[str, object] = {}

    def set_var(self, name: str, share: object) -> None:
        self.values[name] = share


def io_of(name: str) -> spu.Io:
    found = protocol(name)
    return spu.Io(found.parties, found.runtime_config())


@pytest.mark.parametrize(
    "leave",
    [
        bytes,
        list,
        pickle.dumps,
        copy.copy,
        copy.deepcopy,
        lambda owned: owned.__getstate__(),
        lambda owned: TravellingShare.of(owned),
    ],
    ids=["bytes", "list", "pickle", "copy", "deepcopy", "getstate", "travelling"],
)
def test_an_owned_input_has_no_way_out(leave: object) -> None:
    owned = keep_input(io_of("cheetah"), "w", VALUE, SERVER)
    with pytest.raises((TypeError, AttributeError)):
        leave(owned)  # type: ignore[operator]


def test_an_owned_input_shows_its_name_and_nothing_else() -> None:
    assert repr(keep_input(io_of("cheetah"), "w", VALUE, SERVER)) == "OwnedInput(w)"
    assert not hasattr(keep_input(io_of("cheetah"), "w", VALUE, SERVER), "__dict__")


def test_an_owner_typed_chunk_is_plaintext_so_it_is_never_made_a_travelling_share() -> None:
    io, runtime = io_of("cheetah"), Runtime()
    keep_input(io, "w", VALUE, SERVER).hand_to(runtime)
    share = runtime.values["w"]
    fixed = np.round(VALUE.astype(np.float64) * 2**18).astype(np.int64)
    assert fixed[0, :2].tobytes() in b"".join(share.share_chunks)  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match="never sent"):
        TravellingShare.of(share)
    with pytest.raises(TypeError, match="never sent"):
        TravellingShare(share.meta, ())  # type: ignore[attr-defined]


def test_the_other_side_of_an_owner_typed_input_is_filled_from_its_shape_alone() -> None:
    io, owner, other = io_of("cheetah"), Runtime(), Runtime()
    keep_input(io, "x", VALUE, CLIENT).hand_to(owner)
    blank_input(io, "x", VALUE.shape, CLIENT, SERVER).hand_to(other)
    values = io.reconstruct([other.values["x"], owner.values["x"]])
    np.testing.assert_allclose(values, VALUE, atol=1e-5)
    assert not any(any(chunk[-96:]) for chunk in other.values["x"].share_chunks)  # type: ignore[attr-defined]


def test_random_shares_travel_and_give_the_value_back() -> None:
    io, runtime = io_of("aby3"), Runtime()
    mine, others = split_input(io, "x", VALUE, CLIENT)
    assert set(others) == {0, 2}
    assert isinstance(mine, OwnedInput)
    mine.hand_to(runtime)
    arrived = {r: TravellingShare.from_bytes(share.to_bytes()).to_engine() for r, share in others.items()}
    shares = [arrived[0], runtime.values["x"], arrived[2]]
    np.testing.assert_allclose(io.reconstruct(shares), VALUE, atol=1e-5)


def test_a_travelling_share_does_not_hold_the_value() -> None:
    _, others = split_input(io_of("aby3"), "x", VALUE, CLIENT)
    fixed = np.round(VALUE.astype(np.float64) * 2**18).astype(np.int64).tobytes()
    for share in others.values():
        data = share.to_bytes()
        assert not any(fixed[i : i + 16] in data for i in range(0, len(fixed) - 16, 8))


@given(st.binary(max_size=100))
def test_bytes_that_are_no_share_are_refused(data: bytes) -> None:
    with pytest.raises(ConnectionFailed, match="share that cannot be read"):
        TravellingShare.from_bytes(data)


def test_a_share_cut_short_or_longer_than_it_says_is_refused() -> None:
    data = TravellingShare(b"meta", (b"one", b"two")).to_bytes()
    assert TravellingShare.from_bytes(data).chunks == (b"one", b"two")
    for wrong in (data[:-1], data + b"x", b"PVS2" + data[4:]):
        with pytest.raises(ConnectionFailed):
            TravellingShare.from_bytes(wrong)


def test_an_owner_typed_share_that_arrives_is_refused() -> None:
    data = TravellingShare(b"Xriv2k<FM64,0>", (b"one",)).to_bytes().replace(b"Xriv2k", b"Priv2k")
    with pytest.raises(ConnectionFailed):
        TravellingShare.from_bytes(data)


def test_values_are_rounded_to_what_the_engine_holds_and_not_cut_off() -> None:
    steps = np.array([[1.9, -1.9, 0.4, -0.6, 7.0]]) / 2**FRACTION_BITS
    rounded = on_grid(steps)
    np.testing.assert_array_equal(rounded * 2**FRACTION_BITS, [[2, -2, 0, -1, 7]])
    program = program_of(lambda values: values["x"] + values["x"], (Input("x", steps.shape, "server"),))
    np.testing.assert_array_equal(Reference(program, {"x": steps}).run({}), 2 * rounded)
