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
from safetensors.numpy import load_file, save

from privit.errors import ArtifactError, RequestError
from privit.plan import Plan, all_weight_shapes, check_plan, load_plan, save_plan
from privit.spec import Spec

FORMAT_VERSION = 2
"""2: LayerNorms in the plan, pools in the spec."""
READABLE = (1, 2)

PUBLIC_FILES = ("public.json", "plan.safetensors")
WEIGHTS_FILE = "weights.safetensors"
MANIFEST_FILE = "manifest.json"

LEAST_MEAN_EXP = 0.99
"""By Jensen's inequality it is 1; the rest is for single precision."""
LARGEST_RANGE = float(np.finfo(np.float32).max)
SHOWN_PROBLEMS = 5
AGAIN = "export the artifact again"


INTERPOLATIONS = ("nearest", "bilinear", "bicubic", "lanczos", "box", "hamming")
"""The ways to resize, under the names that timm and Pillow share."""


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

    @property
    def largest_pixel(self) -> float:
        """How large a preprocessed pixel can be: pictures have values from 0 to 1."""
        pairs = zip(self.mean, self.std, strict=True)
        return max(max(abs(mean), abs(1 - mean)) / std for mean, std in pairs)

    def problems(self) -> list[str]:
        """Everything because of which these numbers describe no way to make an input, in sentences."""
        found = []
        if self.interpolation not in INTERPOLATIONS:
            known = ", ".join(INTERPOLATIONS)
            found.append(f"interpolation {self.interpolation!r} is unknown (known: {known})")
        if self.channels not in (1, 3):
            found.append(f"{self.channels} channels: a picture has 1 (grey) or 3 (RGB)")
        if not (_is_finite(self.crop) and 0 < self.crop <= 1):
            found.append(f"crop is {self.crop}, but a share above 0 and up to 1 was expected")
        if not isinstance(self.size, int) or self.size < 1:
            found.append(f"size is {self.size} pixels")
        for name, values in (("mean", self.mean), ("std", self.std)):
            if len(values) != self.channels:
                found.append(f"{name} has {len(values)} values for {self.channels} channels")
            if not all(_is_finite(value) for value in values):
                found.append(f"{name} is {list(values)}, but finite numbers were expected")
            elif name == "std" and any(value <= 0 for value in values):
                found.append("std has a value that is not above 0")
        return found


