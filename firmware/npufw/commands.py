"""What the commands ``run`` and ``eval`` do, apart from options and printing."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npuabi.errors import ErrorCode
from npuabi.files import write_atomically
from npuabi.npz import NpzError, read_arrays
from npuabi.preprocess import ImageError, Preprocess, load_preprocess
from npuabi.progress import Progress, silent
from npufw.boot import Image
from npufw.engine import Engine
from npufw.errors import FirmwareError
from npufw.evaluate import Accuracy, evaluate, split_labels
from npufw.fault_plan import NO_FAULTS, FaultPlan, fault_lines, survived
from npufw.faults import FaultEvent
from npufw.host import runs_of
from npufw.hostfiles import npz_bytes, read_inputs
from npufw.image_data import evaluate_images
from npufw.inspect import shape_text
from npufw.selftest import generated_inputs
from npufw.version import VersionRegister

__all__ = ["EvalReport", "RunReport", "evaluate_blob", "run_blob"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """Outputs of a run and its times: ``cycles`` and ``time_ms`` modelled, for all its batches.

    ``met`` is what faults have to report of it, such as the temperature.
    """

    outputs: Mapping[str, NDArray[Any]]
    batches: int
    cycles: int
    time_ms: float
    host_ms: tuple[float, ...]
    notes: tuple[str, ...]
    events: tuple[FaultEvent, ...]
    faults: Sequence[str] = ()
    replay: str = ""
    surcharge: Mapping[str, int] = field(default_factory=dict)
    met: Mapping[str, Any] = field(default_factory=dict)
    met_lines: Sequence[str] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return the report for JSON."""
        times = {
            "median": median(self.host_ms),
            "min": min(self.host_ms),
            "runs": len(self.host_ms),
        }
        return {
            "schema": 1,
            "outputs": {n: _finite(_summary(a, self.batches)) for n, a in self.outputs.items()},
            "batches": self.batches,
            "cycles": self.cycles,
            "time_ms": self.time_ms,
            "host_ms": times,
            "faults": list(self.faults),
            "surcharge": dict(self.surcharge),
            **self.met,
            "events": [event.as_dict() for event in self.events],
        }

    def lines(self) -> Iterator[str]:
        """Yield the report for people."""
        for name, array in self.outputs.items():
            found = _summary(array, self.batches)
            yield (
                f"{name} {shape_text(array.shape)} {found['dtype']}: min {found['min']:.6g}, "
                f"max {found['max']:.6g}, mean {found['mean']:.6g}, argmax {_some(found['argmax'])}"
            )
        yield f"{self.cycles:,} cycles, {self.time_ms:.3f} ms modelled"
        for name, cycles in self.surcharge.items():
            part = cycles / self.cycles
            yield f"{name} defence: {cycles:,} cycles more, {part:.1%}"
        yield from self.met_lines
        if self.replay:
            yield from fault_lines(self.replay, self.events)
        runs = len(self.host_ms)
        if runs > 1:
            middle, least = median(self.host_ms), min(self.host_ms)
            yield f"host: median {middle:.2f} ms, min {least:.2f}, {runs} runs"


@dataclass(frozen=True, kw_only=True)
class EvalReport:
    """Accuracy on labelled data, and what faults and defences did meanwhile."""

    accuracy: Accuracy
    faults: Sequence[str]
    replay: str
    surcharge: Mapping[str, int]
    events: Sequence[FaultEvent]

    def as_dict(self) -> dict[str, Any]:
        """Return the report for JSON."""
        found = self.accuracy
        return {
            "schema": 1,
            "samples": found.samples,
            "correct": found.correct,
            "refused": found.refused,
            "top1": found.top1,
            "faults": list(self.faults),
            "surcharge": dict(self.surcharge),
            "events": [event.as_dict() for event in self.events],
        }

    def lines(self) -> Iterator[str]:
        """Yield the report for people."""
        found = self.accuracy
        yield f"top-1 {found.top1:.2%}: {found.correct} of {found.finished} samples"
        if self.replay:
            yield f"refused: {found.refused} of {found.samples} samples"
            yield from fault_lines(self.replay, self.events)


def _summary(array: NDArray[Any], batches: int) -> dict[str, Any]:
    rows = array.reshape(len(array), -1) if array.ndim and len(array) else array.reshape(1, -1)
    largest = rows.argmax(axis=1).tolist()
    return {
        "shape": list(array.shape),
        "dtype": array.dtype.name,
        "min": array.min().item(),
        "max": array.max().item(),
        "mean": float(array.mean(dtype=np.float64)),
        "argmax": largest[0] if len(largest) == 1 else largest,
    }


def _finite(values: dict[str, Any]) -> dict[str, Any]:
    """Return *values* with None for numbers that JSON does not have."""
    return {
        key: None if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in values.items()
    }


def _some(argmax: int | list[int]) -> str:
    if isinstance(argmax, int):
        return str(argmax)
    shown = ", ".join(map(str, argmax[:10]))
    return f"[{shown}{', ...' if len(argmax) > 10 else ''}]"


