"""A higher -O level compiles what a lower one compiles, and is hardly ever slower."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from npuc.driver import Options, compile

DIGITS = Path(__file__).parents[2] / "models" / "digits.txt"
LET_PASS = 1.05  # stalls that a plan may have and still be taken without comparing it


def cycles(level: int, limit_kib: int) -> int:
    options = Options(level=level, sram_limit_kib=limit_kib)
    return compile(DIGITS, options).timeline.cycles


@pytest.mark.parametrize("limit_kib", [6, 10, 16, 32])
def test_a_higher_level_is_no_slower_and_refuses_no_more(limit_kib: int) -> None:
    found = [cycles(level, limit_kib) for level in range(4)]
    assert all(higher <= LET_PASS * lower for lower, higher in pairwise(found)), found
