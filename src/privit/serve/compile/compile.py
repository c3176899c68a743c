"""From the public part of an artifact to a program that both parties compile for themselves."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import spu.utils.frontend as frontend
from spu import libspu

from privit.artifact import Public
from privit.errors import RequestError
from privit.plan import Plan, all_weight_shapes
from privit.program.choices import ONE, Batch, Rewrites
from privit.program.graph import Graph
from privit.serve.compile.shorten import shortened
from privit.serve.engine.engine_log import quiet_engine
from privit.serve.model.fold import fold_weights
from privit.serve.model.forward import block, cut_patches, embed, head
from privit.serve.model.guard import Step, answer, guarded_parts
from privit.serve.model.norms import Observe, pack, unpack
from privit.spec import Shape

OUTPUT = "logits"
CARRIED = "tokens"
PATCHES = "patches"
Owner = Literal["server", "client"]
Function = Callable[[Mapping[str, jax.Array]], jax.Array]


@dataclass(frozen=True)
class Input:
    """An input of the program: its name, its public shape and whose it is."""

    name: str
    shape: Shape
    owner: Owner


@dataclass(frozen=True)
class Segment:
    """A part of the program that is compiled alone, so that it can be measured alone."""

    name: str
    executable: libspu.Executable
    code: str
    inputs: tuple[str, ...]
    output: str


@dataclass(frozen=True)
class Program:
    """What both parties run. `code_hash` is equal for equal public parts, on every machine.

    `code` is the compiled program (pphlo text), which is hashed; the executable holds it shortened.
    """

    executable: libspu.Executable
    code: str
    code_hash: str
    inputs: tuple[Input, ...]
    output: str
    segments: tuple[Segment, ...] = ()


def compiler_options() -> libspu.CompilerOptions:
    """The engine's compiler options, equal for every party."""
    return libspu.CompilerOptions()


def compiler_options_text() -> str:
    """The options as text, for the handshake to compare."""
    options = compiler_options()
    names = sorted(name for name in dir(options) if name.startswith(("disable_", "enable_", "disallow_")))
    return "\n".join(f"{name}={getattr(options, name)}" for name in names)


def compile_program(
    public: Public,
    plan: Plan,
    rewrites: Rewrites | None = None,
    segments: bool = False,
    batch: Batch = ONE,
) -> Program:
    """The program of a model: the same bytes whoever compiles it, from the public part and nothing else.

    With `segments`, every layer is compiled alone as well.
    """
    graph = Graph.of(public, plan, rewrites, batch)
    inputs = graph_inputs(graph)
    parts = graph_parts(graph) if segments else ()
    return program_of(lambda values: answer(graph, values), inputs, parts)


def graph_inputs(graph: Graph) -> tuple[Input, ...]:
    """Every input of the graph with its shape, found without any weight."""
    shapes = all_weight_shapes(graph.spec, graph.plan)
    blank = {name: jax.ShapeDtypeStruct(shape, jnp.float32) for name, shape in shapes.items()}
    folded = jax.eval_shape(lambda weights: fold_weights(graph, weights), blank)
    server = tuple(Input(name, tuple(folded[name].shape), "server") for name in sorted(folded))
    return (
        *server,
        Input(PATCHES, (graph.batch.images * graph.spec.patches, graph.spec.patch_values), "client"),
    )


def program_of(
    function: Function, inputs: tuple[Input, ...], parts: tuple[tuple[str, Function], ...] = ()
) -> Program:
    """A program from any function of named inputs; `parts` are its segments, each fed with what it reads."""
    quiet_engine()
    shapes = {entry.name: entry.shape for entry in inputs}
    executable, code = _compile(function, shapes, tuple(shapes), OUTPUT)
    return Program(executable, code, _hash(executable, code), inputs, OUTPUT, compile_segments(inputs, parts))


def _hash(executable: libspu.Executable, code: str) -> str:
    digest = hashlib.sha256(code.encode())
    digest.update("\n".join([*executable.input_names, *executable.output_names]).encode())
    return digest.hexdigest()


def program_to_bytes(program: Program) -> bytes:
    """A program without segments, for another process of the same party: it need not compile again."""
    made = program.executable
    inputs = [(entry.name, entry.shape, entry.owner) for entry in program.inputs]
    names = {"name": made.name, "inputs": list(made.input_names), "outputs": list(made.output_names)}
    return json.dumps(names | {"code": program.code, "arrays": inputs, "output": program.output}).encode()


