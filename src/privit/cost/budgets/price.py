"""What a budget in cost counts: its unit, and the protocol and network that decide what it comes to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from privit.cost.network import network
from privit.cost.spu.table import shipped_table
from privit.errors import RequestError

Unit = Literal["bytes", "rounds", "seconds", "relu_ops", "and_gates"]
ENGINE_UNITS = ("bytes", "rounds", "seconds")
PROFILES = {"relu_ops": "paper", "and_gates": "circuits"}


@dataclass(frozen=True)
class Price:
    """The unit of a cost budget; protocol and network decide what bytes, rounds and seconds come to."""

    unit: Unit = "seconds"
    protocol: str = "cheetah"
    network: str = "lan"

    def problems(self) -> list[str]:
        """Everything that is wrong with this price, in sentences."""
        known = (*ENGINE_UNITS, *PROFILES)
        if self.unit not in known:
            return [f"no unit is called {self.unit!r}; known: {', '.join(known)}"]
        if self.unit not in ENGINE_UNITS:
            return []
        found = []
        for check in (lambda: shipped_table(self.protocol), lambda: network(self.network)):
            try:
                check()
            except RequestError as error:
                found.append(f"{error.message}; {error.hint}")
        return found

    def show(self, value: float) -> str:
        """An amount with its unit, as a person writes it."""
        if self.unit == "bytes":
            return f"{value / 1e6:.4g} MB"
        if self.unit == "seconds":
            return f"{value:.4g} s"
        amount = f"{value / 1e6:.4g} M" if value >= 1e6 else f"{value:.0f}"
        return f"{amount} {({'relu_ops': 'ReLUOps', 'and_gates': 'AND gates'}).get(self.unit, self.unit)}"

    @property
    def setting(self) -> str:
        """Under what the amount was counted."""
        if self.unit not in ENGINE_UNITS:
            return f"the {PROFILES[self.unit]} profile"
        return self.protocol + (f" on {self.network}" if self.unit == "seconds" else "")
