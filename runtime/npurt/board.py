"""An application on a board, done naively and as the service does it, with the same device.

The naive client has eight threads with a model each, one shared input buffer, and never releases
an output. The service has one model, buffers of their own for each request, and releases outputs.

Invariant: what differs between the two is what the application does; device and board are one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from statistics import fmean

from npurt.clients import Clients, simulate_clients
from npurt.events import Model, Request, Simulation
from npurt.physics import Machine, Work
from npurt.policy import Job, JobState, Policy

__all__ = ["Board", "Row", "contexts", "naive", "naive_clients", "service"]

_MIB = 1 << 20
_HOUR_US = 3_600_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """The board, the model and what the host does. Times in microseconds."""

    machine: Machine = field(default_factory=Machine)
    work: Work = field(default_factory=lambda: Work(alone_us=80_000, ddr_us=24_000))
    """An image on one core, nobody else at DDR."""
    descriptor_us: float = 500.0
    gap_us: int = 3_000
    """Between a client's result and its next request, when inputs are ready."""
    prepare_us: int = 20_000
    """Decoding and scaling an image on a host CPU."""
    host_cpus: int = 4
    memory_bytes: int = 2048 * _MIB
    device_bytes: int = 512 * _MIB
    base_bytes: int = 64 * _MIB
    """The application without models."""
    weights_bytes: int = 96 * _MIB
    arena_bytes: int = 16 * _MIB
    output_bytes: int = 140 << 10
    link_bytes_per_s: float = 0.915e9
    """From host memory to device memory."""
    restart_us: int = 10_000_000
    """From a killed process to the first request of the next one."""

    @property
    def load_us(self) -> int:
        """Bringing a model's weights to the device."""
        return round(self.weights_bytes / self.link_bytes_per_s * 1e6)

    @property
    def fits(self) -> int:
        """Models with an arena each that device memory holds."""
        return self.device_bytes // (self.weights_bytes + self.arena_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What so many clients got. ``mean_ms`` is from dispatch to result, as is ``p99_ms``.

    ``peak_bytes`` are host and device without outputs that were never released; ``oom`` counts
    how often an hour the process was killed for want of memory.
    """

    clients: int
    images_per_s: float
    mean_ms: float
    p99_ms: float
    peak_bytes: int
    oom: float

    def as_dict(self) -> dict[str, int | float]:
        """Return the row for JSON."""
        return {
            "clients": self.clients,
            "images_per_s": round(self.images_per_s, 3),
            "mean_ms": round(self.mean_ms, 3),
            "p99_ms": round(self.p99_ms, 3),
            "peak_bytes": self.peak_bytes,
            "oom": round(self.oom, 2),
        }


def contexts(board: Board, clients: int, duration_us: int) -> Row:
    """Return what *clients* time-sliced contexts of one model get, their inputs ready."""
    asked = Clients(count=clients, work=board.work, gap_us=board.gap_us)
    found = simulate_clients(board.machine, asked, duration_us).responses
    latencies = [r.latency_us for r in found if r.done_us >= duration_us / 6]
    held = board.base_bytes + 2 * board.weights_bytes + clients * board.arena_bytes
    return _row(clients, latencies, duration_us * 5 / 6, held, 0.0)


def naive_clients(board: Board, clients: int) -> Clients:
    """Return *clients* threads that load a model each, share a buffer and release nothing."""
    return Clients(
        count=clients,
        work=board.work,
        gap_us=board.gap_us,
        prepare_us=board.prepare_us,
        shared_buffer=True,
        fits=board.fits,
        load_us=board.load_us,
        leak_bytes=board.output_bytes,
        room_bytes=board.memory_bytes - _naive_bytes(board, clients),
        restart_us=board.restart_us,
    )


def _naive_bytes(board: Board, clients: int) -> int:
    on_device = min(clients, board.fits) * (board.weights_bytes + board.arena_bytes)
    return board.base_bytes + clients * board.weights_bytes + on_device


def naive(board: Board, clients: int, duration_us: int) -> Row:
    """Return what ``naive_clients`` get."""
    history = simulate_clients(board.machine, naive_clients(board, clients), duration_us)
    latencies = [response.latency_us for response in history.responses]
    kills = len(history.kills_us) * _HOUR_US / duration_us
    return _row(clients, latencies, duration_us, _naive_bytes(board, clients), kills)


def service(board: Board, clients: int, duration_us: int, *, prepared: bool = False) -> Row:
    """Return what *clients* of the service get: one model, a worker a core, one queue.

    Each prepares its inputs on a host CPU of its own unless they are *prepared*.
    """
    simulation = Simulation(board.machine, Policy(ageing_us=_HOUR_US))
    model = Model(name="model", work=board.work, descriptor_us=board.descriptor_us)
    latencies: list[float] = []
    host = 0 if prepared else board.prepare_us

    def again(job: Job, state: JobState) -> None:
        request: Request = job.payload
        if simulation.time >= duration_us / 6 and request.first_us is not None:
            latencies.append(request.ended_us - request.first_us)
        client = request.client
        due = simulation.time + board.gap_us + host
        simulation.at(due, partial(simulation.submit, model, client))

    simulation.on_end = again
    for client in range(clients):
        simulation.at(float(host), partial(simulation.submit, model, client))
    simulation.run(duration_us)
    arenas = min(clients, board.machine.cores) * board.arena_bytes
    held = board.base_bytes + 2 * board.weights_bytes + arenas + clients * board.output_bytes
    return _row(clients, latencies, duration_us * 5 / 6, held, 0.0)


def _row(clients: int, latencies: Iterable[float], time_us: float, held: int, kills: float) -> Row:
    ordered = sorted(latencies)
    return Row(
        clients=clients,
        images_per_s=len(ordered) / time_us * 1e6,
        mean_ms=fmean(ordered) / 1e3,
        p99_ms=ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)] / 1e3,
        peak_bytes=held,
        oom=kills,
    )
