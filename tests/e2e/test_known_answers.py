"""The known answers of float blobs: a sound device passes, one that computes otherwise does not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from npuabi.container import read_blob, write_blob
from npuabi.enums import Space
from npuabi.errors import AbiError, ErrorCode
from npuc.driver import compile
from npufw.boot import boot
from npufw.engine import Engine
from npufw.selftest import selftest

MODEL = Path(__file__).parents[2] / "models" / "conv_bn_relu.txt"


@pytest.mark.parametrize("precision", ["fp16", "fp32"])
def test_a_float_blob_passes_and_fails_with_one_weight_changed(precision: str) -> None:
    made = compile(MODEL, precision=precision)
    answer = made.program.known_answer
    assert (answer.samples, answer.output_crc) == (256, 0)
    found = selftest(Engine(boot(made.blob, made.target)))
    assert found.passed
    assert found.worst < 0.5
    # The convolution's chunk: 64 bytes of head, 16 biases, weights: 16 outputs of a tap and input.
    tensors = [t for t in made.program.tensors if t.space is Space.CONSTANTS]
    first = max(tensors, key=lambda tensor: tensor.extent).base + 128
    constants = bytearray(made.program.constants)
    row = slice(first, first + 16 * (2 if precision == "fp16" else 4))
    constants[row] = np.roll(np.frombuffer(constants[row], np.uint8), 4).tobytes()
    broken = write_blob(replace(made.program, constants=bytes(constants)))
    again = selftest(Engine(boot(broken, made.target)))
    assert not again.passed
    assert again.worst > 1


def test_mixed_blobs_are_held_against_numbers_and_integer_ones_against_bits() -> None:
    mixed = compile(MODEL, precision="int8", keep={"c": "fp16"}).program
    assert mixed.known_answer.samples == 256
    assert compile(MODEL, precision="int16").program.known_answer.samples == 0


def test_samples_beyond_the_constants_are_refused() -> None:
    made = compile(MODEL, precision="fp16")
    answer = replace(made.program.known_answer, offset=len(made.program.constants) - 8)
    with pytest.raises(AbiError) as caught:
        write_blob(replace(made.program, known_answer=answer))
    assert caught.value.code is ErrorCode.BAD_INDEX
    many = replace(made.program.known_answer, samples=1 << 20)
    with pytest.raises(AbiError, match="samples of the known answer, at most"):
        write_blob(replace(made.program, known_answer=many))


def test_other_levels_carry_the_same_numbers() -> None:
    tables = []
    for level in (0, 2):
        made = compile(MODEL, precision="fp16", level=level)
        program = read_blob(made.blob, target=made.target).program
        answer = program.known_answer
        tables.append(program.constants[answer.offset :][: 8 * answer.samples])
    assert tables[0] == tables[1]
