"""The performance monitor: what a run costs, measured on the image's timeline.

The sums are npuabi.report's, so that the compiler's table and the profile cannot differ.
"""

from __future__ import annotations

from dataclasses import replace

from npuabi.report import ProgramCost, summarise
from npufw.boot import Image
from npufw.defences.reloader import Reloader
from npufw.engine import Engine
from npufw.fault_models.heat import Constant, Heat
from npufw.fault_models.sensor import Sensor
from npufw.selftest import generated_inputs
from npufw.thermal import timeline_with

__all__ = ["profile", "profile_at"]


def profile(image: Image) -> ProgramCost:
    """Return the costs of one run of *image*: cycles, utilisation, stalls, and each op's part."""
    return summarise(image.program, image.timeline, image.target)


def profile_at(image: Image, celsius: float, *, reload: bool = True) -> ProgramCost:
    """Return the costs at *celsius*: the known-answer input is run, with the reloader or without.

    The thermal stall are the cycles that a run takes more than at 25 degC, on the nominal clock:
    longer setups, replays, and what the derated clock makes of all cycles. ``time_ms`` is that of
    the derated clock. Raises FirmwareError TOO_HOT, NO_TIMING_SET.
    """
    heat = Heat(image, Constant(celsius))
    hooks = (heat, Reloader(heat, Sensor(), image.program.bands)) if reload else (heat,)
    Engine(image, hooks=hooks).run(generated_inputs(image))
    (run,) = heat.runs
    timeline = timeline_with(image, heat.timing, heat.replays)
    nominal = round(run.cycles / run.clock)
    stalls = {**timeline.stalls, "thermal": nominal - image.timeline.cycles}
    cost = summarise(image.program, replace(timeline, stalls=stalls), image.target)
    return replace(cost, time_ms=run.time_ms)
