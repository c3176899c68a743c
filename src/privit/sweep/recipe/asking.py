"""What is asked of every finished model of an experiment: to be measured, to agree, to answer privately."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from privit.cost.network import network
from privit.cost.spu.table import PROTOCOLS, shipped_table
from privit.errors import PrivitError
from privit.sweep.recipe.keys import ASKED, Table, known_entries

GRAPHS = ("dense", "dense-rewritten")
"""Programs of the untouched model that a model can be measured against."""
AGREEMENT_IMAGES, PRIVATE_IMAGES = 100, 3
STAGES = ("bench", "agreement", "private")
"""What asks a finished model, in the order in which it is asked."""


@dataclass(frozen=True)
class Asking:
    """Every entry is the settings of one stage; the result that it asks is added to them.

    `bench` measures one prediction (PROTOCOL with all parties in one process, PROTOCOL/NETWORK between
    processes over that network), `agreement` simulates test images, `private` asks between processes.
    """

    bench: tuple[dict[str, Any], ...] = ()
    agreement: tuple[dict[str, Any], ...] = ()
    private: tuple[dict[str, Any], ...] = ()

    def stages(self, served: bool) -> list[tuple[str, dict[str, Any]]]:
        """Each stage with its settings; a program that nobody serves is only measured in one process."""
        found = [(stage, settings) for stage in STAGES for settings in getattr(self, stage)]
        return [
            (stage, settings)
            for stage, settings in found
            if served or (stage == "bench" and "network" not in settings)
        ]


def read_asking(table: Table, where: str, export: bool, problems: list[str]) -> Asking:
    """What an experiment's table asks for; what is wrong with it goes to `problems`."""
    against = list(table.get("against", []))
    problems += [
        f"{where}: against has {name!r}; known: {', '.join(GRAPHS)}" for name in against if name not in GRAPHS
    ]
    if against and not table.get("bench"):
        problems.append(f"{where}: against is given, but no bench; write bench = [PROTOCOL]")
    beside = {"against": against} if against else {}
    benches = [_bench(entry, f"{where}: bench", problems) for entry in table.get("bench", [])]
    asking = Asking(
        tuple(settings if "network" in settings else settings | beside for settings in benches),
        _images(table.get("agreement"), AGREEMENT_IMAGES, f"{where}: agreement", problems),
        _images(table.get("private"), PRIVATE_IMAGES, f"{where}: private", problems),
    )
    for settings in asking.private:
        protocol = settings["protocol"]
        if protocol in PROTOCOLS and not shipped_table(protocol).private:
            problems.append(f"{where}: private has {protocol}, which is not private; put it into agreement")
    if not export:
        asked = [stage for stage in STAGES if getattr(asking, stage)]
        verbs = {"bench": "measures", "agreement": "asks", "private": "asks"}
        problems += [f"{where}: {n} {verbs[n]} artifacts, but [cost] export is false" for n in asked]
    return asking


def check_protocols(names: tuple[Any, ...], where: str, problems: list[str]) -> None:
    """Adds a problem for each name that is no protocol's."""
    problems += [
        f"{where} has {name!r}; known: {', '.join(PROTOCOLS)}" for name in names if name not in PROTOCOLS
    ]


def _bench(entry: Any, where: str, problems: list[str]) -> dict[str, Any]:
    """The settings of `semi2k-benchmark` or `semi2k-benchmark/wan`."""
    protocol, _, over = str(entry).partition("/")
    check_protocols((protocol,), where, problems)
    if not over:
        return {"protocol": protocol}
    try:
        network(over)
    except PrivitError as error:
        problems.append(f"{where}: {error.message}")
    return {"protocol": protocol, "network": over}


def _images(given: Any, images: int, where: str, problems: list[str]) -> tuple[dict[str, Any], ...]:
    if given is None:
        return ()
    table = known_entries(given, ASKED, where, problems)
    count, protocols = table.get("images", images), tuple(table.get("protocols", ()))
    if count < 1:
        problems.append(f"{where}: images is {count}, but at least 1 was expected")
    if not protocols:
        problems.append(f"{where}: no protocols are given")
    check_protocols(protocols, f"{where}: protocols", problems)
    return tuple({"protocol": protocol, "images": count} for protocol in protocols)
