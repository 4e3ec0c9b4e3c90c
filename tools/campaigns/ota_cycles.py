"""Thousands of updates and rollbacks, each cut somewhere; files that npuc writes as it is killed.

An id of ``ota-cycles`` is the seed of 100 cycles on one device of a drawn chip: update, roll back
or boot, power fails somewhere, the device boots, and goes on from there. An id of ``ota-kill`` is
the moment at which a compilation is killed.
"""

from __future__ import annotations

import contextlib
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from npuabi.errors import AbiError
from npuabi.progress import Progress
from npuabi.sections import SECTOR_BYTES
from npufw.flash.layout import Device, blank_device
from npufw.flash.nor import Cut, PowerCut
from npufw.flash.slots import Verifier
from npufw.flash.update import blobs_of, roll_back, survey, update
from tools.campaigns.base import Campaign, Tally
from tools.campaigns.ota_chips import chips
from tools.campaigns.ota_harness import after_cut, small_program, tally, verifier

__all__ = ["CYCLES", "KILL"]

_FEW = 4
_CYCLES = 100
_MODELS = 5
ROOT = Path(__file__).parents[2]


@cache
def _blob(seed: int, generation: int) -> bytes:
    return blobs_of(small_program(_FEW, seed))(generation)


def run_cycles(ids: Sequence[int], progress: Progress) -> Tally:
    """Run 100 cycles a trial."""
    looker = verifier()

    def trial(identity: int) -> str:
        source = random.Random(identity)
        model = source.choice(chips())
        sectors = len(_blob(1, 1)) // SECTOR_BYTES
        device = blank_device(sectors, model)
        # Near the wrap of generations, so that it is crossed.
        first = source.choice((1, 1 << 31, (1 << 32) - 40))
        update(device, looker, lambda _: _blob(0, first))
        for cycle in range(_CYCLES):
            story = _cycle(device, looker, source)
            if story:
                return f"cycle {cycle} on {model.text}: {story}"
        return ""

    found = tally(ids, trial, progress, CYCLES.name)
    found.figures = {"cycles": found.trials * _CYCLES}
    return found


def _cycle(device: Device, looker: Verifier, source: random.Random) -> str:
    """Change the device, lose power somewhere, boot; return what is wrong."""
    before = survey(device, looker)
    allowed = [content.blob for content in (before.a, before.b) if content.blob is not None]
    if before.chosen is None or before.chosen.blob is None:
        return "nothing boots"
    seed = source.randrange(_MODELS)
    generation = (before.chosen.generation + 1) % (1 << 32)
    unit = device.flash.model.write_unit
    most = 2600 // unit + 8
    device.flash.cut = Cut(1 + source.randrange(most), source.randrange(unit))
    rolls = source.random() < 0.2
    wanted = [before.chosen.blob]
    try:
        if rolls:
            wanted += allowed
            with contextlib.suppress(AbiError):
                roll_back(device, looker)
        else:
            wanted.append(_blob(seed, generation))
            update(device, looker, lambda made: _blob(seed, made))
            wanted = wanted[1:]
    except PowerCut:
        pass
    device.flash = device.flash.reboot()
    return after_cut(device, wanted, looker)


def run_kill(ids: Sequence[int], progress: Progress) -> Tally:
    """Kill npuc at a moment: the output is what it was, or is whole."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        blob = folder / "out.bin"
        command = [sys.executable, "-m", "npuc", "compile", "models/conv_bn_relu.txt"]
        start = time.perf_counter()
        subprocess.run([*command, "-o", str(blob)], cwd=ROOT, check=True, capture_output=True)
        took = time.perf_counter() - start
        whole, old = blob.read_bytes(), b"what was there before"
        counts = {"old": 0, "new": 0}

        def trial(identity: int) -> str:
            share = (identity * 0.618034) % 1.0
            blob.write_bytes(old)
            process = subprocess.Popen(
                [*command, "-o", str(blob)],
                cwd=ROOT,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=took * (0.3 + 0.8 * share))
            process.kill()
            process.wait()
            found = blob.read_bytes()
            counts["new" if found == whole else "old"] += 1
            return "" if found in (old, whole) else f"the file has {len(found)} bytes of neither"

        found = tally(ids, trial, progress, KILL.name)
    found.figures = {"old file": counts["old"], "new file": counts["new"]}
    return found


CYCLES = Campaign(
    name="ota-cycles",
    title="100 updates, rollbacks and boots in a row on one device, each cut somewhere",
    short=3,
    long=1_000,
    run=run_cycles,
)

KILL = Campaign(
    name="ota-kill",
    title="npuc compile killed: its output is what was there, or whole",
    short=2,
    long=200,
    run=run_kill,
)
