"""The rules that every TOA obeys, before its kernel's own: operands, unit, sums.

Invariant: as in tensor_rules, rules are data and name themselves. Indices, names, ring and waits
are npuabi.checks' to prove, when the blob is read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from npuabi.enums import Space, ToaFlag, Unit
from npuabi.errors import ErrorCode
from npuabi.precision import register_of
from npufw.errors import FirmwareError
from npufw.kernels import KERNELS
from npufw.kernels.base import OPERANDS, Fault, Step

__all__ = ["TOA_RULES", "check_range", "check_step", "check_sums"]

_DMA = (Unit.DMA_IN, Unit.DMA_OUT)
_MIN_SETUP = 2


def _present(step: Step) -> Fault:
    kernel = KERNELS[step.toa.opcode]
    name = step.toa.opcode.name.lower()
    given = {n for n, t in zip(OPERANDS, step.tensors, strict=True) if t is not None}
    missing = kernel.required - given
    if missing:
        return ErrorCode.BAD_OPERANDS, f"{name} lacks operand {', '.join(sorted(missing))}"
    spare = given - kernel.required - kernel.optional
    if spare:
        return ErrorCode.BAD_OPERANDS, f"{name} takes no operand {', '.join(sorted(spare))}"
    return None


def _unit(step: Step) -> Fault:
    unit = KERNELS[step.toa.opcode].unit
    if step.toa.unit is not unit:
        text = f"{step.toa.opcode.name.lower()} runs on unit {unit.name.lower()}"
        return ErrorCode.BAD_PRECISION, f"{text}, not {step.toa.unit.name.lower()}"
    return None


def _mode(step: Step) -> Fault:
    modes = KERNELS[step.toa.opcode].modes
    if step.toa.mode not in modes:
        words = " or ".join(m.name.lower() for m in sorted(modes))
        text = (
            f"mode of {step.toa.opcode.name.lower()} is {words}, not {step.toa.mode.name.lower()}"
        )
        return ErrorCode.BAD_PRECISION, text
    return None


def _precision(step: Step) -> Fault:
    known = KERNELS[step.toa.opcode].precisions
    if step.toa.precision not in known:
        words = " or ".join(p.name.lower() for p in sorted(known))
        name, opcode = step.toa.precision.name.lower(), step.toa.opcode.name.lower()
        text = f"the precision register says {name}, {opcode} runs in {words}"
        return ErrorCode.BAD_PRECISION, text
    return None


def _register(step: Step) -> Fault:
    held = register_of(step.toa.unit, [None if t is None else t.dtype for t in step.tensors])
    if step.toa.precision is not held:
        name, held_name = step.toa.precision.name.lower(), held.name.lower()
        text = f"the precision register says {name}, the operands are {held_name}"
        return ErrorCode.BAD_PRECISION, text
    return None


def _setup(step: Step) -> Fault:
    if step.toa.setup_cycles < _MIN_SETUP:
        text = f"setup is at least {_MIN_SETUP} cycles, got {step.toa.setup_cycles}"
        return ErrorCode.BAD_PRECISION, text
    return None


def _sample(step: Step) -> Fault:
    if step.toa.sample_taps and step.toa.unit is not Unit.MAC:
        text = f"the sampling window stands at tap {step.toa.sample_taps}, expected 0 outside MAC"
        return ErrorCode.BAD_PRECISION, text
    return None


def _spaces(step: Step) -> Fault:
    if step.output.space is Space.CONSTANTS:
        return ErrorCode.BAD_OPERANDS, "constants are never written"
    if step.toa.unit in _DMA:
        return None
    for name, tensor in zip(OPERANDS, step.tensors, strict=True):
        if tensor is not None and tensor.space is not Space.SRAM:
            text = f"{name} lies in {tensor.space.name.lower()}, the units reach SRAM only"
            return ErrorCode.BAD_OPERANDS, text
    return None


TOA_RULES: tuple[Callable[[Step], Fault], ...] = (
    _unit,
    _mode,
    _precision,
    _setup,
    _sample,
    _present,
    _register,
    _spaces,
)
"""In this order; then the rules of the opcode's kernel."""


def check_step(step: Step) -> None:
    """Raise FirmwareError at the first rule that *step* breaks, its kernel's rules included."""
    for rule in TOA_RULES:
        fault = rule(step)
        if fault is not None:
            raise FirmwareError(fault[0], f"{step.where}: {fault[1]}")
    KERNELS[step.toa.opcode].check(step)


def check_sums(steps: Sequence[Step]) -> None:
    """Raise FirmwareError unless ranges of K come in chains: clear first, write last.

    Between them the MAC unit runs nothing else, and all name the same output.
    """
    open_step: Step | None = None
    for step in steps:
        if step.toa.unit is not Unit.MAC:
            continue
        clears = bool(step.toa.flags & ToaFlag.CLEAR)
        fault = _chain(open_step, step, clears)
        if fault is not None:
            raise FirmwareError(fault[0], f"{step.where}: {fault[1]}")
        open_step = None if step.toa.flags & ToaFlag.WRITE else step
    if open_step is not None:
        text = f"{open_step.where}: sums: the last range of K does not write"
        raise FirmwareError(ErrorCode.BAD_PRECISION, text)


def _chain(before: Step | None, step: Step, clears: bool) -> Fault:
    if before is None:
        text = "sums: the first range of K does not clear"
        return None if clears else (ErrorCode.BAD_PRECISION, text)
    if clears:
        return ErrorCode.BAD_PRECISION, "sums: clears sums that were never written"
    same = (step.toa.flags ^ before.toa.flags) & ToaFlag.WIDE == 0
    if not same or step.toa.tensors[4] != before.toa.tensors[4]:
        return ErrorCode.BAD_PRECISION, "sums: ranges of K differ in output or width"
    return None


def check_range(known: Step, given: Step) -> None:
    """Raise FirmwareError when *given*, read in the place of *known*, cannot go on with its sums.

    A range of K that is one of several keeps its output and its place among them.
    """
    whole = ToaFlag.CLEAR | ToaFlag.WRITE
    if known.toa.unit is not Unit.MAC or known.toa.flags & given.toa.flags & whole == whole:
        return
    marks = whole | ToaFlag.WIDE
    same = (known.toa.flags ^ given.toa.flags) & marks == 0 and known.output == given.output
    if not same or known.toa.opcode is not given.toa.opcode:
        text = f"{given.where}: sums: a range of K is not the one that its neighbours expect"
        raise FirmwareError(ErrorCode.BAD_PRECISION, text)
