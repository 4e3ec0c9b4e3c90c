"""What the commands ``disasm``, ``asm`` and ``diff`` do, apart from options and printing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from npuabi.commands import Refusal
from npuabi.container import Event, Program, read_blob, target_of
from npuabi.files import refuse_overwriting, write_atomically
from npuabi.progress import progress_bar
from npuabi.target import Target, load_target, target_names
from npufw.asm import assemble
from npufw.asm_text import MAX_TEXT_BYTES
from npufw.boot import device_of
from npufw.diff import Difference, compare
from npufw.disasm import MAX_INLINE_BYTES, as_json, disassemble
from npufw.hostfiles import read_blob_file, read_file

__all__ = ["assemble_file", "compare_files", "disassemble_file"]

Tell = Callable[[Event], None]
"""Told of each thing that a read repaired in memory."""


def disassemble_file(
    blob: str,
    *,
    target: str | None,
    output: str,
    constants: str | None,
    plain: bool,
    tell: Tell,
) -> None:
    """Write the text of a blob, as JSON where it is not to be *plain*.

    The constants go to a file of their own where one is named, beside the text. A blob that the
    firmware refuses for what its descriptors say has a text too.
    """
    refuse_overwriting(output, [blob, *([target] if target else [])])
    if constants is not None:
        _check_beside(constants, output)
        refuse_overwriting(constants, [blob, *([target] if target else [])])
    program, device = _read(read_blob_file(blob), target, tell)
    if constants is None and len(program.constants) > MAX_INLINE_BYTES:
        size = f"{len(program.constants):,} bytes of constants make an unwieldy text"
        raise Refusal(f"error: {size}: give --constants FILE, which holds them beside it")
    name = Path(constants).name if constants is not None else ""
    if plain:
        text = "\n".join(disassemble(program, device, name)) + "\n"
    else:
        text = json.dumps(as_json(program, name), indent=2, ensure_ascii=False) + "\n"
    if constants is not None:
        write_atomically(constants, program.constants)
    write_atomically(output, text.encode())


def _check_beside(constants: str, output: str) -> None:
    folder = Path() if output == "-" else Path(output).parent
    if constants == "-":
        raise Refusal("error: --constants: a file is needed, standard output holds the text")
    path = Path(constants)
    if path.parent.resolve() != folder.resolve():
        text = f"--constants {constants}: asm looks for it in the text's folder only"
        raise Refusal(f"error: {text}, which is {folder}")
    if output != "-" and path.name == Path(output).name:
        raise Refusal(f"error: --constants {constants}: that is the text's own name")


def assemble_file(text: str, *, target: str | None, output: str, checked: bool) -> dict[str, Any]:
    """Write the blob that a text states; return what it is, for JSON."""
    refuse_overwriting(output, [text, *([target] if target else [])])
    device = load_target(target) if target is not None else None
    raw = read_file(text, MAX_TEXT_BYTES)
    file, folder = ("<stdin>", Path()) if text == "-" else (text, Path(text).parent)
    with progress_bar() as progress:
        made = assemble(
            raw, file=file, folder=folder, target=device, checked=checked, progress=progress
        )
    refuse_overwriting(output, made.files)
    write_atomically(output, made.blob)
    return {
        "schema": 1,
        "blob": output,
        "bytes": len(made.blob),
        "toas": len(made.program.toas),
        "tensors": len(made.program.tensors),
        "constant_bytes": len(made.program.constants),
    }


def compare_files(a: str, b: str, *, target: str | None, addresses: bool, tell: Tell) -> Difference:
    """Return what differs between two blobs; *target* is of those that are for no known one."""
    if a == b == "-":
        raise Refusal("error: standard input holds one blob, not two")
    raws = [read_blob_file(path) for path in (a, b)]
    devices = [None if target_of(raw) in target_names() else target for raw in raws]
    first, second = (_read(*pair, tell) for pair in zip(raws, devices, strict=True))
    return compare(first, second, addresses=addresses)


def _read(raw: bytes, target: str | None, tell: Tell) -> tuple[Program, Target]:
    device = device_of(raw, target)
    loaded = read_blob(raw, target=device)
    for event in loaded.events:
        tell(event)
    return loaded.program, device
