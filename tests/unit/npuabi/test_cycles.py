"""The pass formula against published counts, and TOA costs against sums done by hand."""

from __future__ import annotations

import time
from typing import Any

import pytest

from npuabi.costs import ConvShape, array_grid, conv_cost
from npuabi.cycles import Work, macs_of, pass_cycles, waits_of, work_of, works_of
from npuabi.enums import DType, Layout, Mode, Opcode, Precision, Space, ToaFlag, Unit
from npuabi.errors import AbiError
from npuabi.geometry import Geometry, dense_strides
from npuabi.records import NO_TENSOR, TensorDescriptor, Toa
from npuabi.target import load_target

EDGE = load_target("edge")
QUAD = load_target("edge-quad")
TINY = load_target("tiny")
OS, WS = Mode.OUTPUT_STATIONARY, Mode.WEIGHT_STATIONARY
KIB = 1 << 10
Shape = tuple[int, int, int]


def conv(side: int, inputs: int, outputs: int, kernel: int) -> Shape:
    """(m, k, n) of a convolution whose output is side x side."""
    return side * side, kernel * kernel * inputs, outputs


RESNET8 = [
    conv(32, 3, 16, 3),
    conv(32, 16, 16, 3),
    conv(32, 16, 16, 3),
    conv(16, 16, 32, 3),
    conv(16, 32, 32, 3),
    conv(16, 16, 32, 1),
    conv(8, 32, 64, 3),
    conv(8, 64, 64, 3),
    conv(8, 32, 64, 1),
    (1, 64, 10),
]
RESNET8_OS = [3647, 11135, 11135, 5567, 10175, 1471, 5087, 9695, 991, 93]
RESNET8_WS = [2139, 9629, 9629, 5435, 10871, 603, 7919, 15839, 879, 187]


def resnet18() -> list[Shape]:
    shapes = [conv(112, 3, 64, 7), *[conv(56, 64, 64, 3)] * 4]
    for side, inputs in ((28, 64), (14, 128), (7, 256)):
        outputs = 2 * inputs
        shapes += [conv(side, inputs, outputs, 3), *[conv(side, outputs, outputs, 3)] * 3]
        shapes += [conv(side, inputs, outputs, 1)]
    return [*shapes, (1, 512, 1000)]


@pytest.mark.parametrize(("mode", "expected"), [(OS, RESNET8_OS), (WS, RESNET8_WS)])
def test_pass_formula_gives_scale_sims_count_of_every_resnet8_layer(
    mode: Mode, expected: list[int]
) -> None:
    assert [pass_cycles(mode, *shape) for shape in RESNET8] == expected


@pytest.mark.parametrize(("mode", "expected"), [(OS, 58_996), (WS, 63_130)])
def test_pass_formula_gives_scale_sims_total_of_resnet8(mode: Mode, expected: int) -> None:
    assert sum(pass_cycles(mode, *shape) for shape in RESNET8) == expected


@pytest.mark.parametrize(("mode", "expected"), [(OS, 8_005_533), (WS, 9_226_427)])
def test_pass_formula_gives_scale_sims_total_of_resnet18(mode: Mode, expected: int) -> None:
    assert sum(pass_cycles(mode, *shape) for shape in resnet18()) == expected


def resnet50() -> list[Shape]:
    shapes, inputs = [conv(112, 3, 64, 7)], 64
    for side, middle, count in ((56, 64, 3), (28, 128, 4), (14, 256, 6), (7, 512, 3)):
        shapes.append(conv(side, inputs, 4 * middle, 1))
        for block in range(count):
            before = side if block or side == 56 else 2 * side
            shapes.append(conv(before, inputs, middle, 1))
            shapes.append(conv(side, middle, middle, 3))
            shapes.append(conv(side, middle, 4 * middle, 1))
            inputs = 4 * middle
    return [*shapes, (1, 2048, 1000)]


