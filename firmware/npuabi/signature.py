"""Signatures: who answers for a program, and which programs a fused device takes.

What is signed is a program and not a file: a domain word, the security version, the public key,
and the SHA-512 of the blob that the program gives with generation 0 and no signature. So every
field of every record, every name and every constant is covered. The generation, which a device
chooses when it writes a slot, is not; nor is which of two table copies was healed.

Invariant: what :func:`verify_signature` takes is the program that runs, not bytes beside it. The
``cryptography`` package (extra ``sign``) is imported when a key is used and not before.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

from npuabi.container import write_blob
from npuabi.enums import SignatureScheme
from npuabi.errors import AbiError, ErrorCode
from npuabi.program import Program
from npuabi.records import Signature

__all__ = [
    "MAX_KEY_FILE_BYTES",
    "PrivateKey",
    "key_hash",
    "key_hash_of_file",
    "make_key",
    "read_private_key",
    "security_version",
    "sign",
    "verify_signature",
]

PrivateKey = Any
"""cryptography's Ed25519PrivateKey: of an extra, so that the type cannot be named."""

MAX_KEY_FILE_BYTES = 1 << 16
"""A longer file is no key."""

_DOMAIN = b"npu-toolchain blob signature 1\0"


def key_hash(public_key: bytes) -> bytes:
    """Return what a device fuses to trust a key: the SHA-256 of its 32 raw bytes."""
    return hashlib.sha256(public_key).digest()


def security_version(program: Program) -> int:
    """Return the security version that a program claims; without a signature 0."""
    return program.signatures[0].security_version if program.signatures else 0


def make_key() -> tuple[bytes, bytes]:
    """Return a new key as two PEM files: private (PKCS #8, not encrypted) and public.

    Raises AbiError NO_CRYPTOGRAPHY.
    """
    _require()
    from cryptography.hazmat.primitives import serialization as forms
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    made = Ed25519PrivateKey.generate()
    private = made.private_bytes(
        forms.Encoding.PEM, forms.PrivateFormat.PKCS8, forms.NoEncryption()
    )
    public = made.public_key().public_bytes(
        forms.Encoding.PEM, forms.PublicFormat.SubjectPublicKeyInfo
    )
    return private, public


def read_private_key(pem: bytes) -> PrivateKey:
    """Return the private key in a PEM file. Raises AbiError: BAD_KEY, NO_CRYPTOGRAPHY."""
    _require()
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(pem[:MAX_KEY_FILE_BYTES], password=None)
    except (TypeError, ValueError, UnsupportedAlgorithm) as error:
        raise _bad_key("no private key in PEM without a password") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise _bad_key("a private key, but not of Ed25519")
    return key


def key_hash_of_file(pem: bytes) -> bytes:
    """Return the hash to fuse of a PEM file that holds a private or a public key.

    Raises AbiError: BAD_KEY, NO_CRYPTOGRAPHY.
    """
    _require()
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    if b"PRIVATE KEY" in pem[:MAX_KEY_FILE_BYTES]:
        return key_hash(read_private_key(pem).public_key().public_bytes_raw())
    try:
        key = load_pem_public_key(pem[:MAX_KEY_FILE_BYTES])
    except (ValueError, UnsupportedAlgorithm) as error:
        raise _bad_key("no key in PEM") from error
    if not isinstance(key, Ed25519PublicKey):
        raise _bad_key("a public key, but not of Ed25519")
    return key_hash(key.public_bytes_raw())


def sign(program: Program, key: PrivateKey, *, version: int = 0) -> Program:
    """Return *program* signed with *key* as of security *version*; an older signature goes.

    Raises AbiError BAD_FIELD for a version that is no u32.
    """
    if not 0 <= version < 1 << 32:
        raise AbiError(ErrorCode.BAD_FIELD, f"a security version is a u32, got {version}")
    public = key.public_key().public_bytes_raw()
    signature = key.sign(_message(program, version, public))
    record = Signature(
        scheme=SignatureScheme.ED25519,
        security_version=version,
        public_key=tuple(public),
        signature=tuple(signature),
    )
    return replace(program, signatures=(record,))


def verify_signature(program: Program, trusted: bytes, *, minimum_version: int = 0) -> None:
    """Refuse *program* unless the key whose hash is *trusted* signed it.

    *minimum_version* is the device's anti-rollback counter. Raises AbiError: UNSIGNED,
    FOREIGN_KEY, BAD_SIGNATURE, SECURITY_VERSION, NO_CRYPTOGRAPHY.
    """
    if not program.signatures:
        raise _refusal(ErrorCode.UNSIGNED, f"the fused key hash is {trusted.hex()}")
    record = program.signatures[0]
    public = bytes(record.public_key)
    if key_hash(public) != trusted:
        detail = f"the blob's key has hash {key_hash(public).hex()}, fused is {trusted.hex()}"
        raise _refusal(ErrorCode.FOREIGN_KEY, detail)
    _check_signature(program, record)
    if record.security_version < minimum_version:
        detail = f"the blob has security version {record.security_version}, at least"
        raise _refusal(ErrorCode.SECURITY_VERSION, f"{detail} {minimum_version} is taken")


def _check_signature(program: Program, record: Signature) -> None:
    _require()
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    public = bytes(record.public_key)
    message = _message(program, record.security_version, public)
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(bytes(record.signature), message)
    except (InvalidSignature, ValueError) as error:
        detail = f"signed with the key of hash {key_hash(public).hex()}"
        raise _refusal(ErrorCode.BAD_SIGNATURE, detail) from error


def _message(program: Program, version: int, public: bytes) -> bytes:
    bare = replace(program, signatures=(), header=replace(program.header, generation=0))
    digest = hashlib.sha512(write_blob(bare)).digest()
    return _DOMAIN + version.to_bytes(4, "little") + public + digest


def _require() -> None:
    if find_spec("cryptography") is None:
        raise _refusal(ErrorCode.NO_CRYPTOGRAPHY, "no key can be used")


def _refusal(code: ErrorCode, detail: str) -> AbiError:
    return AbiError(code, f"{code.text}: {detail}; {code.remedy}")


def _bad_key(detail: str) -> AbiError:
    return _refusal(ErrorCode.BAD_KEY, detail)
