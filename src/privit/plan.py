"""Which operator stands at which site."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from privit.errors import ArtifactError, BudgetError, RequestError
from privit.operators import BY_ID, STAND_IN, TABLE, UNTOUCHED, Operator, operator, parameter_shapes
from privit.spec import KINDS, NORM_PLACES, PAPER_KINDS, Granularity, Shape, Spec, sites, weight_shapes

OWN_FACTOR = ("normalised", "linear")
"""The families whose operators compute a token's own factor at a LayerNorm; later ones may reuse it."""

EXACT = np.zeros(256, dtype=bool)
EXACT[[o.id for o in TABLE if o.exact]] = True
"""EXACT[id] is true where the operator counts against a budget."""


@dataclass(frozen=True)
class Plan:
    """For each kind, one uint8 array of operator ids per layer, shaped like that layer's sites."""

    granularity: Granularity
    layers: dict[str, tuple[np.ndarray, ...]]

    def kept(self, kind: str) -> list[int]:
        """How many exact sites each layer keeps."""
        return [int(EXACT[ids].sum()) for ids in self.layers[kind]]

    def replaces(self, kind: str) -> bool:
        """Whether any site of the kind has something else than the untouched model's operator."""
        return any((ids != operator(UNTOUCHED[kind], kind).id).any() for ids in self.layers[kind])

    def total(self, kind: str) -> int:
        """How many sites the model has."""
        return sum(ids.size for ids in self.layers[kind])

    def operators(self, kind: str, layer: int) -> list[Operator]:
        """The operators that occur in one layer, by id."""
        return [BY_ID[int(i)] for i in np.unique(self.layers[kind][layer])]

    def kept_gelu_elements(self, spec: Spec) -> int:
        """Exact GELU-kind scalars in the whole model, whatever the granularity."""
        per_site = {
            "token": lambda b, n: b.mlp_width,
            "element": lambda b, n: 1,
            "layer": lambda b, n: b.mlp_width * n,
        }[self.granularity.gelu]
        kept = zip(self.kept("gelu"), spec.blocks, strict=True)
        return sum(k * per_site(b, spec.tokens_in(i)) for i, (k, b) in enumerate(kept))

    def kept_softmax_rows(self, spec: Spec) -> int:
        """Exact softmax rows in the whole model, whatever the granularity."""
        per_site = {
            "row": lambda b, n: 1,
            "head": lambda b, n: n,
            "layer": lambda b, n: n * b.heads,
        }[self.granularity.softmax]
        kept = zip(self.kept("softmax"), spec.blocks, strict=True)
        return sum(k * per_site(b, spec.tokens_in(i)) for i, (k, b) in enumerate(kept))

    def hash(self) -> str:
        """sha256 over granularity, shapes and ids; equal plans have equal hashes on every machine.

        Where every LayerNorm is exact, it is what it was before LayerNorms were in the plan.
        """
        kinds = KINDS if self.replaces("norm") or self.granularity.norm != "layer" else PAPER_KINDS
        finely = {kind: self.granularity.of(kind) for kind in kinds}
        digest = hashlib.sha256(json.dumps(finely, sort_keys=True).encode())
        for kind in kinds:
            for ids in self.layers[kind]:
                digest.update(f"{kind}{ids.shape}".encode())
                digest.update(np.ascontiguousarray(ids).tobytes())
        return digest.hexdigest()


def plan_from_ids(granularity: Granularity, layers: dict[str, list[np.ndarray]]) -> Plan:
    """A plan from arrays of operator ids; without any for LayerNorms, these are exact."""
    if "norm" not in layers:
        layers = layers | {"norm": _exact_norms(len(layers["gelu"]))}
    return Plan(granularity, {k: tuple(np.asarray(a, dtype=np.uint8) for a in layers[k]) for k in KINDS})


def _exact_norms(depth: int) -> list[np.ndarray]:
    places = [len(NORM_PLACES) + (layer + 1 == depth) for layer in range(depth)]
    return [np.full(count, operator(UNTOUCHED["norm"]).id) for count in places]


def uniform_plan(
    spec: Spec,
    gelu: str = "gelu",
    softmax: str = "softmax",
    granularity: Granularity | None = None,
    norm: str = "layer_norm",
) -> Plan:
    """The same operator at every site of a kind; with no names given, the untouched model.

    Where `norm` reuses what an earlier LayerNorm computed, the first one stays exact.
    """
    granularity = granularity or Granularity()
    names = {k: operator(n, k) for k, n in (("gelu", gelu), ("softmax", softmax), ("norm", norm))}
    shapes = sites(spec, granularity)
    layers = {k: [np.full(s, names[k].id) for s in shapes[k]] for k in KINDS}
    return plan_from_ids(granularity, layers | {"norm": _with_source(layers["norm"])})


