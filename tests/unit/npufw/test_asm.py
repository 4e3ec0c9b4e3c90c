"""Blobs as text: the same bytes back, edits that hold, and one clear message for each mistake."""

from __future__ import annotations

import re
import string
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npuabi.container import Program, pack_symbols, write_blob
from npuabi.diagnostics import SourceError
from npuabi.enums import DType, Layout, Precision, Rounding, Space, ToaFlag, Unit
from npuabi.records import RECORDS, FloatParams, SourceEntry, TensorDescriptor, Toa
from npufw.asm import assemble
from npufw.asm_form import HEX, PARTS, WAIT_FLAGS, clause_names, fields_of, settled
from npufw.asm_text import MAX_TEXT_BYTES
from npufw.boot import boot
from npufw.disasm import as_json, disassemble
from npufw.kernels.base import OPERANDS
from tests.builders import EDGE
from tests.unit.npufw.programs import rescaler


def text_of(program: Program) -> str:
    return "\n".join(disassemble(program, EDGE)) + "\n"


def same_bytes(program: Program, *, checked: bool = True) -> str:
    """Return the text of a program, which gives its bytes back."""
    text = text_of(program)
    blob, again, _ = assemble(text.encode(), checked=checked)
    assert blob == write_blob(program)
    assert again == program
    return text


def changed(part: str, index: int, **fields: Any) -> Program:
    """Return the rescaler with fields of one record changed."""
    program = rescaler().builder.build()
    records = list(getattr(program, part))
    records[index] = replace(records[index], **fields)
    changes: dict[str, Any] = {part: tuple(records)}
    return replace(program, **changes)


def mistakes(text: str | bytes, **options: Any) -> list[str]:
    """Return ``line:column: text`` of each mistake in a text."""
    raw = text if isinstance(text, bytes) else text.encode()
    with pytest.raises(SourceError) as caught:
        assemble(raw, file="x.asm", **options)
    found = []
    for diagnostic in caught.value.diagnostics:
        place = diagnostic.location
        assert place.file == "x.asm"
        found.append(f"{place.line}:{place.column}: {diagnostic.text}")
    return found


TEXT = text_of(rescaler().builder.build())


def edited(old: str, new: str) -> str:
    assert old in TEXT
    return TEXT.replace(old, new)


def line_of(start: str) -> int:
    return next(i for i, line in enumerate(TEXT.splitlines(), 1) if line.startswith(start))


# --- the same bytes back ----------------------------------------------------------------------


def test_a_program_comes_back_and_reads_well() -> None:
    text = same_bytes(rescaler().builder.build())
    assert "tensor %bricks: base 0xe0, dims [2, 5, 3, 7], " in text
    assert "op %y, input %plain, output %bricks, wait dma_in 2, cycles 1  // op at :1:1" in text
    assert "params: input_multiplier 1073741824, inner_low -128, inner_high 127" in text
    assert "names:" not in text


ODD: dict[str, tuple[str, int, dict[str, Any]]] = {
    "an extent that is not computed": ("tensors", 3, {"extent": 1}),
    "another bank": ("tensors", 3, {"bank": 9}),
    "negative zero": ("tensors", 3, {"scale": -0.0}),
    "infinity": ("tensors", 3, {"scale": float("inf")}),
    "the smallest float": ("tensors", 3, {"scale": 2.0**-149}),
    "the largest float": ("tensors", 3, {"scale": float.fromhex("0x1.fffffep+127")}),
    "the largest numbers": ("tensors", 3, {"base": 2**32 - 1, "dims": (2**32 - 1,) * 4}),
    "a count without its wait": ("toas", 3, {"waits": (0, 7, 0, 0)}),
    "a wait for nothing": ("toas", 3, {"flags": ToaFlag.WAIT_MAC}),
    "all flags": ("toas", 5, {"flags": ToaFlag(sum(ToaFlag))}),
    "no operands": ("toas", 2, {"tensors": (2**32 - 1,) * 5}),
}


@pytest.mark.parametrize("name", ODD)
def test_odd_values_come_back(name: str) -> None:
    part, index, fields = ODD[name]
    same_bytes(changed(part, index, **fields), checked=False)


