"""Scenarios: who asks for what and when, and what goes wrong, as a TOML file.

    seed = 1
    duration_s = 60.0
    [machine]    cores, switch_ms
    [policy]     ageing_ms, queue_limit
    [[model]]    name, run_ms, ddr_ms, descriptor_ms, or name and blob
    [[client]]   model, count, priority, arrivals = "closed" | "periodic" | "poisson" | "burst", ...
    [[fault]]    at_s, kind = "heat" | "job" | "core" | "stall", ...

Invariant: each key is stated once, in the tables below; a missing, unknown or out-of-range one is
refused with its place, what was expected and what was given.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from npufw.boot import boot, device_of
from npufw.hostfiles import read_blob_file
from npurt.errors import ScenarioError
from npurt.events import Model
from npurt.physics import Machine, Work
from npurt.policy import HIGHEST

__all__ = ["KEYS", "Client", "Fault", "Scenario", "load_scenario", "parse_scenario"]

_MOST_BYTES = 1 << 20
_MOST_GROUPS = 1000
_MOST_BITS = 128
_US = {"_s": 1e6, "_ms": 1e3}


@dataclass(frozen=True, slots=True)
class Key:
    """A key of a scenario: its bounds, its default (None: it must be given), and what it is."""

    low: float
    high: float
    default: float | None
    help: str
    whole: bool = False


_ENDLESS = 1e9
KEYS: dict[str, dict[str, Key]] = {
    "scenario": {
        "seed": Key(0, 2**53, 1, "of all random numbers", whole=True),
        "duration_s": Key(1e-3, 1e7, None, "emulated time"),
    },
    "machine": {
        "cores": Key(1, 64, 3, "NPU cores", whole=True),
        "switch_ms": Key(0, 1e3, 5.0, "a context switch"),
    },
    "policy": {
        "ageing_ms": Key(1e-3, _ENDLESS, 10_000.0, "waiting that raises a job by one level"),
        "queue_limit": Key(1, 1e9, 1e9, "jobs that may wait; more are refused", whole=True),
    },
    "model": {
        "run_ms": Key(1e-3, 1e6, None, "a run on one core, nobody else at DDR"),
        "ddr_ms": Key(0, 1e6, 0.0, "how much of that is at DDR"),
        "descriptor_ms": Key(0, 1e6, 0.1, "its longest descriptor"),
    },
    "client": {
        "count": Key(1, 100_000, 1, "clients of this kind", whole=True),
        "priority": Key(0, HIGHEST, 0, "7 is the most urgent", whole=True),
        "deadline_ms": Key(0, _ENDLESS, 0.0, "from submission to begin; 0: none"),
        "cancel": Key(0, 1, 0.0, "part of the jobs that are cancelled at a random time"),
        "cancel_after_ms": Key(0, _ENDLESS, 100.0, "the longest time to a cancellation"),
    },
    "closed": {"gap_ms": Key(0, _ENDLESS, 0.0, "from a result to the next request")},
    "periodic": {
        "period_ms": Key(1e-3, _ENDLESS, None, "between requests"),
        "jitter_ms": Key(0, _ENDLESS, 0.0, "the most that a request comes late"),
    },
    "poisson": {"rate_per_s": Key(1e-6, 1e6, None, "requests a second, in the mean")},
    "burst": {
        "period_ms": Key(1e-3, _ENDLESS, None, "between bursts"),
        "size": Key(1, 100_000, None, "requests of a burst", whole=True),
    },
    "heat": {"slowdown": Key(1, 100, None, "what everything takes longer from then on")},
    "job": {"core": Key(0, 63, None, "whose job fails", whole=True)},
    "core": {"core": Key(0, 63, None, "that is taken out", whole=True)},
    "stall": {
        "core": Key(0, 63, None, "that takes no job", whole=True),
        "for_ms": Key(1e-3, _ENDLESS, None, "for so long"),
    },
}
"""Number keys by table; those of an arrival or a fault stand under its name."""

_TABLES = {
    "machine": "[machine]",
    "policy": "[policy]",
    "model": "[[model]]",
    "client": "[[client]]",
    "fault": "[[fault]]",
}
_ARRIVALS = ("closed", "periodic", "poisson", "burst")
_FAULTS = ("heat", "job", "core", "stall")
_FAULT_TIME = {"at_s": Key(0, 1e7, None, "when")}


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """A group of clients. ``values`` are the numbers of its keys, times in microseconds."""

    model: str
    arrivals: str
    values: Mapping[str, float]
    cores: frozenset[int] | None = None

    @property
    def count(self) -> int:
        """Clients of the group."""
        return int(self.values["count"])

    @property
    def priority(self) -> int:
        """Of all their jobs."""
        return int(self.values["priority"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Something that goes wrong at a time."""

    kind: str
    values: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """What a scenario file says, times in microseconds."""

    seed: int
    duration_us: float
    machine: Machine
    ageing_us: int
    queue_limit: int
    models: Mapping[str, Model]
    clients: tuple[Client, ...]
    faults: tuple[Fault, ...] = field(default=())


