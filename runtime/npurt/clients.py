"""Clients with a context each, time-sliced on the cores: an application without a service.

A client prepares an input, hands it to its context, waits for the result, and begins again after
its gap. Contexts stay on the core ``number % cores``. A core gives its ready contexts a quantum
each in turn; taking up another context costs a switch, and a reload when that context's memory was
displaced from the core. Device memory may hold fewer contexts than there are: then a request waits
outside until a context that has no request can be displaced by its own, and on its core the model
is first loaded from the host. Cores that compute slow each other down at DDR (physics.py).

Invariant: everything follows from the parameters; there is no random number here.
"""

from __future__ import annotations

import heapq
import math
from collections import OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum, auto

from npurt.physics import LOADING, Machine, Work, slowdowns

__all__ = ["Clients", "History", "Response", "simulate_clients"]

_SLIVER = 1e-6
"""Microseconds that are rounding error and not work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clients:
    """*count* clients that run *work* each, one request at a time. Times in microseconds.

    ``prepare_us`` is host work on an input: one client after the other when they share an input
    buffer; else on ``host_cpus`` at once. ``fits`` are the contexts that device memory holds, None
    for all, and ``load_us`` is what bringing in another takes, on the core that is to run it.
    Outputs that nobody releases take ``leak_bytes`` each; when ``room_bytes`` of them are full the
    process is killed, whatever is in flight is lost, and all begins again after ``restart_us``.
    """

    count: int
    work: Work
    gap_us: int
    prepare_us: int = 0
    shared_buffer: bool = False
    host_cpus: int = 4
    fits: int | None = None
    load_us: int = 0
    leak_bytes: int = 0
    room_bytes: int = 0
    restart_us: int = 0


@dataclass(slots=True)
class History:
    """What became of clients: the requests in the order of their ends, and when memory was full."""

    responses: list[Response] = field(default_factory=list)
    kills_us: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Response:
    """One request: when the device took it, and when its result was there. Microseconds."""

    client: int
    dispatched_us: float
    done_us: float

    @property
    def latency_us(self) -> float:
        """From dispatch to result."""
        return self.done_us - self.dispatched_us


def simulate_clients(machine: Machine, clients: Clients, duration_us: int) -> History:
    """Return what happened before *duration_us*.

    A process that was killed begins again with nothing, so that each life is the first one again.
    """
    life = _TimeSliced(machine, clients).run(duration_us)
    if not life.kills_us:
        return life
    length = life.kills_us[0] + clients.restart_us
    starts = [n * length for n in range(math.ceil(duration_us / length))]
    return History(
        [
            Response(r.client, start + r.dispatched_us, start + r.done_us)
            for start in starts
            for r in life.responses
            if start + r.done_us < duration_us
        ],
        [start + life.kills_us[0] for start in starts if start + life.kills_us[0] < duration_us],
    )


class _Phase(Enum):
    SWITCH = auto()
    LOAD = auto()
    RELOAD = auto()
    RUN = auto()


@dataclass(slots=True)
class _Slice:
    """What a core does now: ``left_us`` of its phase when nothing slows it, and of its quantum."""

    client: int
    phase: _Phase
    left_us: float
    quantum_us: float
    slowdown: float = 1.0


@dataclass(slots=True)
class _Core:
    ready: deque[int] = field(default_factory=deque)
    at_work: _Slice | None = None
    last: int | None = None
    resident: OrderedDict[int, None] = field(default_factory=OrderedDict)


class _TimeSliced:
    def __init__(self, machine: Machine, clients: Clients) -> None:
        self.machine, self.clients = machine, clients
        self.history = History()
        self.time = 0.0
        self.leaked = 0
        self.cores = [_Core() for _ in range(machine.cores)]
        self.left = [0.0] * clients.count
        self.dispatched = [0.0] * clients.count
        self.outside: deque[int] = deque()
        self.in_flight: set[int] = set()
        self.loaded: OrderedDict[int, None] = OrderedDict()
        self.to_load: set[int] = set()
        self.hosts_free = [0.0] * (1 if clients.shared_buffer else clients.host_cpus)
        self.due: list[tuple[float, int]] = []
        for client in range(clients.count):
            self._prepare(client, 0.0)

    def run(self, duration_us: int) -> History:
        """Go on until *duration_us* or until the process is killed."""
        while self.time < duration_us:
            self._slow()
            self._advance(min(self._ends(), default=math.inf))
            self._arrive()
            self._dispatch()
            for core in self.cores:
                self._step(core)
            if self.leaked > self.clients.room_bytes:
                self.history.kills_us.append(self.time)
                break
        return self.history

    def _prepare(self, client: int, at: float) -> None:
        """Let *client* prepare its next input from *at* on, where the host has room."""
        begin = max(at, heapq.heappop(self.hosts_free))
        end = begin + self.clients.prepare_us
        heapq.heappush(self.hosts_free, end)
        heapq.heappush(self.due, (end, client))

    def _slow(self) -> None:
        """Set how much everything that goes on is slowed by the rest."""
        at_work = [core.at_work for core in self.cores if core.at_work is not None]
        users = [piece for piece in at_work if piece.phase in (_Phase.RUN, _Phase.RELOAD)]
        works = tuple(
            self.clients.work if piece.phase is _Phase.RUN else LOADING for piece in users
        )
        for piece, slowdown in zip(users, slowdowns(works), strict=True):
            piece.slowdown = slowdown

    def _ends(self) -> Iterator[float]:
        if self.due:
            yield self.due[0][0]
        for core in self.cores:
            piece = core.at_work
            if piece is None:
                continue
            yield self.time + piece.left_us * piece.slowdown
            if piece.phase is _Phase.RUN and core.ready:
                yield self.time + piece.quantum_us

    def _advance(self, until: float) -> None:
        passed = max(0.0, until - self.time)
        for core in self.cores:
            if core.at_work is not None:
                core.at_work.left_us -= passed / core.at_work.slowdown
                if core.at_work.phase is _Phase.RUN:
                    core.at_work.quantum_us -= passed
        self.time = until

    def _arrive(self) -> None:
        while self.due and self.due[0][0] <= self.time + _SLIVER:
            self.outside.append(heapq.heappop(self.due)[1])

    def _dispatch(self) -> None:
        """Let the device take requests, in their order, as long as their contexts have room."""
        while self.outside and self._has_room(self.outside[0]):
            client = self.outside.popleft()
            if client not in self.loaded:
                self.to_load.add(client)
                self.loaded[client] = None
            self.in_flight.add(client)
            self.left[client] = self.clients.work.alone_us
            self.dispatched[client] = self.time
            self.cores[client % len(self.cores)].ready.append(client)

    def _has_room(self, client: int) -> bool:
        """Whether the context of *client* is in device memory or an idle one can be displaced."""
        room = self.clients.fits
        if room is None or client in self.loaded or len(self.loaded) < room:
            return True
        idle = next((held for held in self.loaded if held not in self.in_flight), None)
        if idle is None:
            return False
        del self.loaded[idle]
        return True

    def _step(self, core: _Core) -> None:
        """End what has come to its end on *core*, and begin what is next."""
        piece = core.at_work
        if piece is not None and piece.phase is _Phase.RUN:
            self._pause_or_end(core, piece)
        elif piece is not None and piece.left_us <= _SLIVER:
            self._begin_next_phase(core, piece)
        if core.at_work is None and core.ready:
            self._take_up(core, core.ready.popleft())

    def _pause_or_end(self, core: _Core, piece: _Slice) -> None:
        if piece.left_us <= _SLIVER:
            response = Response(piece.client, self.dispatched[piece.client], self.time)
            self.history.responses.append(response)
            self.leaked += self.clients.leak_bytes
            self.in_flight.remove(piece.client)
            self.loaded.move_to_end(piece.client)
            self._prepare(piece.client, self.time + self.clients.gap_us)
            core.at_work = None
        elif piece.quantum_us <= _SLIVER and core.ready:
            self.left[piece.client] = piece.left_us
            core.ready.append(piece.client)
            core.at_work = None
        elif piece.quantum_us <= _SLIVER:
            piece.quantum_us = self.machine.quantum_us

    def _take_up(self, core: _Core, client: int) -> None:
        another = core.last is not None and core.last != client
        core.last = client
        core.at_work = _Slice(
            client, _Phase.SWITCH, self.machine.switch_us if another else 0.0, 0.0
        )
        if not another:
            self._begin_next_phase(core, core.at_work)

    def _begin_next_phase(self, core: _Core, piece: _Slice) -> None:
        """After a switch comes a load where the model is away, then a reload, then the run."""
        client = piece.client
        piece.slowdown = 1.0
        if client in self.to_load:
            self.to_load.remove(client)
            piece.phase, piece.left_us = _Phase.LOAD, self.clients.load_us
        elif piece.phase is not _Phase.RELOAD and self._displaced(core, client):
            piece.phase, piece.left_us = _Phase.RELOAD, self.machine.reload_us
        else:
            piece.phase, piece.left_us = _Phase.RUN, self.left[client]
            piece.quantum_us = self.machine.quantum_us

    def _displaced(self, core: _Core, client: int) -> bool:
        """Whether the context's memory is away from *core*; now it is there, as the latest."""
        away = client not in core.resident
        core.resident[client] = None
        core.resident.move_to_end(client)
        if len(core.resident) > self.machine.resident:
            core.resident.popitem(last=False)
        return away
