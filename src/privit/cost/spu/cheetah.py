"""CHEETAH's costs: ciphertexts come whole, products are kept in store, transfers are refilled.

Products of two shared values come from a store that is filled a ciphertext at a time while they are
fewer than two ciphertexts, and straight from ciphertexts above that (libspu/mpc/cheetah/arithmetic.cc
and state.cc). Everything else is linear in the number of values.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from privit.cost.spu.table import Cost, Table
from privit.program.operation import PARALLEL_ABOVE, Operation
from privit.program.tiles import POLYNOMIAL, matmul_tiles

SERVER, CLIENT = 0, 1
DIRECT_FROM = 2 * POLYNOMIAL
"""Products from which on the store is not used."""
OPENED_BYTES = 16
"""Both factors of a product from the store are opened under a mask."""


@dataclass
class Store:
    """How many prepared products are left; a session goes on with what the last query left."""

    left: int = 0

    def take(self, values: int) -> int:
        """Ciphertext batches that have to be made before `values` products can be taken."""
        batches = 0
        if self.left < values:
            batches = -(-2 * values // POLYNOMIAL)
            self.left += batches * POLYNOMIAL // 2
        self.left -= values
        return batches


@dataclass
class Cheetah:
    """Prices operations one after the other, as a session runs them."""

    table: Table
    store: Store = field(default_factory=Store)

    def cost(self, operation: Operation) -> Cost:
        """What one operation costs now, transfers' refills apart."""
        name, sizes = operation.name, operation.sizes
        if name.startswith("matmul"):
            return self._matmul(name, *sizes)
        if name == "max":
            return self._max(*sizes)
        return self._elementwise(name, sizes[0])

    def refills(self, total: Cost) -> Cost:
        """The refills of transfers that a query with this total needs on average."""
        made = self.table.ciphertexts
        times = total.transfer_bytes / made["transfer_bytes_per_refill"]
        return Cost(
            (times * made["refill_bytes"], 0.0),
            (times * made["refill_rounds"], 0.0),
            times * made["refill_seconds"],
            seconds_error=times * made["refill_seconds"] * made["seconds_error"],
        )

    def _elementwise(self, name: str, values: int) -> Cost:
        entry = self.table.entry(name)
        total = self._transfers(name, values)
        for _ in range(entry.products):
            total += self._product(values)
        for _ in range(entry.squares):
            total += self._square(values)
        for _ in range(entry.weight_products):
            total += self._batches(-(-values // POLYNOMIAL), SERVER)
        return total

    def _transfers(self, name: str, values: int) -> Cost:
        """The part that grows with every value."""
        entry = self.table.entry(name)
        found = self.table.linear(name, (values,))
        rounds = entry.rounds_parallel if values > PARALLEL_ABOVE else entry.rounds[0][0]
        opened = OPENED_BYTES * values * entry.products
        return Cost(
            found.sent_bytes,
            (rounds, rounds),
            found.seconds,
            transfer_bytes=max(found.sent_bytes[SERVER] - opened, 0.0),
            seconds_error=found.seconds_error,
        )

    def _batches(self, count: int, encrypting: int) -> Cost:
        """Element-wise products of whole ciphertexts."""
        made = self.table.ciphertexts
        each = made["product_ciphertexts"]
        sent = [count * each * made["product_response_bytes"]] * 2
        sent[encrypting] = count * each * made["product_request_bytes"]
        return Cost(
            (sent[0], sent[1]),
            (float(count * each), float(count * each)),
            count * made["product_seconds"],
            seconds_error=count * made["product_seconds"] * made["seconds_error"],
        )

    def _product(self, values: int) -> Cost:
        if values < DIRECT_FROM:
            return self._batches(self.store.take(values), CLIENT)
        # Each half is encrypted by another party, both factors of it, and nothing is opened.
        total = Cost((-OPENED_BYTES * values,) * 2, (-1.0, -1.0))
        for half, encrypting in ((values // 2, CLIENT), (values - values // 2, SERVER)):
            batches = -(-half // POLYNOMIAL)
            one = self._batches(batches, encrypting)
            made = self.table.ciphertexts
            more = [0.0, 0.0]
            more[encrypting] = float(batches * made["product_ciphertexts"])
            total += one + Cost(
                (more[0] * made["product_request_bytes"], more[1] * made["product_request_bytes"]),
                (more[0], more[1]),
            )
        return total

    def _square(self, values: int) -> Cost:
        if values <= POLYNOMIAL:
            return self._batches(1, CLIENT)
        half = values // 2
        return self._batches(-(-half // POLYNOMIAL), CLIENT) + self._batches(
            -(-(values - half) // POLYNOMIAL), SERVER
        )

    def _max(self, rows: int, columns: int) -> Cost:
        """A tree of comparisons and selections: halves first, then what was left over, one by one."""
        total, left, over = Cost(), columns, 0
        while left > 1:
            total += self._level(rows * (left // 2))
            over += left % 2
            left //= 2
        for _ in range(over):
            total += self._level(rows)
        return total

    def _level(self, pairs: int) -> Cost:
        return self._transfers("compare_public", pairs) + self._transfers("select", pairs)

    def _matmul(self, name: str, rows: int, inner: int, columns: int) -> Cost:
        tiles, made = matmul_tiles(rows, inner, columns), self.table.ciphertexts
        requests, responses = tiles.requests * made["matmul_request_bytes"], 0.0
        if tiles.single:
            responses = made["matmul_single_bytes"] + made["matmul_coefficient_bytes"] * rows * columns
        else:
            responses = tiles.responses * made["matmul_response_bytes"]
        seconds = sum(c * f for c, f in zip(made["matmul_seconds"], tiles.work(), strict=True))
        # The left factor is the client's share or picture, the right one the server's.
        sent = [responses, requests] if tiles.left_encrypted else [requests, responses]
        steps = [tiles.responses, tiles.requests][:: 1 if tiles.left_encrypted else -1]
        error = seconds * made["seconds_error"]
        cost = Cost((sent[0], sent[1]), (float(steps[0]), float(steps[1])), seconds, seconds_error=error)
        if name == "matmul":
            # Both cross terms of the shares, each the other way round.
            cost += Cost(cost.sent_bytes[::-1], cost.rounds[::-1], seconds, seconds_error=error)
        return cost + self._transfers("multiply_public", rows * columns)
