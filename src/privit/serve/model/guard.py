"""The guard in jax: collects what `program/guard.py` watches, and compares it all at once at the end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import jax.numpy as jnp
from jax import Array

from privit.program.graph import Graph
from privit.program.guard import all_watches, odd_count, watches
from privit.serve.model.attention import Observe
from privit.serve.model.forward import forward

Values = Mapping[str, Array]
Step = Callable[[Values, Array, Observe | None], Array]
"""One segment of a program: of the inputs, what the segment before left, and who watches."""


class Guard:
    """Collects how far values are from their bounds as they pass; call it as the graph's `observe`."""

    def __init__(self, graph: Graph, observe: Observe | None = None):
        self._watches = {watch.name: watch for watch in all_watches(graph)}
        self._observe = observe
        self._slack: list[Array] = []
        self._images = graph.batch.images

    def __call__(self, name: str, value: Array) -> None:
        """Notes one value, if it is watched."""
        if self._observe is not None:
            self._observe(name, value)
        watch = self._watches.get(name)
        if watch is None:
            return
        flat = self._by_value(value)
        if watch.low is not None:
            self._slack.append(flat - watch.low)
        if watch.high is not None:
            self._slack.append(watch.high - flat)

    def _by_value(self, value: Array) -> Array:
        """Flat, the images of one value next to each other."""
        if self._images == 1 or value.ndim == 1:
            return value.reshape(-1)
        return value.reshape(-1, self._images, value.shape[1]).swapaxes(1, 2).reshape(-1)

    @property
    def slack(self) -> Array:
        """What was collected (comparisons,), for each all images: below zero where a value is outside."""
        return jnp.concatenate(self._slack) if self._slack else jnp.zeros(0)


def inside(slack: Array, images: int = 1) -> Array:
    """For each image (images,) one if nothing of it is below zero, else zero, and nothing else about it."""
    if odd_count(slack.size // images):
        slack = jnp.concatenate([slack, slack[-images:]])
    below = (slack < 0).astype(jnp.int32)
    outside = jnp.sum(below) if images == 1 else jnp.sum(below.reshape(-1, images), axis=0)
    return (outside < 1).astype(jnp.float32).reshape(images)


def answer(graph: Graph, values: Values, observe: Observe | None = None) -> Array:
    """What the client opens: logits and, if the program has a guard, its bit behind them.

    Of one image (classes,) or (classes + 1,), of several a row each.
    """
    if not graph.guard:
        return forward(graph, values, observe)
    guard = Guard(graph, observe)
    logits = forward(graph, values, guard)
    return with_bits(logits, inside(guard.slack, graph.batch.images))


def with_bits(logits: Array, bits: Array) -> Array:
    """The logits with each image's bit behind its own."""
    return jnp.concatenate([logits, bits if logits.ndim == 1 else bits[:, None]], axis=-1)


def guarded_parts(
    graph: Graph, steps: Sequence[tuple[str, Step]], carried: str
) -> list[tuple[str, Callable[[Values], Array]]]:
    """Segments that hand on, behind what they made, how far all values so far are from their bounds."""
    images = graph.batch.images
    counts = {name: images * sum(w.comparisons for w in found) for name, found in watches(graph)}
    before = 0
    parts: list[tuple[str, Callable[[Values], Array]]] = []
    for layer, (name, step) in enumerate(steps):
        width = graph.spec.width + graph.carries(layer)

        def part(values: Values, step: Step = step, before: int = before, width: int = width) -> Array:
            given, guard = values[carried].reshape(-1), Guard(graph)
            tokens, slack = given[: given.size - before], given[given.size - before :]
            made = step(values, tokens.reshape(-1, width), guard)
            return jnp.concatenate([made.reshape(-1), slack, guard.slack])

        parts.append((name, part))
        before += counts.get(name, 0)

    def last(values: Values) -> Array:
        given = values[carried]
        logits, slack = given[: given.size - before], given[given.size - before :]
        return with_bits(logits if images == 1 else logits.reshape(images, -1), inside(slack, images))

    return [*parts, ("guard", last)]
