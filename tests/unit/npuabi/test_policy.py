"""The ABI policy: which versions, schemas, targets and features are taken, and what is said."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from npuabi import enums, schemas
from npuabi.container import Program
from npuabi.errors import AbiError, ErrorCode
from npuabi.policy import GEOMETRY, SCHEMAS, Abi, abi_of, check, own_abi
from npuabi.records import RECORDS, TableHeader
from npuabi.schemas import (
    ABI_MAJOR,
    ABI_MINOR,
    FRAME,
    own_schema,
    parse_schema,
    released,
    schema_hash,
    schema_text,
)
from npuabi.target import load_target

Build = Callable[[int, int, int], Program]
EDGE = load_target("edge")


def refusal(header: TableHeader, target: str = "edge", abi: Abi | None = None) -> AbiError:
    with pytest.raises(AbiError) as caught:
        check(header, load_target(target), abi or own_abi())
    return caught.value


def test_the_schema_table_states_the_hash_of_the_records_as_they_are() -> None:
    current = (ABI_MAJOR, ABI_MINOR)
    assert SCHEMAS[current] == schema_hash(), (
        f"records or enums changed: before the first release set SCHEMAS[{current}] to"
        f" {schema_hash():#018x}, afterwards raise ABI_MINOR or ABI_MAJOR and add a row"
    )


def test_a_header_of_this_firmware_is_taken(build: Build) -> None:
    check(build(1, 1, 0).header, EDGE, own_abi())


@pytest.mark.parametrize(
    ("changes", "code", "words"),
    [
        ({"abi_major": 6, "abi_minor": 1}, ErrorCode.ABI_MAJOR, ("ABI 6.1", "ABI 0.2")),
        ({"abi_minor": 3}, ErrorCode.ABI_MINOR, ("ABI 0.3", "ABI 0.2")),
        ({"schema_hash": 5}, ErrorCode.SCHEMA_HASH, ("0000000000000005", "ABI 0.2")),
        ({"abi_minor": 0}, ErrorCode.SCHEMA_HASH, ("ABI 0.0", "ABI 0.2")),
        (
            {"banks": 8, "cores": 1},
            ErrorCode.GEOMETRY,
            ("for cores 1, banks 8,", "edge has cores 3, banks 16"),
        ),
        ({"target": b"tiny"}, ErrorCode.TARGET_NAME, ("target tiny", "device is edge")),
        ({"target": b"\xff"}, ErrorCode.TARGET_NAME, (r"target \xff",)),
        ({"target_hash": 3}, ErrorCode.TARGET_HASH, ("edge has hash 0000000000000003",)),
        ({"features": 1 << 63}, ErrorCode.UNKNOWN_FEATURE, ("0x8000000000000000", "knows 0x0")),
    ],
)
def test_a_refusal_names_both_sides_and_the_remedy(
    build: Build, changes: dict[str, Any], code: ErrorCode, words: tuple[str, ...]
) -> None:
    error = refusal(replace(build(1, 1, 0).header, **changes))
    assert error.code is code
    assert all(word in error.detail for word in (*words, code.remedy))


@pytest.mark.parametrize("name", GEOMETRY)
def test_each_number_of_the_target_that_differs_is_named_with_both_values(
    build: Build, name: str
) -> None:
    header = build(1, 1, 0).header
    more: dict[str, Any] = {name: getattr(header, name) + 1}
    error = refusal(replace(header, **more))
    assert error.code is ErrorCode.GEOMETRY
    for value in (f"{name} {getattr(EDGE, name) + 1}", f"{name} {getattr(EDGE, name)}"):
        assert value in error.detail


def test_an_older_minor_version_is_taken_when_its_schema_is_known(build: Build) -> None:
    old = released()[0, 1]
    unstated: dict[str, Any] = dict.fromkeys(GEOMETRY, 0)
    header = replace(build(1, 1, 0).header, abi_minor=1, **unstated)
    check(replace(header, schema_hash=old.hash), EDGE, own_abi())
    assert refusal(header).code is ErrorCode.SCHEMA_HASH
    assert refusal(build(1, 1, 0).header, abi=abi_of((0, 1))).code is ErrorCode.ABI_MINOR


def test_a_kept_schema_has_the_hash_that_its_version_had() -> None:
    assert {**{v: s.hash for v, s in released().items()}, (0, 2): schema_hash()} == SCHEMAS


def test_the_text_of_a_schema_says_all_of_it() -> None:
    own = own_schema()
    assert own.hash == schema_hash()
    for kind in RECORDS:
        assert own.dtype(kind.__name__).itemsize == kind.SIZE
        offsets = {name: offset for offset, name, _ in kind.rows()}
        assert {p.name: p.offset for p in own.records[kind.__name__]} == offsets


@pytest.mark.parametrize("version", released(), ids=lambda v: f"{v[0]}.{v[1]}")
def test_a_minor_version_only_adds(version: tuple[int, int]) -> None:
    old, own = released()[version], own_schema()
    for kind in FRAME:
        now = {place.name: place for place in own.records[kind.__name__]}
        stated = [p for p in old.records[kind.__name__] if p.role != "reserved"]
        assert all(now[place.name] == place for place in stated), f"{kind.__name__} lies still"
    for name, places in old.records.items():
        fields = {p.name: (p.ctype, p.count, p.enum) for p in own.records[name]}
        stated = [p for p in places if p.role in ("value", "chars")]
        assert all(fields[p.name] == (p.ctype, p.count, p.enum) for p in stated)
    for name, members in old.enums.items():
        assert members.items() <= own.enums[name].items(), f"{name} keeps its members"


def test_a_blob_for_another_target_is_refused(build: Build) -> None:
    for target in ("edge-quad", "tiny"):
        assert refusal(build(1, 1, 0).header, target).code is ErrorCode.TARGET_NAME


def test_the_schema_covers_every_record_field_and_enum_member() -> None:
    lines = schema_text().splitlines()
    for kind in RECORDS:
        assert f"record {kind.__name__} {kind.SIZE}" in lines
        for offset, name, wire in kind.rows():
            assert any(line.startswith(f"{offset} {name} {wire.ctype}") for line in lines)
    for name in enums.__all__:
        assert f"enum {name}" in lines
        assert all(f"{m.name} {m.value}" in lines for m in getattr(enums, name))


def test_an_edited_record_changes_the_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    before = schema_hash()
    monkeypatch.setattr(schemas, "RECORDS", RECORDS[:-1])
    assert parse_schema(schema_text()).hash != before