def test_the_order_of_the_ring_is_that_of_the_lines() -> None:
    program = rescaler().builder.build()
    text = same_bytes(replace(program, ring=(1, 0, 2, 3, 4, 5)))
    numbers = [int(n) for n in re.findall(r"^toa (\d+):", text, re.MULTILINE)]
    assert numbers == [1, 0, 2, 3, 4, 5]
    spread = re.sub(r"^toa (\d+):", lambda m: f"toa {10 * int(m[1])}:", text, flags=re.MULTILINE)
    assert assemble(spread.encode()).blob == assemble(text.encode()).blob


def test_generations_features_and_seeds_come_back() -> None:
    program = rescaler().builder.build()
    header = replace(program.header, generation=2**32 - 1, macs=2**64 - 1, rounding=Rounding.EVEN)
    answer = replace(program.known_answer, seed=2**64 - 1, output_crc=2**32 - 1, std=0.1)
    answer = type(answer).decode(answer.encode())
    same_bytes(replace(program, header=header, known_answer=answer))


@pytest.mark.parametrize("order", ["shuffled", "doubled", "spare"])
def test_names_come_back_in_any_order(order: str) -> None:
    program = rescaler().builder.build()
    listed = [raw.decode() for raw in program.symbols[1:-1].split(b"\0")]
    orders = {"shuffled": listed[::-1], "doubled": listed + listed, "spare": ["spare", *listed]}
    names = orders[order]
    packed = "".join(f"{name}\0" for name in ["", *names])
    offsets = {n: packed.rindex(f"\0{n}\0") + 1 if n else 0 for n in ["", *names]}

    def moved(record: Any) -> Any:
        old = program.symbols[record.symbol :].split(b"\0")[0].decode()
        return replace(record, symbol=offsets[old])

    parts: dict[str, Any] = {
        name: tuple(map(moved, getattr(program, name)))
        for name in ("tensors", "interface", "sources")
    }
    text = same_bytes(replace(program, symbols=packed.encode(), **parts))
    assert "\nnames: " in text


NAMES = ("two words", 'a"b\\c', "ü\U0001f600", "x#1", "a//b", "%y", "-", "none")


@pytest.mark.parametrize("name", NAMES)
def test_any_printable_name_comes_back(name: str) -> None:
    program = rescaler().builder.build()
    listed = [raw.decode() for raw in program.symbols[1:-1].split(b"\0")]
    symbols, offsets = pack_symbols([*listed, name])
    tensors = [replace(t, symbol=offsets[name]) for t in program.tensors]
    sources = [replace(s, symbol=offsets[name], file=offsets[name]) for s in program.sources]
    same_bytes(replace(program, symbols=symbols, tensors=tuple(tensors), sources=tuple(sources)))


@pytest.mark.parametrize("size", [0, 1, 63, 64, 4097])
def test_constants_of_any_size_come_back(size: int) -> None:
    program = rescaler().builder.build()
    constants = program.constants[:size].ljust(size, b"\xa5")
    header = replace(program.header, constant_bytes=size)
    same_bytes(replace(program, constants=constants, header=header), checked=False)


def test_parameters_that_are_no_numbers_come_back_as_bytes() -> None:
    program = rescaler().builder.build()
    text = same_bytes(replace(program, constants=b"\xff" * 64), checked=False)
    assert "params:" not in text
    assert "data: " + "ff" * 32 in text


@pytest.mark.parametrize("raw", [b"\0\0\x80\x7f", b"\0\0\0\x80", b"\1\0\0\0", b"\xff\xff\xff\xff"])
def test_float_parameters_come_back_to_the_bit(raw: bytes) -> None:
    program = changed("toas", 3, precision=Precision.FP32)
    head = FloatParams(low=float("-inf"), high=0.1, inner_low=-0.0, inner_high=float("inf"))
    tail = raw + b"\xcd\xcc\xcc\x3d"
    constants = head.encode() + tail
    longer: dict[str, Any] = {"dims": (1, 1, 1, 72), "extent": 72}
    tensors = [replace(t, **longer) if i in (2, 7) else t for i, t in enumerate(program.tensors)]
    tensors[8] = replace(tensors[8], dims=(1, 1, 1, 18), extent=72)
    header = replace(program.header, constant_bytes=72)
    program = replace(program, tensors=tuple(tensors), constants=constants, header=header)
    text = same_bytes(program, checked=False)
    assert "\nfloat_params: low -inf, high 0.1, inner_low -0.0, inner_high inf\n" in text
    assert ("\nwords: " if raw == b"\xff" * 4 else ", 0.1\n") in text


