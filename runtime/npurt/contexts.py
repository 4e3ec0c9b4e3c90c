"""Engines, kept ready by core and model, and the device memory that they stand on.

A context is an engine with an arena. A model's constants lie in device memory once, however many
contexts read them. What nobody uses stays until its room is needed; then the least recently used
goes first: contexts before the constants of models.

Invariant: a context is used by one job at a time, and what is in use is never evicted.
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from npuabi.enums import Space
from npufw.boot import Image
from npufw.engine import Engine
from npufw.faults import Hook
from npufw.memory import POISON, Memory
from npurt.device import DeviceMemory, Region
from npurt.errors import DeviceMemoryFull

__all__ = ["Busy", "Context", "Contexts", "Slot", "Version"]

Slot = tuple[int, int]
"""A core, and how many jobs are preempted below: each depth has an SRAM image of its own."""


class Busy(Exception):
    """There will be room when a job that runs now has ended."""


@dataclass(eq=False, slots=True)
class Version:
    """One blob of a model, ready for any core.

    ``jobs`` wait for it or run on it, ``running`` of them have a context. A ``retired`` one takes
    no more; an ``evicted`` one was moved out to make room, and comes in again with its next job.
    """

    name: str
    image: Image
    jobs: int = 0
    retired: bool = False
    evicted: bool = False
    constants: Region | None = None
    running: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Context:
    """An engine of *version* in *slot*."""

    version: Version
    slot: Slot
    engine: Engine
    arena: Region


@dataclass(slots=True)
class Contexts:
    """The contexts of all cores. ``model_bytes`` is what constants may take, None for all."""

    device: DeviceMemory
    model_bytes: int | None = None
    hooks: Mapping[int, Sequence[Hook]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _idle: OrderedDict[tuple[Version, Slot], Context] = field(default_factory=OrderedDict)
    _resident: OrderedDict[Version, None] = field(default_factory=OrderedDict)
    _sram: dict[Slot, NDArray[np.uint8]] = field(default_factory=dict)
    _running: Counter[int] = field(default_factory=Counter)
    """How many contexts each core uses."""
    _abandoned: set[int] = field(default_factory=set)
    loads: int = 0
    """How often a model's constants were moved in."""
    evictions: int = 0
    """How often they were moved out to make room."""

    def take(self, version: Version, slot: Slot) -> Context:
        """Return a context of *version* for *slot*, made when none is idle.

        Raises Busy when there is no room before another job ends, DeviceMemoryFull when there is
        none at all.
        """
        with self._lock:
            context = self._idle.pop((version, slot), None)
            version.running += 1
            try:
                arena = None if context else self._loaded(version)
            except BaseException:
                version.running -= 1
                raise
            self._running[slot[0]] += 1
            self._resident.move_to_end(version)
        if context is not None:
            return context
        assert arena is not None
        try:
            return Context(version, slot, self._engine(version, slot, arena), arena)
        except BaseException:
            self._end(version, slot, arena)
            raise

    def give_back(self, context: Context, *, keep: bool = True) -> None:
        """Let *context* wait for its next job; without *keep* it goes at once."""
        if not keep:
            self._end(context.version, context.slot, context.arena)
            return
        with self._lock:
            self._running[context.slot[0]] -= 1
            context.version.running -= 1
            self._idle[context.version, context.slot] = context

    def abandon(self, core: int) -> None:
        """Wait no more for what *core*, which hangs, uses: its room stays lost."""
        with self._lock:
            self._abandoned.add(core)

    def drop(self, version: Version) -> None:
        """Give up all that *version*, which nobody runs, holds on the device."""
        with self._lock:
            self._evict(version)

    def occupancy(self) -> list[str]:
        """Return the lines of a map of the device's memory."""
        with self._lock:
            return list(self.device.occupancy())

    def _end(self, version: Version, slot: Slot, arena: Region) -> None:
        with self._lock:
            self._running[slot[0]] -= 1
            version.running -= 1
            self.device.free(arena)

    def _loaded(self, version: Version) -> Region:
        """Put the constants of *version* in place, unless they are, and return a new arena."""
        if version.constants is None:
            constants = version.image.program.constants
            self._keep_budget(len(constants), version)
            region = self._room(len(constants), f"{version.name}: constants")
            region.memory[:] = np.frombuffer(constants, np.uint8)
            region.memory.flags.writeable = False
            version.constants, version.evicted = region, False
            self._resident[version] = None
            self.loads += 1
        return self._room(version.image.program.header.arena_bytes, f"{version.name}: arena")

    def _keep_budget(self, size: int, version: Version) -> None:
        if self.model_bytes is None:
            return
        if size > self.model_bytes:
            text = f"{version.name}: {size:,} bytes of constants, models may take"
            raise DeviceMemoryFull(f"{text} {self.model_bytes:,} (model_bytes)")
        while size + sum(_bytes(v) for v in self._resident) > self.model_bytes:
            if not self._evict_oldest():
                raise Busy

    def _room(self, size: int, holder: str) -> Region:
        while True:
            try:
                return self.device.allocate(size, holder)
            except DeviceMemoryFull:
                if self._drop_oldest() or self._evict_oldest():
                    continue
                if any(n for core, n in self._running.items() if core not in self._abandoned):
                    raise Busy from None
                raise

    def _drop_oldest(self) -> bool:
        """Give up the context that has been idle for longest; False when none is."""
        if not self._idle:
            return False
        _, context = self._idle.popitem(last=False)
        self.device.free(context.arena)
        return True

    def _evict_oldest(self) -> bool:
        """Move out the model that has not run for longest; False when all run."""
        for version in self._resident:
            if not version.running:
                self._evict(version)
                version.evicted = True
                self.evictions += 1
                return True
        return False

    def _evict(self, version: Version) -> None:
        for key in [key for key in self._idle if key[0] is version]:
            self.device.free(self._idle.pop(key).arena)
        if version.constants is not None:
            self.device.free(version.constants)
            version.constants = None
            del self._resident[version]

    def _engine(self, version: Version, slot: Slot, arena: Region) -> Engine:
        hooks = self.hooks.get(slot[0], ())
        if hooks:
            # Faults may reach constants: such a core has memory of its own.
            return Engine(version.image, hooks=hooks)
        assert version.constants is not None
        arena.memory[:] = POISON
        spaces = {
            Space.SRAM: self._sram_of(slot, version.image.target.sram_bytes),
            Space.ARENA: arena.memory,
            Space.CONSTANTS: version.constants.memory,
        }
        return Engine(version.image, memory=Memory(spaces))

    def _sram_of(self, slot: Slot, size: int) -> NDArray[np.uint8]:
        held = self._sram.get(slot)
        if held is None or len(held) != size:
            held = self._sram[slot] = np.full(size, POISON, np.uint8)
        return held


def _bytes(version: Version) -> int:
    return version.constants.size if version.constants else 0
