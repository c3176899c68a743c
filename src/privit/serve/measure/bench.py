"""What a private prediction costs: bytes, rounds and seconds, by layer and operation."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast, get_args

import jax
import jax.numpy as jnp
import numpy as np

from privit.artifact import Artifact, Public, load_artifact, save_artifact
from privit.cost.estimate import estimate
from privit.errors import RequestError
from privit.plan import Plan, all_weight_shapes, uniform_plan
from privit.program.choices import Rewrites, batch_for
from privit.program.graph import Graph
from privit.program.operation import Operation
from privit.program.ranges import RangeRecorder
from privit.serve.compile.compile import (
    OUTPUT,
    Function,
    Input,
    client_values,
    compile_segments,
    graph_inputs,
    graph_parts,
    server_values,
)
from privit.serve.engine import protocols
from privit.serve.engine.profile import Counts
from privit.serve.engine.protocols import Protocol
from privit.serve.engine.simulator import Simulator
from privit.serve.engine.warming import runs_parallel
from privit.serve.measure.products import product_rows, products_of
from privit.serve.model.as_written import Style, check_scatter, written_inputs, written_parts
from privit.serve.model.forward import forward
from privit.serve.model.guard import answer
from privit.spec import without_pools

GRAPHS = ("dense", "dense-rewritten", "scatter", "without-ranges")
"""What a plan can be compared with; `without-ranges` is the plan itself on the engine's generic functions."""
Progress = Callable[[str], None]
Values = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Measured:
    """A graph's cost by segment, the logits it gave and what the same graph gives in the clear."""

    segments: tuple[tuple[str, Counts], ...]
    setup: Counts
    logits: np.ndarray
    clear: np.ndarray
    products: Counter[Operation] = field(default_factory=Counter)

    @property
    def total(self) -> Counts:
        """The segments together; on SEMI2K exactly what the whole program costs."""
        return _together(self.segments)


def bench(
    subject: Artifact | Path,
    protocol: str = "cheetah",
    against: Sequence[str] = (),
    network: str | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    products: bool = False,
    batch: int = 1,
) -> dict[str, Any]:
    """Measured cost of one prediction, all parties in this process unless `network` is given.

    Args:
        subject: an artifact or its folder; without weights, they are random. A plan without ranges runs on
            the engine's generic functions.
        protocol: cheetah, aby3 or semi2k-benchmark.
        against: names of GRAPHS, measured with the same weights and image.
        network: lan, wan or RTT,BANDWIDTH: real processes through a shaped tunnel, totals only.
        seed: of the random weights and of the image.
        progress: called with what is being measured.
        products: run every shape of matrix product alone, too.
        batch: how many images the query answers; all figures are of the whole query.
    """
    found, asked = protocols.protocol(protocol), tuple(against)
    _check_against(asked, batch)
    tell = progress or (lambda _: None)
    artifact = subject if isinstance(subject, Artifact) else load_artifact(Path(subject))
    if "scatter" in asked:
        check_scatter(artifact.spec, artifact.plan)
    weights = artifact.weights or random_weights(artifact.public, artifact.plan, seed)
    public = artifact.public
    pixels = random_images(public, seed, batch) if batch > 1 else random_image(public, seed)
    if network is not None:
        measured_there = _over_network(public, artifact.plan, weights, found, network, pixels)
        return _facts(public, artifact.plan, found) | {"batch": batch} | measured_there
    tell("this plan")
    result = _facts(public, artifact.plan, found) | {"batch": batch}
    measured = measure(public, artifact.plan, weights, pixels, found)
    result |= _result(measured)
    if products:
        tell("products")
        with Simulator(found) as simulator:
            result["products"] = product_rows(measured.products, simulator)
    result["against"] = {}
    for name in asked:
        tell(name)
        result["against"][name] = _compare(name, public, artifact.plan, weights, pixels, found)
    return result


def _check_against(asked: Sequence[str], batch: int) -> None:
    if unknown := [name for name in asked if name not in GRAPHS]:
        raise RequestError(f"no graph is called {unknown[0]!r}", f"known: {', '.join(GRAPHS)}")
    if batch > 1 and (one := [name for name in asked if name in get_args(Style)]):
        raise RequestError(f"the graph {one[0]} takes one image", "leave --batch away, or that graph")