def test_comments_blank_lines_and_line_ends_do_not_matter() -> None:
    blob = assemble(TEXT.encode()).blob
    windows = "\ufeff" + TEXT.replace("\n", "  // more\r\n\r\n")
    assert assemble(windows.encode()).blob == blob
    assert assemble(TEXT.rstrip("\n").encode()).blob == blob


def test_what_is_left_out_is_computed() -> None:
    text = edited("base 0xe0, dims [2, 5, 3, 7]", "base 0x20000, dims [2, 5, 2, 7]")
    program = assemble(text.encode(), checked=False).program
    tensor = program.tensors[4]
    assert (tensor.bank, tensor.extent) == (2, 336 + 112 + 6 * 16 + 16)
    grown = assemble((TEXT + "data: 0102\n").encode()).blob
    assert boot(grown, EDGE).program.header.constant_bytes == 66


def test_words_and_records_may_be_added_in_any_order() -> None:
    lines = TEXT.splitlines()
    assert assemble("\n".join(sorted(lines, key=lambda s: s.startswith("tensor"))).encode())
    more = 'tensor %"new one"#7: base 0, dims [1, 1, 1, 1], strides [1, 1, 1, 1], space sram, '
    program = assemble(f"{TEXT}{more}dtype u8, layout nchw\nwords: 1, -1\n".encode()).program
    assert program.constants.endswith(b"\1\0\0\0\xff\xff\xff\xff")
    assert program.symbols.endswith(b"\0new one\0")


def test_a_file_of_constants_lies_beside_the_text(tmp_path: Path) -> None:
    program = rescaler().builder.build()
    text = "\n".join(disassemble(program, EDGE, "c.bin"))
    assert 'constants: file "c.bin", bytes 64' in text
    (tmp_path / "c.bin").write_bytes(program.constants)
    blob = assemble(text.encode(), folder=tmp_path).blob
    assert blob == write_blob(program)
    for name, size, message in (
        ("../c.bin", 64, "leaves the text's folder"),
        ("/etc/passwd", 64, "leaves the text's folder"),
        ("none", 64, "no file 'none'"),
        ("c.bin", 63, "has 64 bytes, expected 63"),
        ("c.bin", 9_999_999_999, "a blob has at most"),
    ):
        bad = text.replace('"c.bin", bytes 64', f'"{name}", bytes {size}')
        assert message in mistakes(bad, folder=tmp_path)[0]
    (tmp_path / "link").symlink_to("/etc/passwd")
    bad = text.replace('"c.bin"', '"link"')
    assert "a link that leaves" in mistakes(bad, folder=tmp_path)[0]
    assert "stand in the text too" in mistakes(text + "\ndata: 00", folder=tmp_path)[0]
    bad = f'{text}\nconstants: file "c.bin", bytes 64'
    assert "named twice" in mistakes(bad, folder=tmp_path)[0]


# --- mistakes -----------------------------------------------------------------------------------

