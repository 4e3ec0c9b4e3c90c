"""The numbers that the wire uses for kinds of things.

Values are part of the ABI: they are appended, never reused. Zero is never a member, so that an
all-zero record cannot decode.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag, unique

__all__ = [
    "DType",
    "Direction",
    "Layout",
    "Mode",
    "Opcode",
    "Precision",
    "Primitive",
    "Rounding",
    "Section",
    "SignatureScheme",
    "Space",
    "ToaFlag",
    "Unit",
]


@unique
class Opcode(IntEnum):
    """What a unit does with a TOA."""

    DMA_IN = 1
    DMA_OUT = 2
    CONV = 3
    DEPTHWISE = 4
    MAX_POOL = 5
    AVG_POOL = 6
    GLOBAL_AVG_POOL = 7
    ADD = 8
    RESCALE = 9
    COPY = 10
    QUANTIZE = 11
    DEQUANTIZE = 12
    SOFTMAX = 13
    LOOKUP = 14
    EVAL = 15
    SUB = 16
    MUL = 17
    DIV = 18
    MINIMUM = 19
    MAXIMUM = 20
    PRELU = 21
    REMAP = 22
    TRANSPOSE = 23
    RESIZE = 24
    DEPTH_TO_SPACE = 25
    SPACE_TO_DEPTH = 26
    MATMUL = 27
    REDUCE = 28
    ARGMAX = 29
    LOG_SOFTMAX = 30
    NORM = 31
    CAST = 35


@unique
class Unit(IntEnum):
    """The engines of a core; each runs its TOAs in ring order."""

    DMA_IN = 1
    DMA_OUT = 2
    MAC = 3
    VECTOR = 4


@unique
class Precision(IntEnum):
    """The precision register of a TOA."""

    INT8 = 1
    INT16 = 2
    FP16 = 3
    FP32 = 4


@unique
class Mode(IntEnum):
    """How a MAC array walks a TOA."""

    NONE = 1
    OUTPUT_STATIONARY = 2
    WEIGHT_STATIONARY = 3
    DEPTHWISE = 4


@unique
class DType(IntEnum):
    """Element types of a tensor."""

    I8 = 1
    U8 = 2
    I16 = 3
    I32 = 4
    I64 = 5
    F16 = 6
    F32 = 7

    @property
    def size(self) -> int:
        """Bytes an element."""
        return _DTYPES[self][0]

    @property
    def numpy(self) -> str:
        """The little-endian numpy dtype string."""
        return _DTYPES[self][1]

    @property
    def text(self) -> str:
        """The name in graph text: ``i8``, ``f32``."""
        return self.name.lower()


_DTYPES = {
    DType.I8: (1, "<i1"),
    DType.U8: (1, "<u1"),
    DType.I16: (2, "<i2"),
    DType.I32: (4, "<i4"),
    DType.I64: (8, "<i8"),
    DType.F16: (2, "<f2"),
    DType.F32: (4, "<f4"),
}


@unique
class Layout(IntEnum):
    """How logical dims are ordered in memory; geometry.py gives each one's rule."""

    NCHW = 1
    NHWC = 2
    NCHW16C = 3
    OIHW16I16O = 4
    OIHW16O = 5


@unique
class Space(IntEnum):
    """Which memory a base address counts in."""

    SRAM = 1
    ARENA = 2
    CONSTANTS = 3


@unique
class Rounding(IntEnum):
    """Named rounding modes of requantisation."""

    DOUBLE = 1
    SINGLE = 2
    EVEN = 3


@unique
class Direction(IntEnum):
    """Whether an interface tensor is given or taken by the host."""

    INPUT = 1
    OUTPUT = 2


@unique
class Section(IntEnum):
    """Kinds of blob sections."""

    TABLE_A = 1
    TABLE_B = 2
    RING = 3
    CONSTANTS = 4
    CHUNK_CRCS = 5
    INTERFACE = 6
    SYMBOLS = 7
    SOURCE_MAP = 8
    KNOWN_ANSWER = 9
    STATES = 10
    SIGNATURE = 11
    BANDS = 12


@unique
class SignatureScheme(IntEnum):
    """How a blob is signed."""

    ED25519 = 1


@unique
class Primitive(IntEnum):
    """One step of an EVAL program: what it does to the stack of float32 numbers.

    CONSTANT pushes the float32 of the next word, X and Y push the operands. The others take their
    operands from the stack, the last pushed one is the right one. LESS gives 1 or 0; SELECT takes
    a condition and two numbers and gives the first unless the condition is 0.
    """

    CONSTANT = 1
    X = 2
    Y = 3
    ADD = 4
    SUB = 5
    MUL = 6
    DIV = 7
    MIN = 8
    MAX = 9
    LESS = 10
    SELECT = 11
    NEG = 12
    ABS = 13
    FLOOR = 14
    SQRT = 15
    EXP = 16
    EXPM1 = 17
    LOG = 18
    LOG1P = 19
    TANH = 20
    ERF = 21
    ERFC = 22
    POW = 23


class ToaFlag(IntFlag):
    """Bits of a TOA's flags word."""

    CLEAR = 1 << 0
    WRITE = 1 << 1
    WIDE = 1 << 2
    RESIDUAL = 1 << 3
    WAIT_DMA_IN = 1 << 4
    WAIT_DMA_OUT = 1 << 5
    WAIT_MAC = 1 << 6
    WAIT_VECTOR = 1 << 7
    REAL = 1 << 8