def measure(
    public: Public,
    plan: Plan,
    weights: Values,
    pixels: np.ndarray,
    protocol: Protocol,
    rewrites: Rewrites | None = None,
) -> Measured:
    """The cost of a plan's program, segment by segment, on one runtime; pixels of several are a batch."""
    batch = batch_for(protocol.name, len(pixels) if pixels.ndim == 4 else 1)
    graph = Graph.of(public, plan, rewrites, batch)
    values = server_values(public, plan, weights, rewrites) | client_values(public, pixels)
    clear = jax.jit(lambda given: answer(graph, given))(values)
    simulator = Simulator(protocol, runs_parallel(graph))
    return _measure(graph_inputs(graph), graph_parts(graph), values, np.asarray(clear), simulator)


def measure_written(
    public: Public, plan: Plan, weights: Values, pixels: np.ndarray, protocol: Protocol, style: Style
) -> Measured:
    """The cost of the graph as commonly written: the untouched model's, or for `scatter` the plan's."""
    if style == "dense":
        public = replace(public, spec=without_pools(public.spec))
    inputs, parts = written_inputs(public.spec), written_parts(public.spec, plan, style)
    values = {entry.name: weights[entry.name] for entry in inputs if entry.owner == "server"}
    values |= client_values(public, pixels)
    given: dict[str, Any] = {name: jnp.asarray(value) for name, value in values.items()}
    x = parts[0][1](given)
    for _, part in parts[1:]:
        x = part(given | {"tokens": x})
    return _measure(inputs, parts, values, np.asarray(x), Simulator(protocol))


def _measure(
    inputs: tuple[Input, ...],
    parts: tuple[tuple[str, Function], ...],
    values: Values,
    clear: np.ndarray,
    unopened: Simulator,
) -> Measured:
    segments = compile_segments(inputs, parts)
    with unopened as simulator:
        simulator.give(inputs, values)
        counts = tuple((segment.name, simulator.run(segment.executable)) for segment in segments)
        logits = simulator.open(OUTPUT)
    return Measured(counts, simulator.setup, logits, clear, products_of(inputs, segments))


def _together(segments: Sequence[tuple[str, Counts]]) -> Counts:
    total = segments[0][1]
    for _, counts in segments[1:]:
        total = total + counts
    return total


def _compare(
    name: str, public: Public, plan: Plan, weights: Values, pixels: np.ndarray, protocol: Protocol
) -> dict[str, Any]:
    if name == "without-ranges":
        return _result(measure(public, plan, weights, pixels, protocol, Rewrites(ranges=False)))
    if name == "dense-rewritten":
        pooled, public = public.spec, replace(public, spec=without_pools(public.spec))
        dense = uniform_plan(public.spec)
        # A student's ranges say nothing of the untouched model's; of a plan that keeps all they are its own.
        # A plan without ranges is compared with a model without.
        whole = uniform_plan(pooled, granularity=plan.granularity).hash()
        own = not public.ranges or (plan.hash() == whole and pooled == public.spec)
        one = pixels[0] if pixels.ndim == 4 else pixels
        ranges = public.ranges if own else measured_ranges(public, dense, weights, one)
        # The guard is ours, and not part of the model that a plan is compared with.
        unguarded = replace(public, ranges=ranges, guard=False)
        return _result(measure(unguarded, dense, weights, pixels, protocol))
    return _result(measure_written(public, plan, weights, pixels, protocol, cast(Style, name)))


def with_random_ranges(artifact: Artifact, seed: int) -> Artifact:
    """The artifact with the ranges of the random weights and image that `bench` takes for this seed."""
    public = artifact.public
    weights = random_weights(public, artifact.plan, seed)
    ranges = measured_ranges(public, artifact.plan, weights, random_image(public, seed))
    notes = public.notes | {"ranges": f"measured on random weights and one image of noise, seed {seed}"}
    return replace(artifact, public=replace(public, ranges=ranges, notes=notes))


