"""The ABI made readable: annotated hex dumps, the Markdown reference and the C header.

Everything is derived from the declarations in records.py, enums.py and errors.py; nothing about a
layout is stated here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from enum import IntEnum, IntFlag
from typing import Any

from npuabi import enums
from npuabi.errors import ErrorCode
from npuabi.policy import ABI_MAJOR, ABI_MINOR, schema_hash
from npuabi.program import TABLE_MAGIC, TABLE_VALID
from npuabi.records import NO_TENSOR, RECORDS
from npuabi.sections import BLOB_MAGIC, CONTAINER_VERSION, SECTOR_BYTES
from npuabi.wire import Field, Record

__all__ = ["c_header", "hexdump", "markdown"]

_HEX_COLUMNS = 8
_NAME_WIDTH = max(len(name) for kind in RECORDS for name in kind.FIELDS)


# --- hex dump ---------------------------------------------------------------------------------


def hexdump(record: Record, base: int = 0) -> str:
    """Return *record* as hex, one field a line: address, bytes, name, value.

    *base* is the address of its first byte. Fields of more than 8 bytes go on in further lines.
    """
    raw = record.encode()
    lines = [f"{base:08x}  {type(record).__name__}, {record.SIZE} bytes"]
    for offset, name, wire in record.rows():
        octets = raw[offset : offset + wire.size]
        stored = int.from_bytes(octets, "little") if wire.role == "crc" else getattr(record, name)
        lines += _field_lines(base + offset, octets, name, _shown(wire, stored))
    return "\n".join(lines)


def _field_lines(address: int, octets: bytes, name: str, value: str) -> Iterator[str]:
    for start in range(0, len(octets), _HEX_COLUMNS):
        part = octets[start : start + _HEX_COLUMNS].hex(" ")
        label = f"  {name:<{_NAME_WIDTH}}  {value}" if start == 0 else ""
        yield f"{address + start:08x}  {part:<{3 * _HEX_COLUMNS - 1}}{label}".rstrip()


def _shown(wire: Field, value: Any) -> str:
    if wire.role == "reserved":
        return "zero"
    if wire.role == "crc":
        return f"{value:#010x}"
    if wire.role == "chars":
        return repr(value.decode("utf-8", "backslashreplace"))
    if wire.enum is not None and issubclass(wire.enum, IntFlag):
        return f"{_flag_names(wire.enum, value)} ({int(value):#x})"
    if wire.enum is not None:
        return f"{wire.enum(value).name} ({int(value)})"
    return _number(wire, value)


def _flag_names(enum: type[IntFlag], value: int) -> str:
    return "|".join(str(member.name) for member in enum if value & member) or "none"


def _number(wire: Field, value: Any) -> str:
    if isinstance(value, tuple):
        return "[" + ", ".join(_number(wire, item) for item in value) + "]"
    if wire.ctype == "uint32_t" and value == NO_TENSOR:
        return "none"
    return f"{value!r}" if isinstance(value, float) or value < 1 << 16 else f"{value} ({value:#x})"


# --- Markdown ---------------------------------------------------------------------------------


def markdown() -> str:
    """Return the ABI page: every record, enum and error code as Markdown tables."""
    blocks = [
        "# ABI reference",
        f"Version {ABI_MAJOR}.{ABI_MINOR}, schema hash `{schema_hash():016x}`. All records are"
        " little-endian and without gaps. This page is generated: `npuc abi --markdown`.",
        "## Records",
        *(block for kind in RECORDS for block in _record_blocks(kind)),
        "## Enums",
        *(block for enum in _enums() for block in _enum_blocks(enum)),
        "## Error codes",
        _table(
            ("code", "name", "what happened", "what helps"),
            [(f"0x{e:02x}", f"`{e.name.lower()}`", e.text, e.remedy) for e in ErrorCode],
        ),
    ]
    return "\n\n".join(blocks) + "\n"


def _enums() -> list[type[IntEnum] | type[IntFlag]]:
    return [getattr(enums, name) for name in enums.__all__]


def _record_blocks(kind: type[Record]) -> Iterator[str]:
    yield f"### {kind.__name__} ({kind.SIZE} bytes)"
    yield str(kind.__doc__)
    yield _table(
        ("offset", "bytes", "type", "field", "meaning"),
        [
            (str(offset), str(wire.size), f"`{_c_type(wire)}`", f"`{name}`", _meaning(wire))
            for offset, name, wire in kind.rows()
        ],
    )


def _enum_blocks(enum: type[IntEnum] | type[IntFlag]) -> Iterator[str]:
    yield f"### {enum.__name__}"
    yield str(enum.__doc__)
    rows = [(str(member.value), f"`{member.name}`") for member in enum]
    yield _table(("value", "name"), rows)


def _meaning(wire: Field) -> str:
    return f"{wire.doc} ({wire.enum.__name__})" if wire.enum else wire.doc


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(
        "| " + " | ".join(c.replace("|", "\\|") for c in line) + " |" for line in lines
    )


def _c_type(wire: Field) -> str:
    return f"{wire.ctype}[{wire.count}]" if wire.count > 1 else wire.ctype


# --- C header ---------------------------------------------------------------------------------

_HEADER_TOP = """\
/* The ABI of NPU blobs, version {major}.{minor}. Generated by `npuc abi --c-header`: do not edit.
 *
 * C11. All records are little-endian and without gaps: on a little-endian machine a record may be
 * copied into its struct. Every offset and size is asserted below.
 */
