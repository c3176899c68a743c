"""A real Chromium, driven over its own protocol through a pipe."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))),
    None,
)
PATIENCE_SECONDS = 300.0
STARTER = "import os, sys; a = sys.argv; os.dup2(int(a[1]), 3); os.dup2(int(a[2]), 4); os.execv(a[3], a[3:])"
KEYS = {"Tab": 9, "Enter": 13, " ": 32}


class Browser:
    """One page in a headless browser; JavaScript goes in, plain data come out."""

    def __init__(self, to_browser: int, from_browser: int):
        self._to, self._from, self._rest, self._number = to_browser, from_browser, b"", 0
        self._session: str | None = None
        self.complaints: list[str] = []
        """What the page's console and policy said against it."""
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        attached = self._call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "DOM", "Log"):
            self._call(f"{domain}.enable")

    def open(self, address: str, width: int = 1200, height: int = 900, dark: bool = False) -> None:
        """Loads an address in a window of this size."""
        self._call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", features=[scheme])
        self._call("Page.navigate", url=address)
        self.wait_for("document.readyState === 'complete'")

    def value(self, script: str) -> Any:
        """What an expression gives in the page."""
        found = self._call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def wait_for(self, script: str) -> None:
        """Returns when an expression is true."""
        end = time.monotonic() + PATIENCE_SECONDS
        while not self.value(script):
            assert time.monotonic() < end, f"never came true: {script}; the page says {self.text()!r}"
            time.sleep(0.05)

    def text(self) -> str:
        """All that can be read on the page."""
        return str(self.value("document.body.innerText"))

    def press(self, key: str) -> None:
        """Presses and releases a key."""
        typed = {"Enter": "\r", " ": " "}.get(key, "")
        for kind in ("keyDown", "keyUp"):
            written = {"text": typed} if typed and kind == "keyDown" else {}
            code = "Space" if key == " " else key
            self._call(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                code=code,
                windowsVirtualKeyCode=KEYS[key],
                **written,
            )

    def choose(self, selector: str, file: Path) -> None:
        """Puts a file into a file input, as its dialog would."""
        root = self._call("DOM.getDocument")["root"]["nodeId"]
        node = self._call("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        self._call("DOM.setFileInputFiles", nodeId=node, files=[str(file)])

    def drop(self, data: bytes, name: str, kind: str = "image/png") -> None:
        """Drops a file on the page."""
        script = f"""(() => {{
          const bytes = Uint8Array.from(atob({base64.b64encode(data).decode()!r}), c => c.charCodeAt(0));
          const carried = new DataTransfer();
          carried.items.add(new File([bytes], {name!r}, {{type: {kind!r}}}));
          const settings = {{dataTransfer: carried, bubbles: true, cancelable: true}};
          document.getElementById("drop").dispatchEvent(new DragEvent("drop", settings));
        }})()"""
        self.value(script)

    def screenshot(self) -> bytes:
        """The whole page as PNG."""
        found = self._call("Page.captureScreenshot", captureBeyondViewport=True)
        return base64.b64decode(found["data"])

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != self._number:
            self._note(answer)
        assert "error" not in answer, (method, answer["error"])
        return dict(answer["result"])

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            part = os.read(self._from, 1 << 20)
            assert part, "the browser has gone"
            self._rest += part
        line, self._rest = self._rest.split(b"\0", 1)
        return dict(json.loads(line))

    def _note(self, event: dict[str, Any]) -> None:
        found = event.get("params", {})
        if event.get("method") == "Log.entryAdded" and found["entry"]["level"] == "error":
            self.complaints.append(found["entry"]["text"])
        elif event.get("method") == "Runtime.exceptionThrown":
            self.complaints.append(str(found["exceptionDetails"]))


@contextlib.contextmanager
def chromium(profile: Path) -> Iterator[Browser]:
    """A browser that ends with the `with`."""
    assert CHROMIUM is not None
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    command += ["--disable-dev-shm-usage", "--no-first-run", "--remote-debugging-pipe"]
    command += [f"--user-data-dir={profile}", "about:blank"]
    their_input, to_browser = os.pipe()
    from_browser, their_output = os.pipe()
    # The browser reads its orders from descriptor 3 and answers on 4; copies above keep clear of these two.
    given = [fcntl.fcntl(number, fcntl.F_DUPFD, 10) for number in (their_input, their_output)]
    starter = [sys.executable, "-c", STARTER, *map(str, given), *command]
    with (profile.parent / "browser.log").open("wb") as log:
        process = subprocess.Popen(starter, pass_fds=given, stdout=log, stderr=log)
    for number in (their_input, their_output, *given):
        os.close(number)
    try:
        yield Browser(to_browser, from_browser)
    finally:
        process.terminate()
        process.wait(30)
        os.close(to_browser)
        os.close(from_browser)
