"""Differences by meaning: an edit of a blob's text is told as what it changes, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from npuabi.container import Program
from npuabi.target import load_target
from npufw.asm import assemble
from npufw.diff import compare
from npufw.disasm import disassemble
from tests.builders import EDGE
from tests.unit.npufw.programs import rescaler

PROGRAM = rescaler().builder.build()
TEXT = "\n".join(disassemble(PROGRAM, EDGE)) + "\n"
TOTALS = "TOAs 6; tensors 9; bytes of constants 64; cycles 0"
OP = "op %y (line 1): "


def told(program: Program, *, addresses: bool = False) -> list[str]:
    """Return the lines on what differs from the rescaler to *program*."""
    return list(compare((PROGRAM, EDGE), (program, EDGE), addresses=addresses).lines())


def edited(*edits: tuple[str, str]) -> Program:
    text = TEXT
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    return assemble(text.encode(), checked=False).program


EDITS: dict[str, tuple[list[tuple[str, str]], list[str]]] = {
    "a clamp": ([("clamp [-10, 127]", "clamp [0, 127]")],
                [OP + "clamp [-10, 127] -> [0, 127]"]),
    "one of two": ([("output %bricks, wait", "output %bricks, kernel [2, 2], wait")],
                   [OP + "kernel [1, 1] -> [2, 2] in 1 of 2 TOAs"]),
    "a transfer": ([("output %plain", "output %plain, setup_cycles 3")],
                   [OP + "dma_in setup_cycles 2 -> 3 in 1 of 2 TOAs"]),
    "precision": ([("opcode rescale, unit vector, precision int8",
                    "opcode rescale, unit vector, precision fp16")],
                  [OP + "precision int8 -> int8+fp16"]),
    "an opcode": ([("opcode rescale", "opcode max_pool")],
                  [OP + "opcode dma_in+copy+rescale+dma_out -> dma_in+copy+max_pool+dma_out"]),
    "a bank": ([("base 0x380", "base 0x20380")],
               [OP + "banks 0 -> 0,2",
                "not shown: addresses of 1 op (--addresses shows them)"]),
    "a quantisation": ([("tensor %half: base 0x380", "tensor %half: scale 0.5, base 0x380")],
                       [OP + "input scale 0.0 -> 0.5 in 1 of 2 TOAs; "
                        "output scale 0.0 -> 0.5"]),
    "dims of a stripe": ([("tensor %done: base 0x620, dims [2, 5, 3, 7]",
                           "tensor %done: base 0x620, dims [2, 5, 3, 6]")],
                         [OP + "stripes 3 of 2x5x3x7 -> 3 of 2x5x3x6; dma_out input dims "
                          "[2, 5, 3, 7] -> [2, 5, 3, 6]"]),
    "parameters": ([("input_multiplier 1073741824", "input_multiplier 1073741825")],
                   [OP + "parameters input_multiplier 1073741824 -> 1073741825; "
                    "constants differ in 1 of 64 bytes"]),
    "an address": ([("base 0x380", "base 0x3a0")],
                   ["not shown: addresses of 1 op (--addresses shows them)"]),
    "a wait": ([("wait vector 3", "wait vector 2")],
               ["not shown: waits of 1 op (--addresses shows them)"]),
    "cycles": ([("wait vector 3, cycles 1", "wait vector 3, cycles 5")],
               ["not shown: cycles of 1 op (--addresses shows them)"]),
    "a header": ([("rounding double", "rounding even"), ("generation 1", "generation 2")],
                 ["header generation 1 -> 2", "header rounding double -> even"]),
    "an answer": ([("output_crc 0x0", "output_crc 0x1")],
                  ["known_answer output_crc 0x0 -> 0x1"]),
    "an interface": ([('symbol "y", shape [2, 5, 3, 7]', 'symbol "z", shape [2, 5, 3, 7]')],
                     ["interface output %y there -> gone", "interface output %z missing -> there"]),
    "a shape": ([('symbol "y", shape [2, 5, 3, 7]', 'symbol "y", shape [2, 5, 7, 3]')],
                ["interface output %y: shape [2, 5, 3, 7] -> [2, 5, 7, 3]"]),
    "a line": ([("line 1, column", "line 2, column")], ["source map: places of 1 op"]),
    "a kind": ([('kind ""', 'kind "relu"')], [OP + "op none -> relu"]),
    "names": ([("blob:", 'names: "spare"\nblob:')],
              ["no op differs: only the order of records or names does, or bytes nobody reads"]),
}  # fmt: skip


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_is_told_as_what_it_changes(name: str) -> None:
    edits, lines = EDITS[name]
    assert told(edited(*edits))[: len(lines)] == lines
    assert len(told(edited(*edits))) == len(lines) + 1


def test_equal_programs_are_said_to_be() -> None:
    assert told(PROGRAM) == ["the programs are equal"]
    assert compare((PROGRAM, EDGE), (PROGRAM, EDGE)).as_dict()["equal"] is True


def test_totals_close_the_report() -> None:
    assert told(edited(("clamp [-10, 127]", "clamp [0, 127]")))[-1] == TOTALS
    assert told(edited(("macs 0, cycles 0", "macs 0, cycles 1234")))[-1].endswith(
        "cycles 0 -> 1,234"
    )


def test_table_order_and_numbers_do_not_matter() -> None:
    lines = TEXT.splitlines()
    tensors = [line for line in lines if line.startswith("tensor")]
    turned = [line for line in lines if not line.startswith("tensor")] + tensors[::-1]
    program = assemble("\n".join(turned).encode()).program
    assert program != PROGRAM
    (line, totals) = told(program)
    assert line.startswith("no op differs")
    assert totals == TOTALS


def ops(names: str) -> Program:
    """Return the rescaler with its vector TOAs spread over ops of these names, in that order."""
    listed = {name: i for i, name in enumerate(sorted(names))}
    made = (f'op %{name}: kind "", file "", line 1, column 1, macs 0' for name in listed)
    text = TEXT.replace('op %y: kind "", file "", line 1, column 1, macs 0', "\n".join(made))
    program = assemble(text.replace("op %y", "op %a").encode()).program
    toas = list(program.toas)
    for number, name in zip((2, 3, 4), names, strict=True):
        toas[number] = replace(toas[number], op=listed[name])
    return replace(program, toas=tuple(toas))


def compared(a: Program, b: Program) -> list[str]:
    return list(compare((a, EDGE), (b, EDGE)).lines())


def test_ops_that_run_in_another_order_are_listed_once() -> None:
    found = compare((ops("abc"), EDGE), (ops("bca"), EDGE))
    assert found.reordered == ("%a",)
    assert compare((ops("abc"), EDGE), (ops("abc"), EDGE)).equal


def test_ops_of_one_side_only_are_listed() -> None:
    found = compared(PROGRAM, ops("abc"))
    assert "only in a: op %y (line 1)" in found
    assert "only in b: op %b (line 1)" in found


def test_addresses_are_shown_on_demand() -> None:
    program = edited(("base 0x380", "base 0x20380"))
    (line, _) = told(program, addresses=True)
    assert "banks 0 -> 0,2; copy input at sram 0x380 -> sram 0x20380; rescale output" in line
    slower = edited(("wait vector 3, cycles 1", "wait vector 2, cycles 5"))
    wanted = OP + "other waits in 1 of 6 TOAs; cycles of its TOAs 6 -> 10"
    assert told(slower, addresses=True)[0] == wanted
    values = compare((PROGRAM, EDGE), (program, EDGE)).as_dict()
    assert values["ops"][0]["changes"] == (
        {"what": "banks", "before": "0", "after": "0,2", "note": ""},
    )
    assert values["hidden"] == {"addresses": 1}


def test_blobs_for_two_targets_are_compared() -> None:
    tiny = load_target("tiny")
    other = rescaler(target=tiny).builder.build()
    lines = list(compare((PROGRAM, EDGE), (other, tiny)).lines())
    assert 'header target "edge" -> "tiny"' in lines
