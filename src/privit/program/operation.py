"""One operation that makes the parties talk, and the list to which a program adds its own."""

from __future__ import annotations

from dataclasses import dataclass, field

from privit.program.choices import ONE, Batch

PARALLEL_ABOVE = 2048
"""Values above which the engine of cheetah runs an operation's transfers in two streams, each with its own
set-up and rounds."""


@dataclass(frozen=True)
class Operation:
    """One call of the engine.

    The name says what meets what: plain names are of two shared values, `_weight` of a shared value and
    the server's own, `_input` of the client's own and the server's own, `_public` of a shared value and a
    constant, `_bit` of a shared value and a shared bit; `count_bits` adds shared bits up, `number_bit`
    makes a number of each. `matmul*` sizes are (rows, inner, columns), `max` sizes are (rows, columns), all
    others (elements,).
    """

    name: str
    sizes: tuple[int, ...]

    @property
    def results(self) -> tuple[int, ...]:
        """The shape of what it works on at once: a product's rows and columns, all sizes of others."""
        return (self.sizes[0], self.sizes[-1]) if self.name.startswith("matmul") else self.sizes


@dataclass
class Recorder:
    """Collects operations in the order in which the program runs them, of all images of its batch."""

    batch: Batch = ONE
    operations: list[Operation] = field(default_factory=list)

    def __call__(self, name: str, *sizes: int) -> None:
        """Notes one operation with its sizes for one image; its rows or values are those of all images."""
        rows, *others = sizes
        if name.startswith("matmul"):
            self.product(name, rows * self.batch.images, *others)
        else:
            self.once(name, rows * self.batch.images, *others)

    def product(self, name: str, rows: int, inner: int, columns: int) -> None:
        """Notes a product with the server's weights, all images' rows of it, in its pieces."""
        for piece in self.batch.pieces(rows, inner, columns):
            self.once(name, piece, inner, columns)

    def own(self, name: str, rows: int, inner: int, columns: int) -> None:
        """Notes the products of each image's own two matrices, with the sizes of one image's."""
        for images in self.batch.groups:
            self.once(name, images * rows, images * inner, columns)

    def once(self, name: str, *sizes: int) -> None:
        """Notes one operation with its sizes for the whole batch; one without elements costs nothing."""
        if all(sizes):
            self.operations.append(Operation(name, sizes))