HUGE = "9" * 5000
MISTAKES = {
    "an unknown field": ("dtype i8", "dtyp i8", "unknown field 'dtyp': did you mean dtype"),
    "an unknown member": ("layout nchw16c", "layout nchw17c", "unknown layout 'nchw17c': did you"),
    "a large number": ("base 0xe0", "base 4294967296", "from 0 to 4294967295, got '4294967296'"),
    "a huge number": ("base 0xe0", f"base {HUGE}", "base is a number from 0 to 4294967295"),
    "huge hex": ("base 0xe0", f"base 0x{HUGE}", "base is a number from 0 to 4294967295"),
    "a negative number": ("base 0xe0", "base -1", "from 0 to 4294967295, got '-1'"),
    "a fraction": ("base 0xe0", "base 1.5", "base is a whole number, got '1.5'"),
    "a float too large": ("base 0xe0", "base 0, scale 1e39", "scale is too large for float32"),
    "an endless exponent": ("base 0xe0", f"base 0, scale 1e{HUGE}", "scale is too large"),
    "a float in hex": ("base 0xe0", "base 0, scale 0x10", "scale is a decimal number"),
    "a word for a number": ("base 0xe0", "base low", "expected a number for base, got 'low'"),
    "too few numbers": ("dims [2, 5, 3, 7], strides [336", "dims [2, 5], strides [336",
                        "dims has 4 numbers, got 2"),
    "too many numbers": ("dims [2, 5, 3, 7], strides [336", "dims [2, 5, 3, 7, 1], strides [336",
                         "expected ']' behind the 4 numbers of dims"),
    "an open list": ("3, 7], strides [336", "3, 7, strides [336", "expected ']' behind"),
    "a field twice": ("base 0xe0", "base 1, base 2", "base is given twice"),
    "a missing field": ("base 0xe0, ", "", "tensor %bricks lacks base (byte address"),
    "an unknown operand": ("output %bricks", "output %brick", "output: there is no tensor %brick"),
    "an unknown op": ("op %y, input %plain", "op %z, input %plain", "op: there is no op %z"),
    "a number as a label": ("output %bricks", "output 4", "expected a label such as %x for output"),
    "a label twice": ("tensor %done", "tensor %half", "tensor %half stands in line"),
    "a label of nothing": ("tensor %done", "tensor %", "a label with no name"),
    "a label without %": ("tensor %done", "tensor done", "expected a label such as tensor %x"),
    "a huge label": ("tensor %done", f"tensor %done#{HUGE}", "at most 9 digits follows #"),
    "a TOA twice": ("toa 3:", "toa 2:", "toa 2 stands in line"),
    "a TOA without number": ("toa 3:", "toa:", "expected the TOA's number, as in toa 0, got ':'"),
    "a huge TOA number": ("toa 3:", f"toa {HUGE}:", "at most ten digits"),
    "a wait twice": ("wait dma_in 2", "wait dma_in 2, wait dma_in 1", "wait dma_in is given twice"),
    "wait and waits": ("wait dma_in 2", "wait dma_in 2, waits [0, 0, 0, 0]", "not both"),
    "an unknown unit": ("wait dma_in 2", "wait dma 2", "unknown wait 'dma': did you mean mac"),
    "a wait for the future": ("wait dma_in 2", "wait dma_in 3", "bad_wait (0x1f): TOA 2 waits"),
    "a string that does not end": ('symbol "x"', 'symbol "x', "a string that does not end"),
    "a bad escape": ('symbol "x"', r'symbol "\q"', "escapes are those of JSON"),
    "a control character": ('symbol "x"', r'symbol "\u0007"', "a name holds no control characters"),
    "a surrogate": ('symbol "x"', r'symbol "\ud800"', "a name holds no control characters"),
    "no name at an offset": ('symbol "x"', "symbol 77", "bad_symbol"),
    "a missing comma": ("space sram, dtype u8", "space sram dtype u8", "expected ',' or the end"),
    "a comma too many": ("layout nchw16c", "layout nchw16c,", "expected a field such as base"),
    "another mark": ("base 0xe0", "base = 1", "unexpected '='"),
    "no colon": ("tensor %done:", "tensor %done", "expected ':', got 'base'"),
    "an unknown statement": ("tensor %done", "tenser %done", "did you mean tensor"),
    "no statement": ("tensor %done", "7 %done", "expected a statement: blob, header"),
    "another container": ("container_version 1", "container_version 2", "container version 2"),
    "an unknown target": ('target "edge"', 'target "edgy"', "no target 'edgy': known are edge,"),
    "a target by path": ('target "edge"', 'target "a/b.toml"', "no target 'a/b.toml'"),
    "a long target": ('target "edge"', 'target "0123456789abcdefg"', "target has at most 16 bytes"),
    "another version": ("abi_minor 2", "abi_minor 7", "abi_minor (0x21)"),
    "a field of the file": ("container_version 1", "length 1", "unknown field 'length'"),
    "a CRC": ("std 1.0", "std 1.0, crc 1", "unknown field 'crc'"),
    "a field in two lines": ("known_answer:", "header: macs 1\nknown_answer:",
                             "macs is given twice"),
    "an extent that does not fit": ("strides [336, 336", "strides [4294967295, 4294967295",
                                    "extent comes out as"),
    "a rule of the firmware": ("base 0xe0", "base 0xe1", "misaligned (0x33): tensor 4 (bricks)"),
    "a rule of a kernel": ("input %bricks, p", "input %x, p", "bad_operands (0x3d): TOA 3 (%y)"),
    "a count of shapes": ("rank 4, dtype i8, tensor %x", "rank 5, dtype i8, tensor %x",
                          "bad_count (0x1a): interface tensor 0"),
    "data that is no hex": ("params: input_multiplier 1073741824, inner_low -128, inner_high 127",
                            "data: 00zz", "data is pairs of hex digits, got 'z'"),
    "half a byte": ("params: input_multiplier 1073741824, inner_low -128, inner_high 127",
                    "data: 000", "one lacks its second"),
    "a float that is none": ("params: ", "floats: 1.5, 1e39\nparams: ", "floats is too large for"),
    "a word too large": ("params: ", "words: 2147483648\nparams: ", "a word is from -2147483648"),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_named_at_its_line(name: str) -> None:
    old, new, message = MISTAKES[name]
    first = TEXT[: TEXT.index(old)].count("\n") + 1
    found = mistakes(TEXT.replace(old, new, 1))
    assert any(message in text for text in found), found
    assert any(int(text.split(":")[0]) in range(first, first + 10) for text in found)
    assert all(len(text) < 1000 for text in found)


@pytest.mark.parametrize("keyword", [p.keyword for p in PARTS.values() if not p.many] + ["blob"])
def test_a_missing_section_is_named(keyword: str) -> None:
    lines = [line for line in TEXT.splitlines() if not line.startswith(keyword)]
    assert any(f"there is no {keyword}" in text for text in mistakes("\n".join(lines)))


def test_all_mistakes_are_found_in_one_run_in_order_and_without_echoes() -> None:
    text = TEXT.replace("base 0xe0", "base x").replace("opcode rescale", "opcode scale")
    text = text.replace("output %done", "output %gone").replace("macs 0, cycles 0", "cycles 0")
    numbers = [int(found.split(":")[0]) for found in mistakes(text)]
    wanted = ["header", "tensor %bricks", "toa 3", "toa 4"]
    assert numbers == [line_of(start) for start in wanted]


def test_all_descriptors_that_the_firmware_refuses_are_named_in_one_run() -> None:
    text = TEXT.replace("base 0xe0", "base 0xe1").replace("base 0x380", "base 0x381")
    numbers = [int(found.split(":")[0]) for found in mistakes(text)]
    assert numbers == [line_of("tensor %bricks"), line_of("tensor %half")]
    blob = assemble(text.encode(), checked=False).blob
    assert same_bytes(assemble(text.encode(), checked=False).program, checked=False)
    assert len(blob) > 0


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "there is no blob"),
        (b"\xff\xfe", "not UTF-8 text: byte 0xff"),
        (b'op %y: kind "\xc3(', "1:14: not UTF-8 text: byte 0xc3"),
        (b"\0" * 100, r"unexpected '\x00'"),
        (b"x" * (2 << 20), "a line has at most 1048576 bytes"),
        (b'"' * (1 << 19), "expected a statement"),
        (b"toa 1:" + b"[" * (1 << 19), "expected a field"),
        (b"names: " + b'"a",' * (1 << 13), "expected a name in quotes"),
    ],
)
def test_what_is_no_text_is_refused_at_once(raw: bytes, message: str) -> None:
    assert any(message in found for found in mistakes(raw))


