"""What a LayerNorm computes: which factor a token is multiplied with, and where that factor comes from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from privit.operators import BY_ID, Operator
from privit.plan import OWN_FACTOR


@dataclass(frozen=True)
class Norm:
    """One LayerNorm: what stands there for the class token and for the patches it reads.

    The weights behind are folded for `folded`; where the class token has another factor than the patches, its
    row makes up for the difference.
    """

    name: str
    class_token: Operator | None
    patches: Operator
    split: bool
    only_class_token: bool = False

    @property
    def scales(self) -> bool:
        """Whether tokens meet a factor at all, or the server folds a constant."""
        return self.split or self.patches.family != "constant"

    @property
    def groups(self) -> tuple[Operator, ...]:
        """The operators of the rows that are computed apart: all rows, or the class token and the patches."""
        return (self.class_token, self.patches) if self.split and self.class_token else (self.patches,)

    @property
    def constant(self) -> bool:
        """Whether the class token and the patches have a constant each: both are the server's own."""
        return self.split and all(entry.family == "constant" for entry in self.groups)

    @property
    def all_own(self) -> bool:
        """Whether every row computes a factor of its own."""
        return all(entry.family in OWN_FACTOR for entry in self.groups)

    @property
    def all_linear(self) -> bool:
        """Whether every row's factor is linear in its variance."""
        return all(entry.family == "linear" for entry in self.groups)

    @property
    def own(self) -> bool:
        """Whether any row computes a factor of its own."""
        return any(entry.family in OWN_FACTOR for entry in self.groups)


def norm_of(name: str, ids: np.ndarray, class_token: bool, only_class: bool, only_patches: bool) -> Norm:
    """A LayerNorm with these operators: one for all tokens, or one for the class token and one for patches.

    A LayerNorm that reads the class token alone has the class token's operator, and so on.
    """
    first, last = BY_ID[int(ids[0])], BY_ID[int(ids[-1])]
    if only_class:
        return Norm(name, first, first, False, True)
    if only_patches or not class_token:
        return Norm(name, None, last, False)
    # Two sites with parameters have two values of them, even where the operator is the same.
    split = len(ids) == 2 and (first != last or first.fitted)
    return Norm(name, first, last, split)
