"""One garbled run between two processes on one machine: it proves the AND counts, it protects nothing."""

from __future__ import annotations

import json
import secrets
import socket
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from benchmarks.garble import LABEL_BYTES, evaluate, garble
from privit.cost.gates.circuits.functions import draw_inputs, function, input_wires, masked, setting
from privit.cost.gates.circuits.gates import Plain, from_wires
from privit.errors import WorkError

_BUFFER = 1 << 20
_LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class GarbledRun:
    """One run; `table_bytes` and `label_bytes` (labels and decoding bits) are what crossed the socket.

    `ands` counts one instance; the run holds `batch` of them. `seconds` is the evaluator's time
    from the first byte, while the garbler works ahead of it.
    """

    function: str
    setting: str
    batch: int
    length: int
    ands: int
    table_bytes: int
    label_bytes: int
    seconds: float
    equal_to_plain: bool
    security: str = "counts only: input labels are handed over without oblivious transfer"

    @property
    def bytes_per_and(self) -> float:
        """Table bytes for each AND gate."""
        return self.table_bytes / (self.ands * self.batch)

    @property
    def ands_per_second(self) -> int:
        """AND gates evaluated in a second, transfer included."""
        return round(self.ands * self.batch / self.seconds)

    def to_json(self) -> dict:
        """Plain data, with what follows from it."""
        return asdict(self) | {
            "seconds": round(self.seconds, 3),
            "bytes_per_and": self.bytes_per_and,
            "ands_per_second": self.ands_per_second,
        }


def run_two_processes(
    function_name: str, setting_name: str, values: np.ndarray, seed: int = 0, timeout_seconds: float = 120
) -> GarbledRun:
    """Garbles in a child process, evaluates here, and compares with the plain circuit.

    `values` has shape (batch, length). The child is given the garbler's own share and mask only.
    """
    entry, where = function(function_name), setting(setting_name)
    first, second, mask = draw_inputs(entry, where, values, np.random.default_rng(seed))
    plain = Plain()
    expected = from_wires(masked(plain, entry, where, *input_wires(where, first, second, mask)))
    job = {"function": function_name, "setting": setting_name, "key": secrets.token_hex(LABEL_BYTES)}
    with socket.create_server((_LOOPBACK, 0)) as listener:
        listener.settimeout(timeout_seconds)
        request = job | {"port": listener.getsockname()[1], "first": first.tolist(), "mask": mask.tolist()}
        with _start_garbler(request) as child:
            try:
                outcome = _evaluate_from(listener, job, second, mask.shape[1], timeout_seconds)
            except OSError as error:
                child.kill()
                raise WorkError(f"the garbling process failed: {error}", "run it again") from error
    result, table_bytes, received, seconds = outcome
    batch, length = values.shape
    equal = bool(np.array_equal(result, expected))
    label_bytes = received - table_bytes
    return GarbledRun(
        function_name, setting_name, batch, length, plain.ands, table_bytes, label_bytes, seconds, equal
    )


def _start_garbler(request: dict) -> subprocess.Popen:
    command = [sys.executable, "-m", "benchmarks.garbled_run"]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, cwd=Path(__file__).parents[1])
    assert child.stdin is not None
    child.stdin.write(json.dumps(request).encode())
    child.stdin.close()
    return child


def _evaluate_from(
    listener: socket.socket, job: dict, second: np.ndarray, mask_lanes: int, timeout_seconds: float
) -> tuple[np.ndarray, int, int, float]:
    connection, _ = listener.accept()
    received = 0
    with connection, connection.makefile("rb", buffering=_BUFFER) as stream:
        connection.settimeout(timeout_seconds)

        def receive(count: int) -> bytes:
            nonlocal received
            data = stream.read(count)
            if len(data) != count:
                raise ConnectionError("the garbler's stream ended early")
            received += count
            return data

        start = time.perf_counter()
        result, table_bytes = evaluate(job, second, mask_lanes, receive)
        return result, table_bytes, received, time.perf_counter() - start


def main() -> None:
    """The garbler's process: reads its job from stdin and writes to the evaluator's port."""
    job = json.load(sys.stdin)
    first, mask = np.array(job["first"], np.int64), np.array(job["mask"], np.int64)
    with (
        socket.create_connection((_LOOPBACK, job["port"]), timeout=60) as connection,
        connection.makefile("wb", buffering=_BUFFER) as stream,
    ):
        garble(job, first, mask, stream.write)


if __name__ == "__main__":
    main()
