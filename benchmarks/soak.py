"""Many private queries with clients killed and bytes delayed at random: `python -m benchmarks.soak`.

Good clients ask their queries, with bad pictures in between that must be refused before anything is sent,
and compare every answer with the model in the clear; every third does so over a network that delays. Among
them come clients that are killed at a random moment of their life, and now and then a worker of the server is
killed: its client may connect again, and no other may notice. At the end the server must be the same process,
hold no session, have no more memory or descriptors than a server needs, leave no file behind, and answer a
good query. Before that, many sessions are opened over networks that delay, join and split everything: none
may fail.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.rough_network import Parties, Roughness, rough_parties
from privit.artifact import Artifact, Preprocessing, Public, save_artifact
from privit.cost.network import Network
from privit.errors import PrivitError, RequestError, WorkError
from privit.plan import all_weight_shapes, plan_from_counts
from privit.serve.measure.exported import ENOUGH_IMAGES, finish_export
from privit.serve.measure.private import clear_logits
from privit.serve.parties.client import Client, connect, health
from privit.serve.parties.limits import Limits
from privit.serve.parties.processes import LocalParty, local_server
from privit.spec import vit_spec

TOLERANCE = 0.05
SETTLE_SECONDS = 60.0
CLIENT_SECONDS = 1800.0
KILL_SECONDS = 12.0
"""A doomed client dies within this time: while it compiles, sets up, asks or after it is done."""
DOOMED_QUERIES = 5
BETWEEN_WORKERS_SECONDS = (5.0, 60.0)
MOST_SESSIONS = 5
DELAYED = (10.0, 1000.0)
"""Round trip in ms and Mbit/s of every third client's network."""
MORE_MEMORY, MORE_DESCRIPTORS = 1.05, 8
"""What a server may have at the end of what it had after the first quarter of its clients: sessions that
happen to be open then hold a few descriptors each."""
OWN_FOLDER = "privit-soak-"


@dataclass(frozen=True)
class Plan:
    """How a soak is run."""

    queries: int = 1000
    clients: int = 100
    killed_clients: int = 50
    killed_workers: int = 20
    bad_inputs: int = 200
    at_once: int = 2
    rough_sessions: int = 200
    seed: int = 0


def smallest_artifact(folder: Path) -> Artifact:
    """Random weights for the smallest model, one exact site of each kind; guarded as every export is."""
    spec = vit_spec(8, 4, 8, 1, 2, 10, channels=1)
    plan = plan_from_counts(spec, [1], [1])
    rng = np.random.default_rng(0)
    shapes = all_weight_shapes(spec, plan)
    weights = {name: rng.normal(0, 0.2, shape).astype(np.float32) for name, shape in shapes.items()}
    names = tuple(str(i) for i in range(spec.classes))
    artifact = save_artifact(folder, Public(spec, Preprocessing(8, 1, (0.5,), (0.5,)), names), plan, weights)
    images = np.stack([_pixels(seed) for seed in range(ENOUGH_IMAGES)])

    def student(given: np.ndarray) -> np.ndarray:
        return np.stack([clear_logits(artifact, pixels) for pixels in given])

    return finish_export(folder, images, student)[0]