@dataclass(frozen=True)
class Public:
    """What both parties know: everything but the weights and the image.

    `ranges` holds the largest absolute values seen on validation data (see train/export.py). With `guard` the
    program ends with a bit that says whether all values stayed in their bounds. `logit_error` is how far its
    logits lie from the student's: the largest difference that the export measured.
    """

    spec: Spec
    preprocessing: Preprocessing
    class_names: tuple[str, ...]
    ranges: dict[str, float] = field(default_factory=dict)
    notes: dict[str, Any] = field(default_factory=dict)
    guard: bool = False
    logit_error: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain data from which `Public.from_json` makes an equal object."""
        return {
            "format_version": FORMAT_VERSION,
            "spec": self.spec.to_json(),
            "preprocessing": asdict(self.preprocessing),
            "class_names": list(self.class_names),
            "ranges": self.ranges,
            "notes": self.notes,
        } | self._later_fields()

    def _later_fields(self) -> dict[str, Any]:
        """What was added to a format: left out where it says nothing, so that older files keep their hash."""
        found = {"guard": self.guard or None, "logit_error": self.logit_error}
        return {name: value for name, value in found.items() if value is not None}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Public:
        """The object that `to_json` described; refuses a newer format."""
        version = data.get("format_version")
        if version not in READABLE:
            raise ArtifactError(
                f"the artifact has format version {version}, but this privit reads 1 to {FORMAT_VERSION}",
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
                # Artifacts of before there was a guard have none.
                bool(data.get("guard", False)),
                data.get("logit_error"),
            )
        except (KeyError, TypeError, ValueError, RequestError) as error:
            said = error.message if isinstance(error, RequestError) else f"{type(error).__name__} {error}"
            raise ArtifactError(f"public.json does not describe a model: {said}", AGAIN) from error

    def problems(self) -> list[str]:
        """Everything in which the parts contradict each other or hold impossible values, in sentences."""
        found, spec = self.preprocessing.problems(), self.spec
        made = (self.preprocessing.channels, self.preprocessing.size, self.preprocessing.size)
        taken = (spec.channels, spec.image_size, spec.image_size)
        if made != taken:
            found.append(f"preprocessing makes images of shape {made}, but the model takes {taken}")
        if len(self.class_names) != spec.classes:
            found.append(
                f"{len(self.class_names)} class names are given, but the model has {spec.classes} classes"
            )
        if not all(isinstance(name, str) for name in self.class_names):
            found.append("class names hold something else than text")
        if self.logit_error is not None and not (_is_finite(self.logit_error) and self.logit_error >= 0):
            found.append(f"the error of a logit is {self.logit_error!r}, not a finite number from 0 on")
        return found + range_problems(self.ranges)


def range_problems(ranges: Mapping[str, Any]) -> list[str]:
    """Values that no measurement gives: ranges are largest absolute values, variances and sums of powers."""
    found = [
        f"range {name} is {value!r}, not a finite number from 0 on"
        for name, value in ranges.items()
        if not (_is_finite(value) and value >= 0)
    ]
    found += [
        f"range {name} is {value:g}, more than any model in single precision has"
        for name, value in (ranges.items() if not found else ())
        if value > LARGEST_RANGE
    ]
    for name, value in ranges.items() if not found else ():
        high = name.removesuffix("_low") + "_high"
        if name.endswith(".softmax.mean_exp") and value < LEAST_MEAN_EXP:
            found.append(f"range {name} is {value:g}, but a mean of powers of centred scores is at least 1")
        if name.endswith(".variance_low") and value > ranges.get(high, value):
            found.append(f"range {name} is {value:g}, above {high} with {ranges[high]:g}")
    return found[:SHOWN_PROBLEMS]


def _is_finite(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < np.inf


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
    _check(public, plan, weights)
    tensors = {name: np.ascontiguousarray(value, dtype=np.float32) for name, value in weights.items()}
    _write_part(folder / "server", public, plan, tensors)
    _write_part(folder / "client", public, plan)
    written, client = load_artifact(folder / "server"), load_artifact(folder / "client")
    same = (
        written.public == client.public == public and written.plan.hash() == client.plan.hash() == plan.hash()
    )
    if not same or any(not np.array_equal(written.weights[n], w) for n, w in tensors.items()):  # type: ignore[index]
        raise ArtifactError(f"what was written to {folder} does not read back equal", "check the disk")
    return written


def save_program(folder: Path, public: Public, plan: Plan) -> Artifact:
    """Writes what an artifact computes without the weights it computes with: enough to cost it."""
    _check(public, plan, None)
    _write_part(folder, public, plan)
    return load_artifact(folder)


def _write_part(part: Path, public: Public, plan: Plan, tensors: dict[str, np.ndarray] | None = None) -> None:
    part.mkdir(parents=True, exist_ok=True)
    (part / "public.json").write_text(json.dumps(public.to_json(), indent=2, sort_keys=True) + "\n")
    save_plan(plan, part / "plan.safetensors")
    if tensors is not None:
        # Python's own writing says why it failed (a full disk), safetensors' does not.
        (part / WEIGHTS_FILE).write_bytes(save(tensors))
    _write_manifest(part)


def load_artifact(folder: Path) -> Artifact:
    """Reads `server/` or `client/`, or the server part of a whole artifact.

    Every hash is checked, and everything that is read: whoever edits a file can write its hash, too.
    """
    folder = Path(folder)
    if not (folder / "public.json").is_file() and (folder / "server" / "public.json").is_file():
        folder = folder / "server"
    if not (folder / MANIFEST_FILE).is_file():
        raise ArtifactError(
            f"{folder} is not a privit artifact: it has no manifest.json", "make one: privit export"
        )
    _check_manifest(folder)
    public = Public.from_json(_read_json(folder / "public.json"))
    plan = load_plan(folder / "plan.safetensors")
    weights = None
    if (folder / WEIGHTS_FILE).is_file():
        try:
            weights = load_file(str(folder / WEIGHTS_FILE))
        except (SafetensorError, OSError) as error:
            raise ArtifactError(f"weights.safetensors is not readable: {error}", "export it again") from error
    _check(public, plan, weights)
    return Artifact(public, plan, weights)


def listed_files(part: Path) -> set[str]:
    """The names that belong to a part of an artifact, as its manifest lists them; empty without one."""
    if not (part / MANIFEST_FILE).is_file():
        return set()
    hashes = _read_json(part / MANIFEST_FILE).get("sha256")
    return {MANIFEST_FILE, *(hashes if isinstance(hashes, dict) else ())}


def public_hash(public: Public, plan: Plan) -> str:
    """sha256 over everything that both parties must agree on."""
    # What formats after the first brought is in the content itself, so that older models keep their hash.
    content = public.to_json() | {"format_version": READABLE[0]}
    text = json.dumps(content, sort_keys=True) + plan.hash()
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
    (part / MANIFEST_FILE).write_text(json.dumps(manifest, indent=2, sort_keys=True) + "\n")


def _covered(folder: Path) -> list[Path]:
    """The files that are read, whose hashes the manifest must list."""
    return [folder / name for name in (*PUBLIC_FILES, WEIGHTS_FILE) if (folder / name).is_file()]


def _check_manifest(folder: Path) -> None:
    manifest = _read_json(folder / MANIFEST_FILE)
    if manifest.get("format_version") not in READABLE:
        Public.from_json(manifest)  # raises with the version and what to do
    hashes = manifest.get("sha256")
    hashes = hashes if isinstance(hashes, dict) else {}
    covered = {path.name for path in _covered(folder)} | set(PUBLIC_FILES)
    if covered - hashes.keys():
        raise ArtifactError(
            f"{folder / MANIFEST_FILE} lists no hash for {', '.join(sorted(covered - hashes.keys()))}",
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


def _check(public: Public, plan: Plan, weights: dict[str, np.ndarray] | None) -> None:
    """Refuses parts that do not belong together or that nothing sensible can be computed with."""
    if problems := public.problems():
        raise ArtifactError(f"public.json does not describe a model: {'; '.join(problems)}", AGAIN)
    check_plan(public.spec, plan)
    if weights is not None:
        _check_weights(public.spec, plan, weights)


def _check_weights(spec: Spec, plan: Plan, weights: dict[str, np.ndarray]) -> None:
    expected = all_weight_shapes(spec, plan)
    missing, extra = sorted(expected.keys() - weights.keys()), sorted(weights.keys() - expected.keys())
    wrong = [n for n in expected.keys() & weights.keys() if tuple(weights[n].shape) != expected[n]]
    if missing or extra or wrong:
        raise ArtifactError(
            f"the weights do not fit the spec and plan: missing {missing[:3]}, unexpected {extra[:3]}, "
            f"of another shape {sorted(wrong)[:3]}",
            AGAIN,
        )
    if types := sorted({str(value.dtype) for value in weights.values() if value.dtype.kind != "f"}):
        raise ArtifactError(f"the weights are {', '.join(types)}, but floating-point was expected", AGAIN)
    if broken := sorted(name for name, value in weights.items() if not np.isfinite(value).all()):
        raise ArtifactError(f"the weights hold NaN or infinity: {', '.join(broken[:3])}", AGAIN)


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
        raise ArtifactError(f"{path} is not readable JSON: {error}", AGAIN) from error
    if not isinstance(data, dict):
        raise ArtifactError(f"{path} does not hold a JSON object", AGAIN)
    return data