#ifndef NPU_ABI_H
#define NPU_ABI_H

#include <stddef.h>
#include <stdint.h>
"""


def c_header() -> str:
    """Return a C11 header: constants, enums, error codes and every record as a packed struct."""
    parts = [
        _HEADER_TOP.format(major=ABI_MAJOR, minor=ABI_MINOR),
        _defines(),
        *(_c_enum(_snake(enum.__name__), enum) for enum in _enums()),
        _c_enum("error", ErrorCode),
        "#pragma pack(push, 1)\n",
        *(_c_struct(kind) for kind in RECORDS),
        "#pragma pack(pop)\n",
        *(_c_asserts(kind) for kind in RECORDS),
        "#endif\n",
    ]
    return "\n".join(parts)


def _defines() -> str:
    facts = {
        "ABI_MAJOR": f"{ABI_MAJOR}u",
        "ABI_MINOR": f"{ABI_MINOR}u",
        "SCHEMA_HASH": f"UINT64_C(0x{schema_hash():016x})",
        "BLOB_MAGIC": _c_string(BLOB_MAGIC),
        "CONTAINER_VERSION": f"{CONTAINER_VERSION}u",
        "SECTOR_BYTES": f"{SECTOR_BYTES}u",
        "TABLE_MAGIC": _c_string(TABLE_MAGIC),
        "TABLE_VALID": f"UINT32_C(0x{TABLE_VALID:08x})",
        "NO_TENSOR": f"UINT32_C(0x{NO_TENSOR:08x})",
    }
    return "".join(f"#define NPU_{name} {value}\n" for name, value in facts.items())


def _c_string(raw: bytes) -> str:
    return '"' + raw.decode("ascii").replace("\n", "\\n") + '"'


def _snake(name: str) -> str:
    """Return TableHeader as table_header, DType as dtype, OpParams as op_params."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def _c_enum(name: str, members: type[IntEnum] | type[IntFlag]) -> str:
    prefix = f"NPU_{name.upper()}"
    write: Callable[[int], str] = hex if issubclass(members, IntFlag | ErrorCode) else str
    lines = "".join(f"    {prefix}_{m.name} = {write(m.value)},\n" for m in members)
    return f"enum npu_{name} {{\n{lines}}};\n"


def _c_struct(kind: type[Record]) -> str:
    lines = [f"/* {kind.__doc__} */", f"struct npu_{_snake(kind.__name__)} {{"]
    for _, name, wire in kind.rows():
        suffix = f"[{wire.count}]" if wire.count > 1 else ""
        lines.append(f"    {wire.ctype} {name}{suffix}; /* {_meaning(wire)} */")
    return "\n".join([*lines, "};\n"])


def _c_asserts(kind: type[Record]) -> str:
    struct = f"struct npu_{_snake(kind.__name__)}"
    lines = [f'_Static_assert(sizeof({struct}) == {kind.SIZE}, "{kind.__name__}");']
    for offset, name, _ in kind.rows():
        test = f"offsetof({struct}, {name}) == {offset}"
        lines.append(f'_Static_assert({test}, "{kind.__name__}.{name}");')
    return "\n".join(lines) + "\n"
