"""What a verb is asked about: an artifact on disk, or a synthetic plan of a named architecture."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from privit.artifact import Artifact, Preprocessing, Public, load_artifact
from privit.cli.ranges import with_ranges
from privit.data.catalog import catalog_spec
from privit.errors import RequestError
from privit.plan import Plan, per_layer, plan_from_counts, uniform_plan
from privit.spec import Spec, with_tokens


@dataclass(frozen=True)
class Synthetic:
    """A plan without training, with random weights.

    Args:
        model: Name of an architecture, such as vit_tiny_patch16_224.
        kept_gelu_tokens: GELU tokens that each layer keeps, separated by commas, or one number for every
            layer; all of them if absent.
        kept_softmax_rows: Softmax rows that each layer keeps, likewise.
        kept_norms: Exact LayerNorms of each block (0 to 2, norm1 first), likewise; the others are reused, the
            last one of the model is exact.
        tokens: Tokens in each block, class token included, separated by commas; where they fall patches are
            pooled. All of them to the end if absent.
        stand_in_gelu: The operator of the other tokens: identity, affine, quadratic or quad.
        stand_in_softmax: The operator of the other rows: squared_attn, quadratic_attn, uniform_attn ...
        stand_in_norm: The operator of the other LayerNorms: reused_norm, linear_norm or fixed_norm.
        image_size: Another image size than the model's own.
        seed: Where the kept sites lie, and the random weights.
        ranges: What the values inside the model lie in, which allows shorter functions: random (measured on
            the random weights and one image), or a JSON file; without, the engine's generic functions run.
    """

    model: str | None = None
    kept_gelu_tokens: str | None = None
    kept_softmax_rows: str | None = None
    kept_norms: str | None = None
    tokens: str | None = None
    stand_in_gelu: str = "identity"
    stand_in_softmax: str = "squared_attn"
    stand_in_norm: str = "reused_norm"
    image_size: int | None = None
    seed: int = 0
    ranges: str | None = None


def read_artifact(artifact: Path | None, synthetic: Synthetic) -> Artifact:
    """The artifact, or one of the synthetic plan; its weights are None where there are none on disk."""
    if (artifact is None) == (synthetic.model is None):
        raise RequestError("give an artifact's folder or --model, one of them", "privit cost out")
    if artifact is not None:
        if synthetic.ranges is not None:
            raise RequestError("an artifact has ranges of its own", "--ranges is for a plan by --model")
        if synthetic.kept_norms is not None or synthetic.tokens is not None:
            raise RequestError(
                "an artifact has a plan of its own", "--kept-norms and --tokens are for a plan by --model"
            )
        return load_artifact(artifact)
    assert synthetic.model is not None
    spec = catalog_spec(synthetic.model, synthetic.image_size)
    if synthetic.tokens is not None:
        spec = with_tokens(spec, token_counts(synthetic.tokens))
    half = (0.5,) * spec.channels
    public = Public(
        spec,
        Preprocessing(spec.image_size, spec.channels, half, half),
        tuple(str(i) for i in range(spec.classes)),
        notes={"weights": f"random, seed {synthetic.seed}"},
    )
    found = Artifact(public, _plan(spec, synthetic))
    return found if synthetic.ranges is None else with_ranges(found, synthetic.ranges, synthetic.seed)


def _plan(spec: Spec, synthetic: Synthetic) -> Plan:
    texts = (synthetic.kept_gelu_tokens, synthetic.kept_softmax_rows)
    if (*texts, synthetic.kept_norms) == (None, None, None):
        return uniform_plan(spec)
    tokens = [spec.tokens_in(layer) for layer in range(spec.depth)]
    full = tokens, [count * block.heads for count, block in zip(tokens, spec.blocks, strict=True)]
    gelu, softmax = (
        everything if text is None else per_layer(kept_counts(text), spec.depth)
        for text, everything in zip(texts, full, strict=True)
    )
    kept_norms = synthetic.kept_norms
    norms = None if kept_norms is None else per_layer(kept_counts(kept_norms), spec.depth)
    stand_in = {
        "gelu": synthetic.stand_in_gelu,
        "softmax": synthetic.stand_in_softmax,
        "norm": synthetic.stand_in_norm,
    }
    return plan_from_counts(spec, gelu, softmax, synthetic.seed, stand_in=stand_in, norms=norms)


def token_counts(text: str) -> list[int]:
    """Tokens in each block, from numbers separated by commas."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        hint = "write 50,50,17,... with a count per block"
        raise RequestError(f"{text!r} is not a list of token counts", hint) from None


def kept_counts(text: str) -> list[int]:
    """Exact sites of each layer, from numbers separated by commas; one alone is every layer's."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        hint = "write 127,1,41,... with a count per layer"
        raise RequestError(f"{text!r} is not a list of counts", hint) from None
