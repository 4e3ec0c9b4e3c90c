"""Error codes of the firmware, each stated once with all that is to be said of it.

    AbiError
     └─ npufw.errors.FirmwareError (the firmware's own, with the same codes)

A code is part of the ABI: its number never changes its meaning. A row holds the number, what
happened, what would help, likely causes, and the page that tells more; ``npufw explain`` and
docs/errors.md show it. The first three are short, for the error message itself.

Groups: 0x0x records, 0x1x container, 0x2x ABI policy, 0x3x descriptors, 0x4x host input, 0x5x
faults while running, 0x6x flash and update, 0x7x eFuse and signatures, 0x8x device memory.
"""

from __future__ import annotations

from enum import IntEnum, unique
from typing import Self

__all__ = ["AbiError", "ErrorCode"]

_COPY = "copy the blob again from its source"
_COMPILE = "compile again with the npuc that belongs to this firmware"
_REPORT = "compile again; if it stays, report it as a bug of the compiler"

_DAMAGED = "a file that was cut, sent as text or edited by hand; a bad disk, card or flash cell"
_FORGED = "a tool other than npuc wrote it, or a CRC was made anew over edited bytes"
_BUG = "a fault of the compiler, or a descriptor that was edited"

_ABI = "docs/abi.md"
_BLOB = "docs/machine.md#the-blob"
_BOOT = "docs/machine.md#what-boot-checks"
_DRIFT = "docs/gates/4-abi.md"
_RUN = "docs/guide.md#run"
_HEALING = "docs/guide.md#selftest-and-healing"
_TARGETS = "docs/machine.md#targets"
_FLASH = "docs/gates/6-ota.md#how-flash-fails"

_WORN = "a sector at the end of its life; a supply that sags while flash is written"
_WORN_OUT = "replace the flash; what booted before still does"
_SIGNED = "docs/gates/6-ota.md#signatures"
_RIPPLE = "docs/gates/2-ripple.md"
_HEAT = "docs/gates/1-heat.md"
_DIES = "docs/gates/7-variation.md"


