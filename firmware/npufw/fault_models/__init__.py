"""Models of what happens to devices in the field, one file each: hooks of npufw.faults, seeded.

A model is one file that ends in ``MODEL = FaultModel(...)``, and one line below.
"""

from __future__ import annotations

from npufw.fault_models.banks import STUCK
from npufw.fault_models.base import FaultModel
from npufw.fault_models.camera import CAMERA
from npufw.fault_models.die import DIE
from npufw.fault_models.flips import FLIP, FLIPS
from npufw.fault_models.fuses import FUSE, FUSE_READ
from npufw.fault_models.heat import HEAT
from npufw.fault_models.instruction import INSTRUCTION
from npufw.fault_models.nth import DDR_READ, NTH_CHECK
from npufw.fault_models.sensor import SENSOR
from npufw.fault_models.version import VERSION

__all__ = ["MODELS"]

MODELS: dict[str, FaultModel] = {
    model.name: model
    for model in (
        FLIPS,
        FLIP,
        STUCK,
        DDR_READ,
        NTH_CHECK,
        CAMERA,
        HEAT,
        SENSOR,
        DIE,
        FUSE,
        FUSE_READ,
        INSTRUCTION,
        VERSION,
    )
}
"""Every model by its name, in the order of the lists."""
