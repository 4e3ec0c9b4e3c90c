"""The npu ops: one class a hardware opcode, in destination-passing form.

A task reads and writes buffers and has no results. Before tiling it stands for a whole op, after
it for one TOA. Its attributes are the TOA's micro-op words under the same names.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto
from typing import Any, ClassVar

from npuabi.enums import Mode, Opcode, Unit
from npuc.ir.core import AttrField, AttrKind, Op, OperandField, Value, attr, op, operand
from npuc.ir.types import Buffer, Type

__all__ = [
    "HOST_ROLES",
    "Add",
    "ArgMax",
    "AvgPool",
    "BufferOp",
    "Cast",
    "Constant",
    "Conv",
    "Copy",
    "DepthToSpace",
    "Depthwise",
    "Dequantize",
    "Div",
    "DmaIn",
    "DmaOut",
    "Eval",
    "GlobalAvgPool",
    "LogSoftmax",
    "Lookup",
    "MatMul",
    "MaxPool",
    "Maximum",
    "Minimum",
    "Mul",
    "Norm",
    "Prelu",
    "Quantize",
    "Reads",
    "Reduce",
    "Remap",
    "Rescale",
    "Resize",
    "Softmax",
    "SpaceToDepth",
    "StateOp",
    "Sub",
    "Task",
    "Transpose",
    "View",
    "buffer_type",
]


def buffer_type(value: Value) -> Buffer:
    """Return the buffer type of an L3 value."""
    if not isinstance(value.type, Buffer):
        raise TypeError(f"%{value.name} is no buffer: {value.type}")
    return value.type


HOST_ROLES = ("input", "output", "state")
"""Roles of buffers that keep their place in the arena for the whole run."""


class _Memory(Op):
    """An op that yields one buffer, whose type is stated and not inferred."""

    def infer(self) -> Sequence[Type]:
        if not self.results:
            raise NotImplementedError(self.NAME)
        return [v.type for v in self.results]


@op("npu.buffer")
class BufferOp(_Memory):
    """Reserve memory for one tensor."""

    role: str = attr(
        "input, output, state, activation or slot; names who fills it",
        AttrKind.STRING,
        default="activation",
    )


@op("npu.constant")
class Constant(_Memory):
    """Put bytes into the constants section."""

    data: Value = operand("a const of u8, 1 x 1 x 1 x bytes")


@op("npu.view")
class View(_Memory):
    """Look at part of a buffer, as the stated type, from a byte offset on."""

    source: Value = operand("the buffer looked into")
    offset: int = attr("bytes from the buffer's first byte", AttrKind.INT, default=0)


@op("npu.state")
class StateOp(_Memory):
    """Keep a buffer from run to run; a reset copies the first value into it."""

    kept: Value = operand("the buffer that is kept")
    initial: Value = operand("the first value, among the constants")
    state: str = attr("name of the state", AttrKind.STRING)

    def infer(self) -> Sequence[Type]:
        return ()


_INPUT = OperandField("input", "what is read")
_OUTPUT = OperandField("output", "what is written")
_PARAMS = OperandField("params", "OpParams, then per-channel blocks or a table")
_WEIGHTS = OperandField("weights", "packed weights")
_RESIDUAL = OperandField("residual", "second operand", optional=True)
_SECOND = OperandField("residual", "second operand")


class Reads(Enum):
    """Which part of its first input a task reads for one part of its output."""

    SAME_PLACES = auto()
    """Elements of the same N, C, H, W; a dim of 1 is repeated."""
    WINDOW = auto()
    """The rows and columns under the kernel."""
    WINDOW_ALL_CHANNELS = auto()
    """The same, of every channel."""
    PLANE = auto()
    """All rows and columns."""
    COPY = auto()
    """Elements of the same row-major places."""
    REDUCED = auto()
    """All of each dim that the output has one element of."""
    MATRIX_ROWS = auto()
    """All channels of the same pixels: the rows of a matrix product."""
    TABLES = auto()
    """What the tables in its parameters name."""
    OTHER_ORDER = auto()
    """The same range of dims that stand in another order."""
    DEPTH = auto()
    """The channels that become its blocks of pixels."""
    BLOCKS = auto()
    """The blocks of pixels that become its channels."""


class Task(Op):
    """Work for one unit. ``name`` and ``kind`` say which op of the source it belongs to."""

    OPCODE: ClassVar[Opcode]
    UNIT: ClassVar[Unit] = Unit.VECTOR
    READS: ClassVar[Reads] = Reads.SAME_PLACES
    OPERANDS: ClassVar[tuple[OperandField, ...]] = (_INPUT, _OUTPUT, _PARAMS)
    ATTRS = (
        AttrField("name", "result name of the source op", AttrKind.STRING, ""),
        AttrField("kind", "kind of the source op", AttrKind.STRING, ""),
        AttrField("kernel", "kernel height, width", AttrKind.INTS, (1, 1)),
        AttrField("strides", "rows, columns moved a step", AttrKind.INTS, (1, 1)),
        AttrField("dilations", "rows, columns between taps", AttrKind.INTS, (1, 1)),
        AttrField("pads", "top, left, bottom, right", AttrKind.INTS, (0, 0, 0, 0)),
        AttrField("groups", "see the TOA record", AttrKind.INT, 1),
        AttrField("clamp", "smallest, largest output code", AttrKind.INTS, (-128, 127)),
        AttrField("mode", "how the MAC array walks it", AttrKind.STRING, "none"),
        AttrField("clear", "starts sums from the bias", AttrKind.BOOL, True),
        AttrField("write", "requantises and stores", AttrKind.BOOL, True),
        AttrField("wide", "sums in int64", AttrKind.BOOL, False),
        AttrField("real", "scales in float64", AttrKind.BOOL, False),
        AttrField("waits", "TOAs finished by DMA-in, DMA-out, MAC, vector; -1: none",
                  AttrKind.INTS, (-1, -1, -1, -1)),
    )  # fmt: skip

    def infer(self) -> Sequence[Type]:
        return ()

    @property
    def output(self) -> Value:
        """The buffer that is written."""
        value = self._operands[1]
        if value is None:
            raise ValueError(f"{self.NAME} has no output")
        return value

    @property
    def reads(self) -> list[Value]:
        """The buffers that are read."""
        return [v for i, v in enumerate(self.inputs) if i != 1]

    def named(self, name: str) -> Value | None:
        """Return the operand declared as *name*, or None when it is absent."""
        for value, spec in zip(self._operands, self.OPERANDS, strict=False):
            if spec.name == name:
                return value
        return None

    @property
    def mode_value(self) -> Mode:
        """The mode as the record has it."""
        return Mode[self.attributes["mode"].upper()]

    def with_operands(self, operands: Sequence[Value], **changes: Any) -> Task:
        """Return a new task of this kind on other buffers, some attributes changed."""
        return type(self)(operands, {**self.attributes, **changes}, location=self.location)


@op("npu.dma_in")
class DmaIn(Task):
    """Copy from arena or constants to SRAM."""

    OPCODE = Opcode.DMA_IN
    UNIT = Unit.DMA_IN
    OPERANDS = (_INPUT, _OUTPUT)


@op("npu.dma_out")
class DmaOut(Task):
    """Copy from SRAM to the arena."""

    OPCODE = Opcode.DMA_OUT
    UNIT = Unit.DMA_OUT
    OPERANDS = (_INPUT, _OUTPUT)


@op("npu.conv")
class Conv(Task):
    """Convolution, requantisation, clamp, and the residual add behind it."""

    OPCODE = Opcode.CONV
    READS = Reads.WINDOW_ALL_CHANNELS
    UNIT = Unit.MAC
    OPERANDS = (_INPUT, _OUTPUT, _PARAMS, _WEIGHTS, _RESIDUAL)


@op("npu.depthwise")
class Depthwise(Task):
    """Depthwise convolution with multiplier 1."""

    OPCODE = Opcode.DEPTHWISE
    READS = Reads.WINDOW
    UNIT = Unit.MAC
    OPERANDS = (_INPUT, _OUTPUT, _PARAMS, _WEIGHTS, _RESIDUAL)


@op("npu.matmul")
class MatMul(Task):
    """Rows times the columns of a second activation."""

    OPCODE = Opcode.MATMUL
    UNIT = Unit.MAC
    READS = Reads.MATRIX_ROWS
    OPERANDS = (_INPUT, _OUTPUT, _PARAMS, OperandField("residual", "second operand"))


@op("npu.max_pool")
class MaxPool(Task):
    """Largest code of each window."""

    OPCODE = Opcode.MAX_POOL
    READS = Reads.WINDOW
    OPERANDS = (_INPUT, _OUTPUT)


@op("npu.avg_pool")
class AvgPool(Task):
    """Rounded mean of each window."""

    OPCODE = Opcode.AVG_POOL
    READS = Reads.WINDOW


@op("npu.global_avg_pool")
class GlobalAvgPool(Task):
    """Rounded mean of each channel's plane."""

    OPCODE = Opcode.GLOBAL_AVG_POOL
    READS = Reads.PLANE


