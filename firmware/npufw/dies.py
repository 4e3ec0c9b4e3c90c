"""``--die EFUSE``: the array in that file, read as firmware reads it, and the silicon it is of."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from npuabi.errors import ErrorCode
from npuabi.signature import verify_signature
from npufw.boot import Image
from npufw.defences.calibration import Fuses
from npufw.efuse import Table, read_efuse
from npufw.errors import FirmwareError
from npufw.fault_models.die import Die, DieHook
from npufw.fault_models.fuses import reader
from npufw.faults import Hook

__all__ = ["read_fuse_file", "with_die"]

_MOST_BYTES = 1 << 16


def read_fuse_file(path: str) -> bytes:
    """Return the fuses in the file at *path*. Raises FirmwareError FUSE_CRC for a large one."""
    with Path(path).open("rb") as stream:
        fuses = stream.read(_MOST_BYTES + 1)
    if len(fuses) > _MOST_BYTES:
        raise FirmwareError(ErrorCode.FUSE_CRC, f"{path} is larger than any array of fuses")
    return fuses


def with_die(image: Image, faults: Sequence[Hook], path: str) -> list[Hook]:
    """Return *faults* with the die whose fuses are in the file at *path*.

    Its silicon is the one among *faults*, where ``--fault die`` names one; else that of the table,
    or a perfect one where the array is blank. Where a key's hash is fused, the program must be
    signed with that key. Raises FirmwareError as ``read_efuse`` does, AbiError as
    ``verify_signature`` does, ValueError when a fault names a fuse that there is not.
    """
    fuses = read_fuse_file(path)
    efuse = read_efuse(reader(fuses, list(faults)), len(fuses), image.target.cores)
    if efuse.key is not None:
        verify_signature(image.program, efuse.key)
    given = list(faults)
    if not any(isinstance(hook, DieHook) for hook in given):
        given.insert(0, DieHook(_silicon(image, efuse.table)))
    return [*given, Fuses(efuse)]


def _silicon(image: Image, table: Table | None) -> Die:
    cores = image.target.cores
    if table is None:
        return Die(seed=0, limit_percent=0, offset_units=0, cores=cores)
    try:
        return Die.of_id(table.die, cores)
    except ValueError as error:
        raise FirmwareError(ErrorCode.WRONG_DIE, str(error)) from error
