"""`privit query` against a real server: several files, a folder, a terminal, a pipe, CSV and JSON."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image
from serving import Served, digit_like, make_artifact, serving

from privit.cli import main
from privit.cli.asking.querying import even_batch, images_below, labels
from privit.errors import RequestError
from privit.serve.parties.limits import Limits

LONG = "a-folder-whose-name-goes-on-and-on-and-says-nothing-about-what-is-in-it"


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with pictures in it and below it, and something else."""
    folder = tmp_path_factory.mktemp("pictures") / LONG
    (folder / "below").mkdir(parents=True)
    for seed, name in enumerate(("IMG_0001.png", "below/IMG_0002.PNG")):
        Image.fromarray(digit_like(seed)).save(folder / name)
    (folder / "notes.txt").write_text("no image")
    return folder


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The smallest model served by the parties of aby3, whose sessions open soonest."""
    folder = tmp_path_factory.mktemp("served")
    make_artifact(folder)
    with serving(folder, folder / "state", "aby3") as found:
        yield found


@pytest.fixture(autouse=True)
def _state_in_tmp(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.getbasetemp() / "state"))


def test_on_a_terminal_there_is_one_bar_and_then_a_table_with_whole_names(
    pictures: Path, tmp_path: Path
) -> None:
    make_artifact(tmp_path)
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "privit", "query", "--images", str(pictures)]
    environment = os.environ | {"COLUMNS": "100", "TERM": "xterm"}
    with (
        serving(tmp_path, tmp_path / "state") as served,
        # No protocol is named: the one that is used unless told otherwise is cheetah.
        subprocess.Popen(
            [*command, "--model", str(served.client_folder), "--server", served.server.address],
            stdout=theirs,
            stderr=theirs,
            env=environment,
        ) as process,
    ):
        os.close(theirs)
        shown = b""
        try:
            while part := os.read(ours, 1 << 16):
                shown += part
        except OSError:
            pass  # Linux says so when the other side of a terminal has gone
        finally:
            os.close(ours)
    assert process.returncode == 0, shown.decode()
    plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown.decode())
    assert re.search(r"opening the session .*of 13\.\d MB", plain)
    assert re.search(r"IMG_0001.png \(1 of 2\).*[━╸].* of \d+\.\d MB, \d+ of \d+ rounds, \d+ s left", plain)
    assert "below/IMG_0002.PNG (2 of 2)" in plain
    table = plain[plain.rindex("protocol cheetah") :]
    assert re.search(r"^IMG_0001.png +[a-j] +\d+\.\d\d %", table, re.MULTILINE)
    assert re.search(r"^below/IMG_0002.PNG +[a-j] ", table, re.MULTILINE)
    assert LONG not in table


def test_csv_has_a_row_for_each_image_of_a_batch_and_lines_go_elsewhere(
    pictures: Path, three: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["query", "--images", str(pictures), *three.asking, "--csv", "--batch", "8"]) == 0
    captured = capsys.readouterr()
    rows = list(csv.DictReader(io.StringIO(captured.out)))
    assert [row["image"] for row in rows] == [str(path) for path in images_below(pictures)]
    assert all(0 < float(row["probability"]) <= 1 and int(row["rounds"]) > 100 for row in rows)
    assert [row["images"] for row in rows] == ["2", "2"]
    assert rows[0]["rounds"] == rows[1]["rounds"], "both are of the one query that answered them"
    assert "IMG_0001.png and 1 more: computing privately ..." in captured.err


def test_json_comes_without_a_word_and_answers_survive_a_refusal(
    pictures: Path, three: Served, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = str(pictures / "IMG_0001.png")
    with three.another(tmp_path, Limits(queries=2)) as limited:
        assert main(["query", one, *limited.asking, "--json"]) == 0
        captured = capsys.readouterr()
        assert captured.err == ""
        (first,) = json.loads(captured.out)["predictions"]
        # One of two queries is left: the first of these has its answer, and it is shown.
        assert main(["query", one, one, *limited.asking]) == 1
    captured = capsys.readouterr()
    assert re.search(rf"^IMG_0001.png +{first['class_name']} ", captured.out, re.MULTILINE)
    assert "error: " in captured.err


def test_a_bad_file_is_found_before_anything_is_sent(
    pictures: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nowhere = ["--model", "nowhere", "--server", "127.0.0.1:1"]
    assert main(["query", str(pictures / "IMG_0001.png"), str(pictures / "notes.txt"), *nowhere]) == 2
    assert "notes.txt is not an image" in capsys.readouterr().err
    assert main(["query", *nowhere]) == 2
    assert "no image was given" in capsys.readouterr().err
    assert main(["query", "a.png", *nowhere, "--csv", "--json"]) == 2
    assert "--csv and --json" in capsys.readouterr().err


def test_a_folder_without_images_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="holds no image"):
        images_below(tmp_path)
    with pytest.raises(RequestError, match="is not a folder"):
        images_below(tmp_path / "missing")


@pytest.mark.parametrize(
    ("images", "most", "expected"), [(3, 8, 3), (8, 8, 8), (10, 8, 5), (17, 8, 6), (5, 1, 1)]
)
def test_queries_are_few_and_nearly_equally_full(images: int, most: int, expected: int) -> None:
    assert even_batch(images, most) == expected


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        (["/x/y/a.png"], ["a.png"]),
        (["/x/y/a.png", "/x/z/a.png"], ["y/a.png", "z/a.png"]),
        (["/x/a.png", "/x/y/b.png"], ["a.png", "y/b.png"]),
        (["a.png", "../b.png"], None),
    ],
)
def test_labels_tell_files_apart(paths: list[str], expected: list[str] | None) -> None:
    found = labels([Path(path) for path in paths])
    assert len(set(found)) == len(paths)
    assert expected is None or found == expected
