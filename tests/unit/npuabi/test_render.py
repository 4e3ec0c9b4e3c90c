"""The rendered ABI: every record, enum and error code appears, as it is on the wire."""

from __future__ import annotations

from collections.abc import Callable

from npuabi import enums
from npuabi.container import Program
from npuabi.errors import AbiError, ErrorCode
from npuabi.records import RECORDS
from npuabi.render import c_header, hexdump, markdown
from npuabi.wire import Record

Build = Callable[[int, int, int], Program]


def samples_of(program: Program) -> list[Record]:
    return [
        program.header,
        program.tensors[0],
        program.toas[0],
        program.interface[0],
        program.sources[0],
        program.known_answer,
    ]


def test_a_hex_dump_holds_exactly_the_records_bytes_in_order(build: Build) -> None:
    for record in samples_of(build(1, 1, 0)):
        lines = hexdump(record, 0x1000).splitlines()[1:]
        octets = b"".join(bytes.fromhex(line[10:33]) for line in lines)
        assert octets == record.encode()
        at = 0x1000
        for line in lines:
            assert int(line[:8], 16) == at
            at += len(bytes.fromhex(line[10:33]))


def test_a_hex_dump_gives_each_field_one_annotated_line(build: Build) -> None:
    text = hexdump(build(1, 1, 0).toas[0], 0x40)
    lines = text.splitlines()
    assert lines[0] == "00000040  Toa, 64 bytes"
    named = [line.split()[2] for line in lines if line.startswith("0000004") and " opcode" in line]
    assert named == ["opcode"]
    for words in ("CONV (3)", "CLEAR|WRITE (0x3)", "[0, none, none, none, 0]", "[-128, 127]"):
        assert words in text
    for name in type(build(1, 1, 0).toas[0]).FIELDS:
        assert sum(f"  {name} " in line for line in lines) == 1


def test_the_page_names_every_field_member_and_code() -> None:
    page = markdown()
    for kind in RECORDS:
        assert f"### {kind.__name__} ({kind.SIZE} bytes)" in page
        for offset, name, wire in kind.rows():
            assert any(
                line.startswith(f"| {offset} | {wire.size} |") and f"| `{name}` |" in line
                for line in page.splitlines()
            )
    for enum in enums.__all__:
        assert f"### {enum}\n" in page
        for member in getattr(enums, enum):
            assert f"| {member.value} | `{member.name}` |" in page
    for code in ErrorCode:
        assert f"| 0x{code:02x} | `{code.name.lower()}` | {code.text} | {code.remedy} |" in page


def test_every_table_row_of_the_page_has_as_many_cells_as_its_head() -> None:
    for block in markdown().split("\n\n"):
        rows = [line for line in block.splitlines() if line.startswith("|")]
        assert len({line.replace("\\|", "").count("|") for line in rows}) <= 1


def test_the_header_asserts_every_size_and_offset() -> None:
    header = c_header()
    fields = sum(len(kind.FIELDS) for kind in RECORDS)
    assert header.count("_Static_assert(offsetof(") == fields
    assert header.count("_Static_assert(sizeof(") == len(RECORDS)
    for words in ("NPU_OPCODE_CONV = 3,", "NPU_TOAFLAG", "NPU_NO_TENSOR UINT32_C(0xffffffff)"):
        assert words.replace("TOAFLAG", "TOA_FLAG") in header
    assert all(f"NPU_ERROR_{code.name} = {hex(code)}," in header for code in ErrorCode)


def test_an_error_shows_its_code_and_detail() -> None:
    error = AbiError(ErrorCode.BAD_RING, "two of three")
    assert str(error) == "bad_ring (0x1d): two of three"
