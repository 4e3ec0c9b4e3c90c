"""Gate 4, firmware drift: a fleet in which not every device has the firmware that the blob is for.

What a version makes of the blob is found by running it, once a version; the fleet counts devices.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npuabi.container import read_blob
from npuabi.errors import AbiError
from npuabi.migrate import migrate
from npuabi.policy import GEOMETRY, own_abi
from npuabi.progress import Progress
from npuabi.records import TableHeader
from npuabi.schemas import Version
from npufw.boot import image_of
from npufw.engine import Engine
from npufw.fault_models.drift import VERSIONS, Fate, device_abi, fate
from npufw.gates.base import Gate, Shown, Subject

__all__ = ["GATE"]

_STATED = (
    "abi_major",
    "abi_minor",
    "schema_hash",
    "target_hash",
    "target",
    "features",
    *GEOMETRY,
)
"""What a blob states so that it can be refused."""

_DEVICES = 1000
_OWN_SHARE = 0.7
_SAMPLES = 32
_SEED = 4
_WORD = float(1 << 64)


def fleet(devices: int, seed: int) -> Counter[Version]:
    """Return how many devices have each version: 70 % ours, the others one of the rest each."""
    own, source = own_abi().version, np.random.PCG64(seed)
    others = [version for version in VERSIONS if version != own]
    words = source.random_raw(2 * devices).reshape(-1, 2)
    return Counter(
        own if int(first) / _WORD < _OWN_SHARE else others[int(second) % len(others)]
        for first, second in words
    )


def _show(subject: Subject, progress: Progress) -> Shown:
    inputs = {name: array[:_SAMPLES] for name, array in subject.inputs.items()}
    expected = Engine(subject.image).run(inputs)
    without: Counter[str] = Counter()
    behind: Counter[str] = Counter()
    devices = fleet(_DEVICES, _SEED)
    for done, (version, count) in enumerate(sorted(devices.items()), start=1):
        without[fate(subject.raw, version, subject.image.target, inputs, expected)] += count
        for word in _defended(subject, version, inputs, expected):
            behind[word] += count
        progress("gate 4: versions", done, len(devices))
    other = _DEVICES - devices[own_abi().version]
    failing = without[Fate.WRONG] + without[Fate.CRASHED]
    return Shown(
        undefended={
            "devices": _DEVICES,
            "other_version_share": other / _DEVICES,
            "wrong_share": without[Fate.WRONG] / _DEVICES,
            "crashed_share": without[Fate.CRASHED] / _DEVICES,
        },
        defended={
            "wrong_share": behind["wrong"] / _DEVICES,
            "loaded_share": behind["loaded"] / _DEVICES,
            "refused_share": behind["refused"] / _DEVICES,
            "right_after_migrate_share": behind["right"] / _DEVICES,
        },
        surcharge={"cycles": 0, "header_bytes": sum(TableHeader.FIELDS[n].size for n in _STATED)},
        passed=failing >= other / 2 and not behind["wrong"] and behind["right"] == _DEVICES,
    )


def _defended(
    subject: Subject,
    version: Version,
    inputs: Mapping[str, NDArray[Any]],
    expected: Mapping[str, NDArray[Any]],
) -> set[str]:
    """Return what a device of *version* does with the blob: loaded or refused, wrong or right.

    It is right when its results are, after the refusal's remedy where it refuses.
    """
    target, abi, found = subject.image.target, device_abi(version), set[str]()
    raw = subject.raw
    try:
        loaded = read_blob(raw, target=target, abi=abi)
        found.add("loaded")
    except AbiError as error:
        if error.code.remedy not in str(error):
            return {"refused"}
        found.add("refused")
        raw = migrate(raw, target, version, device_abi(VERSIONS[-1])).blob
        loaded = read_blob(raw, target=target, abi=abi)
    given = Engine(image_of(loaded, target)).run(inputs)
    same = all(np.array_equal(given[name], expected[name]) for name in expected)
    return found | {"right" if same else "wrong"}


GATE = Gate(
    number=4,
    name="firmware drift",
    fault="30 % of the devices have firmware of another ABI version, some with other layouts",
    defence="version, schema, target and features are checked before anything is allocated",
    show=_show,
)
