"""The passes of the compiler, one a file, and their order.

Invariant: ``PIPELINE`` is the only list of passes; a pass is found by its name there.
"""

from __future__ import annotations

import difflib

from npuc.passes.bind_shapes import BindShapes
from npuc.passes.calibrate import Calibrate
from npuc.passes.collapse_ranks import CollapseRanks
from npuc.passes.depend import Depend
from npuc.passes.explicit_broadcast import ExplicitBroadcast
from npuc.passes.fold_batch_norm import FoldBatchNorm
from npuc.passes.fold_constants import FoldConstants
from npuc.passes.freeze_fake_quant import FreezeFakeQuant
from npuc.passes.fuse_activation import FuseActivation
from npuc.passes.fuse_residual import FuseResidual
from npuc.passes.infer_types import InferTypes
from npuc.passes.layout import ChooseLayout
from npuc.passes.legalise import Legalise
from npuc.passes.lower import Lower
from npuc.passes.lower_batch_norm import LowerBatchNorm
from npuc.passes.manager import Pass
from npuc.passes.matmul_to_dense import MatmulToDense
from npuc.passes.place import Place
from npuc.passes.plan_memory import PlanMemory
from npuc.passes.quantise import Quantise
from npuc.passes.schedule import Schedule
from npuc.passes.split_residual import SplitResidual
from npuc.passes.store_states import StoreStates
from npuc.passes.tile import Tile

__all__ = ["GRAPH_PASSES", "NPU_PASSES", "PIPELINE", "npu_passes", "passes_by_name"]

GRAPH_PASSES: tuple[type[Pass], ...] = (
    BindShapes,
    InferTypes,
    ExplicitBroadcast,
    FreezeFakeQuant,
    FoldConstants,
    CollapseRanks,
    MatmulToDense,
    SplitResidual,
    FoldBatchNorm,
    FuseActivation,
    LowerBatchNorm,
    Calibrate,
    Quantise,
    StoreStates,
    FuseResidual,
    ChooseLayout,
    Legalise,
)
"""From the source to the quantised graph."""

NPU_PASSES: tuple[type[Pass], ...] = (Lower, Tile, Schedule, Place, PlanMemory, Depend)
"""From the quantised graph to placed and ordered tasks."""

PIPELINE: tuple[type[Pass], ...] = (*GRAPH_PASSES, *NPU_PASSES)
"""Every pass, in the order of a compilation."""


def npu_passes(level: int, budget_percent: int) -> list[Pass]:
    """Return the passes behind ``lower`` as an -O level has them.

    0: no double-buffering, no lookahead, one mode, placement by size. 1: double-buffered loads
    that run ahead. 2: also the better mode of each stripe and separate banks for streams.
    """
    return [
        Tile(budget_percent=budget_percent, copies=2 if level else 1, best_mode=level >= 2),
        Schedule(lookahead=min(level, 1)),
        Place(banked=level >= 2),
        PlanMemory(),
        Depend(),
    ]


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
