"""Target files: the three that come along, and every way in which one can be wrong."""

from __future__ import annotations

from dataclasses import fields
from importlib import resources
from pathlib import Path

import pytest

from npuabi.target import Target, TargetError, load_target, parse_target, target_names

EDGE_TEXT = (resources.files("npuabi") / "targets" / "edge.toml").read_text("utf-8")


def changed(key: str, value: str) -> str:
    """Return the edge target with one key set to another value."""
    lines = [
        f"{key} = {value}" if line.startswith(f"{key} =") else line
        for line in EDGE_TEXT.splitlines()
    ]
    return "\n".join(lines)


def test_the_three_targets_of_the_design_are_there() -> None:
    assert target_names() == ["edge", "edge-quad", "tiny"]


@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        ("edge", (3, 1, 16, 64, 512, 16, 100, 256, 256, 16, 4096, 16, 64, 4, 32, 1000)),
        ("edge-quad", (3, 4, 16, 64, 512, 16, 100, 256, 256, 16, 4096, 32, 64, 4, 32, 1000)),
        ("tiny", (1, 1, 8, 16, 16, 4, 40, 64, 64, 16, 4096, 8, 16, 8, 32, 200)),
    ],
)
def test_targets_have_the_numbers_of_the_design(name: str, numbers: tuple[int, ...]) -> None:
    target = load_target(name)
    keys = [f.name for f in fields(Target) if f.name not in ("name", "waiting_descriptors")]
    assert tuple(getattr(target, key) for key in keys) == numbers
    assert target.name == name
    assert target.waiting_descriptors == 1


def test_derived_sizes_follow_from_the_numbers() -> None:
    edge = load_target("edge")
    assert edge.sram_bytes == 1 << 20
    assert edge.bank_bytes == 1 << 16
    assert edge.ddr_bytes == 512 << 20
    assert load_target("edge-quad").peak_macs_per_cycle == 1024


def test_the_hash_depends_on_values_and_not_on_spelling() -> None:
    edge = load_target("edge")
    spelled = "# another comment\n" + "\n".join(sorted(EDGE_TEXT.splitlines()))
    assert parse_target(spelled.replace("= 64", "=   0x40"), "x").hash == edge.hash
    hashes = {edge.hash, *(parse_target(changed(k, "32"), "x").hash for k in ("banks", "cores"))}
    assert len(hashes) == 3


def test_a_path_works_as_well_as_a_name(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(changed("clock_mhz", "500"), "utf-8")
    assert load_target(str(path)).clock_mhz == 500


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "missing key"),
        ("name =", "Invalid value"),
        (EDGE_TEXT + "\nturbo = 1\n", "unknown key turbo"),
        (changed("cores", "0"), "cores is a whole number from 1 to 64, got 0"),
        (changed("cores", "65"), "cores is a whole number from 1 to 64, got 65"),
        (changed("cores", "3.0"), "got 3.0"),
        (changed("cores", "true"), "got True"),
        (changed("cores", '"3"'), "got '3'"),
        (changed("row_pitch", "48"), "row_pitch is a power of two, got 48"),
        (changed("dma_alignment", "100"), "dma_alignment is a power of two, got 100"),
        (changed("name", '""'), "name is 1 to 16 bytes"),
        (changed("name", '"a-name-that-is-too-long"'), "name is 1 to 16 bytes"),
        (changed("name", '"a\\nb"'), "name is 1 to 16 bytes"),
        (changed("name", "7"), "name is 1 to 16 bytes"),
        (changed("cores", "9" * 5000), "Exceeds the limit"),
        (changed("cores", "0x" + "f" * 5000), "got a number of thousands of digits"),
        (changed("cores", "[0x" + "f" * 5000 + "]"), "got a number of thousands of digits"),
        (changed("cores", "[" * 5000 + "]" * 5000), "nested too deeply"),
        (changed("cores", "{a=" * 3000 + "1" + "}" * 3000), "nested too deeply"),
        (EDGE_TEXT + "\n" + "a" * 9000 + " = 1\n", "unknown key aaaa"),
        (changed("name", "'" + "a" * 9000 + "'"), "name is 1 to 16 bytes"),
    ],
)
def test_a_wrong_file_is_refused_by_name_of_key_and_reason(text: str, words: str) -> None:
    with pytest.raises(TargetError) as caught:
        parse_target(text, "bad.toml")
    assert str(caught.value).startswith("bad.toml: ")
    assert words in str(caught.value)
    assert len(str(caught.value)) < 400


def test_a_key_left_out_is_named() -> None:
    text = "\n".join(line for line in EDGE_TEXT.splitlines() if not line.startswith("banks"))
    with pytest.raises(TargetError, match="missing key banks"):
        parse_target(text, "x")


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(TargetError, match="known targets are edge, edge-quad, tiny"):
        load_target("huge")


def test_files_that_are_no_text_or_too_long_are_refused(tmp_path: Path) -> None:
    binary, long = tmp_path / "a.toml", tmp_path / "b.toml"
    binary.write_bytes(b"name = '\xff'")
    long.write_bytes(b"#" * 70_000)
    with pytest.raises(TargetError, match="not UTF-8 text at byte 8"):
        load_target(str(binary))
    with pytest.raises(TargetError, match="at most 65536 bytes"):
        load_target(str(long))
