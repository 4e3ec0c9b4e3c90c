"""Every record of the ABI, each stated once.

Container: FileHeader, SectionEntry. Descriptor table: TableHeader, TensorDescriptor, Toa. Beside
it: OpParams and FloatParams (heads of parameters tensors), Interface, SourceEntry, StateEntry,
KnownAnswer, BandSet, Signature.
"""

from __future__ import annotations

from npuabi.enums import (
    Direction,
    DType,
    Layout,
    Mode,
    Opcode,
    Precision,
    Rounding,
    Section,
    SignatureScheme,
    Space,
    ToaFlag,
    Unit,
)
from npuabi.wire import (
    Record,
    chars,
    crc32,
    enum8,
    f32,
    flags16,
    i16,
    i16s,
    i32,
    record,
    reserved,
    u8,
    u8s,
    u16,
    u16s,
    u32,
    u32s,
    u64,
)

__all__ = [
    "NO_TENSOR",
    "RECORDS",
    "BandSet",
    "FileHeader",
    "FloatParams",
    "Interface",
    "KnownAnswer",
    "OpParams",
    "SectionEntry",
    "Signature",
    "SourceEntry",
    "StateEntry",
    "TableHeader",
    "TensorDescriptor",
    "Toa",
]

NO_TENSOR = 0xFFFFFFFF
"""The tensor index of an operand that a TOA does not have."""


@record(size=64)
class FileHeader(Record):
    """First 64 bytes of a blob."""

    magic: bytes = chars(8, "NPUBLOB then a line feed")
    container_version: int = u16("version of this container; 1")
    section_count: int = u16("entries in the section table that follows")
    header_bytes: int = u32("bytes of this header: 64")
    length: int = u64("bytes of the whole file")
    pad: bytes = reserved(36)
    crc: int = crc32("CRC-32 of bytes 0..59")


@record(size=64)
class SectionEntry(Record):
    """One row of the section table: where a section lies and what its bytes sum to."""

    kind: Section = enum8(Section, "what the section holds")
    pad0: bytes = reserved(3)
    alignment: int = u32("bytes that the offset is a multiple of")
    offset: int = u64("first byte, from the start of the file")
    length: int = u64("bytes of content; 0xFF padding follows to the next section or sector")
    span: int = u64("bytes with the padding: the sections' spans tile the file")
    payload_crc: int = u32("CRC-32 of the whole span")
    pad1: bytes = reserved(24)
    crc: int = crc32("CRC-32 of bytes 0..59")


@record(size=128)
class TableHeader(Record):
    """Metadata header that leads each copy of the descriptor table."""

    magic: bytes = chars(8, "NPUTABLE")
    abi_major: int = u16("ABI major version; the firmware takes its own only")
    abi_minor: int = u16("ABI minor version; the firmware takes its own and older")
    valid: int = u32("0x600DF00D once the copy is complete")
    schema_hash: int = u64("hash of all record layouts at that version")
    target_hash: int = u64("hash of the target's parsed values")
    target: bytes = chars(16, "name of the target")
    generation: int = u32("counts updates; the newest copy that verifies is used")
    tensor_count: int = u32("tensor descriptors that follow this header")
    toa_count: int = u32("TOAs that follow the tensor descriptors")
    features: int = u64("bits of optional features used; unknown bits are refused")
    arena_bytes: int = u32("bytes of DDR arena that the program needs")
    constant_bytes: int = u32("bytes of the constants section")
    macs: int = u64("multiply-accumulates of one run")
    cycles: int = u64("cycles of one run as the compiler's timing model has them")
    rounding: Rounding = enum8(Rounding, "requantisation rounding of every TOA")
    precision: Precision = enum8(Precision, "widest precision used")
    cores: int = u8("the target's cores")
    arrays: int = u8("its MAC arrays a core")
    banks: int = u16("its SRAM banks a core")
    bank_kib: int = u16("KiB of a bank")
    ddr_mib: int = u16("its DDR in MiB")
    dma_alignment: int = u16("bytes that its DMA addresses are multiples of")
    row_pitch: int = u16("bytes that its rows in DDR are multiples of")
    vector_lanes: int = u16("int8 lanes of its vector unit")
    pad: bytes = reserved(12)
    table_crc: int = u32("CRC-32 of all records that follow, each without its own CRC")
    crc: int = crc32("CRC-32 of bytes 0..123")