@op("npu.add")
class Add(Task):
    """Sum of two tensors with scales of their own."""

    OPCODE = Opcode.ADD
    OPERANDS = (_INPUT, _OUTPUT, _PARAMS, _SECOND)


@op("npu.rescale")
class Rescale(Task):
    """Other scale and zero point, then clamp."""

    OPCODE = Opcode.RESCALE


@op("npu.copy")
class Copy(Task):
    """The same elements in row-major order in another layout, lane or shape."""

    OPCODE = Opcode.COPY
    READS = Reads.COPY
    OPERANDS = (_INPUT, _OUTPUT)


@op("npu.quantize")
class Quantize(Task):
    """float32 to int8."""

    OPCODE = Opcode.QUANTIZE


@op("npu.dequantize")
class Dequantize(Task):
    """int8 to float32."""

    OPCODE = Opcode.DEQUANTIZE


@op("npu.cast")
class Cast(Task):
    """float32 to float16, or back."""

    OPCODE = Opcode.CAST
    OPERANDS = (_INPUT, _OUTPUT)


@op("npu.log_softmax")
class LogSoftmax(Task):
    """Logarithms of softmax along the axis in ``kernel[0]``."""

    OPCODE = Opcode.LOG_SOFTMAX


@op("npu.reduce")
class Reduce(Task):
    """Sums or maxima over the dims that the output has one element of."""

    OPCODE = Opcode.REDUCE
    READS = Reads.REDUCED


