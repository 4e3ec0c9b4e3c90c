"""What the firmware does against faults, one file a defence; each can be left out.

A defence is one file that ends in ``DEFENCE = Defence(...)``, and one line below.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from npufw.boot import Image
from npufw.defences import calibration, core_test, low_jitter, reloader, ripple
from npufw.defences.base import Defence
from npufw.faults import Hook

__all__ = ["DEFENCES", "guarded"]

DEFENCES: dict[str, Defence] = {
    d.name: d
    for d in (
        core_test.DEFENCE,
        reloader.DEFENCE,
        calibration.DEFENCE,
        ripple.DEFENCE,
        low_jitter.DEFENCE,
    )
}
"""Every defence by the name that ``--without`` takes."""


def guarded(image: Image, faults: Sequence[Hook], without: Collection[str] = ()) -> list[Hook]:
    """Return *faults* and the defences against them, but for those that *without* names."""
    made = [d.make(image, faults) for d in DEFENCES.values() if d.name not in without]
    return [*faults, *(hook for hook in made if hook is not None)]