def run_blob(
    image: Image,
    *,
    inputs: Sequence[str],
    output: str | None,
    repeat: int,
    preprocess: str | None = None,
    state: str | None = None,
    reset: bool = False,
    plan: FaultPlan = NO_FAULTS,
    register: VersionRegister | None = None,
) -> RunReport:
    """Run *image* on the arrays that *inputs* name, *repeat* times; write *output* if it is given.

    *preprocess* is the TOML file that says how images among the inputs become arrays.

    Each repetition begins with the same states: those of the file *state* where there is one and
    *reset* is not wanted, else the first values. Afterwards the file holds the states. *plan*
    has the faults; what they and the defences did are the report's ``events``. *register* is the
    device's version register.

    Raises AbiError for arrays that do not fit, OSError when the output cannot be written.
    """
    arrays, notes = _given(image, inputs, preprocess)
    batches = runs_of(image.inputs, arrays)
    engine = plan.engine(image, register)
    if state is not None:
        _require_states(image)
        if not reset and Path(state).exists():
            engine.states = _arrays_of(state)
    begin = engine.states
    times, results = [], {}
    for _ in range(repeat):
        engine.states = begin
        start = time.perf_counter()
        results = survived(engine, arrays, plan)
        times.append((time.perf_counter() - start) * 1e3)
    if output is not None:
        write_atomically(output, npz_bytes(results))
    if state is not None:
        write_atomically(state, npz_bytes(engine.states))
    cycles = image.timeline.cycles * batches
    return RunReport(
        outputs=results,
        batches=batches,
        cycles=cycles,
        time_ms=cycles / (image.target.clock_mhz * 1000),
        host_ms=tuple(times),
        notes=notes,
        events=engine.log,
        faults=plan.lines(),
        replay=plan.replay() if plan.faults or engine.log else "",
        surcharge=engine.surcharge,
        met=_met(engine),
        met_lines=tuple(line for hook in engine.hooks for line in hook.report_lines()),
    )


def _met(engine: Engine) -> dict[str, Any]:
    return {name: value for hook in engine.hooks for name, value in hook.report().items()}


def _given(
    image: Image, inputs: Sequence[str], preprocess: str | None
) -> tuple[Mapping[str, NDArray[Any]], tuple[str, ...]]:
    """Return the input arrays, and notes about them."""
    names = [port.name for port in image.inputs]
    notes: tuple[str, ...] = ()
    if inputs or not names:
        arrays, spare = read_inputs(inputs, names, _recipe(preprocess))
        notes = tuple(f"note: {name!r} is no input of the network, not used" for name in spare)
    else:
        arrays = generated_inputs(image)
        seed = image.program.known_answer.seed
        notes = (f"no --input: ran on random data, the known-answer input of seed {seed}",)
    return arrays, notes


def evaluate_blob(
    image: Image,
    data: str,
    labels: str | None,
    *,
    preprocess: str | None = None,
    progress: Progress = silent,
    register: VersionRegister | None = None,
    plan: FaultPlan = NO_FAULTS,
) -> EvalReport:
    """Return the accuracy of *image* on *data*, a file of arrays or a folder of images.

    *plan* has the faults; jobs that a defence refused are counted apart.

    *labels* is the key of the labels in the file, ``labels`` by default, or a file with the classes
    of the images. *progress* is told of samples.
    """
    if Path(data).is_dir():
        recipe = _recipe(preprocess)
        if recipe is None:
            text = f"{data} is a folder: say how its images become arrays with --preprocess"
            raise FirmwareError(ErrorCode.INPUT_IMAGE, text)
        engine = plan.engine(image, register)
        found = evaluate_images(engine, Path(data), labels, recipe, progress=progress)
        return _eval_report(found, engine, plan)
    arrays = _arrays_of(data)
    names = [port.name for port in image.inputs]
    inputs, wanted = split_labels(arrays, labels or "labels", names, data)
    engine = plan.engine(image, register)
    found = evaluate(engine, inputs, wanted, progress=progress)
    return _eval_report(found, engine, plan)


def _eval_report(accuracy: Accuracy, engine: Engine, plan: FaultPlan) -> EvalReport:
    return EvalReport(
        accuracy=accuracy,
        faults=plan.lines(),
        replay=plan.replay() if plan.faults or engine.log else "",
        surcharge=engine.surcharge,
        events=engine.log,
    )


def _recipe(path: str | None) -> Preprocess | None:
    try:
        return None if path is None else load_preprocess(path)
    except ImageError as error:
        raise FirmwareError(ErrorCode.INPUT_IMAGE, str(error)) from error


def _require_states(image: Image) -> None:
    if not image.states:
        text = "the network keeps no state from run to run: leave out --state"
        raise FirmwareError(ErrorCode.INPUT_UNKNOWN, text)


def _arrays_of(path: str) -> dict[str, NDArray[Any]]:
    try:
        return read_arrays(Path(path))
    except NpzError as error:
        raise FirmwareError(ErrorCode.INPUT_FILE, str(error)) from error
