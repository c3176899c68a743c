"""Predictions of bytes, rounds and seconds."""

from __future__ import annotations

import subprocess
import sys
import time

import numpy as np
import pytest
from graphs import simulate
from programs import SPEC, public_of

from privit.cost.estimate import estimate
from privit.cost.network import Network
from privit.cost.spu.cheetah import Cheetah, Store
from privit.cost.spu.predict import estimate_spu
from privit.cost.spu.shapes import tree_levels
from privit.cost.spu.table import PROTOCOLS, shipped_table
from privit.data.catalog import catalog_spec
from privit.errors import RequestError
from privit.plan import plan_from_counts, plan_from_kept, uniform_plan
from privit.program.choices import batch_for
from privit.program.operation import Operation
from privit.program.tiles import matmul_tiles
from privit.serve.compile.compile import client_values, compile_program, server_values
from privit.serve.engine.protocols import protocol
from privit.serve.measure.bench import random_images, random_weights
from privit.spec import Granularity, sites

PLAN = plan_from_counts(SPEC, [3, 1], [4, 2])
KEYS = {
    "sent_bytes",
    "rounds",
    "seconds",
    "setup_bytes",
    "setup_rounds",
    "protocol",
    "private",
    "measured_on",
}


@pytest.mark.parametrize(
    ("name", "tolerance", "batch"),
    [("semi2k-benchmark", 0.0, 1), ("aby3", 0.05, 1), ("semi2k-benchmark", 0.0, 3), ("aby3", 0.05, 3)],
)
def test_a_plan_it_was_not_fitted_on_is_predicted(name: str, tolerance: float, batch: int) -> None:
    public, found = public_of(SPEC), protocol(name)
    program = compile_program(public, PLAN, batch=batch_for(name, batch))
    weights = random_weights(public, PLAN, seed=0)
    image = client_values(public, random_images(public, 0, batch))
    real = simulate(program, found, server_values(public, PLAN, weights), image).counts
    guess = estimate_spu(SPEC, PLAN, name, batch=batch)
    assert guess["sent_bytes"] == pytest.approx(real.sent_bytes, rel=tolerance, abs=1)
    assert guess["rounds"] == pytest.approx(real.rounds, rel=tolerance, abs=1)


@pytest.mark.parametrize("name", PROTOCOLS)
def test_an_estimate_says_what_it_is_of(name: str) -> None:
    found = estimate(SPEC, PLAN, "spu", protocol=name, network="wan")
    assert found.keys() >= KEYS
    assert found["measured_on"] == "estimated"
    assert found["private"] == (name != "semi2k-benchmark")
    assert [layer["name"] for layer in found["layers"]] == ["embedding", "layer 0", "layer 1", "head"]
    assert "spu 0.9.5" in found["engine"]


@pytest.mark.parametrize("name", PROTOCOLS)
def test_a_larger_budget_never_costs_less(name: str) -> None:
    spec = catalog_spec("deit_tiny_patch16_224", image_size=64)
    plans = [plan_from_counts(spec, [kept] * 12, [3 * kept] * 12) for kept in (1, 6, 17)]
    found = [estimate_spu(spec, plan, name)["sent_bytes"] for plan in plans]
    assert found == sorted(found)


def test_rewrites_save_bytes_and_rounds() -> None:
    spec = catalog_spec("deit_tiny_patch16_224", image_size=112)
    written = estimate_spu(spec, uniform_plan(spec), "semi2k-benchmark", rewrites="dense")
    rewritten = estimate_spu(spec, uniform_plan(spec), "semi2k-benchmark", rewrites="dense-rewritten")
    assert rewritten["sent_bytes"] < 0.6 * written["sent_bytes"]
    assert rewritten["rounds"] < written["rounds"]


def test_vit_base_by_element_is_answered_within_a_second() -> None:
    spec = catalog_spec("vit_base_patch16_224")
    granularity = Granularity("element", "row")
    shapes = sites(spec, granularity)
    rng = np.random.default_rng(0)
    kept = {kind: [rng.random(shape) < 0.1 for shape in shapes[kind]] for kind in shapes}
    plan = plan_from_kept(granularity, kept)
    assert plan.total("gelu") == 7_262_208
    for name in PROTOCOLS:
        began = time.process_time()
        estimate_spu(spec, plan, name)
        assert time.process_time() - began < 1.0


