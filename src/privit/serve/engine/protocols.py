"""The protocols, by whom they trust."""

from __future__ import annotations

from dataclasses import dataclass

from spu import libspu

from privit.errors import RequestError

SERVER, CLIENT, HELPER = 0, 1, 2
"""Ranks: the server holds the weights, the client the image, the helper of a three-party protocol nothing."""


@dataclass(frozen=True)
class Protocol:
    """A way to compute together.

    `private` is true only if no single party can see another's secret. `owner_typed`
    protocols keep an input with its owner, so that not even a share of it is sent.
    """

    name: str
    engine_name: str
    parties: int
    private: bool
    owner_typed: bool
    trust: str

    def runtime_config(self, profile: bool = False) -> libspu.RuntimeConfig:
        """The engine's settings, equal for every party; with `profile`, it logs what each operation sent."""
        config = libspu.RuntimeConfig()
        config.protocol = getattr(libspu.ProtocolKind, self.engine_name)
        config.field = libspu.FieldType.FM64
        # The wheel's default for SEMI2K; said here because it is what makes that mode not private.
        config.beaver_type = libspu.RuntimeConfig.BeaverType.TrustedFirstParty
        config.experimental_enable_colocated_optimization = self.owner_typed
        # Three ciphertexts instead of four for element-wise products, for the last of a product's 36 fraction
        # bits. What is sent is masked and drowned in noise as without it (docs/engine.md).
        config.cheetah_2pc_config.enable_mul_lsb_error = True
        config.enable_pphlo_profile = profile
        return config


PROTOCOLS: tuple[Protocol, ...] = (
    Protocol(
        "cheetah",
        "CHEETAH",
        parties=2,
        private=True,
        owner_typed=True,
        trust="nobody; both parties follow the protocol (semi-honest)",
    ),
    Protocol(
        "aby3",
        "ABY3",
        parties=3,
        private=True,
        owner_typed=False,
        trust="that no two of the three parties collude, and that all follow the protocol",
    ),
    Protocol(
        "semi2k-benchmark",
        "SEMI2K",
        parties=2,
        private=False,
        owner_typed=False,
        trust="the server, which makes the secret randomness and could read the image: for measurements only",
    ),
)
DEFAULT = PROTOCOLS[0].name


def protocol(name: str) -> Protocol:
    """The protocol of that name; refuses an unknown one."""
    for entry in PROTOCOLS:
        if entry.name == name:
            return entry
    raise RequestError(
        f"no protocol is called {name!r}", "known: " + ", ".join(entry.name for entry in PROTOCOLS)
    )


def require_private(name: str, what: str = "serving") -> Protocol:
    """The protocol of that name, if it is private; refuses a benchmark mode and says why."""
    found = protocol(name)
    if not found.private:
        raise RequestError(
            f"{what} on {found.name} is refused: the server makes the secret randomness there "
            "and could read the image",
            f"use --protocol {DEFAULT}; {found.name} is for bench and eval --on simulated",
        )
    return found
