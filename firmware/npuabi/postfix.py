"""Programs of the opcode EVAL: a function of one or two numbers in postfix order, as int32 words.

Invariant: a program that ``decode`` accepts leaves exactly one number on a stack that never runs
empty nor holds more than ``MAX_DEPTH`` numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npuabi.enums import Primitive
from npuabi.errors import AbiError, ErrorCode

__all__ = ["ARITY", "MAX_DEPTH", "Instruction", "decode", "encode", "lane_ops"]

MAX_DEPTH = 8
"""Numbers a lane that the vector unit keeps."""

ARITY: dict[Primitive, int] = {
    **dict.fromkeys(Primitive, 1),
    **dict.fromkeys((Primitive.CONSTANT, Primitive.X, Primitive.Y), 0),
    **dict.fromkeys((Primitive.ADD, Primitive.SUB, Primitive.MUL, Primitive.DIV), 2),
    **dict.fromkeys((Primitive.MIN, Primitive.MAX, Primitive.LESS, Primitive.POW), 2),
    Primitive.SELECT: 3,
}
"""Numbers that a primitive takes from the stack; each puts one back."""

_SLOW: dict[Primitive, int] = {
    Primitive.DIV: 4,
    Primitive.SQRT: 4,
    Primitive.EXP: 8,
    Primitive.EXPM1: 8,
    Primitive.LOG: 8,
    Primitive.LOG1P: 8,
    Primitive.TANH: 8,
    Primitive.ERF: 8,
    Primitive.ERFC: 8,
    Primitive.POW: 16,
}


@dataclass(frozen=True, slots=True)
class Instruction:
    """One primitive; ``constant`` is what CONSTANT pushes."""

    primitive: Primitive
    constant: float = 0.0


def lane_ops(program: Iterable[Instruction]) -> int:
    """Return the lane operations that *program* takes an element, at least 1.

    Operands and constants are free, division and square root take 4, series 8, a power 16.
    """
    taken = (i.primitive for i in program if ARITY[i.primitive])
    return max(1, sum(_SLOW.get(primitive, 1) for primitive in taken))


def encode(program: Sequence[Instruction]) -> NDArray[np.int32]:
    """Return *program* as words; AbiError (BAD_FIELD) when its stack does not work out."""
    _check([instruction.primitive for instruction in program])
    words: list[int] = []
    for instruction in program:
        words.append(instruction.primitive)
        if instruction.primitive is Primitive.CONSTANT:
            words.append(int(np.float32(instruction.constant).view(np.int32)))
    return np.array(words, "<i4")


def decode(words: NDArray[Any]) -> tuple[Instruction, ...]:
    """Return the program that *words* hold, all of them.

    Raises AbiError (BAD_FIELD) for an unknown primitive, a constant that is cut off, and a stack
    that does not work out.
    """
    row = np.ascontiguousarray(words, "<i4").reshape(-1)
    program: list[Instruction] = []
    place = 0
    while place < len(row):
        primitive = _primitive(int(row[place]), place)
        place += 1
        constant = 0.0
        if primitive is Primitive.CONSTANT:
            if place == len(row):
                raise _fault("ends before its last constant")
            constant = float(row[place : place + 1].view("<f4")[0])
            place += 1
        program.append(Instruction(primitive, constant))
    _check([instruction.primitive for instruction in program])
    return tuple(program)


def _primitive(word: int, place: int) -> Primitive:
    try:
        return Primitive(word)
    except ValueError as error:
        raise _fault(f"has no primitive {word} (word {place})") from error


def _check(program: Sequence[Primitive]) -> None:
    depth = 0
    for place, primitive in enumerate(program):
        if depth < ARITY[primitive]:
            raise _fault(f"takes from an empty stack at step {place}")
        depth += 1 - ARITY[primitive]
        if depth > MAX_DEPTH:
            raise _fault(f"holds more than {MAX_DEPTH} numbers at step {place}")
    if depth != 1:
        raise _fault(f"leaves {depth} numbers, expected 1")


def _fault(text: str) -> AbiError:
    return AbiError(ErrorCode.BAD_FIELD, f"the program {text}")
