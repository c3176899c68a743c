"""An artifact survives the disk, and every change to it is noticed."""

from __future__ import annotations

import errno
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privit.artifact import Artifact, Public, load_artifact, public_hash, save_artifact
from privit.errors import ArtifactError, PrivitError
from privit.plan import Plan

Weights = dict[str, np.ndarray]
GOLDEN = Path(__file__).parent / "golden" / "artifact-format-1"
"""Written by `save_artifact` when format 1 was made, from the model of conftest.py; never written again."""
PLAN_HASH = "bf65306ead0aa2d885ba3782938443d8d655c40107bad55e5d369943522ad3ca"
PUBLIC_HASH = "6fac6f528647f3edee54fd45049867125d65a6859a11c7eda2281c24ef7bd4df"
HEAD_WEIGHT = -0.03797615319490433


@pytest.fixture
def saved(tmp_path: Path, tiny_public: Public, tiny_plan: Plan, tiny_weights: Weights) -> Path:
    save_artifact(tmp_path / "out", tiny_public, tiny_plan, tiny_weights)
    return tmp_path / "out"


def test_what_is_loaded_is_what_was_saved(
    saved: Path, tiny_public: Public, tiny_plan: Plan, tiny_weights: Weights
) -> None:
    loaded = load_artifact(saved)
    assert loaded.public == tiny_public
    assert loaded.plan.hash() == tiny_plan.hash()
    assert loaded.weights is not None
    assert all(np.array_equal(loaded.weights[name], value) for name, value in tiny_weights.items())


def test_an_artifact_of_format_1_is_read_as_it_was_written(tiny_public: Public, tiny_plan: Plan) -> None:
    loaded = load_artifact(GOLDEN)
    assert loaded.public == tiny_public
    assert loaded.plan.hash() == tiny_plan.hash() == PLAN_HASH
    assert public_hash(loaded.public, loaded.plan) == PUBLIC_HASH
    assert (loaded.public.guard, loaded.public.logit_error) == (False, None)
    assert loaded.weights is not None
    assert float(loaded.weights["head.weight"][0, 0]) == pytest.approx(HEAD_WEIGHT, abs=1e-9)
    assert load_artifact(GOLDEN / "client").weights is None


def test_an_artifact_of_format_2_is_read_as_it_was_written() -> None:
    """Written when format 2 was made: reused, linear and fixed norms, and a pool to 4 patches."""
    loaded = load_artifact(GOLDEN.with_name("artifact-format-2"))
    assert loaded.plan.hash() == "953d242302b5ef150d0552d508790aa80110656b839fee309c1cd1a1b45e6e17"
    public = public_hash(loaded.public, loaded.plan)
    assert public == "aadc84d67c419d85bba8ca5beb396b3b965ee1ad85bd6ab5fe19d8241830d825"
    assert [loaded.spec.tokens_in(layer) for layer in range(3)] == [17, 5, 5]
    assert [ids.tolist() for ids in loaded.plan.layers["norm"]] == [[32, 32], [32, 34], [35, 33, 32]]
    assert loaded.weights is not None
    assert float(loaded.weights["blocks.1.pool.weight"][0, 0]) == pytest.approx(-0.11651201, abs=1e-7)


def test_a_guard_and_the_error_of_a_logit_survive_a_round_trip(tiny_public: Public) -> None:
    public = replace(tiny_public, guard=True, logit_error=0.25)
    assert Public.from_json(public.to_json()) == public
    assert "nan" in " ".join(replace(public, logit_error=float("nan")).problems())


def test_the_clients_folder_holds_no_weights(saved: Path) -> None:
    assert load_artifact(saved / "client").weights is None
    assert sorted(p.name for p in (saved / "client").iterdir()) == [
        "manifest.json",
        "plan.safetensors",
        "public.json",
    ]


def test_both_parties_compute_the_same_hash_of_the_public_part(saved: Path) -> None:
    server, client = load_artifact(saved / "server"), load_artifact(saved / "client")
    assert public_hash(server.public, server.plan) == public_hash(client.public, client.plan)


def test_the_public_hash_changes_with_every_part(tiny_public: Public, tiny_plan: Plan) -> None:
    changed = [
        replace(tiny_public, class_names=("a", "b", "d")),
        replace(tiny_public, spec=replace(tiny_public.spec, norm_eps=1e-5)),
        replace(tiny_public, preprocessing=replace(tiny_public.preprocessing, mean=(0.4,))),
    ]
    assert len({public_hash(public, tiny_plan) for public in [tiny_public, *changed]}) == 4


