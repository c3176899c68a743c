"""The picture of `privit page` in the docs, taken in Chromium after two questions.

    python -m benchmarks.page_picture ARTIFACT      writes docs/page.png; wants an idle machine

ARTIFACT is the folder of a digits model, such as demo/artifact after `make demo`.
"""

from __future__ import annotations

import io
import sys
import tempfile
from pathlib import Path

from PIL import Image

from privit.serve.parties.processes import local_server

ROOT = Path(__file__).resolve().parents[1]
RESULT = ROOT / "docs" / "page.png"
QUESTIONS = (3, 7)
WIDTH, HEIGHT = 1100, 1170
COLOURS = 255


def main(artifact: Path) -> Path:
    """Serves the artifact, asks about two of its examples on the page and writes the picture."""
    # The tests know how to drive a browser and start the page.
    sys.path.insert(0, str(ROOT / "tests" / "page"))
    from browser import chromium  # type: ignore[import-not-found]
    from paging import running_page  # type: ignore[import-not-found]

    with (
        tempfile.TemporaryDirectory() as name,
        local_server(artifact, Path(name) / "server") as server,
        running_page(Path(name) / "page", artifact / "client", server.address) as page,
        chromium(Path(name) / "profile") as browser,
    ):
        browser.open(page.address, WIDTH, HEIGHT)
        browser.wait_for("document.querySelectorAll('#examples img').length === 10")
        for number in QUESTIONS:
            browser.value(f"document.querySelectorAll('#examples button')[{number}].click()")
            browser.wait_for("asking")
            browser.wait_for("!asking && !byId('answer').hidden")
        picture = Image.open(io.BytesIO(browser.screenshot())).convert("RGB").crop((0, 0, WIDTH, HEIGHT))
    picture.quantize(COLOURS, dither=Image.Dither.NONE).save(RESULT, optimize=True)
    return RESULT


if __name__ == "__main__":
    print(main(Path(sys.argv[1])))