def load_scenario(path: str) -> Scenario:
    """Return the scenario in the file at *path*; blobs lie in its folder.

    Raises ScenarioError, OSError when the file cannot be read, AbiError for a blob.
    """
    file = Path(path)
    with file.open("rb") as stream:
        raw = stream.read(_MOST_BYTES + 1)
    if len(raw) > _MOST_BYTES:
        raise ScenarioError(f"{path}: a scenario has at most {_MOST_BYTES} bytes")
    try:
        return parse_scenario(raw.decode(), file.parent)
    except UnicodeDecodeError as error:
        raise ScenarioError(f"{path}: a scenario is UTF-8 text") from error
    except ScenarioError as error:
        raise ScenarioError(f"{path}: {error}") from error


def parse_scenario(text: str, folder: Path = Path()) -> Scenario:
    """Return the scenario that *text* holds. Raises ScenarioError, AbiError for a blob."""
    try:
        given = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        # TOMLDecodeError is a ValueError; a number of thousands of digits is a bare one.
        raise ScenarioError(f"this is no TOML: {error}") from error
    top = {key: value for key, value in given.items() if key not in _TABLES}
    unknown = next((key for key in top if key not in KEYS["scenario"]), None)
    if unknown is not None:
        there = ", ".join((*KEYS["scenario"], *_TABLES.values()))
        raise ScenarioError(f"unknown key {unknown!r:.60}; there are {there}")
    whole = _numbers("scenario", top, "scenario")
    machine = _numbers("machine", _table(given, "machine"), "[machine]")
    policy = _numbers("policy", _table(given, "policy"), "[policy]")
    models: dict[str, Model] = {}
    for place, entry in _entries(given, "model"):
        model = _model(entry, place, folder)
        if model.name in models:
            raise ScenarioError(f"{place}: a second model {model.name!r}")
        models[model.name] = model
    cores = int(machine["cores"])
    clients = tuple(_client(e, place, models, cores) for place, e in _entries(given, "client"))
    if not clients:
        raise ScenarioError("there is no [[client]]: nobody would ask for anything")
    return Scenario(
        seed=int(whole["seed"]),
        duration_us=whole["duration_s"],
        machine=Machine(cores=cores, switch_us=round(machine["switch_ms"])),
        ageing_us=max(1, round(policy["ageing_ms"])),
        queue_limit=int(policy["queue_limit"]),
        models=models,
        clients=clients,
        faults=tuple(_fault(entry, place, cores) for place, entry in _entries(given, "fault")),
    )


