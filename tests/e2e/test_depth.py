"""C11: graphs thousands of ops deep compile, in time that grows no faster than they do."""

from __future__ import annotations

import cProfile
import sys
import time
from pathlib import Path

import pytest

from npuc.driver import Compilation, compile

DEEP = 5_000
DEEPEST = 20_000
GROWTH = 2.5  # for twice the ops
TRIES = 3  # a busy machine makes single measurements long, never short


def written(folder: Path, lines: list[str], last: str) -> Path:
    path = folder / "deep.txt"
    head = "graph @deep(%x0: tensor<1x16x4x4xf32>) {"
    path.write_text("\n".join([head, *lines, f"  return %{last}", "}"]), encoding="utf-8")
    return path


def chain(folder: Path, depth: int) -> Path:
    return written(folder, [f"  %x{i + 1} = relu(%x{i})" for i in range(depth)], f"x{depth}")


def ladder(folder: Path, depth: int) -> Path:
    """Each rung splits in two and meets again: 2 ** depth ways through it."""
    rungs = [
        f"  %a{i} = relu(%x{i})\n  %b{i} = clip(%x{i}) {{min = -1.0, max = 0.0}}\n"
        f"  %x{i + 1} = add(%a{i}, %b{i})"
        for i in range(depth)
    ]
    return written(folder, rungs, f"x{depth}")


def compiled(path: Path) -> Compilation:
    limit = sys.getrecursionlimit()
    found = compile(path, calibrate="random")
    assert sys.getrecursionlimit() == limit
    return found


def calls(path: Path) -> int:
    profile = cProfile.Profile()
    profile.runcall(compiled, path)
    return sum(entry.callcount for entry in profile.getstats())


def seconds(path: Path) -> float:
    start = time.process_time()
    compiled(path)
    return time.process_time() - start


def test_twice_the_chain_makes_twice_the_calls(tmp_path: Path) -> None:
    compiled(chain(tmp_path, 10))  # what is done once in a process
    few = calls(chain(tmp_path, 300))
    assert calls(chain(tmp_path, 600)) < 2.1 * few


def test_twice_the_chain_takes_at_most_a_little_more_than_twice_as_long(tmp_path: Path) -> None:
    found = []
    for _ in range(TRIES):
        short = seconds(chain(tmp_path, DEEP // 2))
        found.append(seconds(chain(tmp_path, DEEP)) / short)
        if found[-1] < GROWTH:
            return
    pytest.fail(f"twice the ops took {found} times as long, at most {GROWTH} is linear")


@pytest.mark.long
def test_a_chain_of_twenty_thousand_ops_compiles(tmp_path: Path) -> None:
    assert len(compiled(chain(tmp_path, DEEPEST)).program.toas) > DEEPEST


def test_a_ladder_of_two_thousand_rungs_compiles(tmp_path: Path) -> None:
    assert len(compiled(ladder(tmp_path, 2_000)).program.toas) > 3 * 2_000