def _with_source(norms: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The ids with an exact first LayerNorm, if what stands there would have nothing to reuse."""
    first = np.array(norms[0])
    first[0] = np.where(first[0] == operator("reused_norm").id, operator(UNTOUCHED["norm"]).id, first[0])
    return [first, *norms[1:]]


def plan_from_kept(
    granularity: Granularity,
    kept: Mapping[str, list[np.ndarray]],
    exact: dict[str, str] | None = None,
    stand_in: dict[str, str] | None = None,
) -> Plan:
    """A two-operator plan from boolean arrays: `exact` where true, `stand_in` elsewhere.

    Without an array for LayerNorms these are exact, and so is a first one that had nothing to reuse.
    """
    exact = UNTOUCHED | (exact or {})
    stand_in = STAND_IN | (stand_in or {})
    ids = {k: (operator(exact[k], k).id, operator(stand_in[k], k).id) for k in kept}
    layers = {k: [np.where(m, *ids[k]) for m in kept[k]] for k in kept}
    if "norm" in layers:
        layers["norm"] = _with_source(layers["norm"])
    return plan_from_ids(granularity, layers)


def per_layer(counts: Sequence[int], depth: int) -> list[int]:
    """A count for each layer; one alone is every layer's."""
    return list(counts) * depth if len(counts) == 1 else list(counts)


def plan_from_counts(
    spec: Spec,
    gelu_tokens: list[int],
    softmax_rows: list[int],
    seed: int = 0,
    exact: dict[str, str] | None = None,
    stand_in: dict[str, str] | None = None,
    norms: list[int] | None = None,
) -> Plan:
    """A synthetic plan from counts per layer: the class token's sites first, the rest drawn by `seed`.

    `norms` counts the exact LayerNorms of each block, norm1 first; the final one is exact.
    """
    granularity = Granularity()
    shapes = sites(spec, granularity)
    rng = np.random.default_rng(seed)
    kept: dict[str, list[np.ndarray]] = {}
    given = {"gelu": gelu_tokens, "softmax": softmax_rows} | ({} if norms is None else {"norm": norms})
    for kind, counts in given.items():
        if len(counts) != spec.depth:
            raise BudgetError(
                f"{len(counts)} {kind} counts given, but the model has {spec.depth} layers",
                f"give {spec.depth} counts, separated by commas",
            )
        first = _first_norms if kind == "norm" else partial(_first_sites, rng=rng, spec=spec, kind=kind)
        kept[kind] = [first(s, n, layer=i) for i, (s, n) in enumerate(zip(shapes[kind], counts, strict=True))]
    return plan_from_kept(granularity, kept, exact, stand_in)


def _first_norms(shape: Shape, count: int, layer: int) -> np.ndarray:
    most = len(NORM_PLACES)
    if not 0 <= count <= most:
        raise BudgetError(
            f"layer {layer} is asked to keep {count} LayerNorms, but a block has {most}", f"give 0 to {most}"
        )
    if layer == 0 and count == 0:
        raise BudgetError(
            "the first LayerNorm is to be reused, but there is none before it",
            "keep 1 or 2 in the first block",
        )
    place = np.arange(shape[0])
    return (place < count) | (place >= most)


def _first_sites(
    shape: Shape, count: int, layer: int, rng: np.random.Generator, spec: Spec, kind: str
) -> np.ndarray:
    size = int(np.prod(shape))
    if not 0 <= count <= size:
        raise BudgetError(
            f"layer {layer} is asked to keep {count} {kind} sites, but it has {size}", f"give 0 to {size}"
        )
    order = rng.permutation(size)
    if spec.class_token:
        # Token 0 is the class token: index 0 of every head's row of tokens.
        first = np.arange(0, size, shape[-1])
        order = np.concatenate([first, order[~np.isin(order, first)]])
    mask = np.zeros(size, dtype=bool)
    mask[order[:count]] = True
    return mask.reshape(shape)


def swap_operator(plan: Plan, old: str, new: str) -> Plan:
    """The plan with one operator replaced by another everywhere (PriViT-R: gelu by relu)."""
    before, after = operator(old), operator(new, operator(old).kind)
    layers = {
        kind: [np.where(ids == before.id, after.id, ids) if kind == before.kind else ids for ids in arrays]
        for kind, arrays in plan.layers.items()
    }
    return plan_from_ids(plan.granularity, layers)


def check_site_budget(value: float, kind: str) -> None:
    """Refuses what is neither a share from 0 to 1 nor a whole number of sites, whatever the model."""
    hint = "give a share such as 0.1, or a whole number of sites"
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < np.inf:
        raise BudgetError(f"the {kind} budget is {value!r}, not a number of sites", hint)
    if value < 0:
        raise BudgetError(f"the {kind} budget is {value}, below zero", hint)
    if value > 1 and value != int(value):
        raise BudgetError(f"the {kind} budget is {value}, neither a share nor a whole number of sites", hint)


def site_budget(value: float, total: int, kind: str) -> int:
    """A budget as a number of sites: a whole number of sites, or a share between 0 and 1 given as a float."""
    check_site_budget(value, kind)
    if isinstance(value, float) and value <= 1:
        return int(value * total + 1e-9)
    if value > total:
        shown = value if isinstance(value, int) else f"{value:.15g}"
        raise BudgetError(
            f"budget is {shown}, but the model has {total} {kind} sites",
            f"give a share such as 0.2, or at most {total}",
        )
    return int(value)


def check_plan(spec: Spec, plan: Plan) -> None:
    """Refuses a plan that does not belong to `spec` or names an operator of another kind."""
    shapes = sites(spec, plan.granularity)
    for kind in KINDS:
        found = [ids.shape for ids in plan.layers[kind]]
        if found != shapes[kind]:
            raise ArtifactError(
                f"the plan's {kind} arrays have shapes {found}, but the model's sites have {shapes[kind]}",
                "use the plan that was made for this model",
            )
        for ids in plan.layers[kind]:
            known = {o.id for o in TABLE if o.kind == kind}
            wrong = set(np.unique(ids).tolist()) - known
            if wrong:
                raise ArtifactError(
                    f"the plan has {kind} operator ids {sorted(wrong)}, which this version lacks"
                )
    _check_sources(plan)


def _check_sources(plan: Plan) -> None:
    """Refuses a LayerNorm that reuses what none before it has computed, for any class of tokens."""
    own = [o.id for o in TABLE if o.kind == "norm" and o.family in OWN_FACTOR]
    ids = np.concatenate([a.reshape(len(a), -1) for a in plan.layers["norm"]])  # (norms, classes of tokens)
    computed = np.logical_or.accumulate(np.isin(ids, own), axis=0)
    reused = ids == operator("reused_norm").id
    if (reused & ~computed).any():
        place = int(np.argmax((reused & ~computed).any(axis=1)))
        raise ArtifactError(
            f"LayerNorm {place} of the plan reuses what one before it computed, but none there does",
            "keep the first LayerNorm exact",
        )


def all_weight_shapes(spec: Spec, plan: Plan) -> dict[str, Shape]:
    """Weights of the model and parameters of every operator that the plan uses, name to shape."""
    shapes = weight_shapes(spec)
    for layer in range(spec.depth):
        for kind in KINDS:
            for entry in plan.operators(kind, layer):
                shapes |= parameter_shapes(spec, layer, entry, plan.granularity)
    return shapes


def save_plan(plan: Plan, path: Path) -> None:
    """Writes the plan as packed uint8 arrays."""
    # np.ascontiguousarray would turn a layer's single site, shape (), into shape (1,).
    tensors = {
        f"{kind}.{i}": np.array(a, order="C") for kind in KINDS for i, a in enumerate(plan.layers[kind])
    }
    # Python's own writing says why it failed (a full disk), safetensors' does not.
    path.write_bytes(save(tensors, metadata={"granularity": json.dumps(vars(plan.granularity))}))


def load_plan(path: Path) -> Plan:
    """Reads what `save_plan` wrote."""
    try:
        with safe_open(str(path), framework="numpy") as file:
            granularity = Granularity(**json.loads((file.metadata() or {})["granularity"]))
            names = list(file.keys())
            counts = {kind: sum(name.startswith(kind + ".") for name in names) for kind in KINDS}
            # A plan that was written before LayerNorms had sites holds none: they are exact.
            layers = {k: [file.get_tensor(f"{k}.{i}") for i in range(counts[k])] for k in KINDS if counts[k]}
    except (SafetensorError, OSError, KeyError, ValueError, TypeError, RequestError) as error:
        said = error.message if isinstance(error, RequestError) else error
        raise ArtifactError(
            f"{path.name} is not a readable plan: {said}", "export the artifact again"
        ) from error
    types = sorted({str(ids.dtype) for arrays in layers.values() for ids in arrays} - {"uint8"})
    if types:
        raise ArtifactError(
            f"{path.name} has operator ids of type {', '.join(types)}, but uint8 was expected",
            "export the artifact again",
        )
    return plan_from_ids(granularity, layers)