@record(size=64)
class TensorDescriptor(Record):
    """One tensor, or one stripe of it, as a unit sees it: shape, dtype, layout, strides, place."""

    base: int = u32("byte address of the first element, relative to its space")
    dims: tuple[int, ...] = u32s(4, "logical extents N, C, H, W (O, I, KH, KW for weights)")
    strides: tuple[int, ...] = u32s(4, "bytes from one step to the next in each dim (geometry.py)")
    space: Space = enum8(Space, "memory that holds it")
    dtype: DType = enum8(DType, "element type")
    layout: Layout = enum8(Layout, "how the dims lie in memory")
    alignment_log2: int = u8("the base is a multiple of 2 to this power")
    bank: int = u8("first SRAM bank; 0 outside SRAM")
    lane: int = u8("first channel's lane in its 16-channel brick")
    zero_point: int = i16("quantised value of real zero")
    scale: float = f32("real value of one step; 0 when not quantised")
    symbol: int = u32("byte offset of the tensor's name in the symbols section", points="symbols")
    extent: int = u32("bytes from the base to the end of the last element")
    pad: bytes = reserved(4)
    crc: int = crc32("CRC-32 of bytes 0..59")


@record(size=64)
class Toa(Record):
    """Tensor operation atom: one op on one stripe of its output and one range of K."""

    opcode: Opcode = enum8(Opcode, "what is done")
    unit: Unit = enum8(Unit, "engine that does it")
    precision: Precision = enum8(Precision, "precision register")
    mode: Mode = enum8(Mode, "how the MAC array walks it")
    flags: ToaFlag = flags16(
        ToaFlag, "clear, write, wide sums, residual; which waits count; real: float64 scales"
    )
    op: int = u16("index of the op it came from in the source map", points="sources")
    tensors: tuple[int, ...] = u32s(
        5, "input, weights, parameters, residual, output", points="tensors"
    )
    waits: tuple[int, ...] = u16s(4, "TOAs finished by DMA-in, DMA-out, MAC, vector, mod 2^16")
    kernel: tuple[int, ...] = u8s(
        2,
        "kernel height, width; softmax: axis, 0; norm: set of axes, 0; reduce: kind, wide; "
        "argmax: axis, last; lookup: form, 1",
    )
    stride: tuple[int, ...] = u8s(2, "rows, columns moved a step")
    dilation: tuple[int, ...] = u8s(2, "rows, columns between taps")
    pads: tuple[int, ...] = u8s(4, "rows and columns beyond the stripe: top, left, bottom, right")
    groups: int = u16(
        "1; depthwise: channels; pools: 1 counts padded taps; norm: groups; eval: lane operations"
    )
    clamp: tuple[int, ...] = i16s(2, "smallest and largest output value")
    setup_cycles: int = u8("cycles that the registers need before the clock: at least 2")
    sample_taps: int = u8("MAC: when the read-out of its sums samples, in 4 ps; 0: the base set's")
    pad: bytes = reserved(2)
    cycles: int = u32("modelled cycles when nothing else runs")
    crc: int = crc32("CRC-32 of bytes 0..59")


@record(size=64)
class OpParams(Record):
    """Head of a parameters tensor. Multipliers are Q31, or float32 bits when rounding is EVEN."""

    input_zero_point: int = i32("zero point of the input")
    residual_zero_point: int = i32("zero point of the residual or second input")
    inner_zero_point: int = i32("zero point of a convolution's int8 result before the residual add")
    output_zero_point: int = i32("zero point of the output")
    input_multiplier: int = i32("rescales the input (add: first operand)")
    input_shift: int = i32("its power of two; positive shifts left")
    residual_multiplier: int = i32("rescales the second operand of an add")
    residual_shift: int = i32("its power of two")
    output_multiplier: int = i32("rescales an add's sum to the output")
    output_shift: int = i32("its power of two")
    inner_low: int = i32("smallest int8 result before the residual add")
    inner_high: int = i32("largest int8 result before the residual add")
    left_shift: int = i32("headroom of an add's operands in bits: 20 for int8")
    input_scale: float = f32("real value of an input step; quantise: 0")
    output_scale: float = f32("real value of an output step; dequantise: 0")
    diff_min: int = i32("softmax: differences below this give zero")


