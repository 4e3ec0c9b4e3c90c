"""Error codes of the firmware and their texts, stated once.

    AbiError
     └─ npufw.errors.FirmwareError (the firmware's own, with the same codes)

A code is part of the ABI: its number never changes its meaning. Groups: 0x0x records, 0x1x
container, 0x2x ABI policy, 0x3x descriptors, 0x4x host input.
"""

from __future__ import annotations

from enum import IntEnum, unique

__all__ = ["AbiError", "ErrorCode"]


@unique
class ErrorCode(IntEnum):
    """What was refused. ``text`` says it in words, ``remedy`` what would help."""

    SHORT_RECORD = 0x01
    RECORD_CRC = 0x02
    BAD_FIELD = 0x03

    BAD_MAGIC = 0x10
    BAD_CONTAINER_VERSION = 0x11
    BAD_LENGTH = 0x12
    BAD_SECTION_TABLE = 0x13
    SECTION_CRC = 0x14
    CHUNK_CRC = 0x15
    BAD_PADDING = 0x16
    BOTH_COPIES_BAD = 0x17
    COPIES_DISAGREE = 0x18
    TABLE_CRC = 0x19
    BAD_COUNT = 0x1A
    BAD_INDEX = 0x1B
    BAD_SYMBOL = 0x1C
    BAD_RING = 0x1D
    NOT_VALID = 0x1E
    BAD_WAIT = 0x1F

    ABI_MAJOR = 0x20
    ABI_MINOR = 0x21
    SCHEMA_HASH = 0x22
    TARGET_NAME = 0x23
    TARGET_HASH = 0x24
    UNKNOWN_FEATURE = 0x25
    OUT_OF_DDR = 0x26

    BAD_MULTIPLIER = 0x30
    BAD_DIMS = 0x31
    BAD_STRIDES = 0x32
    MISALIGNED = 0x33
    BAD_BANK = 0x34
    OUT_OF_SRAM = 0x35
    OUT_OF_ARENA = 0x36
    OUT_OF_CONSTANTS = 0x37
    BAD_EXTENT = 0x38
    BAD_PITCH = 0x39
    BAD_LAYOUT = 0x3A
    BAD_DTYPE = 0x3B
    BAD_SCALE = 0x3C
    BAD_OPERANDS = 0x3D
    BAD_WINDOW = 0x3E
    BAD_PRECISION = 0x3F

    INPUT_MISSING = 0x40
    INPUT_UNKNOWN = 0x41
    INPUT_SHAPE = 0x42
    INPUT_DTYPE = 0x43
    INPUT_NOT_FINITE = 0x44
    INPUT_BATCH = 0x45
    KNOWN_ANSWER = 0x46
    INPUT_FILE = 0x47
    INPUT_IMAGE = 0x48
    SANITIZER = 0x49

    @property
    def text(self) -> str:
        """What happened, in words."""
        return _TEXTS[self][0]

    @property
    def remedy(self) -> str:
        """What would help."""
        return _TEXTS[self][1]


_COPY = "copy the blob again from its source"
_COMPILE = "compile again with the npuc that belongs to this firmware"
_REPORT = "compile again; if it stays, report it as a bug of the compiler"

