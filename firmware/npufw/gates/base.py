"""What a gate is: a failure of the field, shown without its defence and gone with it.

Invariant: a gate measures on the model that it is given, and decides from its own figures; nothing
of what it prints is known beforehand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npuabi.progress import Progress
from npufw.boot import Image

__all__ = ["Figures", "Gate", "Shown", "Subject"]

Figures = dict[str, int | float | str]
"""Named figures; the unit is in the name, as in ``latency_ms``."""


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What gates are shown on: a classifier's blob, its image, labelled samples.

    ``inputs`` are float arrays by input name, the samples along the first axis, as are ``labels``.
    """

    raw: bytes
    image: Image
    inputs: Mapping[str, NDArray[Any]]
    labels: NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Shown:
    """What was seen: figures without and with the defence, what it costs, whether it held.

    ``passed`` means that the symptom showed without the defence and did not with it.
    """

    undefended: Figures
    defended: Figures
    surcharge: Figures
    passed: bool


@dataclass(frozen=True, kw_only=True)
class Gate:
    """One gate: its number and name, the fault and the defence in a line each, and how to show it.

    ``show`` tells its progress in steps of any kind.
    """

    number: int
    name: str
    fault: str
    defence: str
    show: Callable[[Subject, Progress], Shown]

    def as_dict(self, shown: Shown) -> dict[str, Any]:
        """Return what was seen for JSON."""
        return {
            "gate": self.number,
            "name": self.name,
            "fault": self.fault,
            "defence": self.defence,
            "undefended": shown.undefended,
            "defended": shown.defended,
            "surcharge": shown.surcharge,
            "pass": shown.passed,
        }
