"""A query with recognisable pixels and weights: neither is found on the other side or on the wire."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import spu
from PIL import Image
from serving import Served, digit_like
from spu import libspu

from privit.data.images import preprocess
from privit.errors import ConnectionFailed
from privit.program.ranges import FRACTION_BITS
from privit.serve.compile.compile import client_values, server_values
from privit.serve.engine.protocols import CLIENT, protocol
from privit.serve.parties.client import connect

CANARIES = 3
"""How many places of each array are looked for on some ten megabytes of wire."""


class Recorder:
    """A wire between client and server that keeps every byte of both directions."""

    def __init__(self, target: str):
        host, port = target.split(":")
        self._target = host, int(port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.bytes = bytearray()
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._threads[0].join()
        for sock in self._sockets:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads[1:]:
            thread.join()
        for sock in (self._listener, *self._sockets):
            sock.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # which is how the listener says that it was shut down
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(self._target)
                self._sockets += [near, far]
                for ends in ((near, far), (far, near)):
                    self._threads.append(threading.Thread(target=self._copy, args=ends))
                    self._threads[-1].start()

    def _copy(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                with self._lock:
                    self.bytes += data
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)


@pytest.fixture
def recorder(served: Served) -> Iterator[Recorder]:
    wire = Recorder(served.server.address)
    yield wire
    wire.close()


def traces(values: np.ndarray, places: int) -> list[bytes]:
    """Neighbouring values as they would leak: as float32 and in the engine's fixed point."""
    flat = np.ascontiguousarray(values, np.float32).reshape(-1)
    fixed = np.round(flat.astype(np.float64) * 2**FRACTION_BITS).astype(np.int64)
    # Zeros and numbers near them are everywhere.
    telling = np.flatnonzero(np.minimum(np.abs(flat[:-1]), np.abs(flat[1:])) > 0.01)
    chosen = telling[np.linspace(0, len(telling) - 1, min(places, len(telling)), dtype=int)]
    return [form[i : i + 2].tobytes() for i in chosen for form in (flat, fixed)]


def texts(values: np.ndarray) -> list[bytes]:
    """Values as they would be printed, to four places or in full."""
    flat = np.ascontiguousarray(values, np.float32).reshape(-1)
    shown = [value for value in flat[:: max(1, flat.size // 20)].tolist() if abs(value) > 0.01]
    return [f"{value:.4f}".encode() for value in shown] + [repr(value).encode() for value in shown]


def pixel_arrays(served: Served, picture: np.ndarray) -> list[np.ndarray]:
    pixels = preprocess(Image.fromarray(picture), served.artifact.public.preprocessing)
    return [pixels, client_values(served.artifact.public, pixels)["patches"]]


def weight_arrays(served: Served) -> list[np.ndarray]:
    artifact = served.artifact
    assert artifact.weights is not None
    folded = server_values(artifact.public, artifact.plan, artifact.weights)
    return [array for array in (*artifact.weights.values(), *folded.values()) if array.size > 1]


def files_below(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


def test_neither_pixels_nor_weights_are_found_where_they_do_not_belong(
    served: Served, recorder: Recorder, tmp_path: Path
) -> None:
    picture = digit_like(77)
    secrets = {"pixels": pixel_arrays(served, picture), "weights": weight_arrays(served)}
    with connect(served.client_folder, recorder.address, state=tmp_path / "client") as client:
        answer = client.predict(picture)
        shown = repr(client)
    with pytest.raises(ConnectionFailed) as error:
        client.predict(picture)
    secrets["logits"] = [np.asarray(answer.logits)]
    places = {
        "the wire": bytes(recorder.bytes),
        "the server's files": files_below(served.server.state),
        "the client's files": files_below(tmp_path / "client"),
        "messages": (shown + str(error.value)).encode(),
    }
    assert len(places["the wire"]) > 1_000_000
    assert b"session" in places["the server's files"]
    for secret, arrays in secrets.items():
        forms = [trace for array in arrays for trace in traces(array, CANARIES)]
        assert len(forms) >= 2 * CANARIES
        for place, content in places.items():
            assert not any(form in content for form in forms), f"{secret} in {place}"
            if place != "the wire":
                printed = [text for array in arrays for text in texts(array)]
                assert not any(text in content for text in printed), f"{secret} in {place}"


def test_the_search_would_find_a_chunk_that_was_sent(served: Served) -> None:
    found = protocol("cheetah")
    picture = digit_like(77)
    pixels = preprocess(Image.fromarray(picture), served.artifact.public.preprocessing)
    patches = client_values(served.artifact.public, pixels)["patches"]
    io = spu.Io(found.parties, found.runtime_config())
    shares = io.make_shares(patches, libspu.Visibility.VIS_SECRET, owner_rank=CLIENT)
    leaked = b"".join(shares[CLIENT].share_chunks)
    forms = [trace for array in pixel_arrays(served, picture) for trace in traces(array, CANARIES)]
    assert any(form in leaked for form in forms)
    assert any(form in patches.tobytes() for form in forms)


def test_core_dumps_are_off_in_the_server_and_its_workers(served: Served) -> None:
    from serving import children

    workers = children(served.server.process.pid)
    assert workers
    for pid in (served.server.process.pid, *workers):
        limits = Path(f"/proc/{pid}/limits").read_text()
        (line,) = [entry for entry in limits.splitlines() if entry.startswith("Max core file size")]
        assert line.split()[4:6] == ["0", "0"]


def test_traces_profiles_and_snapshots_of_the_engine_are_off() -> None:
    from privit.serve.engine.engine import quiet

    config = protocol("cheetah").runtime_config(profile=True)
    config.enable_action_trace = config.enable_runtime_snapshot = config.enable_pphlo_trace = True
    quiet(config)
    names = ("action_trace", "hal_profile", "pphlo_profile", "pphlo_trace", "runtime_snapshot")
    assert not any(getattr(config, f"enable_{name}") for name in names)