def test_resnet50_in_the_better_mode_of_each_layer_meets_the_known_bound() -> None:
    cycles = 0
    for m, k, n in resnet50():
        costs = [conv_cost(mode, ConvShape(m, k, n), EDGE) for mode in (OS, WS)]
        cycles += min(max(c[0], -(-max(c[1:]) // 2)) for c in costs)
    assert cycles == pytest.approx(16.09e6, rel=0.005)


def test_a_mode_without_a_pass_formula_is_refused() -> None:
    with pytest.raises(ValueError, match="DEPTHWISE"):
        pass_cycles(Mode.DEPTHWISE, 16, 16, 16)


def tensor(
    *dims: int,
    base: int = 0,
    dtype: DType = DType.I8,
    layout: Layout = Layout.NCHW16C,
    space: Space = Space.SRAM,
    strides: tuple[int, ...] | None = None,
    lane: int = 0,
) -> TensorDescriptor:
    strides = strides or dense_strides(dims, dtype, layout)
    return TensorDescriptor(
        base=base,
        dims=dims,
        strides=strides,
        space=space,
        dtype=dtype,
        layout=layout,
        alignment_log2=4,
        bank=0,
        lane=lane,
        zero_point=0,
        scale=0.0,
        symbol=0,
        extent=Geometry(dims, strides, dtype, layout, lane).extent,
    )


_UNIT = {
    Opcode.DMA_IN: Unit.DMA_IN,
    Opcode.DMA_OUT: Unit.DMA_OUT,
    Opcode.CONV: Unit.MAC,
    Opcode.DEPTHWISE: Unit.MAC,
}


def toa(opcode: Opcode, *indices: int | None, **fields: Any) -> Toa:
    tensors = tuple(NO_TENSOR if i is None else i for i in indices)
    values: dict[str, Any] = {
        "unit": _UNIT.get(opcode, Unit.VECTOR),
        "precision": Precision.INT8,
        "mode": Mode.NONE,
        "flags": ToaFlag.CLEAR | ToaFlag.WRITE,
        "op": 0,
        "waits": (0, 0, 0, 0),
        "kernel": (1, 1),
        "stride": (1, 1),
        "dilation": (1, 1),
        "pads": (0, 0, 0, 0),
        "groups": 1,
        "clamp": (-128, 127),
        "setup_cycles": 2,
        "sample_taps": 0,
        "cycles": 0,
    }
    return Toa(opcode=opcode, tensors=tensors, **(values | fields))


def conv_tensors(side: int, inputs: int, outputs: int, kernel: int) -> list[TensorDescriptor]:
    """Input, weights, parameters, residual, output in banks 0, 1, 2, 3, 4; no padding of rows."""
    bank = EDGE.bank_bytes
    weights = (outputs, inputs, kernel, kernel)
    head = 16 + 48 * -(-outputs // 16)
    return [
        tensor(1, inputs, side, side),
        tensor(*weights, base=bank, layout=Layout.OIHW16I16O),
        tensor(1, 1, 1, head, base=2 * bank, dtype=DType.I32, layout=Layout.NCHW),
        tensor(1, outputs, side, side, base=3 * bank),
        tensor(1, outputs, side, side, base=4 * bank),
    ]


def conv_work(mode: Mode, tensors: list[TensorDescriptor], kernel: int, **fields: Any) -> Work:
    step = toa(Opcode.CONV, 0, 1, 2, None, 4, mode=mode, kernel=(kernel, kernel), **fields)
    return work_of(step, tensors, EDGE)


def test_output_stationary_takes_k_cycles_a_pass_and_a_word_of_each_stream_a_cycle() -> None:
    work = conv_work(OS, conv_tensors(8, 32, 32, 3), 3)
    passes, k = 4 * 2, 9 * 32
    assert work.compute_cycles == passes * k
    assert dict(work.bank_words) == {
        0: passes * k,
        1: passes * k,
        2: 4 + 12 * 2,
        4: 64 * 2,
    }
    assert work.alone_cycles == passes * k


def test_weight_stationary_holds_a_tile_for_at_most_64_pixels() -> None:
    work = conv_work(WS, conv_tensors(10, 32, 48, 1), 1)
    tiles = 2 * 3
    assert work.compute_cycles == tiles * 100
    assert dict(work.bank_words)[0] == tiles * 100
    assert dict(work.bank_words)[1] == tiles * 2 * 16


def test_weight_stationary_of_one_pixel_waits_for_its_weights() -> None:
    work = conv_work(WS, conv_tensors(1, 64, 16, 1), 1)
    assert work.compute_cycles == 4 * 8
    assert work.alone_cycles == 4 * 16, "the weights lie in one bank: a word a cycle"


def test_weight_stationary_cuts_pixels_into_equal_chunks() -> None:
    cycles, inputs, weights = conv_cost(WS, ConvShape(pixels=68, terms=16, outputs=16), EDGE)
    assert (cycles, inputs, weights) == (68, 68, 2 * 16)


def test_wide_sums_halve_the_pixels_that_a_tile_is_held_for() -> None:
    tensors = conv_tensors(8, 16, 16, 1)
    narrow = conv_work(WS, tensors, 1)
    wide = conv_work(WS, tensors, 1, flags=ToaFlag.CLEAR | ToaFlag.WRITE | ToaFlag.WIDE)
    assert (dict(narrow.bank_words)[1], dict(wide.bank_words)[1]) == (16, 32)


def test_a_packed_input_walks_exactly_the_taps_times_its_channels() -> None:
    tensors = conv_tensors(4, 3, 16, 3)
    tensors[0] = tensor(1, 3, 4, 4, layout=Layout.NHWC)
    tensors[1] = tensor(16, 3, 3, 3, base=EDGE.bank_bytes, layout=Layout.OIHW16O)
    assert conv_work(OS, tensors, 3).compute_cycles == 27
    assert conv_work(WS, tensors, 3).compute_cycles == 2 * 16


@pytest.mark.parametrize(
    ("precision", "factor"),
    [(Precision.INT8, 1), (Precision.INT16, 2), (Precision.FP16, 2), (Precision.FP32, 4)],
)
def test_wider_precisions_run_slower(precision: Precision, factor: int) -> None:
    work = conv_work(OS, conv_tensors(4, 16, 16, 1), 1, precision=precision)
    assert work.compute_cycles == 16 * factor


def test_only_the_last_k_range_writes_its_output() -> None:
    tensors = conv_tensors(4, 16, 16, 1)
    assert 4 not in dict(conv_work(OS, tensors, 1, flags=ToaFlag.CLEAR).bank_words)


def test_one_bank_for_input_and_weights_halves_the_speed() -> None:
    tensors = conv_tensors(4, 16, 16, 3)
    tensors[1] = tensor(16, 16, 3, 3, base=16 * KIB, layout=Layout.OIHW16I16O)
    work = conv_work(OS, tensors, 3)
    assert work.compute_cycles == 144
    assert work.alone_cycles == 288


def test_a_tensor_across_banks_shares_its_words_by_the_bytes_it_has_there() -> None:
    base = EDGE.bank_bytes - 1 * KIB
    tensors = [tensor(1, 16, 16, 16, base=base), tensor(1, 16, 16, 16, base=4 * EDGE.bank_bytes)]
    work = work_of(toa(Opcode.RESCALE, 0, None, None, None, 1), tensors, EDGE)
    assert work.bank_words == ((0, 64), (1, 192), (4, 256))


def test_depthwise_reads_each_input_word_once() -> None:
    tensors = [
        tensor(1, 32, 10, 10),
        tensor(1, 32, 3, 3, base=EDGE.bank_bytes),
        tensor(1, 32, 8, 8, base=2 * EDGE.bank_bytes),
    ]
    step = toa(Opcode.DEPTHWISE, 0, 1, None, None, 2, kernel=(3, 3), mode=Mode.DEPTHWISE)
    work = work_of(step, tensors, EDGE)
    assert work.compute_cycles == 4 * 2 * 9
    assert work.bank_words == ((0, 200), (1, 18), (2, 128))
    assert macs_of(step, tensors) == 64 * 32 * 9


def test_macs_count_logical_channels_only() -> None:
    tensors = conv_tensors(4, 20, 10, 3)
    step = toa(Opcode.CONV, 0, 1, 2, None, 4, mode=OS, kernel=(3, 3))
    assert macs_of(step, tensors) == 16 * 10 * 20 * 9
    assert macs_of(toa(Opcode.ADD, 0, None, 2, 3, 4), tensors) == 0


def test_four_arrays_take_a_quarter_of_the_passes() -> None:
    shape = ConvShape(pixels=256, terms=64, outputs=64)
    one, four = conv_cost(OS, shape, EDGE), conv_cost(OS, shape, QUAD)
    assert one == (16 * 4 * 64, 16 * 4 * 64, 16 * 4 * 64)
    assert four == (one[0] // 4, one[1] // 2, one[2] // 2), "a 2 x 2 grid shares its words"


def test_four_arrays_line_up_along_the_only_large_dim() -> None:
    shape = ConvShape(pixels=16, terms=64, outputs=64)
    assert conv_cost(OS, shape, QUAD) == (64, 64, 4 * 64)
    assert array_grid(4) == ((1, 4), (2, 2), (4, 1))


@pytest.mark.parametrize(
    ("opcode", "kernel", "target", "expected"),
    [
        (Opcode.MAX_POOL, (2, 2), EDGE, 64 * 2 * 4),
        (Opcode.AVG_POOL, (3, 3), EDGE, 64 * 2 * 9),
        (Opcode.ADD, (1, 1), EDGE, 64 * 2 * 2),
        (Opcode.RESCALE, (1, 1), EDGE, 64 * 2),
        (Opcode.RESCALE, (1, 1), QUAD, 64),
        (Opcode.RESCALE, (1, 1), TINY, 64 * 4),
        (Opcode.SOFTMAX, (1, 0), EDGE, 64 * 2 * 24),
        (Opcode.COPY, (1, 1), EDGE, 64 * 2),
    ],
)
def test_vector_ops_cost_their_lane_operations_on_whole_bricks(
    opcode: Opcode, kernel: tuple[int, int], target: Any, expected: int
) -> None:
    tensors = [tensor(1, 20, 8, 8), tensor(1, 20, 8, 8, base=8 * KIB)]
    step = toa(opcode, 0, None, None, None, 1, kernel=kernel)
    assert work_of(step, tensors, target).compute_cycles == expected


def test_a_global_pool_costs_a_lane_operation_for_each_input_pixel() -> None:
    tensors = [tensor(1, 32, 7, 7), tensor(1, 32, 1, 1, base=EDGE.bank_bytes)]
    work = work_of(toa(Opcode.GLOBAL_AVG_POOL, 0, None, None, None, 1), tensors, EDGE)
    assert work.compute_cycles == 2 * 49


def test_quantize_runs_at_the_float_rate() -> None:
    tensors = [tensor(1, 16, 4, 4, dtype=DType.F32), tensor(1, 16, 4, 4, base=EDGE.bank_bytes)]
    work = work_of(toa(Opcode.QUANTIZE, 0, None, None, None, 1), tensors, EDGE)
    assert work.compute_cycles == 256 // 4


def test_a_copy_to_another_lane_moves_one_element_a_cycle() -> None:
    tensors = [tensor(1, 16, 4, 4), tensor(1, 16, 4, 4, base=EDGE.bank_bytes, lane=4)]
    work = work_of(toa(Opcode.COPY, 0, None, None, None, 1), tensors, EDGE)
    assert work.compute_cycles == 256


def blob(count: int, base: int, space: Space) -> TensorDescriptor:
    return tensor(1, 1, 1, count, base=base, dtype=DType.U8, layout=Layout.NCHW, space=space)


@pytest.mark.parametrize(
    ("base", "count", "bursts"), [(0, 1024, 4), (16, 1024, 5), (240, 16, 1), (240, 32, 2)]
)
def test_dma_pays_a_whole_burst_for_each_cut(base: int, count: int, bursts: int) -> None:
    tensors = [blob(count, base, Space.CONSTANTS), blob(count, 0, Space.SRAM)]
    work = work_of(toa(Opcode.DMA_IN, 0, None, None, None, 1), tensors, EDGE)
    assert work.ddr_bytes == bursts * 256
    assert work.compute_cycles == bursts * 16
    assert work.latency_cycles == 100
    assert work.bank_words == ((0, count // 16),)


def test_dma_pays_for_each_separate_row_of_a_stripe() -> None:
    dims, bank = (1, 16, 4, 4), (1024, 1024, 1024, 16)
    tensors = [
        tensor(*dims, strides=bank, space=Space.ARENA, base=0),
        tensor(*dims, base=0),
    ]
    work = work_of(toa(Opcode.DMA_OUT, 1, None, None, None, 0), tensors, EDGE)
    assert work.ddr_bytes == 4 * 256
    assert work.bank_words == ((0, 16),)


def waiting(field: int) -> Toa:
    flags = ToaFlag.WAIT_DMA_IN
    return toa(Opcode.RESCALE, 1, None, None, None, 2, flags=flags, waits=(field, 0, 0, 0))


TENSORS = [
    blob(256, 0, Space.CONSTANTS),
    blob(256, 0, Space.SRAM),
    blob(256, 256, Space.SRAM),
]
LOAD = toa(Opcode.DMA_IN, 0, None, None, None, 1)


def test_a_wait_counts_only_when_its_flag_is_set() -> None:
    works = works_of(TENSORS, [LOAD, waiting(1)], EDGE)
    assert [w.waits for w in works] == [(None,) * 4, (1, None, None, None)]


def test_a_wait_past_65535_is_the_largest_count_that_was_reached() -> None:
    waits = waits_of([*[LOAD] * 65_540, waiting(3), waiting(65_535)])
    assert [counts[0] for counts in waits[-2:]] == [65_539, 65_535]


def test_a_wait_for_a_later_toa_is_refused_by_its_index() -> None:
    with pytest.raises(AbiError, match="toa 1 waits until DMA_IN has finished 2"):
        works_of(TENSORS, [LOAD, waiting(2), LOAD], EDGE)


@pytest.mark.parametrize(
    ("step", "text"),
    [
        (toa(Opcode.RESCALE, None, None, None, None, 1), "no input tensor"),
        (toa(Opcode.RESCALE, 1, None, None, None, 9), "names tensor 9"),
        (toa(Opcode.DMA_IN, 1, None, None, None, 2), "between SRAM and DDR"),
    ],
)
def test_a_toa_with_wrong_operands_is_refused(step: Toa, text: str) -> None:
    with pytest.raises(AbiError, match=text):
        work_of(step, TENSORS, EDGE)


def test_a_tensor_beyond_the_sram_is_refused() -> None:
    tensors = [blob(256, EDGE.sram_bytes - 128, Space.SRAM), TENSORS[1]]
    with pytest.raises(AbiError, match="ends at 1048704"):
        work_of(toa(Opcode.COPY, 0, None, None, None, 1), tensors, EDGE)


def test_five_thousand_toas_are_costed_in_a_second() -> None:
    tensors = [
        record
        for i in range(2_500)
        for record in (
            *conv_tensors(8, 32, 32 + i % 7, 3),
            blob(256 + 16 * i, 16 * i, Space.CONSTANTS),
            blob(256 + 16 * i, 0, Space.SRAM),
        )
    ]
    steps = []
    for i in range(0, len(tensors), 7):
        steps.append(toa(Opcode.DMA_IN, i + 5, None, None, None, i + 6))
        steps.append(toa(Opcode.CONV, i, i + 1, i + 2, None, i + 4, mode=OS, kernel=(3, 3)))
    begin = time.process_time()
    assert len(works_of(tensors, steps, EDGE)) == 5_000
    assert time.process_time() - begin < 1.0