def test_endless_mistakes_and_texts_end_early() -> None:
    assert len(mistakes(b"?\n" * (1 << 20))) < 1100
    assert "at most 256 MiB" in mistakes(bytes(MAX_TEXT_BYTES + 1))[0]


NUMBERS = st.integers(-(2**70), 2**70).map(str) | st.floats(width=32).map(str)
WORDS = ("none", "%y", "%half", "sram", "i32", "nhwc", "mac", "copy", "clear|wide", "[0]", "]", ",")
VALUES = NUMBERS | st.sampled_from(WORDS)
NEAR = st.sampled_from([-16, -1, 1, 2, 16])
VALUE = r"-?(?:0x[0-9a-f]+|[0-9]+(?:\.[0-9]+)?)|[a-z0-9_|]+|%[a-z]+"
CLAUSE = re.compile(rf"(?<=[ \[])(?:{VALUE})(?=[,\] \n])")
PLACES = [m.span() for m in CLAUSE.finditer(TEXT, TEXT.index("blob:"))]


@settings(deadline=None, max_examples=150)
@given(st.sampled_from(PLACES), VALUES | NEAR)
def test_a_random_edit_gives_a_blob_that_boots_or_is_refused(
    place: tuple[int, int], value: str | int
) -> None:
    start, end = place
    old = TEXT[start:end]
    if isinstance(value, int):
        value = str(int(old, 0) + value) if old.lstrip("-").isdigit() else str(value)
    raw = (TEXT[:start] + value + TEXT[end:]).encode()
    try:
        blob, program, _ = assemble(raw)
    except SourceError:
        return
    assert write_blob(boot(blob, EDGE).program) == blob
    same_bytes(program)


