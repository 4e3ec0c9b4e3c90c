"""The C header against a real compiler: a C program decodes a blob and must print what we read."""

from __future__ import annotations

import shutil
import struct
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from npuabi.container import Program, write_blob
from npuabi.enums import Section
from npuabi.records import (
    RECORDS,
    FileHeader,
    FloatParams,
    OpParams,
    SectionEntry,
    TableHeader,
)
from npuabi.render import c_header
from npuabi.sections import split_sections
from npuabi.wire import Field, Record

Build = Callable[[int, int, int], Program]

_MAIN = """
static unsigned char blob[1 << 20];

static const struct npu_section_entry *section(unsigned kind) {
    for (int i = 0; i < ((const struct npu_file_header *)(const void *)blob)->section_count; i++) {
        const void *row = blob + sizeof(struct npu_file_header)
            + (size_t)i * sizeof(struct npu_section_entry);
        const struct npu_section_entry *entry = row;
        if (entry->kind == kind) return entry;
    }
    return 0;
}

int main(int argc, char **argv) {
    FILE *file = argc == 2 ? fopen(argv[1], "rb") : 0;
    if (!file || fread(blob, 1, sizeof blob, file) < 64) return 1;
    const struct npu_section_entry *table = section(NPU_SECTION_TABLE_A);
    const unsigned char *records = blob + table->offset + sizeof(struct npu_table_header);
    const struct npu_table_header *head = (const void *)(blob + table->offset);
    print_FileHeader(blob);
    print_SectionEntry(table);
    print_TableHeader(head);
    print_TensorDescriptor(records);
    print_Toa(records + head->tensor_count * sizeof(struct npu_tensor_descriptor));
    print_OpParams(blob + section(NPU_SECTION_CONSTANTS)->offset);
    print_FloatParams(blob + section(NPU_SECTION_CONSTANTS)->offset + 64);
    print_Interface(blob + section(NPU_SECTION_INTERFACE)->offset);
    print_SourceEntry(blob + section(NPU_SECTION_SOURCE_MAP)->offset);
    print_StateEntry(blob + section(NPU_SECTION_STATES)->offset);
    print_KnownAnswer(blob + section(NPU_SECTION_KNOWN_ANSWER)->offset);
    print_BandSet(blob + section(NPU_SECTION_BANDS)->offset);
    print_Signature(blob + section(NPU_SECTION_SIGNATURE)->offset);
    return 0;
}
"""

_PARAMETERS: dict[str, Any] = {
    name: index * 0.25 if wire.ctype == "float" else -1000 * index
    for index, (name, wire) in enumerate(OpParams.FIELDS.items())
}


def struct_name(kind: type[Record]) -> str:
    parts = ["_" + c.lower() if c.isupper() else c for c in kind.__name__]
    return "npu" + "".join(parts)


def printer(kind: type[Record]) -> Iterator[str]:
    yield f"static void print_{kind.__name__}(const void *raw) {{"
    yield f"    struct {struct_name(kind)} r; memcpy(&r, raw, sizeof r);"
    for name, wire in kind.FIELDS.items():
        for index in range(wire.count):
            item = f"r.{name}[{index}]" if wire.count > 1 else f"r.{name}"
            label = f"{kind.__name__}.{name}[{index}]"
            if wire.ctype == "float":
                yield f"    {{ float f = {item}; uint32_t u; memcpy(&u, &f, 4);"
                yield f'      printf("{label} %lld\\n", (long long)u); }}'
            elif wire.ctype == "uint64_t":
                yield f'    printf("{label} %llu\\n", (unsigned long long){item});'
            else:
                yield f'    printf("{label} %lld\\n", (long long){item});'
    yield "}"


def numbers(wire: Field, value: Any) -> list[int]:
    """Return a field's elements as the C program prints them."""
    if wire.ctype == "float":
        return [int.from_bytes(struct.pack("<f", value), "little")]
    if wire.role in ("chars", "reserved"):
        return list(value.ljust(wire.count, b"\0"))
    return [int(item) for item in value] if isinstance(value, tuple) else [int(value)]


def expected(record: Record) -> Iterator[str]:
    for name, wire in record.FIELDS.items():
        for index, number in enumerate(numbers(wire, getattr(record, name))):
            yield f"{type(record).__name__}.{name}[{index}] {number}"


def compiled(tmp_path: Path, source: str) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler here: the C header is not compiled")
    (tmp_path / "npu_abi.h").write_text(c_header(), "utf-8")
    (tmp_path / "main.c").write_text(source, "utf-8")
    flags = ["-std=c11", "-Wall", "-Wextra", "-pedantic", "-Werror"]
    command = [compiler, *flags, "-o", "decode", "main.c"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return tmp_path / "decode"


def test_a_c_program_reads_every_field_of_every_record_as_python_does(
    build: Build, tmp_path: Path
) -> None:
    lines = ["#include <stdio.h>", "#include <string.h>", '#include "npu_abi.h"']
    lines += [line for kind in RECORDS for line in printer(kind)]
    program_path = compiled(tmp_path, "\n".join(lines) + _MAIN)

    raw = write_blob(with_parameters(build(3, 2, 100)))
    (tmp_path / "net.blob").write_bytes(raw)
    command = [str(program_path), "net.blob"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    wanted = [line for record in decoded(raw) for line in expected(record)]
    assert done.stdout.splitlines() == wanted
    assert {type(record) for record in decoded(raw)} == set(RECORDS)


def with_parameters(program: Program) -> Program:
    floats = FloatParams(low=-0.5, high=6.0, inner_low=-1.0, inner_high=1e30)
    constants = OpParams(**_PARAMETERS).encode() + floats.encode()
    header = replace(program.header, constant_bytes=len(constants), macs=(1 << 63) + 5)
    return replace(program, header=header, constants=constants)


def decoded(raw: bytes) -> list[Record]:
    """Return the records that the C program prints, decoded one at a time by construct."""
    parts = split_sections(raw)
    row = 64 * (1 + list(parts).index(Section.TABLE_A))
    table = bytes(parts[Section.TABLE_A].content)
    header = TableHeader.decode(table[:128])
    kinds = {kind.__name__: kind for kind in RECORDS}
    places = {
        "TensorDescriptor": table[128:192],
        "Toa": table[128 + 64 * header.tensor_count :][:64],
        "OpParams": bytes(parts[Section.CONSTANTS].content[:64]),
        "FloatParams": bytes(parts[Section.CONSTANTS].content[64:]),
        "Interface": bytes(parts[Section.INTERFACE].content),
        "SourceEntry": bytes(parts[Section.SOURCE_MAP].content),
        "StateEntry": bytes(parts[Section.STATES].content),
        "KnownAnswer": bytes(parts[Section.KNOWN_ANSWER].content),
        "BandSet": bytes(parts[Section.BANDS].content[:32]),
        "Signature": bytes(parts[Section.SIGNATURE].content),
    }
    head: list[Record] = [FileHeader.decode(raw[:64]), SectionEntry.decode(raw[row : row + 64])]
    return [*head, header, *(kinds[name].decode(part) for name, part in places.items())]
