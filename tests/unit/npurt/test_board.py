"""The board's known measurements, from one set of physical parameters."""

from __future__ import annotations

import pytest

from npurt.bench import CLIENTS, MEASURED, Comparison, compare, curve
from npurt.board import Board, contexts, service

BOARD = Board()
MINUTE_US = 60_000_000
MOST_OFF = 0.15


@pytest.mark.parametrize("clients", CLIENTS)
def test_time_sliced_clients_get_what_was_measured(clients: int) -> None:
    row = contexts(BOARD, clients, MINUTE_US)
    images, latency = MEASURED[clients]
    assert row.images_per_s == pytest.approx(images, rel=MOST_OFF)
    assert row.mean_ms == pytest.approx(latency, rel=MOST_OFF)
    # Little's law: all clients are either in flight or in their gap.
    in_flight = row.images_per_s * (row.mean_ms + BOARD.gap_us / 1e3) / 1e3
    assert in_flight == pytest.approx(clients, rel=0.03)


def test_three_clients_are_the_best_and_nobody_said_so() -> None:
    assert curve(BOARD).best == BOARD.machine.cores == 3


def test_more_cores_move_the_optimum() -> None:
    """It follows from the machine: it is no constant of ours."""
    from dataclasses import replace

    wider = replace(BOARD, machine=replace(BOARD.machine, cores=4))
    rows = {n: contexts(wider, n, MINUTE_US).images_per_s for n in (3, 4, 5)}
    assert max(rows, key=lambda n: rows[n]) == 4


@pytest.mark.parametrize("clients", [3, 4, 6, 10])
def test_the_service_stays_at_the_top_of_the_curve(clients: int) -> None:
    top = contexts(BOARD, 3, MINUTE_US)
    row = service(BOARD, clients, MINUTE_US, prepared=True)
    assert row.images_per_s >= top.images_per_s
    assert row.mean_ms <= top.mean_ms * 1.001


@pytest.fixture(scope="module")
def against() -> Comparison:
    return compare(BOARD)


def test_naive_clients_against_the_service_differ_as_measured(against: Comparison) -> None:
    found = against.factors
    assert found["throughput"] == pytest.approx(3.5, rel=MOST_OFF)
    assert found["latency_percent"] == pytest.approx(-77, rel=MOST_OFF)
    assert found["memory_percent"] == pytest.approx(-73, rel=MOST_OFF)
    assert against.naive.oom == pytest.approx(5, rel=MOST_OFF)
    assert against.service.oom == 0


def test_naive_clients_and_service_come_near_the_board_itself(against: Comparison) -> None:
    assert against.naive.images_per_s == pytest.approx(8, rel=MOST_OFF)
    assert against.naive.mean_ms == pytest.approx(450, rel=MOST_OFF)
    assert against.naive.peak_bytes == pytest.approx(1.2e9, rel=MOST_OFF)
    assert against.service.images_per_s == pytest.approx(28, rel=MOST_OFF)
    assert against.service.mean_ms == pytest.approx(105, rel=MOST_OFF)
    assert against.service.peak_bytes == pytest.approx(320e6, rel=MOST_OFF)
