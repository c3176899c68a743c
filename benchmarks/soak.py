"""Many private queries with clients killed and bytes delayed at random: `python -m benchmarks.soak`.

Clients come in pairs, ask a few queries each and compare every answer with the model in the clear. Every
tenth client is killed at a random moment of its life. At the end the server must be the same process, hold no
session, have no more memory or descriptors than a server needs, and answer a good query. Before that, many
sessions are opened over networks that delay, join and split everything: none may fail.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.rough_network import Parties, Roughness, rough_parties
from privit.artifact import Artifact, Preprocessing, Public, save_artifact
from privit.errors import PrivitError
from privit.plan import all_weight_shapes, plan_from_counts
from privit.serve.measure.private import clear_logits
from privit.serve.parties.client import connect, health
from privit.serve.parties.limits import Limits
from privit.serve.parties.processes import LocalParty, local_server
from privit.spec import vit_spec

TOLERANCE = 0.05
SETTLE_SECONDS = 60.0
CLIENT_SECONDS = 1800.0
KILL_SECONDS = 12.0
"""A doomed client dies within this time: while it compiles, sets up, asks or after it is done."""


@dataclass(frozen=True)
class Plan:
    """How a soak is run."""

    queries: int = 200
    queries_each: int = 5
    kill_every: int = 10
    at_once: int = 2
    rough_sessions: int = 200
    seed: int = 0


def smallest_artifact(folder: Path) -> Artifact:
    """Random weights for the smallest model, one exact site of each kind."""
    spec = vit_spec(8, 4, 8, 1, 2, 10, channels=1)
    plan = plan_from_counts(spec, [1], [1])
    rng = np.random.default_rng(0)
    shapes = all_weight_shapes(spec, plan)
    weights = {name: rng.normal(0, 0.2, shape).astype(np.float32) for name, shape in shapes.items()}
    names = tuple(str(i) for i in range(spec.classes))
    return save_artifact(folder, Public(spec, Preprocessing(8, 1, (0.5,), (0.5,)), names), plan, weights)


def soak(plan: Plan, folder: Path) -> dict[str, Any]:
    """The report of one soak; `passed` says whether everything held."""
    artifact = smallest_artifact(folder / "artifact")
    started = time.monotonic()
    rough_failures = _rough_failures(plan, folder, artifact)
    limits = Limits(sessions=plan.at_once, queue=plan.at_once * 2, grace_seconds=5.0)
    with local_server(folder / "artifact", folder / "server", limits=limits) as server:
        before = _footprint(server)
        clients, asked = [], 0
        while asked < plan.queries:
            clients.append(min(plan.queries_each, plan.queries - asked))
            asked += clients[-1]
        with ThreadPoolExecutor(plan.at_once) as pool:
            lives = list(
                pool.map(lambda n: _live(plan, folder, artifact, server, n, clients[n]), range(len(clients)))
            )
        settled = _settle(server)
        last = _good_query(folder, artifact, server, 10_000)
        after = _footprint(server)
        alive = server.process.poll() is None
    killed = [life for life in lives if life["killed"]]
    good = [life for life in lives if not life["killed"]]
    wrong = sum(life["wrong"] for life in lives) + (not last)
    complete = all(life["answered"] == life["asked"] for life in good)
    seconds = [s for life in good for s in life["seconds"]]
    return {
        "passed": alive and settled and complete and wrong == 0 and last and not rough_failures,
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
        "descriptors": [before["descriptors"], after["descriptors"]],
        "memory_mb": [before["memory_mb"], after["memory_mb"]],
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


def _live(
    plan: Plan, folder: Path, artifact: Artifact, server: LocalParty, number: int, count: int
) -> dict[str, Any]:
    """One client, as a process of its own; every tenth dies early."""
    rng = random.Random(plan.seed * 1_000_003 + number)
    doomed = number % plan.kill_every == plan.kill_every - 1
    request = {
        "model": str(folder / "artifact" / "client"),
        "server": server.address,
        "first": number * 100,
        "count": count,
        "state": str(folder / "client"),
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.soak", "--client", json.dumps(request)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    patience = rng.uniform(0.5, KILL_SECONDS) if doomed else CLIENT_SECONDS
    life: dict[str, Any] = {"asked": count, "killed": False, "killed_after": patience}
    try:
        out, err = process.communicate(timeout=patience)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        life["killed"] = True
    answers = [json.loads(line) for line in out.splitlines() if line.endswith("}")]
    return life | {
        "answered": len(answers),
        "wrong": sum(not _is_right(artifact, answer) for answer in answers),
        "seconds": [answer["seconds"] for answer in answers],
        "error": "" if process.returncode == 0 else err.strip().splitlines()[-1] if err.strip() else "killed",
    }


def run_client(request: dict[str, Any]) -> None:
    """The life of one client: connect, ask, print each answer."""
    with connect(Path(request["model"]), request["server"], state=Path(request["state"])) as client:
        for seed in range(request["first"], request["first"] + request["count"]):
            answer = client.predict(picture(seed))
            line = {"seed": seed, "logits": answer.logits, "seconds": answer.seconds}
            sys.stdout.write(json.dumps(line) + "\n")
            sys.stdout.flush()


def picture(seed: int) -> np.ndarray:
    """An 8 x 8 grey picture."""
    return np.random.default_rng(seed).integers(0, 256, (8, 8), dtype=np.uint8)


def _is_right(artifact: Artifact, answer: dict[str, Any]) -> bool:
    pixels = (picture(answer["seed"]).astype(np.float32)[None] / 255 - 0.5) / 0.5
    return bool(np.abs(np.asarray(answer["logits"]) - clear_logits(artifact, pixels)).max() <= TOLERANCE)


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


def _footprint(server: LocalParty) -> dict[str, float]:
    process = Path(f"/proc/{server.process.pid}")
    if not process.is_dir():
        return {"descriptors": -1, "memory_mb": -1}
    resident = next(
        line for line in (process / "status").read_text().splitlines() if line.startswith("VmRSS")
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
    arguments = vars(parser.parse_args())
    client = arguments.pop("client")
    if client:
        run_client(json.loads(client))
        return
    with tempfile.TemporaryDirectory(prefix="privit-soak-") as folder:
        report = soak(Plan(**arguments), Path(folder))
    sys.stdout.write(json.dumps(report, indent=1) + "\n")
    sys.exit(0 if report["passed"] else 1)


if __name__ == "__main__":
    main()