@unique
class ErrorCode(IntEnum):
    """What was refused."""

    _value_: int
    text: str
    """What happened, in words."""
    remedy: str
    """What would help."""
    causes: str
    """Where it comes from, as a rule."""
    page: str
    """Where the documents tell more: a path in the repository, with an anchor or without."""

    # fmt: off
    SHORT_RECORD = (0x01, "a record is cut short", _COPY,
        _DAMAGED, _ABI)
    RECORD_CRC = (0x02, "a record's CRC does not match", _COPY,
        _DAMAGED, _HEALING)
    BAD_FIELD = (0x03, "a field holds a value that the ABI does not know", "compile again",
        f"an enum member of another version; {_FORGED}", _ABI)

    BAD_MAGIC = (0x10, "the file does not begin as a blob does", "give a file that npuc wrote",
        "another file than the blob was named, such as the graph; an erased or blank flash", _BLOB)
    BAD_CONTAINER_VERSION = (0x11, "the container version is unknown", _COMPILE,
        "blob and firmware come from releases that lie far apart", _BLOB)
    BAD_LENGTH = (0x12, "the file is shorter or longer than its header says", _COPY,
        "a download that stopped; bytes that were appended", _BLOB)
    BAD_SECTION_TABLE = (0x13, "the section table does not tile the file", _COPY,
        f"{_DAMAGED}; {_FORGED}", _BLOB)
    SECTION_CRC = (0x14, "a section's CRC does not match", _COPY,
        _DAMAGED, _HEALING)
    CHUNK_CRC = (0x15, "the CRC of a 4 KiB chunk of constants does not match", _COPY,
        f"{_FORGED}; the section's own CRC held", _BLOB)
    BAD_PADDING = (0x16, "padding is not 0xFF", _COPY,
        f"bits that flipped behind a section's end; {_FORGED}", _BLOB)
    BOTH_COPIES_BAD = (0x17, "both copies of a record are bad", _COPY,
        "damage in the same record of both table copies, which one copy alone could not heal",
        _HEALING)
    COPIES_DISAGREE = (0x18, "the two table copies are whole and differ", _COPY,
        "a tool changed one copy and forgot the other", _HEALING)
    TABLE_CRC = (0x19, "the CRC over all records of the table does not match", _COPY,
        "records that changed places, or came from another blob", _BLOB)
    BAD_COUNT = (0x1A, "a count does not fit its section", _REPORT,
        f"{_BUG}; a header whose CRC was made anew", _ABI)
    BAD_INDEX = (0x1B, "an index points beyond its table", _REPORT,
        _BUG, _ABI)
    BAD_SYMBOL = (0x1C, "a name lies outside the symbols or is no UTF-8 text", _REPORT,
        _BUG, _ABI)
    BAD_RING = (0x1D, "the ring does not hold each TOA once", _REPORT,
        _BUG, _ABI)
    NOT_VALID = (0x1E, "the table was never marked complete", "write the blob again",
        "power failed, or the program was killed, while the blob was written", _BLOB)
    BAD_WAIT = (0x1F, "a wait counts TOAs that do not come earlier in the ring", _REPORT,
        _BUG, "docs/machine.md#waits")

    ABI_MAJOR = (0x20, "another ABI major version", _COMPILE,
        "firmware was updated over a break of the ABI, or blob and device were mixed up", _DRIFT)
    ABI_MINOR = (0x21, "a newer ABI minor version",
        "update the firmware, or npufw migrate the blob to its version",
        "the model was updated before the device's firmware", _DRIFT)
    SCHEMA_HASH = (0x22, "the record layouts differ from that version's", _COMPILE,
        "a development build changed a record and kept the version", _DRIFT)
    TARGET_NAME = (0x23, "compiled for another target", "compile with --target of this device",
        "the blob of one product was installed on another", _DRIFT)
    TARGET_HASH = (0x24, "the target of that name has other values",
        "compile with the target file that the firmware runs",
        "a target file was edited: times, the ring, the accumulators", _DRIFT)
    UNKNOWN_FEATURE = (0x25, "a feature that this firmware lacks", "update the firmware",
        "the blob uses an option that came after this firmware", _DRIFT)
    OUT_OF_DDR = (0x26, "the arena is larger than DDR", "compile for a target with more DDR",
        "the model's activations do not fit into this device's memory", _TARGETS)

    GEOMETRY = (0x27, "the device has other numbers than the blob is for",
        "compile with the target file that the firmware runs",
        "a target file was edited; a board with fewer cores, less SRAM or less DDR", _DRIFT)
    VERSION_CHANGED = (0x28, "the version register is not what it was at the check",
        "load the blob again; if it stays, update the firmware again",
        "a firmware update between load and run; a bit of the register that flipped", _DRIFT)

    BAD_MULTIPLIER = (0x30, "a multiplier, shift or scale is out of range", _REPORT,
        _BUG, "docs/numerics.md")
    BAD_DIMS = (0x31, "dims are zero or do not agree between the operands", _REPORT,
        _BUG, _BOOT)
    BAD_STRIDES = (0x32, "strides overlap or do not fit the element size", _REPORT,
        _BUG, "docs/machine.md#layouts")
    MISALIGNED = (0x33, "an address is not aligned as the rule asks", _REPORT,
        _BUG, "docs/machine.md#dma")
    BAD_BANK = (0x34, "the bank is not the one that the address lies in", _REPORT,
        _BUG, "docs/machine.md#memories")
    OUT_OF_SRAM = (0x35, "a tensor reaches beyond SRAM", "compile for this target",
        "compiled for a target with more SRAM under the same name", "docs/machine.md#memories")
    OUT_OF_ARENA = (0x36, "a tensor reaches beyond the arena", _REPORT,
        _BUG, "docs/machine.md#memories")
    OUT_OF_CONSTANTS = (0x37, "a tensor reaches beyond the constants", _REPORT,
        _BUG, "docs/machine.md#memories")
    BAD_EXTENT = (0x38, "the extent is not what dims and strides give", _REPORT,
        _BUG, _BOOT)
    BAD_PITCH = (0x39, "the row pitch is not the target's", "compile for this target",
        "compiled for a target with another row pitch under the same name", _TARGETS)
    BAD_LAYOUT = (0x3A, "the opcode does not take that layout", _REPORT,
        _BUG, "docs/machine.md#opcodes")
    BAD_DTYPE = (0x3B, "the opcode does not take that dtype", _REPORT,
        _BUG, "docs/machine.md#opcodes")
    BAD_SCALE = (0x3C, "scale or zero point is out of range for the dtype", _REPORT,
        _BUG, "docs/numerics.md")
    BAD_OPERANDS = (0x3D, "an operand is missing, or one is given that is not used", _REPORT,
        _BUG, "docs/machine.md#opcodes")
    BAD_WINDOW = (0x3E, "kernel, stride, dilation, pads or groups are out of range", _REPORT,
        _BUG, "docs/machine.md#opcodes")
    BAD_PRECISION = (0x3F, "unit, mode, flags or precision do not fit the opcode", _REPORT,
        _BUG, "docs/machine.md#modes")

    INPUT_MISSING = (0x40, "an input of the network is not given", "name it with --input",
        "an npz without that name, or a file for one of several inputs", _RUN)
    INPUT_UNKNOWN = (0x41, "the network has no input of that name", "see npufw inspect",
        "a spelling mistake; another model's data; --state for a network that keeps none", _RUN)
    INPUT_SHAPE = (0x42, "an input has another shape", "reshape it; see npufw inspect",
        "NHWC data for an NCHW input; a missing batch axis", _RUN)
    INPUT_DTYPE = (0x43, "an input has another dtype", "convert it; see npufw inspect",
        "float64 from numpy's defaults; codes for a float input; big-endian data", _RUN)
    INPUT_NOT_FINITE = (0x44, "an input holds NaN or infinity", "clean the data first",
        "a division by zero before; a sensor's mark for no value", _RUN)
    INPUT_BATCH = (0x45, "the first axis is no multiple of the compiled batch",
        "give a multiple, the same for every input",
        "a last, smaller part of a data set", _RUN)
    KNOWN_ANSWER = (0x46, "the known-answer test gave other bits", "do not use this core",
        "a core that computes wrongly; firmware whose arithmetic differs from the compiler's",
        _HEALING)
    INPUT_FILE = (0x47, "a file of arrays cannot be used", "give an npy or npz without pickle",
        "an object array; a damaged or hostile archive", _RUN)
    INPUT_IMAGE = (0x48, "an image, its preprocess file or its label cannot be used",
        "see Images in docs/guide.md",
        "a format that Pillow lacks; a key that the preprocess file does not have",
        "docs/guide.md#images")
    SANITIZER = (0x49, "descriptors use memory as they must not",
        "see the findings; nothing was run",
        _BUG, "docs/guide.md#sanitize")

    FAULT_SPEC = (0x50, "a fault cannot be injected as asked", "see npufw faults",
        "a spelling mistake; a place that the program or the target does not have", _RIPPLE)
    CONSTANTS_LOST = (0x51, "constants stay bad in SRAM however often they are read from DDR",
        "load the program again; if it stays, take the core out",
        "a bad bank; a bad copy in DDR; a supply that is out of its limits", _RIPPLE)
    ACTIVATION_LOST = (0x52, "an activation is bad in memory and cannot be computed again",
        "run the job again; if it stays, take the core out",
        "a flip after its producer's inputs were overwritten; a bad bank", _RIPPLE)
    INPUT_LOST = (0x53, "an input or a state is bad in memory, and nobody else has it",
        "give the input again, or reset the states",
        "a flip in DDR between the host's write and the first read", _RIPPLE)
    DESCRIPTOR_LOST = (0x54, "both copies of a descriptor are bad", "load the program again",
        "flips in the same record of both copies", _RIPPLE)

    TOO_HOT = (0x58, "the chip is hotter than any timing set allows", "cool it before the next job",
        "a blocked fan, a detached heat spreader, an ambient beyond the data sheet", _HEAT)
    NO_TIMING_SET = (0x59, "no set of timing is safe at this temperature",
        "load the program again, or migrate it to this ABI version",
        "a blob of ABI 0.1, which has none; sets that were hit in memory", _HEAT)
    NO_CORE = (0x5A, "no core is left that passes its known-answer test", "replace the device",
        "every core was taken out: a supply out of its limits, or another target's firmware",
        _HEALING)

    FLASH_PROGRAM = (0x60, "a flash cell does not take what is programmed", _WORN_OUT,
        _WORN, _FLASH)
    FLASH_ERASE = (0x61, "a flash sector cannot be erased", _WORN_OUT,
        _WORN, _FLASH)
    FLASH_READ = (0x62, "a flash sector cannot be read", _WORN_OUT,
        _WORN, _FLASH)
    FLASH_VERIFY = (0x63, "flash holds other bytes than were written", _WORN_OUT,
        f"{_WORN}; an operation that silently did nothing", _FLASH)
    FLASH_IMAGE = (0x64, "the file is no flash image", "make one with npufw flash init",
        "another file was named; an Intel HEX file that was cut or edited",
        "docs/gates/6-ota.md#the-image")
    SLOT_SIZE = (0x65, "the blob is longer than a slot",
        "make the image with larger slots: npufw flash init --slot KIB",
        "a larger model than the flash was laid out for", "docs/gates/6-ota.md#the-image")
    SLOT_EMPTY = (0x66, "the slot holds no model", "write one: npufw flash write",
        "a new image; an erase that power cut short", _FLASH)
    NO_BOOTABLE_SLOT = (0x67, "neither slot holds a model that verifies",
        "write one: npufw flash write",
        "a new image; damage in both slots; another target or key than they were written for",
        "docs/gates/6-ota.md#which-slot-boots")
    NO_ROLLBACK = (0x68, "there is no older model to go back to",
        "write the wanted model again: npufw flash write",
        "only one was written so far; the other slot was damaged, or is refused by now",
        "docs/gates/6-ota.md#rollback")

    FUSE_BLOWN = (0x70, "a fuse would have to go from 1 to 0", "use a fresh eFuse image",
        "a die that was calibrated before; bits are blown once and for ever", _DIES)
    FUSE_CRC = (0x71, "the eFuse image does not hold together",
        "read it again; if it stays, the die is not to be used",
        "a fuse that was blown late or is not read; an image of all ones; another file", _DIES)
    FUSE_VERSION = (0x72, "the eFuse image is of a newer layout", "update the firmware",
        "a die that a newer tester calibrated", _DIES)
    WRONG_DIE = (0x73, "the eFuse image is another die's", "calibrate this die, or give its image",
        "image files that were mixed up; a table that was copied from another board", _DIES)
    FUSE_COLUMNS = (0x74, "the eFuse table is for another array", "calibrate with this target",
        "calibrated for a target with more or fewer cores", _DIES)
    NOT_CALIBRATED = (0x75, "the die cannot be calibrated", "discard the die",
        "a column whose gain or offset is beyond what its code can hold", _DIES)

    UNSIGNED = (0x78, "the device takes signed blobs only, and this one is not",
        "sign it with the key whose hash is fused: npuc compile --sign KEY",
        "a development build on a product; a blob assembled anew from its text", _SIGNED)
    FOREIGN_KEY = (0x79, "the blob is signed with another key than the device trusts",
        "sign it with the key whose hash is fused: npuc compile --sign KEY",
        "the key of another product, or one that was replaced; a forgery", _SIGNED)
    BAD_SIGNATURE = (0x7A, "the signature is not one of this program",
        "get the blob from its source again",
        "the program was changed after it was signed; a forgery", _SIGNED)
    SECURITY_VERSION = (0x7B,
        "the security version is lower than the device's anti-rollback counter",
        "give a blob signed with a higher --security-version",
        "an old release with a known fault, offered on purpose or by mistake", _SIGNED)
    BAD_KEY = (0x7C, "a key file cannot be used", "make a key with npufw keygen",
        "another kind of key than Ed25519; a public one where a private one is needed; a password",
        _SIGNED)
    NO_CRYPTOGRAPHY = (0x7D, "signatures need the cryptography package",
        "pip install 'npu-toolchain[sign]'",
        "the toolchain was installed without its extra sign", _SIGNED)
    OUT_OF_MEMORY = (0x80, "no piece of device memory is large enough",
        "unload a model or wait for a job to end",
        "more models or jobs at once than fit; fragmentation: much is free, but in small pieces",
        "docs/gates/3-fragmentation.md")
    BAD_SIZE = (0x81, "an allocation of a size that cannot be",
        "ask for at least a byte, and for no more than the pool less a guard",
        "a size computed from a damaged header; an empty tensor", "docs/gates/3-fragmentation.md")
    BAD_ADDRESS = (0x82, "the address is not that of a block",
        "free the address that the allocation gave",
        "an address that was moved inside the block; one of another pool",
        "docs/gates/3-fragmentation.md")
    DOUBLE_FREE = (0x83, "nobody holds that memory",
        "free a block once; keep one owner for it",
        "two owners that both free it; an address of a pool that was made anew",
        "docs/gates/3-fragmentation.md")
    GUARD_BROKEN = (0x84, "somebody wrote beyond a block",
        "stop the job that owns the block and load its model again",
        "a program that was not checked at boot; a driver that copies too much; flipped bits",
        "docs/gates/3-fragmentation.md")
    # fmt: on

    def __new__(cls, number: int, text: str, remedy: str, causes: str, page: str) -> Self:
        """Make a member of its row."""
        member = int.__new__(cls, number)
        member._value_ = number
        member.text, member.remedy, member.causes, member.page = text, remedy, causes, page
        return member


class AbiError(Exception):
    """Bytes that break the contract; carries the code and the facts."""

    def __init__(self, code: ErrorCode, detail: str) -> None:
        super().__init__(f"{code.name.lower()} (0x{code:02x}): {detail}")
        self.code = code
        self.detail = detail
