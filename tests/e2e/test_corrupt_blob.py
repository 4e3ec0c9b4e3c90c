"""Damage anywhere in digits.bin is healed and reported, or refused with a code; never silent."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from npuabi.container import read_blob
from npuabi.errors import AbiError
from npuabi.program import Event, Program
from npuabi.target import load_target
from npuc.driver import compile
from npufw.boot import boot
from npufw.engine import Engine

MODELS = Path(__file__).parents[2] / "models"
EDGE = load_target("edge")
SEED = 20_261_130
CUTS = 1_000
FLIPS = 10_000
RUNS = 40
"""Healed blobs that are run; of all others the loaded program is compared."""


@cache
def blob() -> bytes:
    return compile(MODELS / "digits.txt").blob


@cache
def program() -> Program:
    return read_blob(blob(), target=EDGE).program


def outputs(raw: bytes) -> NDArray[np.float32]:
    image = boot(raw, EDGE)
    with np.load(MODELS / "digits_test.npz") as test:
        (found,) = Engine(image).run({"image": test["image"][:4]}).values()
    return found


def events_of(raw: bytes) -> tuple[Event, ...] | None:
    """Return the repairs of a damaged blob, None when it is refused; its program must be whole."""
    try:
        loaded = read_blob(raw, target=EDGE)
    except AbiError:
        return None
    assert loaded.program == program()
    return loaded.events


def flipped(bits: int) -> Iterator[tuple[str, bytes]]:
    """Yield *bits* damaged blobs, each with what replays it."""
    chosen = random.Random(SEED)
    for _ in range(bits):
        bit = chosen.randrange(8 * len(blob()))
        raw = bytearray(blob())
        raw[bit // 8] ^= 1 << bit % 8
        yield f"bit {bit}", bytes(raw)


def test_a_cut_blob_is_refused_at_every_length() -> None:
    chosen = random.Random(SEED)
    lengths = {0, 1, 63, 64, 65, len(blob()) - 1, *chosen.sample(range(len(blob())), CUTS)}
    for length in sorted(lengths):
        assert events_of(blob()[:length]) is None, f"cut at {length}"


def test_every_flipped_bit_is_healed_with_a_report_or_refused() -> None:
    healed = 0
    for where, raw in flipped(FLIPS):
        events = events_of(raw)
        healed += events is not None
        assert events is None or events, f"{where} of digits.bin was accepted without a word"
    assert 0 < healed < FLIPS


def test_a_healed_blob_gives_the_same_outputs() -> None:
    wanted = outputs(blob())
    healed = 0
    for where, raw in flipped(FLIPS):
        if events_of(raw) is None:
            continue
        np.testing.assert_array_equal(outputs(raw), wanted, err_msg=where)
        healed += 1
        if healed == RUNS:
            return
    pytest.fail(f"only {healed} of {FLIPS} flips could be healed")