@op("npu.argmax")
class ArgMax(Task):
    """Places of the largest elements along the axis in ``kernel[0]``."""

    OPCODE = Opcode.ARGMAX
    READS = Reads.REDUCED
    OPERANDS = (_INPUT, _OUTPUT)


@op("npu.norm")
class Norm(Task):
    """Rows of mean 0 and variance 1, along the axes in ``kernel[0]``, scaled and shifted."""

    OPCODE = Opcode.NORM
    OPERANDS = (_INPUT, _OUTPUT, _PARAMS, OperandField("residual", "gamma, then beta"))


@op("npu.softmax")
class Softmax(Task):
    """Softmax along the axis in ``kernel[0]``."""

    OPCODE = Opcode.SOFTMAX


@op("npu.remap")
class Remap(Task):
    """Elements picked by a table of positions for each dim; whole bricks when ``groups`` is 0."""

    OPCODE = Opcode.REMAP
    READS = Reads.TABLES


@op("npu.transpose")
class Transpose(Task):
    """The same elements with dims in another order: ``pads[k]`` is the input's for dim k."""

    OPCODE = Opcode.TRANSPOSE
    READS = Reads.OTHER_ORDER
    OPERANDS = (_INPUT, _OUTPUT)


@op("npu.resize")
class Resize(Task):
    """Weighted sum of ``kernel`` taps along rows and columns, by tables of positions."""

    OPCODE = Opcode.RESIZE
    READS = Reads.TABLES


@op("npu.depth_to_space")
class DepthToSpace(Task):
    """Channels to blocks of ``kernel`` pixels; the channel first when ``groups`` is 1."""

    OPCODE = Opcode.DEPTH_TO_SPACE
    READS = Reads.DEPTH
    OPERANDS = (_INPUT, _OUTPUT)


@op("npu.space_to_depth")
class SpaceToDepth(Task):
    """Blocks of ``kernel`` pixels to channels."""

    OPCODE = Opcode.SPACE_TO_DEPTH
    READS = Reads.BLOCKS
    OPERANDS = (_INPUT, _OUTPUT)


@op("npu.lookup")
class Lookup(Task):
    """A function of one code, from a table."""

    OPCODE = Opcode.LOOKUP


@op("npu.eval")
class Eval(Task):
    """A function of one or two numbers, as a postfix program of ``groups`` lane operations."""

    OPCODE = Opcode.EVAL
    OPERANDS = (_INPUT, _OUTPUT, _PARAMS, _RESIDUAL)


@op("npu.sub")
class Sub(Task):
    """Difference of two tensors with scales of their own."""

    OPCODE = Opcode.SUB
    OPERANDS = (_INPUT, _OUTPUT, _PARAMS, _SECOND)


@op("npu.mul")
class Mul(Task):
    """Product of two tensors with scales of their own."""

    OPCODE = Opcode.MUL
    OPERANDS = (_INPUT, _OUTPUT, _PARAMS, _SECOND)


@op("npu.div")
class Div(Task):
    """Quotient of two tensors with scales of their own."""

    OPCODE = Opcode.DIV
    OPERANDS = (_INPUT, _OUTPUT, _PARAMS, _SECOND)


@op("npu.minimum")
class Minimum(Task):
    """Smaller of two tensors in the same parameters."""

    OPCODE = Opcode.MINIMUM
    OPERANDS = (_INPUT, _OUTPUT, _SECOND)


@op("npu.maximum")
class Maximum(Task):
    """Larger of two tensors in the same parameters."""

    OPCODE = Opcode.MAXIMUM
    OPERANDS = (_INPUT, _OUTPUT, _SECOND)


@op("npu.prelu")
class Prelu(Task):
    """Codes times one scale, and below zero times a slope and another."""

    OPCODE = Opcode.PRELU
    OPERANDS = (_INPUT, _OUTPUT, _PARAMS, _RESIDUAL)
