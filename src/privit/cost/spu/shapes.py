"""Along which quantities the cost of an operation grows."""

from __future__ import annotations


def tree_levels(columns: int) -> int:
    """Comparisons one after the other in the engine's maximum: halves first, then what was left over."""
    return columns.bit_length() - 1 + columns.bit_count() - 1


def traffic_features(name: str, sizes: tuple[int, ...]) -> tuple[float, ...]:
    """What the bytes of an operation are linear in."""
    if name.startswith("matmul"):
        rows, inner, columns = sizes
        return (1.0, rows * inner, inner * columns, rows * columns)
    if name == "max":
        rows, columns = sizes
        return (tree_levels(columns), rows * (columns - 1))
    return (1.0, sizes[0])


def round_features(name: str, sizes: tuple[int, ...]) -> tuple[float, ...]:
    """What the send actions of an operation are linear in."""
    return (float(tree_levels(sizes[1])) if name == "max" else 1.0,)


def second_features(name: str, sizes: tuple[int, ...]) -> tuple[float, ...]:
    """What the computing time of an operation is linear in."""
    if name.startswith("matmul"):
        rows, inner, columns = sizes
        return (1.0, rows * inner + inner * columns + rows * columns, rows * inner * columns)
    return traffic_features(name, sizes)
