"""Heat: the chip's temperature over time, and late bits where the timing set is too cool for it.

The read-out of a TOA's sums samples where the set in force says. A sum whose carries have not
settled by then shows in its highest bits what the bus held, the sum read before. The detector
samples once more, a little later: where it differs the TOA is replayed, with the same set, at most
twice. What settles after the detector, and what is late in the third read-out, goes on.

Invariant: what a run meets follows from the seed, the number of the run, its temperature and its
set; a hook that reloads sets changes ``timing`` at RUN_STARTS and nowhere else.
"""

from __future__ import annotations

import csv
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from npuabi.enums import ToaFlag
from npuabi.records import BandSet
from npufw.boot import Image
from npufw.fault_models.base import SEED, FaultModel, Field, Values
from npufw.faults import Hook, Machine, Moment, Outcome, Phase
from npufw.thermal import (
    ATTEMPTS,
    BASE_SET,
    EXTREMES_C,
    IDLE,
    Activity,
    Junction,
    Regulator,
    activity_of,
    late_bits,
    late_chances,
    timeline_with,
    window_ps,
)

__all__ = [
    "HEAT",
    "Constant",
    "Heat",
    "HeatOfRun",
    "SelfHeating",
    "Steps",
    "Temperature",
    "read_trace",
]

_LEAST_CHANCE = 2.0**-53
"""Draws have 53 bits: what is rarer does not happen."""

_DETECTOR = -1

_MOST_TRACE_BYTES = 1 << 24

_RETRY_S = 0.1
"""After so long a refused job is tried again."""


class Temperature(Protocol):
    """Where a temperature comes from."""

    @property
    def celsius(self) -> float:
        """Degrees Celsius now."""

    def pass_time(self, seconds: float, activity: Activity, hertz: float) -> None:
        """Let *seconds* pass in which every core did *activity* again and again."""


@dataclass(slots=True)
class Constant:
    """The same temperature for ever."""

    celsius: float

    def pass_time(self, seconds: float, activity: Activity, hertz: float) -> None:
        """Nothing changes."""


@dataclass(slots=True)
class Steps:
    """A temperature for each time from which it holds; between points of a trace, a line."""

    times: Sequence[float]
    values: Sequence[float]
    lines: bool = False
    now: float = 0.0

    @property
    def celsius(self) -> float:
        """Degrees Celsius now."""
        if self.lines:
            return float(np.interp(self.now, self.times, self.values))
        return self.values[max(0, bisect_right(self.times, self.now) - 1)]

    def pass_time(self, seconds: float, activity: Activity, hertz: float) -> None:
        """Go on along the trace."""
        self.now += seconds


def read_trace(path: Path) -> Steps:
    """Return the trace in a CSV file of lines ``seconds,celsius``; lines join its points.

    Raises ValueError for anything else, OSError when it cannot be read.
    """
    with path.open("rb") as stream:
        raw = stream.read(_MOST_TRACE_BYTES + 1)
    if len(raw) > _MOST_TRACE_BYTES:
        raise ValueError(f"{path}: a trace has at most {_MOST_TRACE_BYTES} bytes")
    try:
        lines = raw.decode("utf-8-sig").splitlines()
        rows = [row for row in csv.reader(lines) if row and not row[0].startswith("#")]
        points = [(float(row[0]), float(row[1])) for row in rows if len(row) == 2]
    except (ValueError, csv.Error):  # no text, no numbers, a field that is too long
        rows, points = [], []
    times = [time for time, _ in points]
    if not points or len(points) != len(rows) or times != sorted(times):
        raise ValueError(f"{path}: expected lines of seconds,celsius in the order of time")
    if not np.isfinite(points).all():
        raise ValueError(f"{path}: times and temperatures are numbers")
    coldest, hottest = EXTREMES_C
    if not all(coldest <= celsius <= hottest for _, celsius in points):
        raise ValueError(f"{path}: temperatures go from {coldest:g} to {hottest:g} degC")
    return Steps(times, [celsius for _, celsius in points], lines=True)


@dataclass(slots=True)
class SelfHeating:
    """The RC model, warmed by what *cores* cores do."""

    junction: Junction
    cores: int

    @property
    def celsius(self) -> float:
        """Degrees Celsius now."""
        return self.junction.celsius

    def pass_time(self, seconds: float, activity: Activity, hertz: float) -> None:
        """Warm or cool."""
        self.junction.pass_time(seconds, activity.watts(hertz, self.cores))


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatOfRun:
    """What one run met: when, at which temperature, with which set and clock, and what it took.

    ``replays`` are TOAs computed again, ``wrong`` sums that went on with late bits.
    """

    second: float
    celsius: float
    band: int
    clock: float
    cycles: int
    time_ms: float
    replays: int
    wrong: int


@dataclass(slots=True)
class _Tally:
    """Replays of the present run by position in the ring, sums caught late, sums gone wrong."""

    replays: dict[int, int] = field(default_factory=dict)
    caught: int = 0
    wrong: int = 0


