"""Sharing DDR: what it costs two and three readers, and nobody else."""

from __future__ import annotations

import pytest

from npurt.physics import LOADING, Work, slowdowns

IMAGE = Work(alone_us=80_000, ddr_us=24_000)


def test_alone_nothing_is_slower() -> None:
    assert slowdowns((IMAGE,)) == (1.0,)
    assert slowdowns((LOADING,)) == (1.0,)
    assert slowdowns(()) == ()


def test_work_without_ddr_neither_slows_nor_is_slowed() -> None:
    pure = Work(alone_us=100, ddr_us=0)
    assert slowdowns((IMAGE, pure, pure)) == (1.0, 1.0, 1.0)


def test_two_readers_that_do_nothing_else_take_twice_as_long() -> None:
    assert slowdowns((LOADING, LOADING)) == pytest.approx((2.0, 2.0))


def test_each_more_reader_slows_all_and_in_the_order_of_their_reading() -> None:
    found = [slowdowns((IMAGE,) * n)[0] for n in range(1, 5)]
    assert found == sorted(found)
    assert len(set(found)) == 4
    busy = Work(alone_us=80_000, ddr_us=60_000)
    light, heavy = slowdowns((IMAGE, busy))
    assert 1 < light < heavy < 2


@pytest.mark.parametrize(("alone", "ddr"), [(10, 11), (10, -1), (0, 0)])
def test_impossible_work_is_refused(alone: int, ddr: int) -> None:
    with pytest.raises(ValueError, match="DDR takes 0 to all"):
        Work(alone_us=alone, ddr_us=ddr)
