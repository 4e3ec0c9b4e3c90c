"""Boot refuses each broken rule by its code and its words, with the descriptor's place."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from npuabi.container import Program, write_blob
from npuabi.enums import Direction, DType, Layout, Mode, Opcode, Precision, Space, ToaFlag, Unit
from npuabi.errors import AbiError, ErrorCode
from npuabi.records import NO_TENSOR
from npuabi.target import load_target
from npufw.boot import boot
from tests.builders import EDGE, Builder
from tests.unit.npufw.programs import rescaler

E = ErrorCode


def with_tensor(name: str, **fields: Any) -> Program:
    made = rescaler()
    program, index = made.builder.build(), made.tensors[name]
    tensors = list(program.tensors)
    tensors[index] = replace(tensors[index], **fields)
    return replace(program, tensors=tuple(tensors))


def with_toa(name: str, **fields: Any) -> Program:
    made = rescaler()
    program, index = made.builder.build(), made.toas[name]
    toas = list(program.toas)
    toas[index] = replace(toas[index], **fields)
    return replace(program, toas=tuple(toas))


def refusal(program: Program) -> AbiError:
    with pytest.raises(AbiError) as caught:
        boot(write_blob(program), EDGE)
    return caught.value


TENSORS: list[tuple[str, dict[str, Any], ErrorCode, str]] = [
    ("bricks", {"dims": (2, 0, 3, 7)}, E.BAD_DIMS, "dims are at least 1"),
    ("bricks", {"lane": 16}, E.BAD_LAYOUT, "is below 16, got 16"),
    ("plain", {"lane": 1}, E.BAD_LAYOUT, "is below 1, got 1"),
    ("bricks", {"strides": (336, 336, 112, 0)}, E.BAD_STRIDES, "strides overlap"),
    ("bricks", {"strides": (336, 336, 96, 16)}, E.BAD_STRIDES, "a stride of 96 steps into 112"),
    ("bricks", {"extent": 671}, E.BAD_EXTENT, "extent is 671"),
    ("bricks", {"base": 2**20 - 16}, E.OUT_OF_SRAM, "of sram, which has 1048576"),
    ("x", {"base": 2**31}, E.OUT_OF_ARENA, "of arena"),
    ("head", {"base": 16}, E.OUT_OF_CONSTANTS, "of constants, which has 64"),
    ("bricks", {"alignment_log2": 20}, E.MISALIGNED, "is no multiple of 2^20"),
    ("bricks", {"alignment_log2": 255}, E.MISALIGNED, "is no multiple of 2^255"),
    ("bricks", {"base": 8, "alignment_log2": 0}, E.MISALIGNED, "is a multiple of 16: 0x8"),
    ("words", {"base": 2, "alignment_log2": 0}, E.MISALIGNED, "is a multiple of 4: 0x2"),
    ("bricks", {"strides": (360, 360, 120, 16), "extent": 712}, E.BAD_STRIDES, "multiples of 16"),
    ("bricks", {"bank": 3}, E.BAD_BANK, "bank is 3, the base lies in bank 0"),
    ("x", {"bank": 1}, E.BAD_BANK, "bank is 1"),
    ("bricks", {"scale": float("inf")}, E.BAD_SCALE, "scale is finite"),
    ("bricks", {"scale": -1.0}, E.BAD_SCALE, "scale is finite"),
    ("bricks", {"zero_point": 128}, E.BAD_SCALE, "zero point 128 is outside"),
    ("x", {"dims": (2, 5, 3, 6), "extent": 470}, E.BAD_DIMS, "on the device"),
    ("x", {"dtype": DType.U8}, E.BAD_DTYPE, "is i8, its tensor u8"),
    ("x", {"layout": Layout.NHWC}, E.BAD_LAYOUT, "lies as nhwc, expected nchw"),
    ("x", {"space": Space.SRAM}, E.BAD_OPERANDS, "the host reaches the arena only"),
    ("x", {"strides": (120, 24, 8, 1), "extent": 239}, E.BAD_PITCH, "rows of pitch 16"),
    ("x", {"base": 16}, E.MISALIGNED, "no multiple of the target's 256"),
]


@pytest.mark.parametrize(("name", "fields", "code", "text"), TENSORS)
def test_a_tensor_that_breaks_a_rule_is_refused_by_its_name(
    name: str, fields: dict[str, Any], code: ErrorCode, text: str
) -> None:
    error = refusal(with_tensor(name, **fields))
    assert (error.code, name in error.detail) == (code, True), error
    assert text in error.detail


WHOLE = ToaFlag.CLEAR | ToaFlag.WRITE
TOAS: list[tuple[str, dict[str, Any], ErrorCode, str]] = [
    ("save", {"unit": Unit.MAC}, E.BAD_PRECISION, "dma_out runs on unit dma_out, not mac"),
    ("rescale", {"mode": Mode.OUTPUT_STATIONARY}, E.BAD_PRECISION, "mode of rescale is none"),
    ("rescale", {"precision": Precision.INT16}, E.BAD_PRECISION, "register says int16"),
    ("rescale", {"setup_cycles": 1}, E.BAD_PRECISION, "setup is at least 2"),
    ("rescale", {"tensors": (4, NO_TENSOR, NO_TENSOR, NO_TENSOR, 5)}, E.BAD_OPERANDS, "lacks"),
    ("rescale", {"tensors": (4, 4, 8, NO_TENSOR, 5)}, E.BAD_OPERANDS, "takes no operand weights"),
    ("rescale", {"tensors": (0, NO_TENSOR, 8, NO_TENSOR, 5)}, E.BAD_OPERANDS, "reach SRAM only"),
    ("rescale", {"tensors": (4, NO_TENSOR, 7, NO_TENSOR, 5)}, E.BAD_DTYPE, "expected i32"),
    ("rescale", {"clamp": (-129, 0)}, E.BAD_SCALE, "no range of i8"),
    ("rescale", {"opcode": Opcode.DEQUANTIZE}, E.BAD_DTYPE, "output is i8, expected f16 or f32"),
    ("save", {"tensors": (2, NO_TENSOR, NO_TENSOR, NO_TENSOR, 2)}, E.BAD_OPERANDS, "never written"),
    ("save", {"tensors": (0, NO_TENSOR, NO_TENSOR, NO_TENSOR, 1)}, E.BAD_OPERANDS, "direction"),
    ("load", {"tensors": (0, NO_TENSOR, NO_TENSOR, NO_TENSOR, 7)}, E.BAD_DIMS, "differ in dims"),
    ("load", {"tensors": (0, NO_TENSOR, NO_TENSOR, NO_TENSOR, 4)}, E.BAD_DIMS, "in layout"),
]


@pytest.mark.parametrize(("name", "fields", "code", "text"), TOAS)
def test_a_toa_that_breaks_a_rule_is_refused_by_its_name(
    name: str, fields: dict[str, Any], code: ErrorCode, text: str
) -> None:
    error = refusal(with_toa(name, **fields))
    assert error.code is code, error
    assert text in error.detail
    assert f"TOA {rescaler().toas[name]} (%y)" in error.detail


def test_a_dma_may_start_at_multiples_of_16_only() -> None:
    program = with_tensor("plain", base=8, alignment_log2=0)
    error = refusal(program)
    assert error.code is ErrorCode.MISALIGNED
    assert "the destination starts at 0x8, no multiple of 16" in error.detail


def test_an_arena_larger_than_ddr_is_refused_before_it_is_allocated() -> None:
    program = rescaler().builder.build()
    header = replace(program.header, arena_bytes=EDGE.ddr_bytes + 1)
    error = refusal(replace(program, header=header))
    assert error.code is ErrorCode.OUT_OF_DDR
    assert str(EDGE.ddr_bytes) in error.detail


def test_hostile_32_bit_values_are_refused_without_overflow() -> None:
    top = 2**32 - 1
    for field in ("base", "extent"):
        assert refusal(with_tensor("bricks", **{field: top}))
    for position in range(4):
        for field in ("dims", "strides"):
            values = [2, 5, 3, 7] if field == "dims" else [336, 336, 112, 16]
            values[position] = top
            program = with_tensor("bricks", **{field: tuple(values)})
            if field == "strides" and position == 1:
                boot(write_blob(program), EDGE)  # one brick: its stride is never used
            else:
                assert refusal(program)


def test_a_whole_program_boots_on_its_target_and_on_no_other() -> None:
    raw = rescaler().builder.blob()
    image = boot(raw, EDGE)
    assert [port.name for port in image.inputs + image.outputs] == ["x", "y"]
    assert image.timeline.cycles > 0
    with pytest.raises(AbiError) as caught:
        boot(raw, load_target("tiny"))
    assert caught.value.code is ErrorCode.TARGET_NAME


def test_ports_of_up_to_rank_two_lie_as_nhwc_so_that_channels_are_the_row() -> None:
    for layout, text in ((Layout.NHWC, ""), (Layout.NCHW, "lies as nchw, expected nhwc")):
        b = Builder()
        x = b.tensor((1, 40, 1, 1), space=Space.ARENA, layout=layout)
        b.port(Direction.OUTPUT, "x", (1, 40), x)
        held = b.tensor((1, 40, 1, 1), layout=layout)
        b.toa(Opcode.DMA_OUT, input=held, output=x)
        if text:
            assert text in refusal(b.build()).detail
        else:
            assert boot(b.blob(), EDGE).outputs[0].shape == (1, 40)


def test_ranges_of_k_must_form_whole_sums() -> None:
    made = rescaler()
    b, bricks = made.builder, made.tensors["bricks"]
    words = b.tensor((1, 1, 1, 64), dtype=DType.I32, layout=Layout.NCHW)
    weights = b.tensor((5, 5, 1, 1), layout=Layout.OIHW16I16O)
    first, second = b.tensor((2, 5, 3, 7)), b.tensor((2, 5, 3, 7))
    clear, write = ToaFlag.CLEAR, ToaFlag.WRITE
    none = ToaFlag(0)
    for chain, text in (
        ([(write, first)], "does not clear"),
        ([(clear, first)], "does not write"),
        ([(clear, first), (clear | write, first)], "never written"),
        ([(clear, first), (write, second)], "differ in output or width"),
        ([(clear, first), (write | ToaFlag.WIDE, first)], "differ in output or width"),
    ):
        toas = list(b.toas)
        for flags, output in chain:
            b.toa(
                Opcode.CONV,
                input=bricks,
                weights=weights,
                parameters=words,
                output=output,
                flags=flags | none,
            )
        with pytest.raises(AbiError, match=text):
            boot(b.blob(), EDGE)
        b.toas = toas
