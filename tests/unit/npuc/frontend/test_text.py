"""The text front end: what parses, and what each mistake is told."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from npuabi.enums import DType, Layout, Space
from npuc.diagnostics import CompileError
from npuc.frontend.limits import MAX_TEXT_BYTES
from npuc.frontend.source import load_source
from npuc.frontend.text import check_constants, parse_file, parse_text
from npuc.ir.const import Const
from npuc.ir.core import Graph
from npuc.ir.types import Buffer, Place, Quant, TensorType
from npuc.ir.verifier import verify
from tests.work import calls


def graph(*lines: str, argument: str = "tensor<1x4xf32>") -> Graph:
    """Return a graph of one argument %x and the given lines."""
    return parse_text("\n".join([f"graph @g(%x: {argument}) {{", *lines, "}"]))


def errors(*lines: str, argument: str = "tensor<1x4xf32>") -> list[str]:
    """Return each mistake as `line:column: text`; the first of *lines* is line 2."""
    with pytest.raises(CompileError) as caught:
        graph(*lines, argument=argument)
    return [f"{d.location.line}:{d.location.column}: {d.text}" for d in caught.value.diagnostics]


def file_error(path: Path) -> str:
    with pytest.raises(CompileError) as caught:
        parse_file(path)
    return str(caught.value)


def constant(text: str) -> Const:
    made = graph(f"  %c = const {text}", "  %y = relu(%x)", "  return %y")
    (op,) = (op for op in made.ops if isinstance(op, Const))
    return op


ONE_LINE = {
    "%y = relo(%x)": "2:6: unknown op 'relo', did you mean relu",
    "%y = qqqq(%x)": "2:6: unknown op 'qqqq'",
    "%y = relu(%x, %x)": "2:6: relu takes 1 operands (x), got 2",
    "%y = relu()": "2:6: relu takes 1 operands (x), got 0",
    "%y = relu(none)": "2:6: relu needs its operand x",
    "%y, %z = relu(%x)": "2:10: relu gives 1 result, 2 named",
    "relu(%x)": "2:1: relu gives 1 result, 0 named",
    "%y = relu(%w)": "2:11: %w is not defined",
    "%y = relu(%y)": "2:11: %y is used before its definition in line 2",
    "%x = relu(%x)": "2:1: %x is defined already in line 1",
    "%y = relu(%x) {a = 1}": "2:16: relu has no attribute 'a': it has none",
    "%y = flatten(%x) {axes = 1}": "2:19: flatten has no attribute 'axes', did you mean axis",
    "%y = flatten(%x) {axis = 1, axis = 1}": "2:29: attribute axis is given twice",
    "%y = flatten(%x) {axis = 1.5}": "2:26: axis is a whole number, got 1.5",
    "%y = flatten(%x) {axis = true}": "2:26: axis is a whole number, got true",
    "%y = flatten(%x) {axis = [1]}": "2:26: axis is a whole number, got [1]",
    "%y = flatten(%x) {axis = 9223372036854775808}": "2:26: 9223372036854775808 does not fit",
    "%y = clip(%x) {max = 1e999}": "2:22: 1e999 is too large for a float",
    "%y = split(%x) {split = 2}": "2:25: split is a list of whole numbers, got 2",
    "%y = relu(%x) : tensor<1x5xf32>": "2:17: relu: the stated type is tensor<1x5xf32>, the",
    "%y = relu(%x) : tensor<1x4xi8>": "2:17: relu: the stated type is tensor<1x4xi8>, the",
    "%y = relu(%x) : tensor<-1x4xf32>": "2:24: dim 0 is '-1': a dim is a whole number from 0",
    "%y = relu(%x) : tensor<1x2147483648xf32>": "2:26: dim 1 is '2147483648': a dim is",
    "%y = relu(%x) : tensor<1xx4xf32>": "2:26: dim 1 is '': a dim is",
    "%y = relu(%x) : tensor<1x4>": "2:26: '4' is no element type, expected one of i8",
    "%y = relu(%x) : tensor<1x4xf64>": "2:28: 'f64' is no element type",
    "%y = relu(%x) : tensor<1x1x1x1x1x1x1x1x1xf32>": "2:24: a tensor has at most 8 dims, got 9",
    "%y = relu(%x) : tensor<65536x65536xf32>": "2:24: tensor<65536x65536xf32> has 4294967296 el",
    "%y = relu(%x) : tensor<1x4xi64, q<scale = 1.0, zp = 0>>": (
        "2:33: i64 takes no scale and zero point"
    ),
    "%y = relu(%x) : tensor<1x4xi8, q<scale = 0.0, zp = 0>>": "2:42: a scale is a finite number",
    "%y = relu(%x) : tensor<1x4xi8, q<scale = -1.0, zp = 0>>": "2:42: a scale is a finite",
    "%y = relu(%x) : tensor<1x4xi8, q<scale = inf, zp = 0>>": "2:42: a scale is a finite number",
    "%y = relu(%x) : tensor<1x4xi8, q<scale = 1e-60, zp = 0>>": "2:42: a scale is a finite",
    "%y = relu(%x) : tensor<1x4xi8, q<scale = 1.0, zp = 128>>": "2:52: a zero point of i8 is",
    "%y = relu(%x) : tensor<1x4xi8, q<scale = 1.0, zp = 0.5>>": "2:52: a zero point of i8 is",
    "%y = relu(%x) : tensor<1x4xi8, q<scale = 1.0>>": "2:32: q<...> states no zp",
    "%y = relu(%x) : tensor<1x4xi8, q<size = 1.0>>": "2:34: size is unknown or given twice",
    "%y = relu(%x) : tensor<1x4xi8, q<axis = 1, scale = [1.0], zp = [0]>>": "2:52: scale has 1 v",
    "%y = relu(%x) : tensor<1x4xi8, q<axis = 2, scale = [1.0], zp = [0]>>": "2:41: axis is from 0",
    "%y = relu(%x) : tensor<1x4xi8, q<axis = 0, scale = 1.0, zp = [0]>>": "2:52: with an axis",
    "%y = relu(%x) : tensor<1x4xf32, nchv>": "2:33: 'nchv' is unknown or given twice",
    "%y = relu(%x) : buffer<1x4xi8, sram>": "2:17: a buffer states strides",
    "%y = relu(%x": "2:13: the line ends too early, expected ) or ,",
    "%y = relu(%x))": "2:14: unexpected ')', expected",
    '%y = relu(%x) {a = "b}': "2:20: a string that does not end on its line",
    "%y = relu(%x) \x00": "2:15: unexpected '\\x00'",
    "%y = const splat(1.0)": "2:6: const needs a type",
    "%y = const(%x)": "2:11: unexpected '('",
    "%y, %z = const splat(1.0) : tensor<1xf32>": "2:10: const gives one result",
    "%y = const splat(1.0) : tensor<?xf32>": "2:25: a constant is a tensor without dynamic",
    "%y = const splat(inf) : tensor<1xf32>": "2:12: value [] is inf",
    "%y = const splat(1e300) : tensor<1xf32>": "2:12: value [] is inf",
    "%y = const splat(true) : tensor<1xf32>": "2:12: splat takes one number",
    "%y = const splat(300) : tensor<1xi8>": "2:12: values from 300 to 300 do not fit into i8",
    "%y = const splat(0.5) : tensor<1xi8>": "2:12: i8 takes whole numbers, got 0.5",
    "%y = const spla(1.0) : tensor<1xf32>": "2:12: unknown data 'spla', did you mean splat",
    "%y = const random() : tensor<1xf32>": "2:12: random needs a whole number as seed",
    "%y = const random(seed = -1) : tensor<1xf32>": "2:12: seed is from 0 to 2^63 - 1, got -1",
    "%y = const random(seed = 1, std = -1.0) : tensor<1xf32>": "2:12: mean 0.0 and std -1.0",
    "%y = const random(seed = 1, std = inf) : tensor<1xf32>": "2:12: mean 0.0 and std inf",
    "%y = const random(seed = 1, sdt = 1.0) : tensor<1xf32>": "2:29: random takes seed = 7",
    "%y = const random(seed = 1, seed = 1) : tensor<1xf32>": "2:29: seed is given twice",
    "%y = const random(seed = 1) : tensor<1xi8>": "2:12: random makes f32, not i8",
    "%y = const random(seed = 1) : tensor<16777216x17xf32>": "2:12: tensor<16777216x17xf32> has 2",
    "%y = const random(seed = 1) : tensor<1048576x1048576xf32>": "2:38: tensor<1048576x1048576x",
    "%y = const random(seed = 1) : tensor<1099511627776xf32>": "2:38: dim 0 is '1099511627776'",
    "%y = const dense([1.0, 2.0]) : tensor<3xf32>": "2:18: the numbers have the shape 2, the ty",
    "%y = const dense([[1.0], [2.0, 3.0]]) : tensor<2x1xf32>": "2:18: rows of unequal length",
    "%y = const dense([1.0, 2.0) : tensor<2xf32>": "2:27: expected numbers in brackets",
    "%y = const dense([NaN]) : tensor<1xf32>": "2:18: dense takes finite numbers: got NaN",
    "%y = const dense([1e999]) : tensor<1xf32>": "2:12: value [0] is inf",
    "%y = const dense([true]) : tensor<1xi8>": "2:18: expected numbers that fit into 64 bits",
    "%y = const dense([18446744073709551615]) : tensor<1xi64>": "2:18: expected numbers that fit",
    "%y = const dense([200]) : tensor<1xi8>": "2:12: values from 200 to 200 do not fit into i8",
    f"%y = const dense({'[' * 99999}) : tensor<1xf32>": "2:18: lists are nested deeper than 16",
    '%y = const hex("zz") : tensor<1xi8>': "2:12: hex takes a string of pairs of hex digits",
    '%y = const hex("00") : tensor<2xi8>': "2:12: hex holds 1 bytes, tensor<2xi8> has 2",
    '%y = const file("\\ud800") : tensor<2xi8>': '2:17: "\\ud800" is no valid string',
}


@pytest.mark.parametrize("line", ONE_LINE, ids=lambda line: line[:60])
def test_one_mistake_gives_one_error_at_its_place(line: str) -> None:
    found = errors(line, "%fine = relu(%x)", "return %fine")
    assert len(found) == 1
    assert found[0].startswith(ONE_LINE[line])


FRAMES = {
    "": "1:1: there is no graph",
    "// nothing": "1:1: there is no graph",
    "graph @g(%x: tensor<1xf32>) {": "1:1: the graph has no outputs",
    "graph @g(%x: tensor<1xf32>) {\nreturn\n}": "2:1: the graph has no outputs",
    "graph @g(%x: tensor<1xf32>) {\nreturn %x": "2:1: the graph does not end",
    "graph @g(%x: tensor<1xf32>) {\nreturn %x, %x\n}": "2:12: %x is returned twice",
    "graph @g(%x: tensor<1xf32>, %x: tensor<1xf32>) {\nreturn %x\n}": "1:29: %x is defined alre",
    "graph @g(%x: tensor<1xf32>) {\nreturn %x\n}\nreturn %x": "4:1: text after the end",
    "graph @g(%x: tensor<1xf32>) {\nreturn %x\n%y = relu(%x)\n}": "3:1: a statement after return",
    "%y = relu(%x)\nreturn %y\n}": "1:1: expected graph @name",
    "graph @g(%x: tensor<1xf32>) attributes {calibratio = 1} {\nreturn %x\n}": "1:41: graph has no",
    "graph @g(%x: tensor<1xf32>) attributes {calibration = 1} {\nreturn %x\n}": "1:55: calibration",
    "graph g(%x: tensor<1xf32>) {\n%y = relu(%x)\nreturn %y\n}": "1:7: unexpected 'g', expected a",
}


@pytest.mark.parametrize("text", FRAMES)
def test_a_broken_frame_is_told_with_its_place(text: str) -> None:
    with pytest.raises(CompileError) as caught:
        parse_text(text)
    first = caught.value.diagnostics[0]
    assert f"{first.location.line}:{first.location.column}: {first.text}".startswith(FRAMES[text])


def test_a_broken_header_hides_no_other_mistake_and_makes_none() -> None:
    with pytest.raises(CompileError) as caught:
        parse_text("graph g(%x: tensor<1xf32>) {\n%y = relu(%x)\n%z = relo(%y)\nreturn %z\n}")
    assert [d.location.line for d in caught.value.diagnostics] == [1, 3]


def test_what_depends_on_a_mistake_is_no_second_mistake() -> None:
    found = errors("%a = relo(%x)", "%b = relu(%a)", "%c = add(%b, %a)", "return %c")
    assert len(found) == 1


def test_the_stated_type_of_a_wrong_op_serves_its_readers() -> None:
    found = errors(
        "%a = relo(%x) : tensor<1x4xf32>", "%b = relu(%a) : tensor<1x5xf32>", "return %b"
    )
    assert [f.split(":")[0] for f in found] == ["2", "3"]


def test_two_ops_that_write_one_value_are_an_error_that_names_it() -> None:
    """C12."""
    assert errors("%t = relu(%x)", "%t = relu(%x)", "return %t") == [
        "3:1: %t is defined already in line 2"
    ]


def test_values_and_ops_have_names_of_their_own() -> None:
    """C41: a value may be called as an op is."""
    made = graph("%split = relu(%x)", "%relu = identity(%split)", "return %relu")
    assert [op.inputs[0].name for op in made.ops] == ["x", "split"]


def test_a_message_shows_the_line_with_a_caret() -> None:
    with pytest.raises(CompileError) as caught:
        parse_text("graph @g(%x: tensor<1xf32>) {\n  %y = relo(%x)\n  return %y\n}", file="a.txt")
    assert str(caught.value).splitlines() == [
        "a.txt:2:8: error: unknown op 'relo', did you mean relu or relu6 or prelu; "
        "npuc ops lists all ops",
        "    %y = relo(%x)",
        "         ^",
    ]


def test_a_long_line_is_shown_around_the_caret() -> None:
    padding = " " * 5000
    with pytest.raises(CompileError) as caught:
        parse_text(f"graph @g(%x: tensor<1xf32>) {{\n{padding}%y = relo(%x)\n  return %y\n}}")
    _, shown, caret = str(caught.value).splitlines()
    assert len(shown) < 200
    assert shown[caret.index("^") :].startswith("relo")


def test_terminal_escapes_of_the_source_are_not_printed() -> None:
    with pytest.raises(CompileError) as caught:
        parse_text("graph @g(%x: tensor<1xf32>) {\n%y = relo(%x) // \x1b[31m\n  return %y\n}")
    assert "\x1b" not in str(caught.value)


@pytest.mark.parametrize("name", ["\\u0000", "\\n", "\\u001b[2J", "\u202e"])
def test_a_name_holds_no_control_characters(name: str) -> None:
    with pytest.raises(CompileError) as caught:
        parse_text(f'graph @g(%x: tensor<1xf32>) {{\n  %"a{name}" = relu(%x)\n  return %x\n}}')
    assert "2:3: error: a name holds no control characters" in str(caught.value)
    assert str(caught.value).splitlines()[0].isprintable()


def test_a_number_of_endless_digits_is_refused_in_the_users_words() -> None:
    digits = "9" * 10_000
    with pytest.raises(CompileError) as caught:
        parse_text(
            "graph @g(%x: tensor<1xf32>) {\n"
            f"  %w = const dense([{digits}]) : tensor<1xf32>\n  return %x\n}}"
        )
    assert "dense takes finite numbers: one has thousands of digits" in str(caught.value)


def test_of_many_mistakes_the_first_hundred_are_shown() -> None:
    wrong = "\n".join(f"  %y{n} = relo(%x)" for n in range(1000))
    with pytest.raises(CompileError) as caught:
        parse_text(f"graph @g(%x: tensor<1xf32>) {{\n{wrong}\n  return %x\n}}")
    assert len(caught.value.diagnostics) == 1000
    assert str(caught.value).count("error:") == 100
    assert str(caught.value).count("did you mean") == 20
    assert str(caught.value).endswith("and 900 more mistakes: mend these first")


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_both_line_ends_and_a_byte_order_mark_are_read(tmp_path: Path, end: str) -> None:
    path = tmp_path / "g.txt"
    lines = ["// ü", "", "graph @g(%x: tensor<1x4xf32>) { // head", "  return %x", "}", ""]
    path.write_bytes(b"\xef\xbb\xbf" + end.join(lines).encode())
    assert [v.name for v in parse_file(path).outputs] == ["x"]


def test_bytes_that_are_not_utf8_are_told_with_their_offset(tmp_path: Path) -> None:
    path = tmp_path / "g.txt"
    path.write_bytes(b"graph @g() {\n  \xff\n}")
    assert file_error(path) == f"{path}:2:3: error: not UTF-8 text: byte 0xff at offset 15"


def test_a_text_above_the_limit_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "g.txt"
    with path.open("wb") as stream:
        stream.truncate(MAX_TEXT_BYTES + 1)
    assert "at most 64 MiB" in file_error(path)


def test_a_source_knows_its_folder(tmp_path: Path) -> None:
    path = tmp_path / "g.txt"
    path.write_text("x")
    assert load_source(path).folder == tmp_path


def test_an_output_that_is_an_input_parses() -> None:
    made = graph("return %x")
    assert made.outputs == made.arguments


def test_an_empty_tensor_keeps_its_shape() -> None:
    """C30."""
    made = graph("%y = relu(%x)", "return %y", argument="tensor<1x0x32xf32>")
    assert made.outputs[0].tensor.dims == (1, 0, 32)


def test_a_left_out_operand_is_none() -> None:
    made = graph("%w = const splat(1.0) : tensor<2x4xf32>", "%y = dense(%x, %w, none)", "return %y")
    assert made.outputs[0].owner is not None
    assert made.outputs[0].owner.operands[2] is None


def test_names_may_hold_any_character_in_quotes() -> None:
    made = graph('%"a/b:0 //" = relu(%x)', 'return %"a/b:0 //"')
    assert made.outputs[0].name == "a/b:0 //"


def test_infinity_is_a_float() -> None:
    made = graph("%y = clip(%x) {min = -inf, max = inf}", "return %y")
    owner = made.outputs[0].owner
    assert owner is not None
    assert (owner.attributes["min"], owner.attributes["max"]) == (-math.inf, math.inf)


TYPES = [
    TensorType((), DType.F32),
    TensorType((None, 3), DType.F32),
    TensorType((1, 8, 8, 16), DType.I8, Quant.per_tensor(0.05, -3), Layout.NCHW16C),
    TensorType((2, 3), DType.I8, Quant((0.1, 0.2), (0, -1), axis=0)),
    Buffer(
        TensorType((1, 16, 8, 8), DType.I8, Quant.per_tensor(0.1, 0), Layout.NCHW16C),
        (1024, 1024, 128, 16),
        Place(Space.SRAM, 65536),
        lane=4,
        bank=1,
    ),
    Buffer(TensorType((1, 1, 1, 9), DType.U8), (9, 9, 9, 1), Place(Space.ARENA)),
]


@pytest.mark.parametrize("stated", TYPES, ids=str)
def test_every_type_parses_back_from_its_print(stated: TensorType | Buffer) -> None:
    assert graph("return %x", argument=str(stated)).arguments[0].type == stated


def test_a_stated_type_adds_its_quantisation() -> None:
    quantised = "tensor<1x4xi8, q<scale = 0.5, zp = 1>>"
    made = graph(f"%y = quantize(%x) : {quantised}", "return %y")
    assert str(made.outputs[0].type) == quantised


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("dense([[1.0, 0.5]]) : tensor<1x2xf32>", [[1.0, 0.5]]),
        ("dense([-1, 1e-3]) : tensor<2xf32>", [-1, np.float32(0.001)]),
        ("dense(3) : tensor<i32>", 3),
        ('hex("0000803f000000bf") : tensor<2xf32>', [1.0, -0.5]),
        ('hex("") : tensor<0x3xf32>', np.zeros((0, 3))),
        ("splat(-7) : tensor<2x2xi8>", [[-7, -7], [-7, -7]]),
    ],
)
def test_written_constants_have_their_values(text: str, values: object) -> None:
    op = constant(text)
    assert op.value().dtype == op.result.tensor.numpy
    np.testing.assert_array_equal(op.value(), np.asarray(values))
    assert not op.value().flags.writeable


def test_a_random_constant_is_of_the_documented_generator() -> None:
    """By hand from the recipe: one PCG64 word a sample, its 16-bit fields summed and scaled."""
    step = 0.05 / math.sqrt((2**32 - 1) / 3)
    expected = []
    for word in np.random.PCG64(7).random_raw(3):
        fields = sum(int(word) >> shift & 0xFFFF for shift in (0, 16, 32, 48))
        expected.append(np.float32(1.0 + (fields - 131070) * step))
    op = constant("random(seed = 7, mean = 1.0, std = 0.05) : tensor<3xf32>")
    assert op.value().tolist() == expected


def test_an_elided_constant_parses_but_has_no_value() -> None:
    made = graph(
        '%c = const elided("crc32:89abcdef") : tensor<9xf32>', "%y = relu(%x)", "return %y"
    )
    with pytest.raises(CompileError, match=r"2:6: error: const: the numbers of .* were left out"):
        check_constants(made)


def chain(count: int) -> str:
    lines = [f"%v{i + 1} = relu(%v{i})" for i in range(count)]
    return "\n".join(["graph @g(%v0: tensor<1x4xf32>) {", *lines, f"return %v{count}", "}"])


def test_twenty_thousand_ops_parse_without_recursion() -> None:
    """C11."""
    made = parse_text(chain(20_000))
    assert len(made) == 20_000
    verify(made)


def test_the_work_of_parsing_grows_with_the_number_of_ops() -> None:
    """C11."""
    texts = [chain(n) for n in (1, 500, 1000)]
    start, half, whole = (calls(partial(parse_text, text)) for text in texts)
    assert whole - start < 2.1 * (half - start)


def test_a_ladder_of_diamonds_parses() -> None:
    """C11."""
    lines, top = [], "x"
    for i in range(2000):
        lines += [
            f"%a{i} = relu(%{top})",
            f"%b{i} = identity(%{top})",
            f"%c{i} = add(%a{i}, %b{i})",
        ]
        top = f"c{i}"
    assert len(graph(*lines, f"return %{top}")) == 6000
