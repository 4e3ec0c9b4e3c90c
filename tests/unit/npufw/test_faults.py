"""Fault hooks: where they enter, that they repeat, that they are logged, and that off they are not
there at all."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from npuabi.enums import Opcode, Space
from npufw.boot import Image, boot
from npufw.commands import run_blob
from npufw.engine import Engine
from npufw.fault_plan import plan_of
from npufw.faults import BitFlips, Hook, Machine, Moment, Phase
from tests.builders import EDGE, take
from tests.unit.npufw.programs import codes, expected, rescaler

_OF_TOAS = (
    Phase.TOA_STARTS,
    Phase.TOA_CHECKS,
    Phase.TOA_READS,
    Phase.TOA_WRITES,
    Phase.TOA_WRITTEN,
    Phase.TOA_DONE,
)


def image() -> Image:
    return boot(rescaler().builder.blob(), EDGE)


class Recorder(Hook):
    """Keeps every moment and what DMA read."""

    def __init__(self) -> None:
        self.moments: list[Moment] = []
        self.read: list[tuple[int, NDArray[Any]]] = []

    def at(self, machine: Machine, moment: Moment) -> None:
        self.moments.append(moment)

    def transferred(self, machine: Machine, moment: Moment, data: NDArray[Any]) -> NDArray[Any]:
        assert moment.step is not None
        self.read.append((moment.step.index, data.copy()))
        return data


def test_hooks_see_every_phase_in_the_order_of_the_cycles_from_run_to_run() -> None:
    seen = Recorder()
    device = Engine(image(), hooks=[seen])
    device.run({"x": codes(runs=2)})
    phases = [m.phase for m in seen.moments]
    assert phases[0] is Phase.LOADED
    run = phases[1 : 1 + len(phases) // 2]
    assert phases[1:] == run * 2
    assert run[:3] == [Phase.RUN_STARTS, Phase.HEADER_CHECKS, Phase.HEADER_READS]
    assert run[-3:] == [Phase.RUN_ENDS, Phase.OUTPUT_CHECKS, Phase.OUTPUT_READS]
    assert Counter(run[3:-3]) == dict.fromkeys(_OF_TOAS, 6)
    for toa in range(6):
        own = [m.phase for m in seen.moments if m.step and m.step.index == toa]
        assert own == [*_OF_TOAS] * 2
    cycles = [m.cycle for m in seen.moments]
    assert cycles == sorted(cycles)
    whole = device.image.timeline.cycles
    starts = [m.cycle for m in seen.moments if m.phase is Phase.RUN_STARTS]
    ends = [m.cycle for m in seen.moments if m.phase is Phase.OUTPUT_READS]
    assert (starts, ends) == ([0, whole], [whole, 2 * whole])
    slots = device.image.timeline.slots
    done = {m.step.index: m.cycle for m in seen.moments if m.step and m.cycle <= whole}
    assert done == {i: slot.end for i, slot in enumerate(slots)}


def test_a_write_lies_between_its_two_phases() -> None:
    made = rescaler()

    class Looks(Hook):
        def __init__(self) -> None:
            self.states: list[bool] = []

        def at(self, machine: Machine, moment: Moment) -> None:
            if moment.step is not None and moment.step.index == made.toas["rescale"]:
                record = machine.image.program.tensors[made.tensors["half"]]
                found = take(machine.memory.spaces[Space.SRAM], record)
                self.states.append(bool((found == expected(codes())).all()))

    looks = Looks()
    Engine(boot(made.builder.blob(), EDGE), hooks=[looks]).run({"x": codes()})
    assert looks.states == [False] * 4 + [True] * 2


def test_a_dma_read_can_be_replaced() -> None:
    class Fails(Hook):
        def transferred(self, machine: Machine, moment: Moment, data: NDArray[Any]) -> NDArray[Any]:
            step = moment.step
            assert step is not None
            return np.zeros_like(data) if step.toa.opcode is Opcode.DMA_OUT else data

    seen = Recorder()
    result = Engine(image(), hooks=[Fails(), seen]).run({"x": codes()})["y"]
    assert not result.any()
    toas = rescaler().toas
    assert [index for index, _ in seen.read] == [toas["head"], toas["load"], toas["save"]]
    assert not seen.read[-1][1].any()


def flips(space: Space = Space.SRAM, **changes: Any) -> BitFlips:
    fields: dict[str, Any] = {"cycle": 0, "seed": 3, "first": 0, "size": 64, "bits": 5, **changes}
    return BitFlips(space, **fields)


def test_flips_of_one_seed_are_the_same_bits_in_every_machine() -> None:
    logs = []
    for _ in range(2):
        device = Engine(image(), hooks=[flips(cycle=300)])
        device.run({"x": codes()})
        logs.append(device.log)
    assert logs[0] == logs[1]
    assert len({event.text for event in logs[0]}) == 5
    assert {(event.kind, event.cycle) for event in logs[0]} == {("bit_flip", 300)}
    other = Engine(image(), hooks=[flips(cycle=300, seed=4)])
    other.run({"x": codes()})
    assert other.log != logs[0]


def bright(runs: int = 1) -> NDArray[Any]:
    """Return an input that shows in the output when a byte of it is inverted."""
    return np.full_like(codes(runs=runs), 100)


def test_a_flip_shows_until_the_byte_is_read_and_not_before_it_is_written() -> None:
    made = rescaler()
    device = boot(made.builder.blob(), EDGE)
    load, rescale = (device.timeline.slots[made.toas[n]] for n in ("load", "rescale"))
    assert load.start > 0
    for space, name, cycle, shows in (
        (Space.ARENA, "x", 0, 1),
        (Space.ARENA, "x", load.start, 1),
        (Space.ARENA, "x", load.start + 1, 0),
        (Space.SRAM, "half", rescale.start + 1, 0),
        (Space.SRAM, "half", rescale.end, 0),
    ):
        place = device.program.tensors[made.tensors[name]].base
        hit = flips(space, first=place, size=1, bits=8, cycle=cycle)
        result = Engine(device, hooks=[hit]).run({"x": bright()})["y"]
        assert (result != 50).sum() == shows, (name, cycle)


def test_a_flip_happens_once_and_in_the_run_that_its_cycle_lies_in() -> None:
    made = image()
    second = made.timeline.cycles + 1
    hit = flips(Space.ARENA, first=made.inputs[0].tensor.base, size=1, bits=8, cycle=second)
    device = Engine(made, hooks=[hit])
    wrong = device.run({"x": bright(runs=3)})["y"] != 50
    assert wrong.reshape(3, -1).sum(axis=1).tolist() == [0, 1, 0]
    assert len(device.log) == 8


def test_constants_can_be_hit_and_the_blob_stays_as_it_was() -> None:
    made = image()
    before = bytes(made.program.constants)
    hit = flips(Space.CONSTANTS, size=len(before), bits=1)
    Engine(made, hooks=[hit])
    with pytest.raises(ValueError, match=r"bytes 0 to 99999 of \d+ constants"):
        Engine(made, hooks=[flips(Space.CONSTANTS, size=99_999)])
    assert made.program.constants == before
    with pytest.raises(ValueError, match="65 bits do not fit into 8 bytes"):
        flips(size=8, bits=65)


def test_what_a_fault_did_stands_in_the_report_of_a_run() -> None:
    made = image()
    plan = plan_of(["flip:region=arena,seed=3"], ["ripple"])
    report = run_blob(made, inputs=[], output=None, repeat=1, plan=plan).as_dict()
    event = report["events"][0]
    assert list(event) == ["kind", "outcome", "cycle", "text"]
    assert (event["kind"], event["outcome"]) == ("upset", "injected")
    assert report["faults"] == [
        "flip:region=arena,shape=scattered,bits=1,at=before,job=0,cycle=-1,seed=3",
    ]
    plain = run_blob(made, inputs=[], output=None, repeat=1).as_dict()
    assert (plain["events"], plain["faults"], plain["surcharge"]) == ([], [], {})


def test_nobody_is_called_when_nobody_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    def called(*_: Any) -> None:
        raise AssertionError("the watched loop ran")

    monkeypatch.setattr(Engine, "_execute_watched", called)
    monkeypatch.setattr(Engine, "_tell", called)
    device = Engine(image())
    np.testing.assert_array_equal(device.run({"x": codes()})["y"], expected(codes()))
    device.observe = lambda index, what: None
    with pytest.raises(AssertionError, match="watched loop"):
        device.run({"x": codes()})


def test_a_run_with_hooks_gives_the_bits_of_one_without() -> None:
    np.testing.assert_array_equal(
        Engine(image(), hooks=[Hook()]).run({"x": codes(runs=2)})["y"], expected(codes(runs=2))
    )


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda e: e[:-1], "0 TOAs never start, 1 never end"),
        (lambda e: [*e, e[0]], "starts twice"),
        (lambda e: [e[1], e[0], *e[2:]] if not e[1][1] else [(0, False), *e], "out of turn"),
        (lambda e: [*e, (99, True)], "position 99"),
    ],
)
def test_an_order_that_is_none_is_refused(change: Any, text: str) -> None:
    made = image()
    events = Engine(made).events
    with pytest.raises(ValueError, match=text):
        Engine(made, events=change(events))