@record(size=64)
class FloatParams(Record):
    """Head of a parameters tensor whose TOA computes on floats; an absent bound is infinite."""

    low: float = f32("smallest output")
    high: float = f32("largest output")
    inner_low: float = f32("smallest result of a convolution before the residual add")
    inner_high: float = f32("largest result of a convolution before the residual add")
    pad: bytes = reserved(48)


@record(size=64)
class Interface(Record):
    """One input or output of the network as the host sees it."""

    direction: Direction = enum8(Direction, "who writes it")
    rank: int = u8("dims in use, from the left of the shape below")
    dtype: DType = enum8(DType, "element type the host gives or gets")
    pad0: bytes = reserved(1)
    tensor: int = u32("index of its tensor descriptor, in the arena", points="tensors")
    symbol: int = u32("byte offset of its name in the symbols section", points="symbols")
    shape: tuple[int, ...] = u32s(4, "the model's shape; unused dims are 1")
    pad1: bytes = reserved(36)


@record(size=32)
class SourceEntry(Record):
    """One op of the source: the TOAs' ``op`` field indexes these."""

    symbol: int = u32(
        "byte offset of the op's result name in the symbols section", points="symbols"
    )
    kind: int = u32("byte offset of the op's kind in the symbols section", points="symbols")
    file: int = u32(
        "byte offset of the source file's base name in the symbols section", points="symbols"
    )
    line: int = u32("line of the graph text, from 1")
    column: int = u32("column, from 1")
    macs: int = u64("multiply-accumulates of the op")
    pad: bytes = reserved(4)


@record(size=32)
class StateEntry(Record):
    """One tensor that the device keeps from run to run, and what it holds after a reset."""

    symbol: int = u32("byte offset of its name in the symbols section", points="symbols")
    tensor: int = u32("index of its tensor descriptor, in the arena", points="tensors")
    initial: int = u32(
        "index of its first value's tensor descriptor, in the constants", points="tensors"
    )
    pad: bytes = reserved(20)


@record(size=32)
class KnownAnswer(Record):
    """Known-answer test: what the outputs of generated inputs must be.

    Programs of codes give the CRC. Programs of floats give numbers within a tolerance: of all
    outputs, one behind the other, those that generator.sample_places names.
    """

    seed: int = u64("seed of the documented generator; input i uses seed + i")
    std: float = f32("standard deviation of generated float inputs")
    output_crc: int = u32("CRC-32 over all outputs, in interface order, dense row-major; floats: 0")
    samples: int = u32("outputs that are held against numbers; 0: all, by the CRC")
    offset: int = u32("where in the constants the samples lie: a float32 and its tolerance")
    pad: bytes = reserved(8)


@record(size=32)
class BandSet(Record):
    """The descriptor set of one temperature band: what it adds to timing fields of every TOA.

    The bands, and what their sets must be, stand in npuabi/bands.py.
    """

    band: int = u8("number of the band, from 0 for -40 to -35 degC")
    pad0: bytes = reserved(1)
    low: int = i16("degrees Celsius where the band begins")
    high: int = i16("degrees Celsius before which it ends")
    setup: tuple[int, ...] = i16s(4, "cycles added to setup_cycles: DMA-in, DMA-out, MAC, vector")
    sample: int = i16("taps added to sample_taps of MAC TOAs")
    pad1: bytes = reserved(12)
    crc: int = crc32("CRC-32 of bytes 0..27")


@record(size=128)
class Signature(Record):
    """Who answers for a blob; npuabi/signature.py says what is signed. Unsigned blobs have none."""

    scheme: SignatureScheme = enum8(SignatureScheme, "how it is signed")
    pad0: bytes = reserved(3)
    security_version: int = u32("a device refuses less than its anti-rollback counter; signed")
    public_key: tuple[int, ...] = u8s(32, "the signer's Ed25519 public key")
    signature: tuple[int, ...] = u8s(64, "Ed25519 signature of the program")
    pad1: bytes = reserved(24)


RECORDS: tuple[type[Record], ...] = (
    FileHeader,
    SectionEntry,
    TableHeader,
    TensorDescriptor,
    Toa,
    OpParams,
    FloatParams,
    Interface,
    SourceEntry,
    StateEntry,
    KnownAnswer,
    BandSet,
    Signature,
)
"""All of them, in the order of the ABI page; the schema hash covers this list."""