_TEXTS: dict[ErrorCode, tuple[str, str]] = {
    ErrorCode.SHORT_RECORD: ("a record is cut short", _COPY),
    ErrorCode.RECORD_CRC: ("a record's CRC does not match", _COPY),
    ErrorCode.BAD_FIELD: ("a field holds a value that the ABI does not know", "compile again"),
    ErrorCode.BAD_MAGIC: ("the file does not begin as a blob does", "give a file that npuc wrote"),
    ErrorCode.BAD_CONTAINER_VERSION: ("the container version is unknown", _COMPILE),
    ErrorCode.BAD_LENGTH: ("the file is shorter or longer than its header says", _COPY),
    ErrorCode.BAD_SECTION_TABLE: ("the section table does not tile the file", _COPY),
    ErrorCode.SECTION_CRC: ("a section's CRC does not match", _COPY),
    ErrorCode.CHUNK_CRC: ("the CRC of a 4 KiB chunk of constants does not match", _COPY),
    ErrorCode.BAD_PADDING: ("padding is not 0xFF", _COPY),
    ErrorCode.BOTH_COPIES_BAD: ("both copies of a record are bad", _COPY),
    ErrorCode.COPIES_DISAGREE: ("the two table copies are whole and differ", _COPY),
    ErrorCode.TABLE_CRC: ("the CRC over all records of the table does not match", _COPY),
    ErrorCode.BAD_COUNT: ("a count does not fit its section", _REPORT),
    ErrorCode.BAD_INDEX: ("an index points beyond its table", _REPORT),
    ErrorCode.BAD_SYMBOL: ("a name lies outside the symbols or is no UTF-8 text", _REPORT),
    ErrorCode.BAD_RING: ("the ring does not hold each TOA once", _REPORT),
    ErrorCode.NOT_VALID: ("the table was never marked complete", "write the blob again"),
    ErrorCode.BAD_WAIT: ("a wait counts TOAs that do not come earlier in the ring", _REPORT),
    ErrorCode.ABI_MAJOR: ("another ABI major version", _COMPILE),
    ErrorCode.ABI_MINOR: ("a newer ABI minor version", "update the firmware, or " + _COMPILE),
    ErrorCode.SCHEMA_HASH: ("the record layouts differ from that version's", _COMPILE),
    ErrorCode.TARGET_NAME: ("compiled for another target", "compile with --target of this device"),
    ErrorCode.TARGET_HASH: (
        "the target of that name has other values",
        "compile with the target file that the firmware runs",
    ),
    ErrorCode.UNKNOWN_FEATURE: ("a feature that this firmware lacks", "update the firmware"),
    ErrorCode.OUT_OF_DDR: ("the arena is larger than DDR", "compile for a target with more DDR"),
    ErrorCode.BAD_MULTIPLIER: ("a multiplier, shift or scale is out of range", _REPORT),
    ErrorCode.BAD_DIMS: ("dims are zero or do not agree between the operands", _REPORT),
    ErrorCode.BAD_STRIDES: ("strides overlap or do not fit the element size", _REPORT),
    ErrorCode.MISALIGNED: ("an address is not aligned as the rule asks", _REPORT),
    ErrorCode.BAD_BANK: ("the bank is not the one that the address lies in", _REPORT),
    ErrorCode.OUT_OF_SRAM: ("a tensor reaches beyond SRAM", "compile for this target"),
    ErrorCode.OUT_OF_ARENA: ("a tensor reaches beyond the arena", _REPORT),
    ErrorCode.OUT_OF_CONSTANTS: ("a tensor reaches beyond the constants", _REPORT),
    ErrorCode.BAD_EXTENT: ("the extent is not what dims and strides give", _REPORT),
    ErrorCode.BAD_PITCH: ("the row pitch is not the target's", "compile for this target"),
    ErrorCode.BAD_LAYOUT: ("the opcode does not take that layout", _REPORT),
    ErrorCode.BAD_DTYPE: ("the opcode does not take that dtype", _REPORT),
    ErrorCode.BAD_SCALE: ("scale or zero point is out of range for the dtype", _REPORT),
    ErrorCode.BAD_OPERANDS: ("an operand is missing, or one is given that is not used", _REPORT),
    ErrorCode.BAD_WINDOW: ("kernel, stride, dilation, pads or groups are out of range", _REPORT),
    ErrorCode.BAD_PRECISION: (
        "unit, mode, flags or precision do not fit the opcode",
        _REPORT,
    ),
    ErrorCode.INPUT_MISSING: ("an input of the network is not given", "name it with --input"),
    ErrorCode.INPUT_UNKNOWN: ("the network has no input of that name", "see npufw inspect"),
    ErrorCode.INPUT_SHAPE: ("an input has another shape", "reshape it; see npufw inspect"),
    ErrorCode.INPUT_DTYPE: ("an input has another dtype", "convert it; see npufw inspect"),
    ErrorCode.INPUT_NOT_FINITE: ("an input holds NaN or infinity", "clean the data first"),
    ErrorCode.INPUT_BATCH: (
        "the first axis is no multiple of the compiled batch",
        "give a multiple, the same for every input",
    ),
    ErrorCode.KNOWN_ANSWER: ("the known-answer test gave other bits", "do not use this core"),
    ErrorCode.SANITIZER: (
        "descriptors use memory as they must not",
        "see the findings; nothing was run",
    ),
    ErrorCode.INPUT_FILE: ("a file of arrays cannot be used", "give an npy or npz without pickle"),
    ErrorCode.INPUT_IMAGE: (
        "an image, its preprocess file or its label cannot be used",
        "see Images in docs/guide.md",
    ),
}


class AbiError(Exception):
    """Bytes that break the contract; carries the code and the facts."""

    def __init__(self, code: ErrorCode, detail: str) -> None:
        super().__init__(f"{code.name.lower()} (0x{code:02x}): {detail}")
        self.code = code
        self.detail = detail
