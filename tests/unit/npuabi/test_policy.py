"""The ABI policy: which versions, schemas, targets and features are taken, and what is said."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from npuabi import enums, policy
from npuabi.container import Program
from npuabi.errors import AbiError, ErrorCode
from npuabi.policy import SCHEMAS, check, check_version, schema_hash, schema_text
from npuabi.records import RECORDS, TableHeader
from npuabi.target import load_target

Build = Callable[[int, int, int], Program]
EDGE = load_target("edge")


def refusal(header: TableHeader, target: str = "edge") -> AbiError:
    with pytest.raises(AbiError) as caught:
        check(header, load_target(target))
    return caught.value


def test_the_schema_table_states_the_hash_of_the_records_as_they_are() -> None:
    current = (policy.ABI_MAJOR, policy.ABI_MINOR)
    assert SCHEMAS[current] == schema_hash(), (
        f"records or enums changed: before the first release set SCHEMAS[{current}] to"
        f" {schema_hash():#018x}, afterwards raise ABI_MINOR or ABI_MAJOR and add a row"
    )


def test_a_header_of_this_firmware_is_taken(build: Build) -> None:
    check(build(1, 1, 0).header, EDGE)


@pytest.mark.parametrize("major", range(8))
@pytest.mark.parametrize("minor", range(8))
@pytest.mark.parametrize("own", [(0, 1), (1, 3), (7, 7)])
def test_only_the_cells_of_the_version_table_load(
    major: int, minor: int, own: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policy, "ABI_MAJOR", own[0])
    monkeypatch.setattr(policy, "ABI_MINOR", own[1])
    expected = None
    if major != own[0]:
        expected = ErrorCode.ABI_MAJOR
    elif minor > own[1]:
        expected = ErrorCode.ABI_MINOR
    if expected is None:
        check_version(major, minor)
        return
    with pytest.raises(AbiError) as caught:
        check_version(major, minor)
    assert caught.value.code is expected
    for words in (f"the blob has ABI {major}.{minor}", f"this firmware ABI {own[0]}.{own[1]}"):
        assert words in caught.value.detail
    assert expected.remedy in caught.value.detail


@pytest.mark.parametrize(
    ("changes", "code", "words"),
    [
        ({"abi_major": 6, "abi_minor": 1}, ErrorCode.ABI_MAJOR, ("ABI 6.1", "ABI 0.1")),
        ({"abi_minor": 2}, ErrorCode.ABI_MINOR, ("ABI 0.2", "ABI 0.1")),
        ({"schema_hash": 5}, ErrorCode.SCHEMA_HASH, ("0000000000000005", "ABI 0.1")),
        ({"abi_minor": 0}, ErrorCode.SCHEMA_HASH, ("ABI 0.0", "ABI 0.1")),
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


def test_an_older_minor_version_is_taken_when_its_schema_is_known(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SCHEMAS, (0, 0), 77)
    header = replace(build(1, 1, 0).header, abi_minor=0)
    check(replace(header, schema_hash=77), EDGE)
    assert refusal(header).code is ErrorCode.SCHEMA_HASH


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
    monkeypatch.setattr(policy, "RECORDS", RECORDS[:-1])
    schema_hash.cache_clear()
    try:
        assert schema_hash() != before
    finally:
        schema_hash.cache_clear()