class Heat(Hook):
    """Lets *source* act on an image's runs; each stands for *seconds* of the same, if given."""

    def __init__(
        self, image: Image, source: Temperature, *, seed: int = 0, seconds: float | None = None
    ) -> None:
        self.source = source
        self.timing: BandSet = BASE_SET
        self.runs: list[HeatOfRun] = []
        self.second = 0.0
        self._image, self._seed, self._seconds = image, seed, seconds
        self._positions = {step.index: i for i, step in enumerate(image.steps)}
        self._regulator = Regulator()
        self._cycles: dict[tuple[int, tuple[tuple[int, int], ...]], int] = {}
        self._chances: dict[float, NDArray[np.float64]] = {}
        self._run = _Tally()
        self._celsius, self._clock = source.celsius, 1.0

    def report(self) -> dict[str, Any]:
        """Return what the runs met: the last one's state, means over them, and sums."""
        if not self.runs:
            return {}
        last, count, base = self.runs[-1], len(self.runs), self._image.timeline.cycles
        return {
            "thermal": {
                "runs": count,
                "celsius": last.celsius,
                "hottest": max(run.celsius for run in self.runs),
                "band": last.band,
                "clock": last.clock,
                "cycles": sum(run.cycles for run in self.runs) / count,
                "time_ms": sum(run.time_ms for run in self.runs) / count,
                "stall_cycles": sum(run.cycles / run.clock - base for run in self.runs) / count,
                "replays": sum(run.replays for run in self.runs),
                "wrong_sums": sum(run.wrong for run in self.runs),
            }
        }

    def report_lines(self) -> Iterator[str]:
        """Yield the report for people."""
        for found in self.report().values():
            yield (
                f"heat: {found['celsius']:.1f} degC, clock at {found['clock']:.0%}, set of band "
                f"{found['band']}; a run takes {found['cycles']:,.0f} cycles, "
                f"{found['time_ms']:.4f} ms; {found['replays']} replays, "
                f"{found['wrong_sums']} wrong sums"
            )

    @property
    def replays(self) -> dict[int, int]:
        """Replays of the last run, by position in the ring."""
        return dict(self._run.replays)

    @property
    def celsius(self) -> float:
        """The chip's true temperature, which only sensors may ask for."""
        return self.source.celsius

    def at(self, machine: Machine, moment: Moment) -> None:
        """Set the clock before a run; see what it took when it has ended."""
        if moment.phase is Phase.RUN_STARTS:
            self._celsius = self.source.celsius
            self._clock = self._regulator.settle(self._celsius)
            self._chances.clear()
            self._run = _Tally()
        elif moment.phase is Phase.RUN_ENDS:
            self._finish(machine, moment)
        elif moment.phase is Phase.REFUSED:
            self._pass_time(_RETRY_S if self._seconds is None else self._seconds, IDLE)

    def summed(self, machine: Machine, moment: Moment, sums: NDArray[Any]) -> NDArray[Any]:
        """Return what the bus shows of *sums*: late bits are those of the sum before."""
        if moment.step is None:
            return sums
        window = window_ps(moment.step.toa, self.timing)
        chances = self._chances.get(window)
        if chances is None:
            chances = self._chances[window] = late_chances(window, self._celsius)
        if chances[0] < _LEAST_CHANCE:
            return sums
        wide = bool(moment.step.toa.flags & ToaFlag.WIDE)
        raw = np.random.PCG64([self._seed, len(self.runs), moment.step.index])
        words = _words(sums, wide)
        for attempt in range(ATTEMPTS):
            draws = _draws(raw, words.size)
            found = _late(words, late_bits(chances, draws))
            seen = found.places[draws[found.places] >= chances[_DETECTOR]]
            self._run.caught += len(seen)
            if not len(seen) or attempt == ATTEMPTS - 1:
                break
            self._run.replays[self._positions[moment.step.index]] = attempt + 1
        self._run.wrong += len(found.places)
        return _put_back(sums, found) if len(found.places) else sums

    def _finish(self, machine: Machine, moment: Moment) -> None:
        run = self._run
        cycles = self._cycles_of(run.replays)
        hertz = self._image.target.clock_mhz * 1e6 * self._clock
        self.runs.append(
            HeatOfRun(
                second=self.second,
                celsius=self._celsius,
                band=self.timing.band,
                clock=self._clock,
                cycles=cycles,
                time_ms=cycles / hertz * 1e3,
                replays=sum(run.replays.values()),
                wrong=run.wrong,
            )
        )
        self._log(machine, moment)
        seconds = cycles / hertz if self._seconds is None else self._seconds
        self._pass_time(seconds, activity_of(self._image, cycles, run.replays))

    def _pass_time(self, seconds: float, activity: Activity) -> None:
        hertz = self._image.target.clock_mhz * 1e6 * self._clock
        self.source.pass_time(seconds, activity, hertz)
        self.second += seconds

    def _cycles_of(self, replays: dict[int, int]) -> int:
        key = (self.timing.band, tuple(sorted(replays.items())))
        if key not in self._cycles:
            self._cycles[key] = timeline_with(self._image, self.timing, replays).cycles
        return self._cycles[key]

    def _log(self, machine: Machine, moment: Moment) -> None:
        run, where = self._run, f"at {self._celsius:.1f} degC"
        if run.wrong:
            text = f"{run.wrong} sums read before they had settled, {where}"
            machine.note("heat", moment, Outcome.INJECTED, text)
        if run.caught:
            text = f"{run.caught} late sums caught, TOAs replayed {sum(run.replays.values())} times"
            machine.note("heat", moment, Outcome.DETECTED, f"{text}, {where}")


