"""The page in a real browser: pictures are loaded, the switch works, nothing is cut off."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

import pytest

BROWSER = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))),
    None,
)

pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed (apt install chromium)")

# Put into a copy of the page, whose own policy would refuse it.
PROBE = """
<script>
addEventListener("load", () => {
  const visible = figure => figure.offsetParent !== null;
  const shown = kind => [...document.querySelectorAll("figure" + kind)].filter(visible).length;
  const state = () => ({ours: shown(".ours"), paper: shown(".paper")});
  const images = [...document.images];
  const before = state();
  document.querySelector("label.switch").click();
  const after = state();
  const probe = {
    images: images.length,
    loaded: images.filter(i => i.naturalWidth > 100 && i.naturalHeight > 50).length,
    before, after,
    overflow: document.documentElement.scrollWidth - innerWidth,
    title: document.title,
  };
  document.body.insertAdjacentHTML("beforeend", "<pre id=probe></pre>");
  document.getElementById("probe").textContent = JSON.stringify(probe);
});
</script></body>"""


def browse(page: Path, *arguments: str) -> str:
    """What the browser prints for a page."""
    assert BROWSER is not None
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    command += ["--disable-dev-shm-usage", f"--user-data-dir={page.parent / 'browser'}"]
    run = subprocess.run(
        [*command, *arguments, page.as_uri()], capture_output=True, text=True, timeout=180, check=True
    )
    return run.stdout


def probed(page: Path, folder: Path, *arguments: str) -> dict[str, Any]:
    """What the probe saw."""
    text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page.read_text())
    copy = folder / "probed.html"
    copy.write_text(text.replace("</body>", PROBE))
    shown = browse(copy, "--dump-dom", *arguments)
    return json.loads(unescape(re.search(r'<pre id="probe">(.*?)</pre>', shown, re.DOTALL)[1]))  # type: ignore[index]


@pytest.mark.parametrize("width", [1280, 500])
def test_pictures_load_and_the_switch_swaps_them(written: Path, tmp_path: Path, width: int):
    seen = probed(written / "index.html", tmp_path, f"--window-size={width},2000")
    assert seen["images"] == seen["loaded"] > 5
    assert seen["title"] == "privit report: mini/quick"
    # On digits the paper has no points, so its pictures are hidden until asked for.
    assert seen["before"]["paper"] == 0 < seen["before"]["ours"]
    assert seen["after"] == {"ours": 0, "paper": seen["before"]["ours"]}
    assert seen["overflow"] <= 0


def test_the_page_as_it_is_can_be_looked_at(written: Path, tmp_path: Path):
    page = tmp_path / "index.html"
    page.write_bytes((written / "index.html").read_bytes())
    picture = tmp_path / "page.png"
    browse(page, f"--screenshot={picture}", "--window-size=1280,1600")
    assert picture.stat().st_size > 30_000
