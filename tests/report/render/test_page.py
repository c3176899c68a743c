"""The page and the files beside it."""

from __future__ import annotations

import base64
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from run_files import write_run
from sweep_files import SweepFiles

from privit.cli import main
from privit.report.figures.style import settle, svg
from privit.report.read.gather import gather
from privit.report.render.document import Picture
from privit.report.render.markdown import render_markdown
from privit.report.render.page import render_page
from privit.report.show.sections import build

FAST = "semi2k-benchmark"
EVIL = "<script>alert('x')</script>\"><img src=x onerror=alert(1)> & $x_{"


class Tags(HTMLParser):
    """Collects what a browser would see."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def read(page: str) -> Tags:
    """The page's tags."""
    tags = Tags()
    tags.feed(page)
    return tags


def test_the_folder_holds_page_markdown_figures_and_tables(written: Path):
    assert {path.name for path in written.iterdir()} == {"index.html", "report.md", "figures", "tables"}
    pictures = {path.stem for path in (written / "figures").glob("*.png")}
    assert pictures == {path.stem for path in (written / "figures").glob("*.svg")}
    for name in re.findall(r"\]\((figures/[^)]*)\)", (written / "report.md").read_text()):
        assert (written / name).read_bytes().startswith(b"\x89PNG")
    assert "PriViT-G,4-8,2" in (written / "tables" / "pareto-points.csv").read_text()


def test_the_page_needs_nothing_from_outside_and_runs_nothing(written: Path):
    tags = read((written / "index.html").read_text())
    names = [name for name, _ in tags.found]
    assert not {"script", "link", "iframe", "object", "form"} & set(names)
    images = [attributes for name, attributes in tags.found if name == "img"]
    assert len(images) == len(list((written / "figures").glob("*.svg")))
    for image in images:
        source = image["src"] or ""
        assert source.startswith("data:image/svg+xml;base64,")
        assert base64.b64decode(source.split(",")[1]).lstrip().startswith(b"<?xml")
        assert image["alt"]
    links = [a["href"] or "" for name, a in tags.found if name == "a"]
    assert all(link.startswith("#") for link in links)
    policy = [a["content"] for name, a in tags.found if a.get("http-equiv") == "Content-Security-Policy"]
    assert "default-src 'none'" in (policy[0] or "")


def test_what_people_called_their_runs_is_shown_and_never_run(tmp_path: Path):
    files = SweepFiles(tmp_path)
    files.experiment("pareto", ["table"], EVIL, title=EVIL, note=EVIL)
    files.cell("pareto", "privit-g", (4, 8), 0, 0.9, label=EVIL, data=EVIL, model=EVIL, warnings=[EVIL])
    files.cell("pareto", "mpcvit", (4, 8), 0, 0.9, status="failed", error=EVIL)
    document = build(gather(files.finish(file=EVIL), FAST), with_published=False)
    page = render_page(document, lambda name: b"<svg/>")
    tags = read(page)
    assert "script" not in [name for name, _ in tags.found]
    assert not any("onerror" in attributes for _, attributes in tags.found)
    assert any(EVIL in text for text in tags.text)
    assert "<script" not in render_markdown(document)


def test_a_run_called_like_a_script_is_drawn_as_text(tmp_path: Path):
    write_run(tmp_path / "$x_{ <script>", "finetune", 0.9, (4, 8))
    document = build(gather(tmp_path, FAST), with_published=False)
    picture = next(item for item in document.items if isinstance(item, Picture))
    settle(picture.figure)
    assert b"<svg" in svg(picture.figure)
    assert "<script" not in render_page(document, lambda name: b"<svg/>")


def test_a_report_is_written_beside_the_runs(tmp_path: Path, capsys):
    files = SweepFiles(tmp_path)
    files.experiment("gelu", ["gelu"])
    files.cell("gelu", "privit-g", (4, 8), 0, 0.9, label="$x_{ <script>", measured={})
    files.finish()
    assert main(["report", str(tmp_path), "--no-published", "--protocol", FAST, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["models"], result["figures"]) == (1, 1)
    assert Path(result["page"]) == tmp_path / "report" / "index.html"
    assert "<script" not in Path(result["page"]).read_text()


def test_the_switch_is_there_only_if_there_is_something_to_switch(tmp_path: Path):
    files = SweepFiles(tmp_path)
    files.experiment("gelu", ["gelu"], "fig:GELU_plot")
    files.cell("gelu", "privit-g", (4, 8), 0, 0.9, measured={})
    found = gather(files.finish(), FAST)
    pages = [render_page(build(found, published), lambda name: b"<svg/>") for published in (True, False)]
    assert ['id="published"' in page for page in pages] == [True, False]
    assert 'id="published" checked' not in pages[0]


def test_points_of_the_same_data_set_are_shown_from_the_start(tmp_path: Path):
    files = SweepFiles(tmp_path)
    files.experiment("pareto", ["front"])
    files.cell("pareto", "privit-g", (4, 8), 0, 0.9, data="data/cifar10")
    page = render_page(build(gather(files.finish(), FAST)), lambda name: b"<svg/>")
    assert 'id="published" checked' in page


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(["nowhere"], "nowhere is not a folder"), (["."], "holds no finished run")],
)
def test_a_wrong_folder_is_refused(tmp_path, monkeypatch, capsys, arguments, words):
    monkeypatch.chdir(tmp_path)
    assert main(["report", *arguments]) == 2
    assert words in capsys.readouterr().err
