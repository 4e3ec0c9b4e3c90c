"""Keys and signed blobs on the command line: keygen, compile --sign, inspect, asm."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import npuc.cli
import npufw.cli
from npuabi.container import read_blob
from npuabi.errors import AbiError, ErrorCode
from npuabi.signature import key_hash_of_file, verify_signature
from npuabi.target import load_target

TEXT = "graph @g(%x: tensor<1x4xf32>) {\n  %y = relu(%x) : tensor<1x4xf32>\n  return %y\n}\n"
EDGE = load_target("edge")


def run(program: str, *arguments: str | Path) -> Result:
    main = npuc.cli.main if program == "npuc" else npufw.cli.main
    return CliRunner().invoke(main, [str(a) for a in arguments])


@pytest.fixture
def key(tmp_path: Path) -> Path:
    path = tmp_path / "maker.key"
    made = json.loads(run("npufw", "keygen", path, "--json").stdout)
    assert made["hash"] == key_hash_of_file(path.with_name("maker.key.pub").read_bytes()).hex()
    return path


def signed(tmp_path: Path, key: Path, *options: str) -> Path:
    text, blob = tmp_path / "g.txt", tmp_path / "g.bin"
    text.write_text(TEXT)
    result = run("npuc", "compile", text, "-o", blob, "--sign", key, *options)
    assert result.exit_code == 0, result.stderr
    return blob


def test_a_key_is_secret_and_never_overwritten(key: Path) -> None:
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    before = key.read_bytes()
    result = run("npufw", "keygen", key)
    assert (result.exit_code, result.stderr) == (1, f"error: {key}: File exists\n")
    assert key.read_bytes() == before
    key.unlink()
    assert run("npufw", "keygen", key).exit_code == 1, "the public key is still there"


def test_half_a_pair_of_keys_is_never_left(tmp_path: Path, monkeypatch: Any) -> None:
    assert run("npufw", "keygen", tmp_path / ("x" * 252)).exit_code == 1, "X.pub is too long"
    assert not list(tmp_path.iterdir())
    monkeypatch.chdir(tmp_path)
    for arguments in (("keygen", "-"), ("calibrate", "-", "--die", "3"), ("fuse", "-", "x.pub")):
        result = run("npufw", *arguments)
        assert (result.exit_code, "a file is needed" in result.stderr) == (2, True)
        assert result.stdout == ""
    assert not list(tmp_path.iterdir())


def test_a_signed_blob_runs_is_verified_and_says_by_whom(tmp_path: Path, key: Path) -> None:
    blob = signed(tmp_path, key, "--security-version", "3")
    digest = key_hash_of_file(key.read_bytes())
    program = read_blob(blob.read_bytes(), target=EDGE).program
    verify_signature(program, digest, minimum_version=3)
    assert run("npufw", "run", blob).exit_code == 0
    assert (
        f"security version 3, by the key of hash {digest.hex()}"
        in run("npufw", "inspect", blob).stdout
    )
    found = json.loads(run("npufw", "inspect", blob, "--json").stdout)["signature"]
    assert found == {"scheme": "ed25519", "security_version": 3, "key_hash": digest.hex()}


def test_the_same_compilation_gives_the_same_signed_bytes(tmp_path: Path, key: Path) -> None:
    first = signed(tmp_path, key).read_bytes()
    assert signed(tmp_path, key).read_bytes() == first


def test_an_edited_text_keeps_a_signature_that_no_longer_holds(tmp_path: Path, key: Path) -> None:
    blob, text, edited = signed(tmp_path, key), tmp_path / "g.asm", tmp_path / "e.bin"
    digest = key_hash_of_file(key.read_bytes())
    assert run("npufw", "disasm", blob, "-o", text).exit_code == 0
    assert run("npufw", "asm", text, "-o", edited).exit_code == 0
    assert edited.read_bytes() == blob.read_bytes()
    lines = text.read_text().replace("seed ", "seed 1", 1)
    text.write_text(lines)
    assert run("npufw", "asm", text, "-o", edited).exit_code == 0
    with pytest.raises(AbiError) as caught:
        verify_signature(read_blob(edited.read_bytes(), target=EDGE).program, digest)
    assert caught.value.code is ErrorCode.BAD_SIGNATURE


def test_a_key_that_is_none_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    text, blob, bad = tmp_path / "g.txt", tmp_path / "g.bin", tmp_path / "bad.key"
    text.write_text(TEXT)
    bad.write_text("no key")
    for name, words in ((bad, "bad_key (0x7c)"), (tmp_path / "gone", "No such file")):
        result = run("npuc", "compile", text, "-o", blob, "--sign", name)
        assert result.exit_code == 1
        assert words in result.stderr
    assert run("npuc", "compile", text, "--security-version", "1").exit_code == 2
    assert not blob.exists()


def test_a_blob_put_into_another_version_says_that_it_lost_its_signature(
    tmp_path: Path, key: Path
) -> None:
    old = tmp_path / "old.bin"
    result = run("npufw", "migrate", signed(tmp_path, key), "-o", old, "--to", "0.1")
    assert result.exit_code == 0
    assert "note: the signature is dropped" in result.stderr
    assert run("npufw", "selftest", old).exit_code == 0


def test_a_fused_die_takes_what_its_key_signed_and_nothing_else(tmp_path: Path, key: Path) -> None:
    fuses, other = tmp_path / "die.fuses", tmp_path / "other.key"
    blob = signed(tmp_path, key)
    plain, foreign = tmp_path / "plain.bin", tmp_path / "foreign.bin"
    assert run("npuc", "compile", tmp_path / "g.txt", "-o", plain).exit_code == 0
    run("npufw", "keygen", other)
    foreign.write_bytes(signed(tmp_path, other).read_bytes())
    blob = signed(tmp_path, key)
    assert run("npufw", "fuse", fuses, f"{key}.pub").exit_code == 0
    for command in ("run", "selftest"):
        assert run("npufw", command, blob, "--die", fuses).exit_code == 0, command
        for name, code in ((plain, "unsigned (0x78)"), (foreign, "foreign_key (0x79)")):
            refused = run("npufw", command, name, "--die", fuses)
            assert (refused.exit_code, code in refused.stderr) == (1, True), refused.stderr
            assert run("npufw", command, name).exit_code == 0
    again = run("npufw", "fuse", fuses, f"{other}.pub")
    assert (again.exit_code, "fuse_blown (0x70)" in again.stderr) == (1, True)


def test_a_fused_device_boots_no_other_slot_than_a_signed_one(tmp_path: Path, key: Path) -> None:
    fuses, image = tmp_path / "die.fuses", tmp_path / "device.img"
    blob, plain = signed(tmp_path, key), tmp_path / "plain.bin"
    run("npuc", "compile", tmp_path / "g.txt", "-o", plain)
    run("npufw", "fuse", fuses, key)
    run("npufw", "flash", "init", image, "--slot", "64")
    assert run("npufw", "flash", "write", image, blob, "--die", fuses).exit_code == 0
    refused = run("npufw", "flash", "write", image, plain, "--die", fuses)
    assert "unsigned (0x78)" in refused.stderr
    assert run("npufw", "flash", "write", image, plain).exit_code == 0
    assert json.loads(run("npufw", "flash", "status", image, "--json").stdout)["boots"] == "B"
    fused = run("npufw", "flash", "boot", image, "--die", fuses, "--json")
    assert json.loads(fused.stdout)["slot"] == "A", "an unsigned slot that is newer does not boot"
