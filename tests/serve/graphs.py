"""Models small enough to compile and simulate in seconds, and what one query on them costs."""

from __future__ import annotations

from dataclasses import dataclass, replace

import jax
import numpy as np

from privit.artifact import Preprocessing, Public
from privit.plan import Plan, all_weight_shapes, plan_from_counts
from privit.program.choices import Rewrites
from privit.program.graph import Graph
from privit.serve.compile.compile import Program, client_values, compile_program, server_values
from privit.serve.engine.profile import Counts
from privit.serve.engine.protocols import Protocol, protocol
from privit.serve.engine.simulator import Simulator
from privit.serve.measure.bench import measured_ranges
from privit.serve.model.forward import forward
from privit.spec import Spec, vit_spec

SEMI2K = protocol("semi2k-benchmark")


def small_spec(**changes: object) -> Spec:
    """Five tokens of width 16, two blocks of two heads."""
    return vit_spec(8, 4, 16, 2, 2, 5, channels=1, **changes)


def public_of(spec: Spec, ranges: dict[str, float] | None = None) -> Public:
    """A public part with nothing in it but the spec."""
    one = (1.0,) * spec.channels
    names = tuple(f"class {i}" for i in range(spec.classes))
    return Public(spec, Preprocessing(spec.image_size, spec.channels, one, one), names, ranges or {})


def mixed_plan(spec: Spec) -> Plan:
    """A few exact sites in every layer, the class token's among them."""
    return plan_from_counts(spec, [2] * spec.depth, [3] * spec.depth)


def weights_of(spec: Spec, plan: Plan, seed: int = 0) -> dict[str, np.ndarray]:
    """Random weights; fitted parameters are of either sign and the size that a fit gives them."""
    rng = np.random.default_rng(seed)
    made = {}
    for name, shape in all_weight_shapes(spec, plan).items():
        value = rng.standard_normal(shape) * (shape[-1] ** -0.5 if len(shape) > 1 else 0.1)
        if name.endswith(("norm1.weight", "norm2.weight", "norm.weight")):
            value = value + 1
        if ".gelu." in name or ".softmax." in name:
            value = rng.uniform(0.1, 0.6, shape) * rng.choice([-1, 1], shape)
            value = value / (spec.tokens if ".softmax." in name else 1)
        if ".norm." in name:
            value = rng.uniform(0.5, 1.5, shape) * (-0.1 if name.endswith(".b") else 1)
        made[name] = value.astype(np.float32)
    return made


def image_of(spec: Spec, seed: int = 1) -> np.ndarray:
    """A preprocessed image (C, S, S)."""
    shape = (spec.channels, spec.image_size, spec.image_size)
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def clear(
    public: Public, plan: Plan, weights: dict[str, np.ndarray], rewrites: Rewrites | None = None
) -> np.ndarray:
    """Logits of forward.py in the clear."""
    values = server_values(public, plan, weights, rewrites) | client_values(public, image_of(public.spec))
    graph = Graph.of(public, plan, rewrites)
    return np.asarray(jax.jit(lambda given: forward(graph, given))(values))


def with_ranges(public: Public, plan: Plan, weights: dict[str, np.ndarray]) -> Public:
    """The public part with the ranges of the one image."""
    return replace(public, ranges=measured_ranges(public, plan, weights, image_of(public.spec)))


@dataclass(frozen=True)
class Simulated:
    """The answer of a simulated query and what it cost, set-up apart."""

    logits: np.ndarray
    counts: Counts
    setup: Counts


def simulate(
    program: Program,
    protocol: Protocol,
    server_values: dict[str, np.ndarray],
    client_values: dict[str, np.ndarray],
) -> Simulated:
    """One query with every party in this process: logits, and bytes and rounds of both ranks."""
    with Simulator(protocol) as simulator:
        simulator.give(program.inputs, server_values | client_values)
        counts = simulator.run(program.executable)
        return Simulated(simulator.open(program.output), counts, simulator.setup)


@dataclass(frozen=True)
class Outcome:
    """Logits in the clear and simulated, and the cost."""

    clear: np.ndarray
    simulated: np.ndarray
    counts: Counts
    code: str


def outcome(
    public: Public, plan: Plan, weights: dict[str, np.ndarray], rewrites: Rewrites | None = None
) -> Outcome:
    """One simulated query on SEMI2K, whose bytes and rounds repeat exactly."""
    program = compile_program(public, plan, rewrites)
    given = client_values(public, image_of(public.spec))
    found = simulate(program, SEMI2K, server_values(public, plan, weights, rewrites), given)
    return Outcome(clear(public, plan, weights, rewrites), found.logits, found.counts, program.code)
