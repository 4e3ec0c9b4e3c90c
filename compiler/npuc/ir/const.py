"""const: weights and other numbers that are known when the graph is compiled.

Invariant: a constant's array has the dims and dtype of its type, holds no NaN or infinity, is
read or made once, and is read-only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self

import numpy as np

from npuabi.enums import DType, Rounding
from npuabi.generator import samples
from npuc.diagnostics import UNKNOWN, Location
from npuc.frontend.constants import check_array, read_array, refuse_non_finite
from npuc.frontend.limits import MAX_CONSTANT_ELEMENTS
from npuc.ir.core import Array, Op, op
from npuc.ir.types import TensorType, Type

__all__ = ["Const", "Data", "Dense", "Elided", "File", "Random", "Splat"]

_MAX_SEED = (1 << 63) - 1


class Data(Protocol):
    """Where the numbers of a constant come from."""

    def check(self, tensor: TensorType) -> None:
        """Raise ValueError when the data cannot be of that type; reads no file's data."""

    def array(self, tensor: TensorType) -> Array:
        """Return the numbers; raises ValueError."""


@dataclass(frozen=True, slots=True)
class Splat:
    """One value for every element."""

    value: float | int

    def check(self, tensor: TensorType) -> None:
        """Refuse a value that the element type cannot hold."""
        _cast(np.asarray(self.value), tensor)

    def array(self, tensor: TensorType) -> Array:
        """Return an array that is filled with the value."""
        return np.full(tensor.dims, _cast(np.asarray(self.value), tensor), tensor.numpy)


@dataclass(frozen=True, slots=True, kw_only=True)
class Random:
    """Numbers of the documented generator; float32 only."""

    seed: int
    mean: float = 0.0
    std: float = 1.0

    def check(self, tensor: TensorType) -> None:
        """Refuse element types, seeds and parameters that the generator has not."""
        if tensor.dtype is not DType.F32:
            raise ValueError(f"random makes f32, not {tensor.dtype.text}")
        if not 0 <= self.seed <= _MAX_SEED:
            raise ValueError(f"seed is from 0 to 2^63 - 1, got {self.seed}")
        bound = abs(self.mean) + 4 * abs(self.std)
        if not (self.std >= 0 and bound <= float(np.finfo(np.float32).max)):
            raise ValueError(f"mean {self.mean} and std {self.std} are no finite float32 samples")

    def array(self, tensor: TensorType) -> Array:
        """Return the samples in row-major order."""
        made = samples(self.seed, tensor.elements, mean=self.mean, std=self.std)
        return made.reshape(tensor.dims)


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """An array of a weight file in the graph's folder; *key* is None for an ``.npy``."""

    name: str
    key: str | None
    folder: Path

    def check(self, tensor: TensorType) -> None:
        """Check the file, the key and the array's header."""
        check_array(self.folder, self.name, self.key, tensor)

    def array(self, tensor: TensorType) -> Array:
        """Return the array in the type's dtype."""
        return read_array(self.folder, self.name, self.key, tensor)


@dataclass(frozen=True, slots=True, eq=False)
class Dense:
    """Numbers that are written out, or that a pass computed."""

    values: Array

    def check(self, tensor: TensorType) -> None:
        """Refuse another shape and values that the element type cannot hold."""
        if self.values.shape != tensor.dims:
            raise ValueError(f"the values have shape {self.values.shape}, the type {tensor.dims}")
        _cast(self.values, tensor)

    def array(self, tensor: TensorType) -> Array:
        """Return the values in the type's dtype."""
        return _cast(self.values, tensor)


@dataclass(frozen=True, slots=True)
class Elided:
    """Numbers that a printer left out; *digest* identifies them."""

    digest: str

    def check(self, tensor: TensorType) -> None:
        """Accept every type: the graph may still be looked at."""

    def array(self, tensor: TensorType) -> Array:
        """Raise ValueError: there are no numbers."""
        raise ValueError(
            f"the numbers of {tensor} ({self.digest}) were left out when this text was printed: "
            "print it without --elide"
        )


@op("const")
class Const(Op):
    """A constant tensor; ``data`` says where its numbers come from.

    Raises ValueError when the type is too large or the data cannot be of that type.
    """

    COMPUTES = False

    def __init__(
        self, data: Data, tensor: TensorType, *, name: str = "", location: Location = UNKNOWN
    ) -> None:
        if tensor.elements > MAX_CONSTANT_ELEMENTS:
            text = f"{tensor} has {tensor.elements} elements"
            raise ValueError(f"{text}, the limit of one constant is {MAX_CONSTANT_ELEMENTS}")
        data.check(tensor)
        super().__init__([], result_types=[tensor], names=[name], location=location)
        self.data = data
        self._array: Array | None = None

    @classmethod
    def of(
        cls, values: Array, tensor: TensorType, *, name: str = "", location: Location = UNKNOWN
    ) -> Self:
        """Return a constant of an array in memory."""
        return cls(Dense(values), tensor, name=name, location=location)

    def value(self) -> Array:
        """Return the read-only array, of the type's dims and dtype, made on the first call.

        Raises CompileError, at the constant's place, for data that cannot be had.
        """
        if self._array is None:
            try:
                array = self.data.array(self.result.tensor).view()
            except ValueError as error:
                raise self.error(str(error)) from error
            array.flags.writeable = False
            self._array = array
        return self._array

    def infer(self) -> Sequence[Type]:
        """Return the stated type."""
        return [self.result.type]

    def reference(self, operands: Sequence[Array | None], rounding: Rounding) -> tuple[Array, ...]:
        """Return the numbers; float ones as float64."""
        value = self.value()
        return (value.astype(np.float64) if value.dtype.kind == "f" else value,)

    @classmethod
    def examples(cls) -> Iterator[Self]:
        """Yield one constant of each kind that needs no file."""
        yield cls(Splat(0.5), TensorType((2, 3)))
        yield cls(Random(seed=7), TensorType((4,)))
        yield cls(Dense(np.array([[1.0, 0.5]])), TensorType((1, 2)))


def _cast(values: Array, tensor: TensorType) -> Array:
    """Return *values* in the type's dtype; ValueError when one does not fit exactly enough."""
    dtype = tensor.numpy
    if values.dtype == dtype:
        refuse_non_finite(values)
        return values
    if dtype.kind == "f":
        with np.errstate(over="ignore"):
            made = values.astype(dtype)
        refuse_non_finite(made)
        return made
    if values.dtype.kind == "f":
        raise ValueError(f"{tensor.dtype.text} takes whole numbers, got {values.ravel()[0]}")
    made = values.astype(dtype)
    if not np.array_equal(made, values):
        low, high = values.min(), values.max()
        raise ValueError(f"values from {low} to {high} do not fit into {tensor.dtype.text}")
    return made