def soak(plan: Plan, folder: Path) -> dict[str, Any]:
    """The report of one soak; `passed` says whether everything held."""
    artifact = smallest_artifact(folder / "artifact")
    started = time.monotonic()
    rough_failures = _rough_failures(plan, folder, artifact)
    limits = Limits(sessions=plan.at_once, queue=plan.at_once * 2, grace_seconds=5.0)
    with local_server(folder / "artifact", folder / "server", limits=limits) as server:
        files, footprints = _temporary_files(), [_footprint(server)]
        ended = threading.Event()

        def live(life: Life) -> dict[str, Any]:
            lived = _live(folder, artifact, server, life)
            footprints.append(_footprint(server))
            return lived

        with ThreadPoolExecutor(plan.at_once + 1) as pool:
            killing = pool.submit(_kill_workers, plan, server, ended)
            lives = list(pool.map(live, _lives(plan)))
            ended.set()
            workers_killed = killing.result()
        settled = _settle(server)
        last = _good_query(folder, artifact, server, 10_000)
        footprints.append(_footprint(server))
        alive = server.process.poll() is None
    killed = [life for life in lives if life["killed"]]
    good = [life for life in lives if not life["killed"]]
    wrong = sum(life["wrong"] for life in lives) + (not last)
    complete = all(life["answered"] == life["asked"] for life in good)
    seconds = [s for life in good for s in life["seconds"]]
    left = sorted(_temporary_files() - files)
    refused = sum(life["refused"] for life in good)
    reconnects = sum(life["reconnects"] for life in good)
    good_inputs = refused == plan.bad_inputs and reconnects <= workers_killed
    early, late = footprints[: len(footprints) // 4 + 1], footprints[-1]
    small = late["descriptors"] <= max(f["descriptors"] for f in early) + MORE_DESCRIPTORS
    small = small and late["memory_mb"] <= MORE_MEMORY * max(f["memory_mb"] for f in early)
    held = alive and settled and complete and wrong == 0 and last and good_inputs and small and not left
    return {
        "passed": held and not rough_failures,
        "workers_killed": workers_killed,
        "reconnects": reconnects,
        "bad_inputs": plan.bad_inputs,
        "bad_inputs_refused": refused,
        "files_left": left,
        "rough_sessions": plan.rough_sessions,
        "rough_failures": rough_failures,
        "queries_asked": sum(life["asked"] for life in lives),
        "queries_answered": sum(life["answered"] for life in lives),
        "wrong_answers": wrong,
        "clients": len(lives),
        "clients_killed": len(killed),
        "killed_after_seconds": [round(life["killed_after"], 2) for life in killed],
        "failed_good_clients": [life["error"] for life in good if life["error"]],
        "server_alive": alive,
        "sessions_left": 0 if settled else health(server.address)["sessions"],
        "last_query_right": last,
        "query_seconds_median": float(np.median(seconds)) if seconds else None,
        "descriptors": [f["descriptors"] for f in footprints],
        "memory_mb": [f["memory_mb"] for f in footprints],
        "seconds": round(time.monotonic() - started, 1),
    }


def _rough_failures(plan: Plan, folder: Path, artifact: Artifact) -> list[str]:
    """What went wrong in sessions over rough networks: one in ten of cheetah, the others of aby3."""
    seeds = range(plan.rough_sessions)
    failures: list[str] = []
    for protocol, own in (("cheetah", seeds[::10]), ("aby3", [seed for seed in seeds if seed % 10])):

        def ask(seed: int, parties: Parties) -> None:
            try:
                logits = parties.ask(Roughness(plan.seed * 1_000_003 + seed), picture(seed))
                if not _is_right(artifact, {"seed": seed, "logits": logits}):
                    failures.append(f"session {seed} on {parties.protocol}: a wrong answer")
            except PrivitError as error:
                failures.append(f"session {seed} on {parties.protocol}: {error.message}")

        if own:
            with (
                rough_parties(folder / "artifact", folder / protocol, protocol, plan.at_once) as parties,
                ThreadPoolExecutor(plan.at_once) as pool,
            ):
                list(pool.map(ask, own, [parties] * len(own)))
    return failures


@dataclass(frozen=True)
class Life:
    """What one client does: so many queries and bad pictures, over a delay or not, killed early or never."""

    number: int
    queries: int
    bad: int
    delayed: bool
    killed_after: float | None = None


def _lives(plan: Plan) -> list[Life]:
    """Good clients that share all queries and bad inputs, and doomed ones, in random order."""
    rng = random.Random(plan.seed)

    def share(total: int, i: int) -> int:
        return total * (i + 1) // plan.clients - total * i // plan.clients

    good = [
        Life(i, share(plan.queries, i), share(plan.bad_inputs, i), i % 3 == 2) for i in range(plan.clients)
    ]
    doomed = [
        Life(plan.clients + i, DOOMED_QUERIES, 0, False, rng.uniform(0.5, KILL_SECONDS))
        for i in range(plan.killed_clients)
    ]
    lives = good + doomed
    rng.shuffle(lives)
    return lives


def _kill_workers(plan: Plan, server: LocalParty, ended: threading.Event) -> int:
    """Kills a random worker of the server now and then, until the clients are done; how many it killed."""
    rng, killed = random.Random(plan.seed + 1), 0
    while killed < plan.killed_workers and not ended.wait(rng.uniform(*BETWEEN_WORKERS_SECONDS)):
        children = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children")
        found = children.read_text().split() if children.exists() else []
        if found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(rng.choice(found)), signal.SIGKILL)
                killed += 1
    return killed