def test_nothing_of_the_engine_is_imported_for_an_estimate() -> None:
    code = "import privit.cost.spu.predict, sys; assert not {'jax', 'spu', 'torch'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_time_is_computing_plus_bytes_plus_rounds() -> None:
    near, far = (estimate_spu(SPEC, PLAN, "semi2k-benchmark", Network(rtt, 100)) for rtt in (0, 40))
    slope = shipped_table("semi2k-benchmark").slope
    assert far["seconds"] - near["seconds"] == pytest.approx(near["rounds"] * 0.02 * slope)
    assert near["seconds"] == pytest.approx(
        near["compute_seconds"] + 8 * near["sent_bytes"] / 100e6, rel=1e-3
    )


def test_unknown_names_are_refused_with_the_known_ones() -> None:
    with pytest.raises(RequestError, match="no protocol is called 'spdz'"):
        estimate_spu(SPEC, PLAN, "spdz")
    with pytest.raises(RequestError, match="no graph is called 'fast'"):
        estimate_spu(SPEC, PLAN, "aby3", rewrites="fast")


# What the engine sent for each product, as measured: ciphertexts out and back, and who encrypted.
@pytest.mark.parametrize(
    ("sizes", "requests", "responses", "left"),
    [
        ((1, 64, 10), 1, 1, True),
        ((17, 64, 192), 1, 1, True),
        ((50, 192, 192), 2, 2, True),
        ((50, 192, 576), 2, 5, True),
        ((50, 50, 64), 2, 1, True),
        ((65, 48, 128), 2, 2, False),
        ((1, 192, 192), 2, 1, True),
        ((12, 64, 64), 1, 1, False),
        ((17, 17, 16), 1, 1, True),
        ((4, 17, 64), 1, 1, True),
        ((4, 65, 64), 2, 1, True),
    ],
)
def test_a_product_is_cut_as_the_engine_cuts_it(
    sizes: tuple[int, int, int], requests: int, responses: int, left: bool
) -> None:
    tiles = matmul_tiles(*sizes)
    assert (tiles.requests, tiles.responses, tiles.left_encrypted) == (requests, responses, left)


@pytest.mark.parametrize(("columns", "levels"), [(2, 1), (16, 4), (17, 5), (50, 7), (65, 7)])
def test_a_maximum_takes_as_many_levels_as_measured(columns: int, levels: int) -> None:
    assert tree_levels(columns) == levels


def test_prepared_products_are_kept_for_the_next_operation() -> None:
    store = Store()
    assert [store.take(n) for n in (64, 4000, 100, 9000)] == [1, 0, 1, 3]


# One engine run each: bytes of the server and the client, rounds of both.
@pytest.mark.parametrize(
    ("name", "sizes", "server_bytes", "client_bytes", "rounds"),
    [
        ("multiply", (9000,), 1_307_776, 1_603_856, 12),
        ("multiply", (20000,), 2_763_067, 2_705_272, 20),
        ("multiply_weight", (20000,), 1_518_809, 1_139_385, 11),
        ("compare_public", (20000,), 1_382_656, 262_656, 36),
        ("exp", (10000,), 7_171_476, 6_933_963, 66),
        ("max", (10, 50), 38_416, 10_976, 140),
        ("matmul", (17, 16, 17), 317_932, 317_238, 3),
        ("matmul_weight", (65, 48, 128), 394_870, 509_843, 4),
        ("matmul_weight", (50, 64, 50), 261_868, 185_274, 3),
    ],
)
def test_cheetah_operations_cost_what_was_measured(
    name: str, sizes: tuple[int, ...], server_bytes: int, client_bytes: int, rounds: int
) -> None:
    cost = Cheetah(shipped_table("cheetah")).cost(Operation(name, sizes))
    assert cost.sent_bytes[0] == pytest.approx(server_bytes, rel=0.03)
    assert cost.sent_bytes[1] == pytest.approx(client_bytes, rel=0.15 if name == "max" else 0.05)
    assert cost.most_rounds == pytest.approx(rounds, abs=1)
