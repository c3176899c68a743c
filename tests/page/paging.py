"""`privit page` as a process of its own, and requests to it as a program would send them."""

from __future__ import annotations

import contextlib
import http.client
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from serving import Served

START_SECONDS = 120.0
ANSWER_SECONDS = 300.0


@dataclass(frozen=True)
class Page:
    """A running page; everything that it may write is below `folder`."""

    address: str
    port: int
    token: str
    folder: Path
    process: subprocess.Popen[bytes]

    def request(
        self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> tuple[http.client.HTTPResponse, bytes]:
        """The response to a request, and its body; the token is sent only if the path has it."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=ANSWER_SECONDS)
        with contextlib.closing(connection):
            connection.request(method, path, body, headers or {})
            response = connection.getresponse()
            return response, response.read()

    def with_token(self, path: str) -> str:
        """The path with the token."""
        return f"{path}?token={self.token}"

    def predict(self, body: bytes) -> tuple[int, dict[str, Any]]:
        """Status and JSON of a question."""
        response, text = self.request("POST", self.with_token("/predict"), body)
        return response.status, json.loads(text)

    def events(self, body: bytes) -> Iterator[dict[str, Any]]:
        """What happens to a question, as it happens."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=ANSWER_SECONDS)
        with contextlib.closing(connection):
            headers = {"Accept": "application/x-ndjson"}
            connection.request("POST", self.with_token("/predict"), body, headers)
            for line in connection.getresponse():
                yield json.loads(line)


@contextlib.contextmanager
def running_page(folder: Path, model: Path, server: str, *arguments: str) -> Iterator[Page]:
    """A page that ends with the `with`, as Ctrl-C ends it."""
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "page.log"
    command = [sys.executable, "-m", "privit", "page", str(model), "--server", server, "--port", "0"]
    places = {name: str(folder) for name in ("HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME")}
    with tempfile.TemporaryDirectory() as short, log.open("wb") as output:
        # The same folder under a name that leaves room for the engine's sockets.
        temporary = Path(short) / "page"
        temporary.symlink_to(folder)
        process = subprocess.Popen(
            [*command, "--no-browser", *arguments],
            stderr=output,
            cwd=folder,
            env=os.environ | places | {"TMPDIR": str(temporary)},
        )
        try:
            end = time.monotonic() + START_SECONDS
            while not (said := re.search(r"(http://127\.0\.0\.1:(\d+)/\?token=(\S+))", log.read_text())):
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < end, log.read_text()
                time.sleep(0.1)
            yield Page(said[1], int(said[2]), said[3], folder, process)
        finally:
            process.send_signal(2)
            assert process.wait(60) == 0, log.read_text()


def page_of(served: Served, folder: Path, model: Path | None = None) -> AbstractContextManager[Page]:
    """A page that asks these parties, about their own model unless another is given."""
    return running_page(folder, model or served.client_folder, served.server.address, *served.flags)


def png(picture: np.ndarray) -> bytes:
    """A picture as the bytes of a PNG file."""
    buffer = io.BytesIO()
    Image.fromarray(picture).save(buffer, "PNG")
    return buffer.getvalue()