def _table(given: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = given.get(name, {})
    if not isinstance(found, dict):
        raise ScenarioError(f"[{name}] is a table, got {_shown(found)}")
    return found


def _entries(given: Mapping[str, Any], name: str) -> list[tuple[str, dict[str, Any]]]:
    found = given.get(name, [])
    if not isinstance(found, list) or not all(isinstance(entry, dict) for entry in found):
        raise ScenarioError(f"[[{name}]] is a list of tables, got {_shown(found)}")
    if len(found) > _MOST_GROUPS:
        raise ScenarioError(f"at most {_MOST_GROUPS} [[{name}]], got {len(found)}")
    return [(f"[[{name}]] {number}", dict(entry)) for number, entry in enumerate(found, 1)]


def _numbers(
    kind: str, given: Mapping[str, Any], place: str, more: Mapping[str, Key] | None = None
) -> dict[str, float]:
    """Return all numbers of a table by key, times in microseconds."""
    keys = {**KEYS[kind], **(more or {})}
    unknown = [key for key in given if key not in keys]
    if unknown:
        raise ScenarioError(f"{place}: unknown key {unknown[0]!r:.60}; there are {', '.join(keys)}")
    return {name: _scaled(name, _number(name, key, given, place)) for name, key in keys.items()}


def _number(name: str, key: Key, given: Mapping[str, Any], place: str) -> float:
    value = given.get(name, key.default)
    if value is None:
        raise ScenarioError(f"{place}: {name} is missing: {key.help}")
    wanted = "a whole number" if key.whole else "a number"
    right = isinstance(value, int | float) and not isinstance(value, bool)
    # Not a number and infinity lie in no range, so int() is never given them.
    if not right or not key.low <= value <= key.high or (key.whole and value != int(value)):
        text = f"{place}: {name} ({key.help}) is {wanted} from {key.low:g} to {key.high:g}"
        raise ScenarioError(f"{text}, got {_shown(value)}")
    return float(value)


def _shown(value: object) -> str:
    """Return *value* as a message quotes it, in one short piece."""
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        return f"a whole number of {value.bit_length()} bits"
    try:
        return f"{value!r:.60}"
    except ValueError:  # Python spells no number of thousands of digits, in a list for example.
        return f"a {type(value).__name__}"


def _scaled(name: str, value: float) -> float:
    unit = next((unit for end, unit in _US.items() if name.endswith(end)), 1.0)
    return value * (1.0 if name.endswith("_per_s") else unit)


def _word(entry: dict[str, Any], name: str, place: str, known: Mapping[str, Any] | None) -> str:
    wanted = (
        "a name in quotes" if known is None else " or ".join(known) or "no model: there is none"
    )
    if name not in entry:
        raise ScenarioError(f"{place}: {name} is missing: {wanted}")
    value = entry.pop(name)
    if not isinstance(value, str) or not value or (known is not None and value not in known):
        raise ScenarioError(f"{place}: {name} is {wanted}, got {_shown(value)}")
    return value


def _model(entry: dict[str, Any], place: str, folder: Path) -> Model:
    name = _word(entry, "name", place, None)
    if "blob" in entry:
        blob = _word(entry, "blob", place, None)
        if entry:
            raise ScenarioError(
                f"{place}: beside blob there is only name, got {next(iter(entry))!r:.60}"
            )
        return _model_of_blob(name, blob, place, folder)
    values = _numbers("model", entry, place)
    if values["ddr_ms"] > values["run_ms"]:
        raise ScenarioError(f"{place}: ddr_ms is a part of run_ms, got more")
    work = Work(alone_us=max(1, round(values["run_ms"])), ddr_us=round(values["ddr_ms"]))
    return Model(name=name, work=work, descriptor_us=values["descriptor_ms"])


def _model_of_blob(name: str, blob: str, place: str, folder: Path) -> Model:
    """Return what a compiled model costs by its own cycle model."""
    path = (folder / blob).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise ScenarioError(f"{place}: blob {blob!r:.60} lies outside the scenario's folder")
    raw = read_blob_file(str(path))
    image = boot(raw, device_of(raw, None))
    timeline, target = image.timeline, image.target
    moved = sum(work.ddr_bytes for work in image.works)
    alone_us = max(1, round(timeline.cycles / target.clock_mhz))
    ddr_us = round(moved / target.ddr_bytes_per_cycle / target.clock_mhz)
    longest = max((slot.end - slot.start for slot in timeline.slots), default=0)
    work = Work(alone_us=alone_us, ddr_us=min(alone_us, ddr_us))
    return Model(name=name, work=work, descriptor_us=longest / target.clock_mhz)


def _client(entry: dict[str, Any], place: str, models: Mapping[str, Model], cores: int) -> Client:
    model = _word(entry, "model", place, models)
    arrivals = _word(entry, "arrivals", place, dict.fromkeys(_ARRIVALS))
    allowed = entry.pop("cores", None)
    values = _numbers("client", entry, place, KEYS[arrivals])
    return Client(
        model=model, arrivals=arrivals, values=values, cores=_cores(allowed, place, cores)
    )


def _cores(given: Any, place: str, cores: int) -> frozenset[int] | None:
    if given is None:
        return None
    right = isinstance(given, list) and all(
        isinstance(core, int) and not isinstance(core, bool) and 0 <= core < cores for core in given
    )
    if not right or not given:
        raise ScenarioError(f"{place}: cores is a list of 0 to {cores - 1}, got {_shown(given)}")
    return frozenset(given)


def _fault(entry: dict[str, Any], place: str, cores: int) -> Fault:
    kind = _word(entry, "kind", place, dict.fromkeys(_FAULTS))
    values = _numbers(kind, entry, place, _FAULT_TIME)
    if values.get("core", 0) >= cores:
        raise ScenarioError(f"{place}: core is 0 to {cores - 1}, got {values['core']:g}")
    return Fault(kind=kind, values=values)
