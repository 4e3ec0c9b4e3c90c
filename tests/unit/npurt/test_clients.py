"""Time-sliced clients: quanta, switches, reloads, room for models, shared buffers, leaks."""

from __future__ import annotations

import pytest

from npurt.clients import Clients, History, simulate_clients
from npurt.physics import Machine, Work

MACHINE = Machine(cores=1, switch_us=1_000, quantum_us=10_000, reload_us=0, resident=9)
WORK = Work(alone_us=20_000, ddr_us=0)


def history(count: int, machine: Machine = MACHINE, us: int = 1_000_000, **more: object) -> History:
    asked = Clients(count=count, work=WORK, gap_us=0, **more)  # type: ignore[arg-type]
    return simulate_clients(machine, asked, us)


def ends(found: History, count: int) -> list[tuple[int, float]]:
    return [(response.client, response.done_us) for response in found.responses[:count]]


def test_one_client_is_never_switched() -> None:
    assert ends(history(1), 2) == [(0, 20_000), (0, 40_000)]


def test_two_clients_of_a_core_take_turns_of_a_quantum_with_a_switch_between() -> None:
    assert ends(history(2), 2) == [(0, 32_000), (1, 43_000)]


def test_clients_of_other_cores_do_not_disturb_each_other() -> None:
    found = history(2, Machine(cores=2, reload_us=0))
    assert ends(found, 2) == [(0, 20_000), (1, 20_000)]


def test_a_displaced_context_is_moved_in_again() -> None:
    crowded = Machine(cores=1, switch_us=1_000, quantum_us=10_000, reload_us=3_000, resident=1)
    # Each turn is reload 3, run 10; a switch of 1 stands between two.
    assert ends(history(2, crowded), 2) == [(0, 41_000), (1, 55_000)]


def test_what_does_not_fit_waits_outside_and_is_loaded_from_the_host() -> None:
    found = history(2, fits=1, load_us=5_000)
    first, second, third = found.responses[:3]
    assert (first.client, first.dispatched_us, first.done_us) == (0, 0, 25_000)
    assert (second.client, second.dispatched_us) == (1, 25_000)
    assert second.latency_us == 1_000 + 5_000 + 20_000
    assert third.client == 0


def test_a_shared_buffer_lets_one_client_prepare_at_a_time() -> None:
    wide = Machine(cores=3, switch_us=0)
    shared = history(3, wide, prepare_us=30_000, shared_buffer=True)
    assert [r.dispatched_us for r in shared.responses[:3]] == [30_000, 60_000, 90_000]
    own = history(3, wide, prepare_us=30_000, host_cpus=2)
    assert [r.dispatched_us for r in own.responses[:3]] == [30_000, 30_000, 60_000]


def test_outputs_that_are_never_released_kill_the_process_when_memory_is_full() -> None:
    found = history(1, leak_bytes=100, room_bytes=450, restart_us=100_000)
    assert found.kills_us[:2] == pytest.approx([100_000, 300_000])
    assert found.responses[5].dispatched_us == pytest.approx(200_000)


def test_nothing_ends_behind_the_end_and_all_is_the_same_again() -> None:
    once, twice = history(3), history(3)
    assert once == twice
    assert once.responses[-1].done_us <= 1_000_000 + 20_000
