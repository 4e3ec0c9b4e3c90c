"""The performance monitor: what a run costs, measured on the image's timeline.

The sums are npuabi.report's, so that the compiler's table and the profile cannot differ.
"""

from __future__ import annotations

from npuabi.report import ProgramCost, summarise
from npufw.boot import Image

__all__ = ["profile"]


def profile(image: Image) -> ProgramCost:
    """Return the costs of one run of *image*: cycles, utilisation, stalls, and each op's part."""
    return summarise(image.program, image.timeline, image.target)
