"""The passes of the compiler, one a file, and their order.

Invariant: ``PIPELINE`` is the only list of passes; a pass is found by its name there.
"""

from __future__ import annotations

import difflib

from npuc.passes.bind_shapes import BindShapes
from npuc.passes.calibrate import Calibrate
from npuc.passes.explicit_broadcast import ExplicitBroadcast
from npuc.passes.fold_batch_norm import FoldBatchNorm
from npuc.passes.fold_constants import FoldConstants
from npuc.passes.freeze_fake_quant import FreezeFakeQuant
from npuc.passes.fuse_activation import FuseActivation
from npuc.passes.fuse_residual import FuseResidual
from npuc.passes.infer_types import InferTypes
from npuc.passes.layout import ChooseLayout
from npuc.passes.legalise import Legalise
from npuc.passes.lower_batch_norm import LowerBatchNorm
from npuc.passes.manager import Pass
from npuc.passes.quantise import Quantise

__all__ = ["PIPELINE", "passes_by_name"]

PIPELINE: tuple[type[Pass], ...] = (
    BindShapes,
    InferTypes,
    ExplicitBroadcast,
    FreezeFakeQuant,
    FoldConstants,
    FoldBatchNorm,
    FuseActivation,
    LowerBatchNorm,
    Calibrate,
    Quantise,
    FuseResidual,
    ChooseLayout,
    Legalise,
)
"""Every pass, in the order of a compilation."""


def passes_by_name(names: str) -> list[Pass]:
    """Return the passes that a comma-separated list names, with their default options.

    Raises ValueError for an unknown name.
    """
    known = {p.NAME: p for p in PIPELINE}
    passes: list[Pass] = []
    for name in filter(None, (n.strip() for n in names.split(","))):
        if name not in known:
            close = difflib.get_close_matches(name, known, 1)
            hint = f", did you mean {close[0]}" if close else ""
            raise ValueError(f"no pass {name!r}{hint}: there are {', '.join(known)}")
        passes.append(known[name]())
    return passes
