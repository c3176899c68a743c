from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from graphs import mixed_plan, public_of, small_spec, weights_of

from privit.artifact import load_artifact, save_artifact
from privit.data.datasets import load_data
from privit.data.images import preprocess
from privit.errors import RequestError
from privit.serve.measure.evaluate import evaluate
from privit.train.export import artifact_logits


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    spec = replace(small_spec(), classes=10)
    plan = mixed_plan(spec)
    public = replace(public_of(spec), notes={"data": "digits"})
    made = tmp_path_factory.mktemp("artifact")
    save_artifact(made, public, plan, weights_of(spec, plan))
    return made


def right_by_hand(folder: Path, count: int) -> int:
    """How many of the first test images the artifact's own network, in torch, classifies rightly."""
    artifact, test = load_artifact(folder), load_data("digits").test
    pixels = np.stack([preprocess(test.image(i), artifact.public.preprocessing) for i in range(count)])
    found = artifact_logits(artifact, pixels).argmax(1)
    return sum(int(found[i]) == test.labels[i] for i in range(count))


def test_plain_evaluation_reads_every_image_it_was_asked_for(folder: Path) -> None:
    seen: list[tuple[int, int]] = []
    result = evaluate(folder, "plain", images=70, progress=lambda *done: seen.append(done))
    assert (result["images"], result["measured_on"], result["data"]) == (70, "plain", "digits")
    assert result["accuracy"] == right_by_hand(folder, 70) / 70
    assert seen == [(64, 70), (70, 70)]


def test_simulated_evaluation_agrees_with_plaintext_and_goes_on_where_it_stopped(
    folder: Path, tmp_path: Path
) -> None:
    record = tmp_path / "record.jsonl"
    first = evaluate(folder, "simulated", "semi2k-benchmark", images=3, record=record)
    assert first["max_logit_error"] <= 0.05
    assert all(entry["explained"] for entry in first["disagreements"])
    assert (first["private"], first["measured_on"]) == (False, "simulated")
    lines = record.read_text().splitlines()
    # Interrupted while it wrote the third image.
    record.write_text("\n".join([*lines[:2], lines[2][:10]]) + "\n")
    seen: list[tuple[int, int]] = []
    again = evaluate(
        folder, "simulated", "semi2k-benchmark", images=4, record=record, progress=lambda *d: seen.append(d)
    )
    assert seen == [(3, 4), (4, 4)]
    assert again["sent_bytes"] == first["sent_bytes"]
    assert again["setup_bytes"] == first["setup_bytes"]


def test_a_folder_without_weights_is_refused(folder: Path) -> None:
    with pytest.raises(RequestError, match="holds no weights"):
        evaluate(folder / "client", "plain")


def test_an_artifact_of_unknown_data_asks_for_it(tmp_path: Path) -> None:
    spec = small_spec()
    plan = mixed_plan(spec)
    save_artifact(tmp_path, public_of(spec), plan, weights_of(spec, plan))
    with pytest.raises(RequestError, match="does not say what it was trained on"):
        evaluate(tmp_path)
