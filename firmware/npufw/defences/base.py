"""What a defence is: a name for ``--without``, and a hook made for an image and its faults."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from npufw.boot import Image
from npufw.faults import Hook

__all__ = ["Defence"]


@dataclass(frozen=True, kw_only=True)
class Defence:
    """One defence: *make* takes the image and the faults' hooks, and gives None where it is idle.

    It may tell a fault's hook what it does about it, as firmware tells a memory controller.
    """

    name: str
    title: str
    make: Callable[[Image, Sequence[Hook]], Hook | None]