@settings(deadline=None, max_examples=100)
@given(st.integers(0, len(TEXT)), st.integers(0, 40), st.text(string.printable, max_size=8))
def test_random_damage_to_the_text_is_never_a_traceback(at: int, cut: int, new: str) -> None:
    with suppress(SourceError):
        assemble((TEXT[:at] + new + TEXT[at + cut :]).encode())


# --- the form -----------------------------------------------------------------------------------


def test_the_form_names_fields_that_there_are() -> None:
    names = {name for kind in RECORDS for name in kind.FIELDS}
    assert set(HEX) <= names
    for part in PARTS.values():
        assert settled(part.kind) <= set(part.kind.FIELDS)
    assert len(OPERANDS) == Toa.FIELDS["tensors"].count
    assert len(WAIT_FLAGS) == Toa.FIELDS["waits"].count
    assert [unit.value for unit in WAIT_FLAGS] == [1, 2, 3, 4]
    assert "input" in clause_names(Toa)


def test_usual_values_fit_their_fields() -> None:
    program = rescaler().builder.build()
    text = text_of(program)
    toa = next(line for line in text.splitlines() if line.startswith("toa 4"))
    bare = re.sub(r", (flags|cycles) [^,/]*", "", toa.split("  //")[0])
    made = assemble(text.replace(toa, f"{bare}, cycles 1").encode(), checked=False).program
    assert made.toas[4] == replace(program.toas[4], flags=ToaFlag(0))


def test_json_states_every_field_and_names_what_points() -> None:
    program = rescaler().builder.build()
    made = as_json(program)
    assert made["tensors"][4]["symbol"] == "bricks"
    assert made["tensors"][4]["dtype"] == DType.I8.text
    assert made["tensors"][4]["layout"] == Layout.NCHW16C.name.lower()
    assert made["toas"][5]["tensors"] == [6, None, None, None, 1]
    assert made["toas"][5]["flags"] == ["clear", "write", "wait_vector"]
    assert set(made["tensors"][0]) == set(fields_of(TensorDescriptor))
    assert set(made["sources"][0]) == set(fields_of(SourceEntry))
    assert made["interface"][0]["direction"] == "input"
    assert made["tensors"][0]["space"] == Space.ARENA.name.lower()
    assert made["toas"][0]["unit"] == Unit.DMA_IN.name.lower()
