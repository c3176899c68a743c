"""A guarded model between processes: the client alone learns whether its answer is to be relied on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from serving import Served, digit_like, make_artifact, serving

from privit.artifact import save_artifact
from privit.cli import main
from privit.data.images import preprocess
from privit.serve.measure.exported import watched

SQUARES = "guard.blocks.0.squares"
CALM, WILD = 3, 4


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, dict[str, int]]]:
    """A served model whose bound lies between two pictures, and which of them is inside."""
    folder = tmp_path_factory.mktemp("guarded")
    artifact = make_artifact(folder)
    public = replace(artifact.public, guard=True)
    assert artifact.weights is not None
    sums = {}
    for seed in (CALM, WILD):
        pixels = preprocess(digit_like(seed), public.preprocessing)[None]
        sums[seed] = watched(public, artifact.plan, artifact.weights, pixels)[SQUARES][1]
    inside, outside = sorted(sums, key=lambda seed: sums[seed])
    public = replace(public, ranges={SQUARES: float(np.mean(list(sums.values())))})
    save_artifact(folder, public, artifact.plan, artifact.weights)
    with serving(folder, tmp_path_factory.mktemp("server"), "aby3") as served:
        yield served, {"inside": inside, "outside": outside}


def test_only_what_left_its_range_is_flagged(guarded: tuple[Served, dict[str, int]], tmp_path: Path) -> None:
    served, seeds = guarded
    with served.connect(state=tmp_path) as client:
        answers = {name: client.predict(digit_like(seed)) for name, seed in seeds.items()}
    assert answers["inside"].inside is True
    assert answers["outside"].inside is False
    assert len(answers["inside"].logits) == len(served.artifact.public.class_names)


def test_a_query_outside_warns_in_words_and_exits_with_3(
    guarded: tuple[Served, dict[str, int]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    served, seeds = guarded
    for name, seed in seeds.items():
        Image.fromarray(digit_like(seed)).save(tmp_path / f"{name}.png")
    asked = ["query", str(tmp_path / "inside.png"), str(tmp_path / "outside.png")]
    code = main([*asked, *served.asking, "--json"])
    said = capsys.readouterr()
    assert code == 3
    assert [p["inside"] for p in json.loads(said.out)["predictions"]] == [True, False]
    assert "do not rely on the answer" in said.err
    assert "outside.png" in said.err
    assert "inside.png:" not in said.err.split("do not rely")[1]