def measured_ranges(public: Public, plan: Plan, weights: Values, pixels: np.ndarray) -> dict[str, float]:
    """The ranges of one image (C, S, S), by running the graph in the clear on the generic functions."""
    graph = Graph.of(public, plan, Rewrites(ranges=False))
    values = server_values(public, plan, weights, graph.rewrites) | client_values(public, pixels)

    def seen(given: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        forward(graph, given, lambda name, value: found.update({name: value}))
        return found

    recorder = RangeRecorder()
    for name, value in jax.jit(seen)(values).items():
        recorder(name, np.asarray(value))
    return recorder.ranges


def largest_error(measured: Measured) -> float | None:
    """The largest error of a logit; None where noise drives a student beyond all numbers."""
    error = float(np.abs(measured.logits - measured.clear).max())
    return error if np.isfinite(error) else None


def _result(measured: Measured) -> dict[str, Any]:
    total = measured.total
    return {
        "sent_bytes": total.sent_bytes,
        "rounds": total.rounds,
        "seconds": total.seconds,
        "setup_bytes": measured.setup.sent_bytes,
        "setup_rounds": measured.setup.rounds,
        "setup_seconds": measured.setup.seconds,
        "max_logit_error": largest_error(measured),
        "processor_seconds": total.processor_seconds,
        "ranks": [rank.to_json() for rank in total.ranks],
        "parties": total.parties(),
        "layers": [{"name": name} | counts.to_json() for name, counts in measured.segments],
        "operations": [{"name": name} | entry for name, entry in total.by_operation().items()],
        "products": product_rows(measured.products),
    }


def _facts(public: Public, plan: Plan, protocol: Protocol) -> dict[str, Any]:
    return {
        "protocol": protocol.name,
        "private": protocol.private,
        "measured_on": "simulated",
        "ranges": public.notes.get("ranges", "artifact") if public.ranges else "none",
        "guard": public.guard,
        "granularity": vars(plan.granularity),
        "kept_gelu": sum(plan.kept("gelu")),
        "kept_softmax": sum(plan.kept("softmax")),
        "kept_norm": sum(plan.kept("norm")),
        "tokens": [public.spec.tokens_in(layer) for layer in range(public.spec.depth)],
        "kept_gelu_elements": plan.kept_gelu_elements(public.spec),
        "relu_ops": estimate(public.spec, plan, "paper").total,
        "and_gates": estimate(public.spec, plan, "circuits").total,
        "classes": public.spec.classes,
    }


def _over_network(
    public: Public, plan: Plan, weights: Values, protocol: Protocol, network: str, pixels: np.ndarray
) -> dict[str, Any]:
    # Only this path needs the tunnel and its processes.
    from privit.serve.measure.sessions import measure_session

    with tempfile.TemporaryDirectory(prefix="privit-bench-") as folder:
        save_artifact(Path(folder), public, plan, dict(weights))
        result = measure_session(Path(folder), protocol.name, network, pixels=pixels)
    return {name: value for name, value in result.items() if name != "logits"}


def random_weights(public: Public, plan: Plan, seed: int) -> dict[str, np.ndarray]:
    """Weights of a size that keeps activations near 1, for measuring cost without training."""
    rng = np.random.default_rng(seed)
    made = {}
    for name, shape in all_weight_shapes(public.spec, plan).items():
        value = rng.standard_normal(shape) * (shape[-1] ** -0.5 if len(shape) > 1 else 0.02)
        is_gamma = name.endswith(("norm1.weight", "norm2.weight", "norm.weight"))
        made[name] = (value + is_gamma).astype(np.float32)
    return made


def random_image(public: Public, seed: int) -> np.ndarray:
    """A preprocessed image (C, S, S) of noise."""
    spec = public.spec
    shape = (spec.channels, spec.image_size, spec.image_size)
    return np.random.default_rng(seed + 1).standard_normal(shape).astype(np.float32)


def random_images(public: Public, seed: int, count: int) -> np.ndarray:
    """So many preprocessed images (count, C, S, S) of noise, the first that of `random_image`."""
    return np.stack([random_image(public, seed + i) for i in range(count)])
