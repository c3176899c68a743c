"""The folder that crosses from training to serving: JSON, safetensors, hashes, no code.

out/server/  public.json  plan.safetensors  weights.safetensors  manifest.json
out/client/  public.json  plan.safetensors                       manifest.json
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from privit.errors import ArtifactError
from privit.plan import Plan, all_weight_shapes, check_plan, load_plan, save_plan
from privit.spec import Spec

FORMAT_VERSION = 1

PUBLIC_FILES = ("public.json", "plan.safetensors")
WEIGHTS_FILE = "weights.safetensors"


@dataclass(frozen=True)
class Preprocessing:
    """How an image becomes the model's input; the same numbers on the training and the client side.

    The shorter side is resized to `size / crop` and the middle `size` x `size` is taken.
    """

    size: int
    channels: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    interpolation: str = "bicubic"
    crop: float = 1.0


@dataclass(frozen=True)
class Public:
    """What both parties know: everything but the weights and the image.

    `ranges` holds the largest absolute values seen on validation data (see train/export.py).
    """

    spec: Spec
    preprocessing: Preprocessing
    class_names: tuple[str, ...]
    ranges: dict[str, float] = field(default_factory=dict)
    notes: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Plain data from which `Public.from_json` makes an equal object."""
        return {
            "format_version": FORMAT_VERSION,
            "spec": self.spec.to_json(),
            "preprocessing": asdict(self.preprocessing),
            "class_names": list(self.class_names),
            "ranges": self.ranges,
            "notes": self.notes,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Public:
        """The object that `to_json` described; refuses a newer format."""
        version = data.get("format_version")
        if version != FORMAT_VERSION:
            raise ArtifactError(
                f"the artifact has format version {version}, but this privit reads version {FORMAT_VERSION}",
                "upgrade privit, or export the artifact again with this version",
            )
        try:
            preprocessing = dict(data["preprocessing"])
            preprocessing["mean"] = tuple(preprocessing["mean"])
            preprocessing["std"] = tuple(preprocessing["std"])
            return cls(
                Spec.from_json(data["spec"]),
                Preprocessing(**preprocessing),
                tuple(data["class_names"]),
                dict(data["ranges"]),
                dict(data["notes"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ArtifactError(
                f"public.json does not describe a model: {type(error).__name__} {error}", "export it again"
            ) from error


@dataclass(frozen=True)
class Artifact:
    """A loaded artifact; `weights` is None on the client's side."""

    public: Public
    plan: Plan
    weights: dict[str, np.ndarray] | None = field(default=None, repr=False)

    @property
    def spec(self) -> Spec:
        """The model without its weights."""
        return self.public.spec


def save_artifact(folder: Path, public: Public, plan: Plan, weights: dict[str, np.ndarray]) -> Artifact:
    """Writes server/ and client/ and reads both back; the returned artifact is what was read."""
    check_plan(public.spec, plan)
    _check_weights(public.spec, plan, weights)
    for side in ("server", "client"):
        part = folder / side
        part.mkdir(parents=True, exist_ok=True)
        (part / "public.json").write_text(json.dumps(public.to_json(), indent=2, sort_keys=True) + "\n")
        save_plan(plan, part / "plan.safetensors")
        if side == "server":
            tensors = {name: np.ascontiguousarray(value, dtype=np.float32) for name, value in weights.items()}
            save_file(tensors, str(part / "weights.safetensors"))
        _write_manifest(part)
    written, client = load_artifact(folder / "server"), load_artifact(folder / "client")
    same = (
        written.public == client.public == public and written.plan.hash() == client.plan.hash() == plan.hash()
    )
    if not same or any(not np.array_equal(written.weights[n], w) for n, w in tensors.items()):  # type: ignore[index]
        raise ArtifactError(f"what was written to {folder} does not read back equal", "check the disk")
    return written


def load_artifact(folder: Path) -> Artifact:
    """Reads `server/` or `client/`, or the server part of a whole artifact; every hash is checked."""
    folder = Path(folder)
    if not (folder / "public.json").is_file() and (folder / "server" / "public.json").is_file():
        folder = folder / "server"
    if not (folder / "manifest.json").is_file():
        raise ArtifactError(
            f"{folder} is not a privit artifact: it has no manifest.json", "make one: privit export"
        )
    _check_manifest(folder)
    public = Public.from_json(_read_json(folder / "public.json"))
    plan = load_plan(folder / "plan.safetensors")
    check_plan(public.spec, plan)
    weights = None
    if (folder / "weights.safetensors").is_file():
        try:
            weights = load_file(str(folder / "weights.safetensors"))
        except (SafetensorError, OSError) as error:
            raise ArtifactError(f"weights.safetensors is not readable: {error}", "export it again") from error
        _check_weights(public.spec, plan, weights)
    return Artifact(public, plan, weights)


def public_hash(public: Public, plan: Plan) -> str:
    """sha256 over everything that both parties must agree on."""
    text = json.dumps(public.to_json(), sort_keys=True) + plan.hash()
    return hashlib.sha256(text.encode()).hexdigest()


def weights_hash(weights: Mapping[str, np.ndarray], *texts: str) -> str:
    """sha256 over the first text, then every array with its name, then the other texts a line each."""
    digest = hashlib.sha256("".join(texts[:1]).encode())
    for name in sorted(weights):
        digest.update(name.encode() + np.ascontiguousarray(weights[name]).tobytes())
    digest.update("\n".join(texts[1:]).encode())
    return digest.hexdigest()


def _write_manifest(part: Path) -> None:
    hashes = {path.name: _sha256(path) for path in _covered(part)}
    manifest = {"format_version": FORMAT_VERSION, "sha256": hashes}
    (part / "manifest.json").write_text(json.dumps(manifest, indent=2, sort_keys=True) + "\n")


def _covered(folder: Path) -> list[Path]:
    """The files that are read, whose hashes the manifest must list."""
    return [folder / name for name in (*PUBLIC_FILES, WEIGHTS_FILE) if (folder / name).is_file()]


def _check_manifest(folder: Path) -> None:
    manifest = _read_json(folder / "manifest.json")
    if manifest.get("format_version") != FORMAT_VERSION:
        Public.from_json(manifest)  # raises with the version and what to do
    hashes = manifest.get("sha256")
    hashes = hashes if isinstance(hashes, dict) else {}
    covered = {path.name for path in _covered(folder)} | set(PUBLIC_FILES)
    if covered - hashes.keys():
        raise ArtifactError(
            f"{folder / 'manifest.json'} lists no hash for {', '.join(sorted(covered - hashes.keys()))}",
            "copy the whole folder again, or export the artifact again",
        )
    for name, expected in hashes.items():
        path = folder / name
        if not path.is_file():
            raise ArtifactError(f"{folder} lacks {name}", "copy the whole folder again")
        if _sha256(path) != expected:
            raise ArtifactError(
                f"{path} was changed or cut short after export (its sha256 differs from manifest.json)",
                "copy it again, or export the artifact again",
            )


def _check_weights(spec: Spec, plan: Plan, weights: dict[str, np.ndarray]) -> None:
    expected = all_weight_shapes(spec, plan)
    missing, extra = sorted(expected.keys() - weights.keys()), sorted(weights.keys() - expected.keys())
    wrong = [n for n in expected.keys() & weights.keys() if tuple(weights[n].shape) != expected[n]]
    if missing or extra or wrong:
        raise ArtifactError(
            f"the weights do not fit the spec and plan: missing {missing[:3]}, unexpected {extra[:3]}, "
            f"of another shape {sorted(wrong)[:3]}",
            "export the artifact again",
        )


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def _read_json(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ArtifactError(f"{path} is not readable JSON: {error}", "export the artifact again") from error
    if not isinstance(data, dict):
        raise ArtifactError(f"{path} does not hold a JSON object", "export the artifact again")
    return data