def _live(folder: Path, artifact: Artifact, server: LocalParty, planned: Life) -> dict[str, Any]:
    """One client, as a process of its own."""
    request = {
        "model": str(folder / "artifact" / "client"),
        "server": server.address,
        "first": planned.number * 100,
        "count": planned.queries,
        "bad": planned.bad,
        "delayed": planned.delayed,
        "state": str(folder / "client"),
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.soak", "--client", json.dumps(request)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    patience = planned.killed_after or CLIENT_SECONDS
    life: dict[str, Any] = {"asked": planned.queries, "killed": False, "killed_after": patience}
    try:
        out, err = process.communicate(timeout=patience)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        life["killed"] = True
    lines = [json.loads(line) for line in out.splitlines() if line.endswith("}")]
    answers = [line for line in lines if "logits" in line]
    return life | {
        "refused": sum("refused" in line for line in lines),
        "reconnects": sum("lost" in line for line in lines),
        "answered": len(answers),
        "wrong": sum(not _is_right(artifact, answer) for answer in answers),
        "seconds": [answer["seconds"] for answer in answers],
        "error": "" if process.returncode == 0 else err.strip().splitlines()[-1] if err.strip() else "killed",
    }


def run_client(request: dict[str, Any]) -> None:
    """The life of one client: connect, ask, print each answer; connect again where the session is lost."""
    left, bad = list(range(request["first"], request["first"] + request["count"])), request["bad"]
    network = Network(*DELAYED) if request["delayed"] else None
    for _ in range(MOST_SESSIONS):
        try:
            with connect(
                Path(request["model"]), request["server"], network=network, state=Path(request["state"])
            ) as client:
                while left or bad:
                    if bad:
                        _say(refused=_is_refused(client, bad))
                        bad -= 1
                    if left:
                        answer = client.predict(picture(left[0]))
                        _say(seed=left.pop(0), logits=answer.logits, seconds=answer.seconds)
            return
        except WorkError as error:
            _say(lost=error.message)
    raise SystemExit(f"no session held, {len(left)} queries were not answered")


def _say(**line: Any) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def _is_refused(client: Client, number: int) -> str:
    """What a client says to a picture that is none; one that is taken ends the soak of this client."""
    wrong: tuple[Any, ...] = (b"", b"text", [[0]], None, np.zeros((8, 8)), np.zeros((3, 8, 8), np.uint8))
    try:
        client.predict(wrong[number % len(wrong)])
    except RequestError as error:
        return error.message
    raise SystemExit(f"a bad input was taken: {number % len(wrong)}")


def picture(seed: int) -> np.ndarray:
    """An 8 x 8 grey picture."""
    return np.random.default_rng(seed).integers(0, 256, (8, 8), dtype=np.uint8)


def _is_right(artifact: Artifact, answer: dict[str, Any]) -> bool:
    expected = clear_logits(artifact, _pixels(answer["seed"]))
    return bool(np.abs(np.asarray(answer["logits"]) - expected).max() <= TOLERANCE)


def _pixels(seed: int) -> np.ndarray:
    return (picture(seed).astype(np.float32)[None] / 255 - 0.5) / 0.5


def _good_query(folder: Path, artifact: Artifact, server: LocalParty, seed: int) -> bool:
    with connect(folder / "artifact" / "client", server.address, state=folder / "client") as client:
        return _is_right(artifact, {"seed": seed, "logits": client.predict(picture(seed)).logits})


def _settle(server: LocalParty) -> bool:
    deadline = time.monotonic() + SETTLE_SECONDS
    while time.monotonic() < deadline:
        if health(server.address)["sessions"] == 0:
            return True
        time.sleep(0.2)
    return False


def _temporary_files() -> set[str]:
    """What privit keeps in the soak's own temporary directory, sockets and all."""
    return {path.name for path in Path(tempfile.gettempdir()).iterdir()}


def _footprint(server: LocalParty) -> dict[str, float]:
    process = Path(f"/proc/{server.process.pid}")
    if not process.is_dir():
        return {"descriptors": -1, "memory_mb": -1}
    # Its own memory alone: pages of files come and go with what else the machine needs.
    resident = next(
        line for line in (process / "status").read_text().splitlines() if line.startswith("RssAnon")
    )
    return {
        "descriptors": len(list((process / "fd").iterdir())),
        "memory_mb": round(int(resident.split()[1]) / 1024, 1),
    }


def main() -> None:
    """Runs the soak and prints its report as one JSON object; exit code 1 if something did not hold."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, value in vars(Plan()).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=value)
    parser.add_argument("--client", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help="file for the report, beside standard output")
    arguments = vars(parser.parse_args())
    client, out = arguments.pop("client"), arguments.pop("out")
    if client:
        run_client(json.loads(client))
        return
    with tempfile.TemporaryDirectory(prefix=OWN_FOLDER) as folder:
        # Of its own, so that nobody else's sockets are taken for what this soak leaves.
        os.environ["TMPDIR"] = tempfile.tempdir = str(Path(folder) / "tmp")
        Path(tempfile.tempdir).mkdir()
        report = soak(Plan(**arguments), Path(folder))
    text = json.dumps(report, indent=1) + "\n"
    sys.stdout.write(text)
    if out is not None:
        out.write_text(text)
    sys.exit(0 if report["passed"] else 1)


if __name__ == "__main__":
    main()
