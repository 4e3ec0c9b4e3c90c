"""A range of logical N, C, H, W, and what a task reads to compute one."""

from __future__ import annotations

from dataclasses import dataclass

from npuc.ir.core import Value

__all__ = ["Box", "Reach", "four", "whole"]


@dataclass(frozen=True, slots=True)
class Box:
    """A range in each of the four logical dims."""

    start: tuple[int, int, int, int]
    size: tuple[int, int, int, int]

    @property
    def elements(self) -> int:
        """Number of elements."""
        n, c, h, w = self.size
        return n * c * h * w

    def along(self, dim: int, start: int, size: int) -> Box:
        """Return the box with another range in one dim."""
        starts, sizes = list(self.start), list(self.size)
        starts[dim], sizes[dim] = start, size
        return Box(four(starts), four(sizes))


def four(values: list[int]) -> tuple[int, int, int, int]:
    """Return a list of four as a tuple."""
    a, b, c, d = values
    return a, b, c, d


@dataclass(frozen=True, slots=True)
class Reach:
    """What a task reads of its input for one output box, the padding around it, its steps."""

    box: Box
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    strides: tuple[int, int] = (1, 1)


def whole(value: Value) -> Box:
    """Return the box of all of a buffer."""
    return Box((0, 0, 0, 0), four(list(value.tensor.dims)))