def _draws(raw: np.random.PCG64, count: int) -> NDArray[np.float64]:
    words = np.asarray(raw.random_raw(count), np.uint64) >> np.uint64(11)
    return np.asarray(words * _LEAST_CHANCE, np.float64)


@dataclass(frozen=True, slots=True)
class _Found:
    """Places of flattened sums that are read wrongly, and the words that are read there."""

    places: NDArray[np.int64]
    words: NDArray[Any]


def _words(sums: NDArray[Any], wide: bool) -> NDArray[Any]:
    """Return *sums*, flattened pixel by pixel, as the words that the accumulators hold."""
    if sums.dtype == np.float32:
        return np.ascontiguousarray(sums).reshape(-1, sums.shape[-1]).view(np.uint32)
    whole = sums.astype(np.int64).reshape(-1, sums.shape[-1])
    return whole.view(np.uint64) if wide else whole.astype(np.uint32)


def _late(words: NDArray[Any], late: NDArray[np.int64]) -> _Found:
    """Return which words change when so many of their highest bits stay as they were before."""
    places = np.flatnonzero(late)
    flat, lanes = words.reshape(-1), words.shape[1]
    before = np.where(places >= lanes, flat[places - lanes], flat.dtype.type(0))
    kept = (flat.dtype.itemsize * 8 - late[places]).astype(flat.dtype)
    low = (flat.dtype.type(1) << kept) - flat.dtype.type(1)
    mixed = (flat[places] & low) | (before & ~low)
    changed = mixed != flat[places]
    return _Found(places[changed], mixed[changed])


def _put_back(sums: NDArray[Any], found: _Found) -> NDArray[Any]:
    made = np.array(sums)
    flat = made.reshape(-1)
    signed = found.words.view(
        np.float32 if sums.dtype == np.float32 else _SIGNED[found.words.dtype]
    )
    flat[found.places] = signed
    return made


_SIGNED: dict[Any, Any] = {np.dtype(np.uint32): np.int32, np.dtype(np.uint64): np.int64}


_MODES = ("constant", "step", "trace", "self")


def _source(image: Image, values: Values) -> Temperature:
    celsius = float(values["celsius"])
    if values["mode"] == "step":
        return Steps([0.0, float(values["at"])], [celsius, float(values["to"])])
    if values["mode"] == "trace":
        if not values["file"]:
            raise ValueError("mode trace needs file=X.csv")
        try:
            return read_trace(Path(str(values["file"])))
        except OSError as error:
            raise ValueError(f"{values['file']} cannot be read: {error.strerror}") from error
    if values["mode"] == "self":
        junction = Junction(ambient_c=float(values["ambient"]), celsius=celsius)
        return SelfHeating(junction, image.target.cores)
    return Constant(celsius)


def _heat(image: Image, values: Values) -> Heat:
    seconds = float(values["seconds"]) or None
    return Heat(image, _source(image, values), seed=int(values["seed"]), seconds=seconds)


def _kelvin(name: str, default: float, text: str) -> Field:
    return Field(name=name, kind=float, default=default, unit="degC", help=text,
                 low=EXTREMES_C[0], high=EXTREMES_C[1])  # fmt: skip


HEAT = FaultModel(
    name="heat",
    title="the chip has a temperature; sums are read late where the timing set is too cool for it",
    gate="heat",
    fields=(
        Field(name="mode", kind=str, default="constant", choices=_MODES, help="how it goes on"),
        _kelvin("celsius", 25.0, "at the beginning"),
        _kelvin("to", 95.0, "after the step"),
        Field(name="at", kind=float, default=1.0, unit="s", help="when the step comes"),
        Field(name="file", kind=str, default="", help="a trace: CSV lines of seconds,celsius"),
        _kelvin("ambient", 50.0, "around a chip that heats itself"),
        Field(name="seconds", kind=float, default=0.0, unit="s", high=86_400,
              help="what a run stands for: so long the same is done; 0: itself"),
        SEED,
    ),
    make=_heat,
    example="heat:mode=self,ambient=50,seconds=20",
    single=True,
)  # fmt: skip
