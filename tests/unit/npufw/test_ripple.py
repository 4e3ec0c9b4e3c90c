"""Gate 2 on the digits network: what is read or computed again, how often, and what is refused."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from npuabi.enums import Opcode, Space
from npuabi.errors import AbiError, ErrorCode
from npufw.boot import Image
from npufw.defences import guarded
from npufw.defences.repair import TRIES
from npufw.defences.ripple import Ripple
from npufw.engine import Engine
from npufw.fault_models.nth import FailingCheck, ShortRead
from npufw.fault_models.spec import read_faults
from npufw.faults import Hook, Machine, Moment, Outcome, Phase
from npufw.gates.ripple import jobs_at
from npufw.gates.subject import load_subject
from npufw.nth import Nth

SUBJECT = load_subject()
INPUTS = {name: array[:1] for name, array in SUBJECT.inputs.items()}
RIGHT = Engine(SUBJECT.image).run(INPUTS)


def machine(*hooks: Hook, image: Image = SUBJECT.image) -> Engine:
    return Engine(image, hooks=guarded(image, hooks))


def of(spec: str) -> Hook:
    return read_faults([spec])[0].hook(SUBJECT.image)


def outcomes(engine: Engine) -> list[Outcome]:
    return [event.outcome for event in engine.drain()]


def assert_right(given: dict[str, NDArray[Any]]) -> None:
    for name, array in RIGHT.items():
        np.testing.assert_array_equal(given[name], array)


def survived(engine: Engine) -> ErrorCode | None:
    """Run a job; its outputs are right, or return the code with which it was refused."""
    try:
        given = engine.run(INPUTS)
    except AbiError as error:
        return error.code
    assert_right(given)
    return None


class Counts(Hook):
    """How often each TOA was computed."""

    def __init__(self) -> None:
        self.reads: dict[int, int] = {}

    def transferred(self, machine: Machine, moment: Moment, data: NDArray[Any]) -> NDArray[Any]:
        assert moment.step is not None
        self.reads[moment.step.index] = self.reads.get(moment.step.index, 0) + 1
        return data


def test_a_run_without_flips_is_right_costs_cycles_and_says_nothing() -> None:
    engine = machine()
    assert_right(engine.run(INPUTS))
    assert engine.log == ()
    assert 0 < engine.surcharge["ripple"] < SUBJECT.image.timeline.cycles // 5


@pytest.mark.parametrize("region", ["weights", "bias", "requant", "activations", "header"])
@pytest.mark.parametrize("seed", range(6))
def test_a_flip_before_the_check_is_repaired(region: str, seed: int) -> None:
    engine = machine(of(f"flip:region={region},seed={seed}"))
    code = survived(engine)
    assert code in ({None, ErrorCode.ACTIVATION_LOST} if region == "activations" else {None})
    found = outcomes(engine)
    assert found[:2] == [Outcome.INJECTED, Outcome.DETECTED]
    assert found[-1] is (Outcome.REPAIRED if code is None else Outcome.REFUSED)
    assert_right(engine.run(INPUTS))
    assert outcomes(engine) == []


def test_a_flip_may_come_at_a_cycle() -> None:
    whole = SUBJECT.image.timeline.cycles
    engine = machine(of(f"flip:region=weights,op=r5,seed=3,cycle={whole + 4000}"))
    for _ in range(2):
        assert_right(engine.run(INPUTS))
    events = engine.drain()
    assert [event.outcome for event in events] == [
        Outcome.INJECTED,
        Outcome.DETECTED,
        Outcome.REPAIRED,
    ]
    assert whole + 4000 <= events[0].cycle <= events[1].cycle


def test_constants_that_are_bad_in_ddr_are_read_three_times_and_refused_by_name() -> None:
    counts = Counts()
    engine = machine(of("flip:region=constants,op=r4,seed=1"), counts)
    with pytest.raises(AbiError) as refused:
        engine.run(INPUTS)
    assert refused.value.code is ErrorCode.CONSTANTS_LOST
    assert "r4.const, written by TOA 8 (%r4)" in str(refused.value)
    assert "bank " in str(refused.value)
    assert "its copy in DDR is bad, too" in str(refused.value)
    assert counts.reads[8] == 1 + TRIES
    extra = engine.surcharge["ripple"] - machine_cycles()
    assert 0 < extra <= TRIES * SUBJECT.image.works[8].alone_cycles
    with pytest.raises(AbiError):
        engine.run(INPUTS)  # The copy in DDR stays bad ...
    engine.reload()  # ... until the program is loaded again.
    assert_right(engine.run(INPUTS))


def machine_cycles() -> int:
    engine = machine()
    engine.run(INPUTS)
    return engine.surcharge["ripple"]


def test_a_bad_bank_is_refused_by_its_number_and_other_banks_go_on() -> None:
    engine = machine(of("stuck-bank:bank=5,value=1"))
    with pytest.raises(AbiError, match="bank 5"):
        engine.run(INPUTS)
    assert_right(machine(of("stuck-bank:bank=15,value=1")).run(INPUTS))


def test_an_input_is_refused_and_the_next_job_is_right() -> None:
    class HitsInput(Hook):
        due = True

        def at(self, machine: Machine, moment: Moment) -> None:
            if self.due and moment.phase is Phase.TOA_STARTS:
                self.due = False
                machine.memory.spaces[Space.ARENA][machine.image.inputs[0].tensor.base] ^= 1

    engine = machine(HitsInput())
    with pytest.raises(AbiError) as refused:
        engine.run(INPUTS)
    assert refused.value.code is ErrorCode.INPUT_LOST
    assert_right(engine.run(INPUTS))


def test_descriptors_that_are_bad_in_both_copies_are_refused() -> None:
    class HitsBoth(Hook):
        def at(self, machine: Machine, moment: Moment) -> None:
            if moment.phase is Phase.RUN_STARTS:
                row = machine.descriptors.toa_row(3)
                for copy in (0, 1):
                    raw = bytearray(machine.descriptors.read(row, copy))
                    raw[5] ^= 4
                    machine.descriptors.write(row, copy, bytes(raw))

    engine = machine(HitsBoth())
    with pytest.raises(AbiError) as refused:
        engine.run(INPUTS)
    assert refused.value.code is ErrorCode.DESCRIPTOR_LOST
    assert "TOA 3 (%image_q)" in str(refused.value)


@pytest.mark.parametrize("rate", [1e-6, 1e-5, 1e-3])
def test_what_finishes_while_bits_flip_has_the_bits_that_it_has_without(rate: float) -> None:
    jobs = jobs_at(SUBJECT, rate, 24, checked=True)
    assert jobs.changed == 0
    assert jobs.flips > 0
    assert (jobs.refused == 0) if rate <= 1e-6 else (jobs.refused > 0 or rate < 1e-4)


def test_accuracy_falls_to_near_chance_without_the_checks() -> None:
    jobs = jobs_at(SUBJECT, 1e-2, 40, checked=False)
    assert jobs.clean_top1 > 0.95
    assert jobs.top1 < 0.4
    assert jobs.changed == jobs.finished


def nth_failures(make: type[ShortRead] | type[FailingCheck], *, forever: bool) -> list[int]:
    """Let the n-th of the first job fail, for every n; return the codes of refused jobs."""
    codes: list[int] = []
    hook = make(Nth(0))
    engine = machine(hook)
    for n in range(1, 1000):
        engine.reload()
        hook.failing = failing = Nth(n, forever)
        code = survived(engine)
        if code is not None:
            codes.append(code)
        if not failing.reached:
            return codes
        hook.failing = Nth(0)
        assert_right(engine.run(INPUTS))
    raise AssertionError("every n of a thousand was reached")


def test_every_read_from_ddr_may_fail_once() -> None:
    # Inputs that came in short are read again from where they still are.
    assert nth_failures(ShortRead, forever=False) == []


def test_every_read_from_ddr_may_fail_from_then_on() -> None:
    codes = nth_failures(ShortRead, forever=True)
    reads = sum(s.toa.opcode is Opcode.DMA_IN for s in SUBJECT.image.steps)
    assert len(codes) == reads
    assert set(codes) <= {ErrorCode.CONSTANTS_LOST, ErrorCode.ACTIVATION_LOST}


def test_every_check_may_fail_once_or_from_then_on() -> None:
    once = nth_failures(FailingCheck, forever=False)
    assert set(once) <= {ErrorCode.INPUT_LOST, ErrorCode.ACTIVATION_LOST}
    always = nth_failures(FailingCheck, forever=True)
    assert set(always) <= {
        ErrorCode.INPUT_LOST,
        ErrorCode.ACTIVATION_LOST,
        ErrorCode.CONSTANTS_LOST,
    }
    assert len(always) > len(once)


@pytest.mark.parametrize("at", ["HEADER_READS", "TOA_READS"])
def test_no_flip_of_a_record_in_use_escapes_the_machines_rules(at: str) -> None:
    class Hits(Hook):
        row, place = 0, 0

        def at(self, machine: Machine, moment: Moment) -> None:
            if moment.phase is Phase[at] and not machine.descriptors.dirty:
                raw = bytearray(machine.descriptors.read(self.row))
                raw[self.place // 8] ^= 1 << self.place % 8
                machine.descriptors.write(self.row, 0, bytes(raw))

    hits = Hits()
    engine = Engine(SUBJECT.image, hooks=[hits, Ripple(SUBJECT.image)])
    for hits.row, hits.place in _bits(at, engine):
        engine.reload()
        with suppress(AbiError):
            engine.run(INPUTS)  # Whatever it gives: no other exception, no hang.
    hits.at = lambda machine, moment: None  # type: ignore[method-assign]
    engine.reload()
    assert_right(engine.run(INPUTS))


def _bits(at: str, engine: Engine) -> list[tuple[int, int]]:
    if at == "HEADER_READS":
        rows = [0, 1]
    else:
        first = engine.image.steps[5]
        rows = [2 + first.toa.tensors[0], 2 + len(engine.image.program.tensors) + first.index]
    return [(row, place) for row in rows for place in range(0, 480, 5)]