def test_the_weights_are_not_shown_where_an_artifact_is_printed(saved: Path) -> None:
    assert "array" not in repr(load_artifact(saved)).split("weights")[0][-20:]
    assert isinstance(load_artifact(saved), Artifact)
    assert "head.weight" not in repr(load_artifact(saved))


@pytest.mark.parametrize("name", ["public.json", "plan.safetensors", "weights.safetensors"])
def test_one_changed_byte_is_noticed(saved: Path, name: str) -> None:
    path = saved / "server" / name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(ArtifactError, match=f"{name} was changed or cut short"):
        load_artifact(saved)


@pytest.mark.parametrize("name", ["public.json", "plan.safetensors", "weights.safetensors"])
def test_a_truncated_file_is_noticed(saved: Path, name: str) -> None:
    path = saved / "server" / name
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ArtifactError, match=f"{name} was changed or cut short"):
        load_artifact(saved)


@pytest.mark.parametrize("name", ["public.json", "plan.safetensors", "weights.safetensors"])
def test_a_missing_file_is_named(saved: Path, name: str) -> None:
    (saved / "server" / name).unlink()
    with pytest.raises(ArtifactError, match=f"lacks {name}"):
        load_artifact(saved / "server")


def test_a_file_without_a_hash_is_refused(saved: Path) -> None:
    change_json(saved / "server" / "manifest.json", lambda data: data["sha256"].pop("weights.safetensors"))
    with pytest.raises(ArtifactError, match=r"lists no hash for weights\.safetensors"):
        load_artifact(saved)


def test_a_newer_format_is_refused_with_both_versions(saved: Path) -> None:
    change_json(saved / "server" / "manifest.json", lambda data: data.update(format_version=3))
    said = r"format version 3, but this privit reads 1 to 2"
    with pytest.raises(ArtifactError, match=said) as caught:
        load_artifact(saved)
    assert "upgrade privit" in caught.value.hint


@pytest.mark.parametrize("text", ["", "[]", "{", "null"])
def test_a_manifest_that_is_no_object_is_refused(saved: Path, text: str) -> None:
    (saved / "server" / "manifest.json").write_text(text)
    with pytest.raises(ArtifactError, match="JSON"):
        load_artifact(saved)


@pytest.mark.parametrize("key", ["spec", "preprocessing", "class_names"])
def test_a_public_part_that_lacks_something_is_refused(tiny_public: Public, key: str) -> None:
    data = tiny_public.to_json()
    del data[key]
    with pytest.raises(ArtifactError, match="does not describe a model"):
        Public.from_json(data)


def test_a_public_part_with_a_foreign_setting_is_refused(tiny_public: Public) -> None:
    data = tiny_public.to_json()
    data["spec"]["registers"] = 4
    with pytest.raises(ArtifactError, match="registers"):
        Public.from_json(data)


def test_a_folder_that_is_no_artifact_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"not a privit artifact: it has no manifest\.json"):
        load_artifact(tmp_path)


def test_weights_that_do_not_fit_are_refused_before_anything_is_written(
    tmp_path: Path, tiny_public: Public, tiny_plan: Plan, tiny_weights: Weights
) -> None:
    del tiny_weights["head.bias"]
    tiny_weights["norm.bias"] = np.zeros(3, np.float32)
    with pytest.raises(PrivitError, match=r"missing \['head.bias'\].*another shape \['norm.bias'\]"):
        save_artifact(tmp_path / "out", tiny_public, tiny_plan, tiny_weights)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["public.json", "plan.safetensors", "weights.safetensors"])
def test_a_full_disk_is_said_by_the_system_whichever_file_meets_it(
    tmp_path: Path, name: str, tiny_public: Public, tiny_plan: Plan, tiny_weights: Weights
) -> None:
    (tmp_path / "server").mkdir()
    (tmp_path / "server" / name).symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left on device") as caught:
        save_artifact(tmp_path, tiny_public, tiny_plan, tiny_weights)
    assert caught.value.errno == errno.ENOSPC


def change_json(path: Path, change: Any) -> None:
    """Rewrites a JSON file after `change` was applied to what it holds."""
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))
