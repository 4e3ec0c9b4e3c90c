"""What a kernel is: the operands it needs, the rules its records obey, and the computation.

Invariant: rules are data. A rule takes a step and returns a fault (code and text), or None when
it holds; boot walks them all before anything runs, so ``run`` never meets a bad shape.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from npuabi.enums import DType, Layout, Mode, Opcode, Precision, Rounding, Unit
from npuabi.errors import ErrorCode
from npuabi.records import TensorDescriptor, Toa
from npuabi.target import Target
from npufw.errors import FirmwareError

__all__ = [
    "OPERANDS",
    "Arrays",
    "Fault",
    "Kernel",
    "OperandRule",
    "Rule",
    "Step",
    "Sums",
    "dims_text",
    "operand_is",
]

OPERANDS = ("input", "weights", "parameters", "residual", "output")
"""Names of a TOA's tensors, in the order of its ``tensors`` field."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One TOA with its tensor records resolved. ``where`` names it in refusals."""

    index: int
    toa: Toa
    tensors: tuple[TensorDescriptor | None, ...]
    rounding: Rounding
    target: Target
    where: str

    def operand(self, name: str) -> TensorDescriptor:
        """Return the operand of that name, which the TOA must have."""
        tensor = self.tensors[OPERANDS.index(name)]
        if tensor is None:
            text = f"{self.where}: {self.toa.opcode.name.lower()} has no {name} operand"
            raise FirmwareError(ErrorCode.BAD_OPERANDS, text)
        return tensor

    @property
    def input(self) -> TensorDescriptor:
        """The first operand."""
        return self.operand("input")

    @property
    def output(self) -> TensorDescriptor:
        """The result."""
        return self.operand("output")

    @property
    def rows(self) -> tuple[int, int, int]:
        """Kernel, stride and dilation along H."""
        return self.toa.kernel[0], self.toa.stride[0], self.toa.dilation[0]

    @property
    def columns(self) -> tuple[int, int, int]:
        """Kernel, stride and dilation along W."""
        return self.toa.kernel[1], self.toa.stride[1], self.toa.dilation[1]


@dataclass(slots=True)
class Sums:
    """What the MAC unit holds between TOAs: sums left by a range of K that did not write.

    ``values`` of codes are whole numbers below 2^53, so exact in float64. ``gathered`` is no state
    of the machine but a matrix that the emulator need not make again (gather.py). ``stage`` is what
    faults put between the accumulators and the requantiser: it takes sums whose last axis is the
    output channel, or None.
    """

    values: NDArray[Any] | None = None
    gathered: Any = None
    stage: Callable[[NDArray[Any]], NDArray[Any]] | None = None

    def read_out(self, sums: NDArray[Any]) -> NDArray[Any]:
        """Return *sums*, which are about to be scaled and written, as the array gives them."""
        return sums if self.stage is None else self.stage(sums)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrays:
    """Views of a step's operands (``counts + inner``), and the MAC unit's sums.

    An operand that the TOA does not have is an empty array.
    """

    input: NDArray[Any]
    weights: NDArray[Any]
    parameters: NDArray[Any]
    residual: NDArray[Any]
    output: NDArray[Any]
    sums: Sums


Fault = tuple[ErrorCode, str] | None
"""What is wrong: the code and the rule in words."""

Rule = Callable[[Step], Fault]
"""Returns what is wrong with a step, or None."""

_INT8 = frozenset({Precision.INT8})


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """One opcode. ``run`` returns logical N, C, H, W, or the storage's shape when ``raw``.

    ``run`` returns None when the sums stay in the accumulators.
    """

    opcode: Opcode
    unit: Unit
    required: frozenset[str]
    run: Callable[[Step, Arrays], NDArray[Any] | None]
    rules: tuple[Rule, ...]
    optional: frozenset[str] = frozenset()
    modes: frozenset[Mode] = frozenset({Mode.NONE})
    precisions: frozenset[Precision] = field(default=_INT8)
    raw: bool = False

    def check(self, step: Step) -> None:
        """Raise FirmwareError at the first rule that *step* breaks, with that rule's code."""
        for rule in self.rules:
            fault = rule(step)
            if fault is not None:
                name = self.opcode.name.lower()
                raise FirmwareError(fault[0], f"{step.where}: {name}: {fault[1]}")


def dims_text(tensor: TensorDescriptor) -> str:
    """Return the dims as refusals write them: ``(1,16,8,8)``."""
    return "(" + ",".join(map(str, tensor.dims)) + ")"


@dataclass(frozen=True, slots=True)
class OperandRule:
    """The rule that operand *name*, when present, has one of these dtypes and layouts."""

    name: str
    dtypes: frozenset[DType]
    layouts: frozenset[Layout]
    lane_zero: bool

    def __call__(self, step: Step) -> Fault:
        tensor = step.tensors[OPERANDS.index(self.name)]
        if tensor is None:
            return None
        if tensor.dtype not in self.dtypes:
            text = f"{self.name} is {tensor.dtype.text}, expected {_words(self.dtypes)}"
            return ErrorCode.BAD_DTYPE, text
        if tensor.layout not in self.layouts:
            lies = tensor.layout.name.lower()
            return (
                ErrorCode.BAD_LAYOUT,
                f"{self.name} lies as {lies}, expected {_words(self.layouts)}",
            )
        if self.lane_zero and tensor.lane:
            text = f"{self.name} starts at lane {tensor.lane}, expected lane 0"
            return ErrorCode.BAD_LAYOUT, text
        return None


def operand_is(
    name: str, dtypes: frozenset[DType], layouts: frozenset[Layout], *, lane_zero: bool = False
) -> OperandRule:
    """Return the rule as data: boot applies it, the machine reference lists it."""
    return OperandRule(name, dtypes, layouts, lane_zero)


def _words(members: frozenset[Any]) -> str:
    return " or ".join(m.name.lower() for m in sorted(members))
