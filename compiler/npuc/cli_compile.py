"""``npuc compile``: options to a compilation, a compilation to a blob, a table or JSON."""

from __future__ import annotations

import errno
import gc
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from npuabi.container import write_blob
from npuabi.files import refuse_overwriting, write_atomically
from npuabi.images import image_files, is_image
from npuabi.progress import progress_bar
from npuabi.report import ProgramCost, summarise
from npuabi.report_text import print_costs
from npuabi.signature import MAX_KEY_FILE_BYTES, PrivateKey, read_private_key, sign
from npuc.driver import Compilation, Options, compile_graph
from npuc.frontend.files import files_of
from npuc.frontend.source import load_source
from npuc.frontend.text import check_constants, parse
from npuc.ir.core import Graph
from npuc.ir.printer import print_graph
from npuc.passes.manager import Pass

__all__ = ["Output", "run_compile"]

_ELIDED_ELEMENTS = 16


@dataclass(frozen=True, kw_only=True)
class Output:
    """What ``npuc compile`` writes and prints beside the blob."""

    blob: str | None
    as_json: bool
    timing: bool
    print_ir: bool
    dump_ir: str | None
    key: str | None = None
    security_version: int = 0


def run_compile(model: str, options: Options, output: Output) -> None:
    """Compile *model*, write the blob whole or not at all, and report."""
    path = output.blob
    if path is None:
        path = f"{Path(model).stem if model != '-' else 'graph'}.bin"
    read = [*_read(model, options, path), *([output.key] if output.key else [])]
    refuse_overwriting(path, read)
    key = None if output.key is None else _read_key(output.key)
    # A graph is many small objects in cycles that live to the end: collecting them rarely pays.
    gc.set_threshold(50_000, 20, 50)
    source = load_source(model)
    with source.shown(), progress_bar() as progress:
        graph = parse(source)
        check_constants(graph)
        read += files_of(graph, source.folder)
        refuse_overwriting(path, read)
        after = _observer(output, read)
        compiled = compile_graph(
            graph, options, folder=source.folder, after=after, progress=progress
        )
    if key is not None:
        compiled = _signed(compiled, key, output.security_version)
    for note in compiled.notes:
        click.echo(str(note), err=True)
    write_atomically(path, compiled.blob)
    cost = summarise(compiled.program, compiled.timeline, compiled.target)
    # With the blob on standard output, the report would end up inside it.
    to_error = path == "-"
    if output.as_json:
        click.echo(json.dumps(_as_dict(path, compiled, cost), indent=2), err=to_error)
        return
    print_costs(cost, sys.stderr if to_error else sys.stdout)
    if output.timing:
        click.echo(_timing(compiled), err=to_error)
    name = "standard output" if to_error else path
    click.echo(f"{name}: {len(compiled.blob):,} bytes in {compiled.compile_s:.2f} s", err=to_error)


def _read(model: str, options: Options, path: str) -> Iterator[str | Path]:
    """Yield the files that the command line names; images of a folder when *path* may be one."""
    yield from (model, str(options.target), str(options.calibrate), str(options.preprocess))
    if is_image(path) and options.calibrate is not None and Path(str(options.calibrate)).is_dir():
        yield from image_files(Path(str(options.calibrate)))


def _read_key(path: str) -> PrivateKey:
    """Return a signing key, before a long compilation finds that there is none."""
    with Path(path).open("rb") as stream:
        return read_private_key(stream.read(MAX_KEY_FILE_BYTES))


def _signed(compiled: Compilation, key: PrivateKey, version: int) -> Compilation:
    program = sign(compiled.program, key, version=version)
    return replace(compiled, program=program, blob=write_blob(program))


def _as_dict(path: str, compiled: Compilation, cost: ProgramCost) -> dict[str, Any]:
    """Return the JSON report; its keys are those of the docs."""
    return {
        "schema": 1,
        "blob": path,
        "bytes": len(compiled.blob),
        **{k: v for k, v in cost.as_dict().items() if k != "layers"},
        "arena_bound_bytes": compiled.arena.bound,
        "compile_s": compiled.compile_s,
        "passes": [
            {"name": p.name, "pass_s": p.pass_s, "verify_s": p.verify_s} for p in compiled.passes
        ],
        "layers": cost.as_dict()["layers"],
    }


def _timing(compiled: Compilation) -> str:
    """Return a table of the passes' host times in milliseconds."""
    rows = [f"{'pass':<20}{'ms':>10}{'verifier ms':>14}"]
    rows += [
        f"{p.name:<20}{p.pass_s * 1e3:>10.1f}{p.verify_s * 1e3:>14.1f}" for p in compiled.passes
    ]
    return "\n".join(rows)


def _observer(output: Output, read: Sequence[str | Path]) -> Callable[[Pass, Graph], None] | None:
    """Return what prints or dumps the graph behind each pass, over no file that was *read*."""
    if not output.print_ir and output.dump_ir is None:
        return None
    folder = None if output.dump_ir is None else Path(output.dump_ir)
    if folder is not None:
        if folder.exists() and not folder.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, "no folder: give --dump-ir one", str(folder))
        folder.mkdir(parents=True, exist_ok=True)
    numbers = iter(range(1, 1_000_000))

    def after(step: Pass, graph: Graph) -> None:
        text = print_graph(graph, elide=_ELIDED_ELEMENTS)
        if output.print_ir:
            click.echo(f"// after {step.NAME}\n{text}", err=True)
        if folder is not None:
            file = folder / f"{next(numbers):02}-{step.NAME}.npu"
            refuse_overwriting(file, read)
            write_atomically(file, text.encode())

    return after
