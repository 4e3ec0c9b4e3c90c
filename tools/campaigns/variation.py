"""Variation: a trial is a die, calibrated, that must classify digits as the nominal die does.

A hundred images go through the kernels as one batch. The campaign as a whole
is held to 99.9 % agreement; a trial fails when a die's residual is above half a step of full scale
or more than one of its hundred answers differs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npuabi.npz import read_arrays
from npuabi.progress import Progress
from npuabi.target import load_target
from npuc.driver import Options, compile_graph
from npuc.frontend.text import parse_text
from npufw.boot import Image, boot
from npufw.defences.calibration import Trim
from npufw.fault_models.die import DieHook
from npufw.gates.variation import Agreement, classes, die_of, fused, residual
from tools.campaigns.base import Campaign, Tally

__all__ = ["VARIATION", "Subject100", "subject_of_100"]

_MODELS = Path(__file__).parents[2] / "models"
_IMAGES = 100
_FULL_SCALE = 127
_HALF_STEP = 0.5
_NEEDED = 0.999
_UNTRIMMED_EACH = 10
"""Every tenth die runs untrimmed, too: the symptom needs no more."""


@dataclass(frozen=True)
class Subject100:
    """Digits compiled for a batch of 100, 100 images, and what the nominal die says of them."""

    image: Image
    inputs: dict[str, NDArray[Any]]
    nominal: NDArray[np.int64]


@cache
def subject_of_100() -> Subject100:
    """Return digits compiled for a batch of 100, and what the nominal die says of 100 images."""
    text = (_MODELS / "digits.txt").read_text(encoding="utf-8")
    graph = parse_text(text.replace("tensor<1x1x8x8xf32>", "tensor<?x1x8x8xf32>"), folder=_MODELS)
    options = Options(shapes={"image": (_IMAGES, 1, 8, 8)})
    image = boot(compile_graph(graph, options, folder=_MODELS).blob, load_target("edge"))
    arrays = read_arrays(_MODELS / "digits_test.npz")
    inputs = {"image": np.ascontiguousarray(arrays["image"][:_IMAGES])}
    return Subject100(image, inputs, classes(image, inputs))


def _run(ids: Sequence[int], progress: Progress) -> Tally:
    subject, tally = subject_of_100(), Tally(trials=len(ids))
    bare, held = Agreement(), Agreement()
    worst = 0.0
    for done, number in enumerate(ids):
        die = die_of(number, subject.image.target.cores)
        efuse, silicon = fused(die, subject.image), DieHook(die, number % die.cores)
        trim = Trim(efuse, die.id, silicon.core)
        found = classes(subject.image, subject.inputs, (silicon, trim))
        held.add(found, subject.nominal)
        if number % _UNTRIMMED_EACH == 0:
            bare.add(classes(subject.image, subject.inputs, (silicon,)), subject.nominal)
        left, same = residual(die, efuse) * _FULL_SCALE, int((found == subject.nominal).sum())
        worst = max(worst, left)
        if left > _HALF_STEP or same < len(found) - 1:
            story = f"{number}: residual {left:.3f} LSB, {same} of {len(found)} answers agree"
            tally.failures.append(story)
        if done % 100 == 0:
            progress("dies", done, len(ids))
    tally.figures = {
        "answers": held.answers,
        "agreement_trimmed": held.share,
        "worst_die_trimmed": held.worst,
        "largest_residual_lsb": worst,
        "answers_untrimmed": bare.answers,
        "agreement_untrimmed": bare.share,
        "worst_die_untrimmed": bare.worst,
    }
    if held.share < _NEEDED:
        tally.failures.append(f"all: {held.share:.4%} of the answers agree, {_NEEDED:.1%} needed")
    return tally


VARIATION = Campaign(
    name="variation",
    title="dies within +-18 %, calibrated: 100 answers each, held against the nominal die",
    short=12,
    long=10_000,
    run=_run,
)
