"""Signatures: what they cover, and that nothing else than the signed program is taken."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from npuabi.container import Program, read_blob, write_blob
from npuabi.enums import Section
from npuabi.errors import AbiError, ErrorCode
from npuabi.sections import split_sections
from npuabi.signature import (
    key_hash,
    key_hash_of_file,
    make_key,
    read_private_key,
    security_version,
    sign,
    verify_signature,
)
from npuabi.target import load_target

Build = Callable[[int, int, int], Program]
EDGE = load_target("edge")
KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
TRUSTED = key_hash(KEY.public_key().public_bytes_raw())


@pytest.fixture(scope="module")
def signed(build: Build) -> Program:
    return sign(build(4, 6, 5000), KEY, version=5)


def refusal(program: Program, trusted: bytes = TRUSTED, minimum: int = 0) -> ErrorCode | None:
    try:
        verify_signature(program, trusted, minimum_version=minimum)
    except AbiError as error:
        return error.code
    return None


def test_a_signed_program_is_taken_under_its_key_and_no_other(signed: Program) -> None:
    assert refusal(signed) is None
    assert refusal(signed, key_hash(bytes(32))) is ErrorCode.FOREIGN_KEY
    assert refusal(replace(signed, signatures=())) is ErrorCode.UNSIGNED


def test_the_security_version_is_signed_and_compared(signed: Program) -> None:
    assert security_version(signed) == 5
    assert security_version(replace(signed, signatures=())) == 0
    assert refusal(signed, minimum=5) is None
    assert refusal(signed, minimum=6) is ErrorCode.SECURITY_VERSION
    raised = replace(signed.signatures[0], security_version=6)
    assert refusal(replace(signed, signatures=(raised,)), minimum=6) is ErrorCode.BAD_SIGNATURE


def test_the_generation_is_no_part_of_a_signature(signed: Program) -> None:
    header = replace(signed.header, generation=77)
    assert refusal(replace(signed, header=header)) is None


def _changes(program: Program) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield a change of every part of a program."""
    header, tensor, toa = program.header, program.tensors[1], program.toas[2]
    for name in ("macs", "features", "arena_bytes", "target_hash"):
        change: dict[str, Any] = {name: 8192}
        yield f"header {name}", {"header": replace(header, **change)}
    tensors = (program.tensors[0], replace(tensor, base=tensor.base + 64), *program.tensors[2:])
    toas = (*program.toas[:2], replace(toa, clamp=(-128, 126)), *program.toas[3:])
    answer = replace(program.known_answer, output_crc=9)
    yield "tensors", {"tensors": tensors}
    yield "toas", {"toas": toas}
    yield "ring", {"ring": (*program.ring[:-2], program.ring[-1], program.ring[-2])}
    yield "constants", {"constants": program.constants[:-1] + b"\1"}
    yield "interface", {"interface": (replace(program.interface[0], shape=(16, 4, 2, 1)),)}
    yield "sources", {"sources": (replace(program.sources[0], line=4),)}
    yield "states", {"states": ()}
    yield "known answer", {"known_answer": answer}
    yield "symbols", {"symbols": program.symbols + b"x\0"}


def test_every_part_of_a_program_is_signed(signed: Program) -> None:
    waitless = replace(
        signed, toas=tuple(replace(t, flags=t.flags & 3, waits=(0,) * 4) for t in signed.toas)
    )
    whole = sign(waitless, KEY)
    assert refusal(whole) is None
    for name, change in _changes(whole):
        assert refusal(replace(whole, **change)) is ErrorCode.BAD_SIGNATURE, name


def test_bits_of_the_signature_record_count(signed: Program) -> None:
    record = signed.signatures[0]
    for field in ("public_key", "signature"):
        octets = getattr(record, field)
        for bit in range(0, 8 * len(octets), 3):
            changed = list(octets)
            changed[bit // 8] ^= 1 << bit % 8
            change: dict[str, Any] = {field: tuple(changed)}
            forged = replace(signed, signatures=(replace(record, **change),))
            expected = ErrorCode.FOREIGN_KEY if field == "public_key" else ErrorCode.BAD_SIGNATURE
            assert refusal(forged) is expected, (field, bit)


def test_a_forger_who_mends_every_crc_is_refused(signed: Program) -> None:
    """Fields are changed in the program and the blob is written anew, as npufw asm does."""
    source = random.Random(5)
    for _ in range(100):
        index = source.randrange(len(signed.toas))
        field = source.choice(["cycles", "groups", "setup_cycles", "kernel", "stride"])
        old = getattr(signed.toas[index], field)
        change: dict[str, Any] = {
            field: tuple(v ^ 1 for v in old) if isinstance(old, tuple) else old ^ 1
        }
        toas = list(signed.toas)
        toas[index] = replace(toas[index], **change)
        raw = write_blob(replace(signed, toas=tuple(toas)))
        assert refusal(read_blob(raw, target=EDGE).program) is ErrorCode.BAD_SIGNATURE


def test_a_healed_blob_keeps_its_signature(signed: Program) -> None:
    raw = bytearray(write_blob(signed))
    offset = raw.index(bytes(split_sections(bytes(raw))[Section.TABLE_A].span))
    raw[offset + 200] ^= 1
    loaded = read_blob(bytes(raw), target=EDGE)
    assert loaded.events
    assert refusal(loaded.program) is None


def test_a_blob_holds_one_signature_at_most(signed: Program) -> None:
    with pytest.raises(AbiError) as caught:
        write_blob(replace(signed, signatures=signed.signatures * 2))
    assert caught.value.code is ErrorCode.BAD_COUNT


def test_keys_come_back_from_their_files() -> None:
    private, public = make_key()
    raw = read_private_key(private).public_key().public_bytes_raw()
    assert key_hash_of_file(private) == key_hash_of_file(public) == key_hash(raw)


@pytest.mark.parametrize("read", [read_private_key, key_hash_of_file])
def test_a_file_that_is_no_key_is_refused(read: Callable[[bytes], object]) -> None:
    curve = ec.generate_private_key(ec.SECP256R1())
    other = curve.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    for pem in (b"", b"PRIVATE KEY", b"\xff" * 99, other, make_key()[0][:40]):
        with pytest.raises(AbiError) as caught:
            read(pem)
        assert caught.value.code is ErrorCode.BAD_KEY


def test_without_the_package_a_signature_is_refused_and_named(
    signed: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "cryptography", None)
    with pytest.raises(AbiError, match=r"npu-toolchain\[sign\]") as caught:
        verify_signature(signed, TRUSTED)
    assert caught.value.code is ErrorCode.NO_CRYPTOGRAPHY
