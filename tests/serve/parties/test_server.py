"""A real server process and real clients: answers, costs, limits, identity, shutdown."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import pytest
from serving import TOLERANCE, Served, digit_like, expected_logits, serving

from privit.errors import ConnectionFailed, PrivitError, RequestError
from privit.serve.compile.compile import client_values, compile_program, server_values
from privit.serve.engine.protocols import protocol
from privit.serve.engine.simulator import Simulator
from privit.serve.parties.client import Client, connect, health
from privit.serve.parties.health import ask_health
from privit.serve.parties.limits import Limits
from privit.serve.parties.processes import local_server
from privit.serve.parties.server import Server, serve
from privit.serve.parties.server_session import ServerOptions
from privit.serve.wire.certs import make_certs

CLIENTS = 3


def test_the_private_answer_is_the_answer_in_the_clear(served: Served, client: Client) -> None:
    for seed in range(2):
        answer = client.predict(digit_like(seed))
        expected = expected_logits(served, digit_like(seed))
        np.testing.assert_allclose(answer.logits, expected, atol=TOLERANCE)
        assert answer.class_name == served.artifact.public.class_names[int(np.argmax(expected))]
        assert sum(answer.probabilities) == pytest.approx(1.0)


def test_a_later_query_pays_no_setup_and_costs_what_the_simulator_says(
    served: Served, client: Client
) -> None:
    public, plan = served.artifact.public, served.artifact.plan
    found = protocol("cheetah")
    program = compile_program(public, plan)
    weights = served.artifact.weights
    assert weights is not None
    with Simulator(found, parallel=False) as simulator:
        simulator.give(program.inputs, server_values(public, plan, weights))
        simulator.give(program.inputs, client_values(public, np.zeros((1, 8, 8), np.float32)))
        # The engine keeps what is left of the products it prepares, so that costs differ between queries.
        online = [simulator.run(program.executable) for _ in range(10)]
    for seed in (2, 3):
        answer = client.predict(digit_like(seed))
        assert answer.rounds < client.setup.rounds / 2
        # CHEETAH's bytes repeat to 0.02 %; the session also sends the answer's share.
        assert any(
            answer.sent_bytes == pytest.approx(cost.sent_bytes, rel=0.005)
            and answer.rounds == pytest.approx(cost.rounds, abs=2)
            for cost in online
        ), (answer.sent_bytes, answer.rounds, [(c.sent_bytes, c.rounds) for c in online])


def test_more_clients_at_once_than_places_all_get_their_own_answer(tiny_folder: Path, tmp_path: Path) -> None:
    def ask(seed: int) -> np.ndarray:
        with served.connect() as opened:
            return np.asarray(opened.predict(digit_like(seed)).logits)

    limits = Limits(sessions=CLIENTS - 1)
    with (
        serving(tiny_folder, tmp_path / "server", "aby3", limits) as served,
        ThreadPoolExecutor(CLIENTS) as pool,
    ):
        answers = list(pool.map(ask, range(CLIENTS)))
    for seed, logits in enumerate(answers):
        np.testing.assert_allclose(logits, expected_logits(served, digit_like(seed)), atol=TOLERANCE)


def test_health_tells_protocol_plan_and_load(served: Served, client: Client) -> None:
    state = health(served.server.address)
    assert state["protocol"] == "cheetah"
    assert state["private"] is True
    assert state["plan"] == served.artifact.plan.hash()
    # Sessions of other tests may still be closing on a busy machine.
    assert 1 <= state["sessions"] <= state["session_limit"] == 4
    assert state["queued"] == 0


def test_a_client_that_comes_while_the_server_starts_is_told_so_and_waits(
    tiny_folder: Path, tmp_path: Path
) -> None:
    async def run() -> None:
        server = Server(ServerOptions(tiny_folder, port=0, state=tmp_path))
        address, starting = f"127.0.0.1:{server.port}", asyncio.ensure_future(server.start())
        waited: list[bool] = []

        def on_starting() -> float:
            waited.append(starting.done())
            return 300.0

        with pytest.raises(ConnectionFailed, match="is still starting"):
            await ask_health(address, None, 30.0)
        assert (await ask_health(address, None, 30.0, on_starting))["protocol"] == "cheetah"
        assert waited == [False]
        await starting
        await server.stop()

    asyncio.run(run())


def test_a_benchmark_protocol_is_refused_before_anything_else(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="semi2k-benchmark") as error:
        serve(tmp_path / "missing", -1, host="example.org", protocol="semi2k-benchmark", certs=tmp_path)
    assert "randomness" in error.value.message
    with pytest.raises(RequestError, match="semi2k-benchmark"):
        connect(tmp_path / "missing", "nowhere", protocol="semi2k-benchmark")


def test_aby3_without_a_helper_and_cheetah_with_one_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="three parties, but no helper"):
        serve(tmp_path, 0, protocol="aby3")
    with pytest.raises(RequestError, match="has no helper"):
        serve(tmp_path, 0, helper="127.0.0.1:1")


def test_a_folder_without_weights_cannot_be_served(tiny_folder: Path, tmp_path: Path) -> None:
    with (
        pytest.raises(PrivitError, match="holds no weights"),
        local_server(tiny_folder / "client", tmp_path),
    ):
        pass


def test_over_tls_queries_are_limited_by_certificate_across_restarts(
    tiny_folder: Path, tmp_path: Path
) -> None:
    names = ["127.0.0.1"]
    make_certs(tmp_path / "certs", names, ["alice", "bob"], names)
    (tmp_path / "certs" / "server" / "clients.json").write_text("{}")
    certs = make_certs(tmp_path / "certs", names, ["alice"], names)
    limits = Limits(sessions=1, queries=2, grace_seconds=1.0)

    def parties() -> AbstractContextManager[Served]:
        return serving(tiny_folder, tmp_path / "state", "aby3", limits, certs)

    with parties() as served:
        with pytest.raises(ConnectionFailed, match="does not know this client's certificate"):
            served.connect(certs=tmp_path / "certs" / "bob")
        with pytest.raises(ConnectionFailed):
            health(served.server.address)
        with served.connect(certs=certs["alice"]) as alice:
            alice.predict(digit_like(0))
            alice.predict(digit_like(1))
            with pytest.raises(ConnectionFailed, match="asked all its 2 queries"):
                alice.predict(digit_like(2))
            with pytest.raises(ConnectionFailed, match="session is closed"):
                alice.predict(digit_like(2))
    with parties() as served:
        party = served.server
        assert health(party.address, certs["alice"])["sessions"] == 0
        with pytest.raises(ConnectionFailed, match="asked all its 2 queries"):
            served.connect(certs=certs["alice"])
        party.process.send_signal(signal.SIGTERM)
        assert party.process.wait(120) == 0
    log = (tmp_path / "state" / "server.log").read_text()
    assert "of alice: query 2" in log
    assert "stopped" in log


def test_a_local_server_does_not_outlive_a_killed_parent(tiny_folder: Path, tmp_path: Path) -> None:
    program = (
        "import time; from pathlib import Path; from privit.serve.parties.processes import local_server\n"
        f"with local_server(Path({str(tiny_folder)!r}), Path({str(tmp_path)!r})) as server:\n"
        "    print(server.process.pid, flush=True); time.sleep(3600)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        server = int(parent.stdout.readline())
        parent.kill()
    deadline = time.monotonic() + 120
    while Path(f"/proc/{server}/cmdline").exists() and Path(f"/proc/{server}/cmdline").read_bytes():
        assert time.monotonic() < deadline, "the server lives on"
        time.sleep(0.05)


def test_the_engine_of_a_client_loads_neither_torch_nor_data_sets(served: Served) -> None:
    program = f"""
import sys
from pathlib import Path
import numpy as np
from privit.serve.parties.client import connect, health
health({served.server.address!r})
import privit.serve.engine.engine, privit.serve.engine.worker, privit.data.images
from privit.serve.engine.engine import Engine
folder = Path({str(served.client_folder)!r})
Engine(folder, "cheetah", "client", folder.parent / "engine.log").description()
loaded = sorted(set(sys.modules) & {{"torch", "datasets", "timm", "transformers", "pyarrow", "sklearn"}})
assert not loaded, loaded
assert not any(name.startswith("privit.train") for name in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
