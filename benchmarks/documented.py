"""Runs the commands that README and docs/start.md show, word for word: `python -m benchmarks.documented`.

In a clone of this repository at HEAD, in the order of the page, as a reader would: what serves stays up
for what asks, a command that fails is named, and the next time only what has not ended well is run
again. Data and weights come from $PRIVIT_DATA. The pages train a DeiT-Tiny several times, which takes
two cores two to three hours: `--small` asks for digits instead and changes nothing else. What was run
differently from what is shown, and why, is in the report.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from privit.data.datasets import load_data

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", "docs/start.md")
RUN = re.compile(r"    (?:(?:make|privit|pip|curl|torchrun|accelerate|import) |\. )\S")
SERVING = {"serve": 9000, "helper": 9001, "page": 8600}
READY_SECONDS = 600.0
REPLACED = {
    "model.example.org": ("127.0.0.1", "a name that only a reader's network knows"),
    "pip install 'privit[page]'": ("pip install '.[page]'", "nothing is published yet"),
}
SMALL = re.compile(r"timm:\S+ --data cifar10(?: --image-size 112)?(?: --train-limit 8000)?")
SMALLER = "vit:image_size=8,patch=2,width=32,depth=2,heads=2 --data digits"


def commands(text: str) -> Iterator[str]:
    """Each command of a page's code blocks; lines of Python that belong together are one."""
    lines = iter(text.splitlines())
    for line in lines:
        if not RUN.match(line):
            continue
        if not line.startswith("    import "):
            yield re.sub(r"\s+# .*$", "", line.strip())
            continue
        block = [line[4:]]
        for more in lines:
            if more and not more.startswith("    "):
                break
            block.append(more[4:])
        yield "python - <<'END'\n" + "\n".join(block).strip() + "\nEND"


@dataclass
class Reader:
    """Someone who types one command after the other into a folder of their own."""

    folder: Path
    small: bool
    running: dict[str, subprocess.Popen[str]] = field(default_factory=dict)
    plain: str = ""

    def typed(self, shown: str) -> tuple[str, list[str]]:
        """What is typed for what is shown, and why it differs."""
        typed, reasons = shown, []
        if self.small:
            typed = SMALL.sub(SMALLER, typed)
            reasons += ["digits instead of CIFAR-10"] if typed != shown else []
        for word, (other, reason) in REPLACED.items():
            reasons += [reason] if word in typed else []
            typed = typed.replace(word, other)
        if "token=..." in typed:
            typed = typed.replace("token=...", f"token={self._token()}")
            reasons.append("the token that privit page printed")
        return typed, reasons

    def run(self, typed: str) -> int:
        """The exit code; what serves has 0 as soon as it answers."""
        words = typed.split()
        if words[0] == "python" and self.plain:
            self.run(self.plain)  # the page shows the server with certificates before the library
        verb = words[1] if words[0] == "privit" else ""
        log = self.folder / f"{verb or words[0]}.log"
        with log.open("a") as output:
            output.write(f"$ {typed}\n")
            output.flush()
            if verb not in SERVING:
                return self._start(typed, output).wait()
            self.stop(verb)
            self.running[verb] = self._start(typed, output)
            if verb == "serve" and "--certs" not in typed:
                self.plain = typed
        return self._wait_for(verb)

    def _start(self, typed: str, output: Any) -> subprocess.Popen[str]:
        path = f"{self.folder / '.venv' / 'bin'}:{os.environ['PATH']}"
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | {"PATH": path}
        return subprocess.Popen(
            ["bash", "-c", f"exec {typed}" if typed.startswith("privit") else typed],
            cwd=self.folder,
            env=environment | {"BROWSER": "true"},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def _wait_for(self, verb: str) -> int:
        until = time.monotonic() + READY_SECONDS
        while time.monotonic() < until:
            if (code := self.running[verb].poll()) is not None:
                return code
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", SERVING[verb])) == 0:
                    return 0
            time.sleep(0.5)
        return -1

    def _token(self) -> str:
        found = re.findall(r"token=([\w-]+)", (self.folder / "page.log").read_text())
        return found[-1] if found else "none"

    def stop(self, *verbs: str) -> None:
        """Ends what serves."""
        for verb in verbs or tuple(self.running):
            if process := self.running.pop(verb, None):
                process.terminate()
                process.wait(60)


def prepare(folder: Path, small: bool) -> None:
    """A clone of HEAD with the pictures that the pages ask about."""
    if not folder.exists():
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(folder)], check=True)
    test = load_data("digits" if small else "cifar10").test
    (folder / "pictures").mkdir(exist_ok=True)
    for number in np.arange(10):
        test.image(int(number)).save(folder / "pictures" / f"{number}.png")
    test.image(0).save(folder / "cat.png")


def main() -> None:
    """Runs what has not ended well yet and writes the report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="where to clone to; is kept, and gone on in")
    parser.add_argument("--small", action="store_true", help="digits instead of CIFAR-10")
    parser.add_argument("--skip", nargs="*", default=[], help="first words of what is not run")
    parser.add_argument("--out", type=Path, default=Path("documented.json"))
    options = parser.parse_args()
    prepare(options.folder, options.small)
    known = json.loads(options.out.read_text())["commands"] if options.out.exists() else []
    well = {entry["shown"] for entry in known if entry["exit"] == 0}
    reader, report = Reader(options.folder.resolve(), options.small), []
    try:
        for page in PAGES:
            for shown in commands((ROOT / page).read_text(encoding="utf-8")):
                serves = shown.startswith(tuple(f"privit {verb} " for verb in SERVING))
                if shown.startswith(tuple(options.skip)) or (shown in well and not serves):
                    report += [entry for entry in known if entry["shown"] == shown and entry["page"] == page]
                    continue
                typed, reasons = reader.typed(shown)
                started = time.monotonic()
                code = reader.run(typed)
                seconds = round(time.monotonic() - started, 1)
                report.append(
                    {"page": page, "shown": shown, "exit": code, "seconds": seconds, "differs": reasons}
                )
                print(f"{code:3d} {seconds:8.1f} s  {shown.splitlines()[0]}", flush=True)
                found = {"small": options.small, "commands": report}
                options.out.write_text(json.dumps(found, indent=1) + "\n")
    finally:
        reader.stop()
    failed = [entry["shown"] for entry in report if entry["exit"]]
    print(f"{len(report) - len(failed)} of {len(report)} commands ended well")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