def program_from_bytes(data: bytes) -> Program:
    """What `program_to_bytes` gave; its hash is taken anew."""
    found = json.loads(data)
    inputs = tuple(Input(name, tuple(shape), owner) for name, shape, owner in found["arrays"])
    executable = libspu.Executable()
    executable.name, executable.code = found["name"], shortened(found["code"]).encode()
    executable.input_names, executable.output_names = found["inputs"], found["outputs"]
    return Program(executable, found["code"], _hash(executable, found["code"]), inputs, found["output"])


def server_values(
    public: Public, plan: Plan, weights: Mapping[str, np.ndarray], rewrites: Rewrites | None = None
) -> dict[str, np.ndarray]:
    """The server's inputs: its weights, folded in the clear."""
    graph = Graph.of(public, plan, rewrites)
    given = {name: np.asarray(value, np.float32) for name, value in weights.items()}
    return {name: np.asarray(value, np.float32) for name, value in fold_weights(graph, given).items()}


def client_values(public: Public, pixels: np.ndarray) -> dict[str, np.ndarray]:
    """The client's input: preprocessed images, (C, S, S) or (images, C, S, S), cut into patches."""
    spec = public.spec
    expected = (spec.channels, spec.image_size, spec.image_size)
    if tuple(pixels.shape[-3:]) != expected or pixels.ndim > 4:
        raise RequestError(
            f"the image has shape {tuple(pixels.shape)}, but the model reads {expected}",
            "preprocess it with the artifact's preprocessing",
        )
    cut = [cut_patches(spec, image) for image in np.asarray(pixels, np.float32).reshape(-1, *expected)]
    # The images of one patch stand next to each other.
    return {PATCHES: np.stack(cut, axis=1).reshape(-1, spec.patch_values)}


def graph_parts(graph: Graph) -> tuple[tuple[str, Function], ...]:
    """The segments of a graph: embedding, every layer, head and, if it has one, the guard."""
    last = graph.spec.depth

    def layer(values: Mapping[str, jax.Array], x: jax.Array, observe: Observe | None, i: int) -> jax.Array:
        return pack(graph, i + 1, block(graph, i, values, unpack(graph, i, x), observe))

    layers: list[tuple[str, Step]] = [
        (f"layer {i}", lambda values, x, observe, i=i: layer(values, x, observe, i))  # type: ignore[misc]
        for i in range(last)
    ]
    steps: list[tuple[str, Step]] = [
        *layers,
        ("head", lambda values, x, observe: head(graph, values, unpack(graph, last, x), observe)),
    ]
    first: tuple[str, Function] = ("embedding", lambda values: embed(graph, values))
    if graph.guard:
        return (first, *guarded_parts(graph, steps, CARRIED))
    alone = [(name, lambda values, step=step: step(values, values[CARRIED], None)) for name, step in steps]
    return (first, *alone)


class _Asked(dict[str, Any]):
    """A mapping that remembers which names were read."""

    def __init__(self, values: Mapping[str, Any]):
        super().__init__(values)
        self.read: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self.read.add(name)
        return super().__getitem__(name)


def compile_segments(
    inputs: tuple[Input, ...], parts: tuple[tuple[str, Function], ...]
) -> tuple[Segment, ...]:
    """Each part as an executable of its own, reading only what it needs and what the part before it left."""
    quiet_engine()
    made: list[Segment] = []
    known = {entry.name: entry.shape for entry in inputs}
    for place, (name, function) in enumerate(parts):
        blank = {n: jax.ShapeDtypeStruct(s, jnp.float32) for n, s in known.items()}
        asked: set[str] = set()

        def watched(
            values: Mapping[str, Any], function: Function = function, asked: set[str] = asked
        ) -> jax.Array:
            watching = _Asked(values)
            result = function(watching)
            asked |= watching.read
            return result

        shape = jax.eval_shape(watched, blank).shape
        output = OUTPUT if place + 1 == len(parts) else CARRIED
        read = tuple(n for n in known if n in asked)
        executable, code = _compile(function, {n: known[n] for n in read}, read, output)
        made.append(Segment(name, executable, code, read, output))
        known[CARRIED] = tuple(shape)
    return tuple(made)


def _compile(
    function: Function, shapes: Mapping[str, Shape], names: tuple[str, ...], output: str
) -> tuple[libspu.Executable, str]:
    """What the engine runs, and the text that it was compiled to."""

    def program(*arrays: jax.Array) -> jax.Array:
        return function(dict(zip(names, arrays, strict=True)))

    blank = [jax.ShapeDtypeStruct(shapes[name], jnp.float32) for name in names]
    secret = [libspu.Visibility.VIS_SECRET] * len(names)
    executable, _ = frontend.compile(
        frontend.Kind.JAX,
        program,
        blank,
        {},
        list(names),
        secret,
        lambda _: [output],
        copts=compiler_options(),
    )
    code = bytes(executable.code).decode()
    executable.code = shortened(code).encode()
    return executable, code
