"""Gate 5, sensor coupling: samples while two cameras stream, without and with low-jitter mode.

The check memory of gate 2 is left out in both, as it would find the stripes and read again.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from npuabi.errors import AbiError
from npuabi.progress import Progress
from npufw.defences import guarded
from npufw.defences.low_jitter import BANDWIDTH, mode_surcharge
from npufw.engine import Engine
from npufw.fault_models.camera import Jitter
from npufw.fault_models.draws import Source
from npufw.fault_models.spec import read_faults
from npufw.faults import FaultEvent, Outcome
from npufw.gates.base import Gate, Shown, Subject

__all__ = ["GATE", "jitter_cycles", "latencies"]

_STREAMS, _SAMPLES, _READS = 2, 80, 100_000
_SPEC = f"camera:streams={_STREAMS},seed=5"


def latencies(reads: int, *, streams: int, quiet: bool, seed: int = 5) -> NDArray[np.float64]:
    """Return the latencies of *reads* reads from DDR beyond the usual one, in cycles."""
    jitter = Jitter()
    errors = jitter.errors(Source(seed), reads, jitter.deviation(streams, quiet=quiet))
    return jitter.extra_cycles(errors)


def jitter_cycles(extra: NDArray[np.float64]) -> float:
    """Return the jitter: how far the worst read in a thousand is from the usual one, in cycles."""
    middle, high = np.percentile(extra, (50, 99.9))
    return float(high - middle)


def _show(subject: Subject, progress: Progress) -> Shown:
    count = min(_SAMPLES, len(subject.labels))
    clean, _ = _results(subject, count, None)
    progress("gate 5: runs", 1, 3)
    bare, striped = _results(subject, count, ("camera", "ripple"))
    progress("gate 5: runs", 2, 3)
    quiet, calm = _results(subject, count, ("ripple",))
    progress("gate 5: runs", 3, 3)
    without = jitter_cycles(latencies(_READS, streams=_STREAMS, quiet=False))
    behind = jitter_cycles(latencies(_READS, streams=_STREAMS, quiet=True))
    cycles, more = subject.image.timeline.cycles, mode_surcharge(subject.image)
    hits = [event for event in striped if event.outcome is Outcome.INJECTED]
    left = [event for event in calm if event.outcome is Outcome.INJECTED]
    changed, kept = _changed(clean, bare), _changed(clean, quiet)
    return Shown(
        undefended={
            "streams": _STREAMS,
            "striped_reads": len(hits),
            "changed_results_share": changed / count,
            "jitter_cycles": without,
        },
        defended={
            "striped_reads": len(left),
            "changed_results_share": kept / count,
            "jitter_cycles": behind,
        },
        surcharge={
            "bandwidth_share": 1 - BANDWIDTH,
            "run_cycles": more,
            "run_share": more / cycles,
            "without_camera_cycles": 0,
        },
        passed=changed > 0 and kept == 0 and not left and without >= 2 * behind,
    )


def _results(
    subject: Subject, count: int, without: tuple[str, ...] | None
) -> tuple[list[bytes], tuple[FaultEvent, ...]]:
    """Return the bits of each result, none where it was refused; no faults for None."""
    image = subject.image
    hooks = [] if without is None else [read_faults([_SPEC])[0].hook(image)]
    engine = Engine(image, hooks=hooks and guarded(image, hooks, without or ()))
    return [_result(engine, subject, at) for at in range(count)], engine.log


def _result(engine: Engine, subject: Subject, at: int) -> bytes:
    try:
        given = engine.run({name: array[at : at + 1] for name, array in subject.inputs.items()})
    except AbiError:
        return b""
    return b"".join(array.tobytes() for array in given.values())


def _changed(clean: list[bytes], found: list[bytes]) -> int:
    return sum(one != other for one, other in zip(clean, found, strict=True))


GATE = Gate(
    number=5,
    name="sensor coupling",
    fault="a camera stream shakes the DDR clock: reads miss the eye, data comes in stripes",
    defence="low-jitter mode while a camera streams, counted by stream, 5 % of the bandwidth",
    show=_show,
)
