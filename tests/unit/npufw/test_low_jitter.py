"""Gate 5: holds of low-jitter mode, what it costs, what jitter does to reads and what is left."""

from __future__ import annotations

import numpy as np
import pytest

from npuabi.enums import Unit
from npuabi.simulate import simulate
from npufw.defences import guarded
from npufw.defences.low_jitter import BANDWIDTH, TIMEOUT_US, LowJitterMode, mode_surcharge
from npufw.engine import Engine
from npufw.fault_models.camera import Jitter, striped
from npufw.fault_models.draws import Source
from npufw.fault_models.spec import read_faults
from npufw.faults import Outcome
from npufw.gates.camera import jitter_cycles, latencies
from npufw.gates.subject import load_subject
from tools.campaigns.camera import frames_of

SUBJECT = load_subject()
INPUTS = {name: array[:12] for name, array in SUBJECT.inputs.items()}


def test_random_starts_stops_and_crashes_end_without_a_hold() -> None:
    # 34,000 frames of 3 clients, each with a driver's beat, are 10^5 events.
    streams, modes, mode, wrong = frames_of(3, frames=34_000)
    assert wrong == []
    assert mode.holds == 0
    assert modes[streams > 0].all()
    assert 0.1 < (streams > 0).mean() < 0.95


def test_a_hold_is_of_a_stream_and_stopping_twice_is_harmless() -> None:
    mode = LowJitterMode()
    mode.start(1, 0, 0)
    mode.start(1, 0, 1)
    mode.start(2, 0, 2)
    assert mode.holds == 2
    mode.stop(1, 0, 3)
    mode.stop(1, 0, 4)
    mode.stop(3, 9, 4)
    assert mode.active
    mode.stop(2, 0, 5)
    assert not mode.active


def test_a_dead_clients_hold_ends_and_a_living_ones_does_not() -> None:
    mode = LowJitterMode()
    mode.start(1, 0, 0)
    mode.start(2, 0, 0)
    mode.beat(2, TIMEOUT_US / 2)
    mode.expire(TIMEOUT_US - 1)
    assert mode.holds == 2
    mode.expire(TIMEOUT_US)
    assert mode.holds == 1
    mode.beat(2, TIMEOUT_US * 1.25)
    mode.expire(TIMEOUT_US * 2)
    assert mode.active
    mode.expire(TIMEOUT_US * 3)
    assert not mode.active


@pytest.mark.parametrize("streams", [1, 2, 4])
def test_jitter_is_at_least_halved_and_no_read_of_a_million_misses_the_eye(streams: int) -> None:
    bare, quiet = (
        jitter_cycles(latencies(100_000, streams=streams, quiet=q)) for q in (False, True)
    )
    assert bare >= 2 * quiet
    jitter = Jitter()
    shaken = jitter.errors(Source(1), 10**6, jitter.deviation(streams, quiet=False))
    calm = jitter.errors(Source(1), 10**6, jitter.deviation(streams, quiet=True))
    assert (np.abs(shaken) > jitter.eye_ps).any()
    assert not (np.abs(calm) > jitter.eye_ps).any()


def test_rows_outside_the_eye_read_as_their_neighbours() -> None:
    octets = np.arange(512, dtype=np.int64).astype(np.uint8).reshape(-1)
    rows = octets.reshape(32, 16)
    late = striped(octets, np.array([0.0, 300.0]), 250, 256, 1).reshape(32, 16)
    hit = np.flatnonzero((late != rows).any(axis=1))
    assert hit.tolist() == [17, 21, 25, 29]
    np.testing.assert_array_equal(late[hit], rows[hit + 1])
    early = striped(octets, np.array([-300.0, 0.0]), 250, 256, 0).reshape(32, 16)
    hit = np.flatnonzero((early != rows).any(axis=1))
    assert hit.tolist() == [4, 8, 12]
    np.testing.assert_array_equal(early[hit], rows[hit - 1])


def test_the_mode_takes_5_percent_of_the_bandwidth_and_nothing_without_a_camera() -> None:
    image = SUBJECT.image
    moves = [work for work in image.works if work.unit is Unit.DMA_IN]
    plain = sum(work.compute_cycles for work in moves)
    slowed = sum(-(-work.compute_cycles * 100 // 95) for work in moves)
    assert abs(plain / slowed - BANDWIDTH) <= 0.005
    assert 0 < mode_surcharge(image) < 0.05 * simulate(image.works, image.target).cycles


def test_outputs_in_the_mode_are_those_without_a_camera_and_only_then_does_it_cost() -> None:
    image = SUBJECT.image
    right = Engine(image).run(INPUTS)
    camera = read_faults(["camera:streams=2,start=2,stop=9,seed=5"])[0].hook(image)
    engine = Engine(image, hooks=guarded(image, [camera], ("ripple",)))
    given = engine.run(INPUTS)
    for name in right:
        np.testing.assert_array_equal(given[name], right[name])
    assert [event.text for event in engine.log] == [
        "low-jitter mode is on: 2 streams",
        "low-jitter mode is off: 0 streams",
    ]
    assert engine.surcharge == {"camera": 7 * mode_surcharge(image)}


def test_the_check_memory_finds_stripes_where_the_mode_is_left_out() -> None:
    image = SUBJECT.image
    camera = read_faults(["camera:streams=1,seed=5"])[0].hook(image)
    engine = Engine(image, hooks=guarded(image, [camera], ("camera",)))
    right = Engine(image).run(INPUTS)
    given = engine.run(INPUTS)
    for name in right:
        np.testing.assert_array_equal(given[name], right[name])
    seen = {event.outcome for event in engine.log}
    assert seen == {Outcome.INJECTED, Outcome.DETECTED, Outcome.REPAIRED}
