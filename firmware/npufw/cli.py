"""The command ``npufw``.

Invariant: a command is thin over the library and imports what it needs when it runs, so that
``npufw --help`` is quick; how errors end the program is ``npuabi.commands``' business.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

from npuabi import __version__
from npuabi.commands import CommandGroup
from npufw import cli_abi
from npufw.cli_calibrate import calibrate
from npufw.cli_faults import fault_options, faults, telling_refusals
from npufw.cli_flash import flash
from npufw.cli_gates import gates
from npufw.cli_keys import fuse, keygen

if TYPE_CHECKING:
    from npuabi.container import Event
    from npufw.boot import Image
    from npufw.fault_plan import FaultPlan
    from npufw.version import VersionRegister

__all__ = ["main"]

_SHOWN_ENTRIES = 8

_TARGET = click.option(
    "--target", default="edge", show_default=True, help="Target of the device: name or TOML file."
)
_OWN_TARGET = click.option("--target", help="Target to assume; default: the one it is for.")
_PREPROCESS = click.option(
    "--preprocess", metavar="FILE.toml", help="How images become arrays; see the guide."
)
_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_BLOB = click.argument("blob", type=click.Path(allow_dash=True))


@click.group(cls=CommandGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="npufw")
def main() -> None:
    """Check, inspect and run blobs on the emulated NPU.

    BLOB is a file that "npuc compile" wrote; - is standard input.
    """
    # A stripe's product is too small for two BLAS threads, which spin on a busy machine.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def _boot(raw: bytes, target: str | None, register: VersionRegister | None = None) -> Image:
    """Return the image, its healing events printed on standard error.

    Without a *target* the blob's own is assumed, where it is one that comes with the toolchain.
    """
    from npufw.boot import boot, device_of

    image = boot(raw, device_of(raw, target), register)
    for event in image.events:
        _tell(event)
    return image


def _tell(event: Event) -> None:
    click.echo(f"healed: {event.text} ({event.code.name.lower()})", err=True)


def _events(image: Image) -> list[dict[str, Any]]:
    """Return what was healed at the load, in the form of a run's events."""
    return [
        {"kind": e.code.name.lower(), "outcome": "repaired", "cycle": 0, "text": e.text}
        for e in image.events
    ]


def _print_json(values: dict[str, Any]) -> None:
    click.echo(json.dumps(values, indent=2, ensure_ascii=False))


@main.command()
@_BLOB
@_TARGET
@click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="FILE",
    help="X.npz, X.npy, an image or a folder of images, NAME=FILE for one of several inputs; "
    "without it the known-answer input is used.",
)
@_PREPROCESS
@click.option("--output", metavar="Y.npz", help="Write all outputs here; - is standard output.")
@click.option(
    "--repeat",
    type=click.IntRange(1, 1_000_000),
    default=1,
    show_default=True,
    help="Run so often and give the host's times.",
)
@click.option(
    "--state",
    metavar="S.npz",
    help="Begin with the states in this file, if it is there, and write them back.",
)
@click.option("--reset", is_flag=True, help="Begin with the states' first values.")
@click.option(
    "--sanitize",
    is_flag=True,
    help="First look for faults in how the TOAs use memory; run only if there are none.",
)
@fault_options
@cli_abi.FIRMWARE_VERSION
@_JSON
def run(
    blob: str,
    target: str,
    inputs: tuple[str, ...],
    preprocess: str | None,
    output: str | None,
    repeat: int,
    state: str | None,
    reset: bool,
    sanitize: bool,
    plan: FaultPlan,
    register: VersionRegister | None,
    as_json: bool,
) -> None:
    """Run BLOB on input arrays and print its outputs.

    An array's first axis is the batch; N times the compiled batch are N runs, and for a network
    with states N consecutive frames. argmax is the index in the flattened output of each sample.

    \b
    Examples:
      npufw run digits.bin --input models/digits_test.npz
      npufw run digits.bin --input image=x.npy --output y.npz
      npufw run resnet50.bin --input photo.jpg --preprocess imagenet.toml
      npufw run stream.bin --input frames.npz --state kept.npz
      npufw run digits.bin --sanitize
      npufw run digits.bin --fault flips:rate=1e-6,seed=7
    """
    from npufw.commands import run_blob
    from npufw.hostfiles import read_blob_file

    if output == "-" and as_json:
        raise click.UsageError("--output - and --json both write to standard output")
    _require_state_file(state, output)
    if [blob, *(i.rpartition("=")[2] for i in inputs)].count("-") > 1:
        raise click.UsageError("standard input can be read once: give files for the others")
    read = [blob, target, preprocess or "", *inputs, *(i.split("=", 1)[-1] for i in inputs)]
    _keep_inputs(read, output, state)
    raw = read_blob_file(blob)
    found = _sanitized(raw, target, as_json=as_json) if sanitize else {}
    image = _boot(raw, target, register)
    with telling_refusals(as_json=as_json, err=output == "-"):
        report = run_blob(
            image,
            register=register,
            inputs=inputs,
            output=output,
            repeat=repeat,
            preprocess=preprocess,
            state=state,
            reset=reset,
            plan=plan,
        )
    _lines(report.notes, err=True)
    if as_json:
        _print_json({**_with_healed(report.as_dict(), image), **found})
        return
    if sanitize:
        click.echo("sanitizer: nothing found", err=output == "-")
    _lines(report.lines(), err=output == "-")


def _keep_inputs(read: Sequence[str], *written: str | None) -> None:
    from npuabi.files import refuse_overwriting

    for path in filter(None, written):
        refuse_overwriting(path, read)


def _require_state_file(state: str | None, output: str | None) -> None:
    if state == "-":
        raise click.UsageError("--state needs a file, as it is read and written")
    if state and output and os.path.realpath(state) == os.path.realpath(output):
        raise click.UsageError(f"--state and --output are both to be {state}: name two files")


def _with_healed(values: dict[str, Any], image: Image) -> dict[str, Any]:
    return {**values, "events": [*_events(image), *values["events"]]}


def _sanitized(raw: bytes, target: str, *, as_json: bool) -> dict[str, Any]:
    """Return what JSON says of a blob in which the sanitizer finds nothing; print what it finds.

    Raises FirmwareError SANITIZER when that is something.
    """
    from npuabi.errors import ErrorCode
    from npuabi.target import load_target
    from npufw.errors import FirmwareError
    from npufw.sanitize import sanitize_blob

    findings = sanitize_blob(raw, load_target(target))
    if not findings.kept:
        return {"findings": []}
    if as_json:
        _print_json({"schema": 1, "findings": findings.as_list(), "dropped": findings.dropped})
    else:
        _lines(findings.lines())
    raise FirmwareError(ErrorCode.SANITIZER, f"the sanitizer found {findings.summary()}")


@main.command()
@_BLOB
@_OWN_TARGET
@click.option("--entry", type=int, metavar="N", help="Show TOA N and its tensors byte by byte.")
@click.option("--op", metavar="NAME", help="Show the TOAs of this op of the graph.")
@click.option("--line", type=int, metavar="N", help="Show the TOAs of this line of the graph.")
@click.option("--map", "draw", is_flag=True, help="Draw SRAM banks and arena over time.")
@click.option("--hex", "dump", is_flag=True, help="Show all headers byte by byte.")
@click.option("--ring", is_flag=True, help="Show the ring with the times of each TOA.")
@_JSON
def inspect(
    blob: str,
    target: str | None,
    entry: int | None,
    op: str | None,
    line: int | None,
    draw: bool,
    dump: bool,
    ring: bool,
    as_json: bool,
) -> None:
    """Show what is in BLOB: an overview, or what the options name.

    \b
    Examples:
      npufw inspect digits.bin
      npufw inspect digits.bin --op r1
      npufw inspect digits.bin --map
    """
    from npufw.hostfiles import read_blob_file
    from npufw.inspect import Inspector
    from npufw.inspect import as_json as to_json
    from npufw.memory_map import draw_map

    if sum(option is not None for option in (entry, op, line)) > 1:
        raise click.UsageError("--entry, --op and --line exclude each other")
    raw = read_blob_file(blob)
    image = _boot(raw, target)
    shown = Inspector(raw, image)
    named = entry is not None or op is not None or line is not None
    selected = shown.select(entry=entry, op=op, line=line) if named else []
    if as_json and (draw or dump or ring):
        raise click.UsageError("--json does not go with --map, --hex and --ring")
    if as_json:
        _print_json(to_json(blob, raw, image, selected))
        return
    if not (named or draw or dump or ring):
        _lines(shown.overview())
    if dump:
        _dump(shown.headers())
    for index in selected[:_SHOWN_ENTRIES]:
        _dump(shown.entry(index))
    if len(selected) > _SHOWN_ENTRIES:
        rest = selected[_SHOWN_ENTRIES:]
        click.echo(f"and {len(rest)} more, TOAs {rest[0]} to {rest[-1]}: use --entry")
    if ring:
        _lines(shown.ring())
    if draw:
        _lines(draw_map(image))


def _lines(lines: Iterable[str], *, err: bool = False) -> None:
    for line in lines:
        click.echo(line, err=err)


def _dump(blocks: Iterable[str]) -> None:
    """Print hex dumps: addresses dim, bytes coloured, headings bold; plain in a pipe."""
    for line in (line for block in blocks for line in block.split("\n")):
        address, octets, meaning = line[:8], line[8:33], line[33:]
        if not _is_address(address):
            click.secho(line, bold=True)
        elif "bytes" in octets or "," in octets:
            click.echo(click.style(address, dim=True) + click.style(line[8:], bold=True))
        else:
            click.echo(click.style(address, dim=True) + click.style(octets, fg="cyan") + meaning)


def _is_address(text: str) -> bool:
    return len(text) == 8 and all(c in "0123456789abcdef" for c in text)


@main.command("eval")
@_BLOB
@_TARGET
@click.option(
    "--data",
    required=True,
    metavar="X.npz|FOLDER",
    help="Inputs by name and the labels, or images in a folder for each class.",
)
@click.option(
    "--labels",
    metavar="KEY|FILE",
    help="The labels' key in X.npz, default: labels; or a file of lines IMAGE CLASS.",
)
@_PREPROCESS
@fault_options
@cli_abi.FIRMWARE_VERSION
@_JSON
def evaluate(
    blob: str,
    target: str,
    data: str,
    labels: str | None,
    preprocess: str | None,
    plan: FaultPlan,
    register: VersionRegister | None,
    as_json: bool,
) -> None:
    """Measure the top-1 accuracy of BLOB on labelled data.

    With faults, jobs that the firmware refuses are counted apart: top-1 is that of the others.

    \b
    Examples:
      npufw eval digits.bin --data models/digits_test.npz
      npufw eval digits.bin --data models/digits_test.npz --fault flips:rate=1e-5
      npufw eval resnet50.bin --data val --labels val.txt --preprocess imagenet.toml
    """
    from npuabi.progress import progress_bar
    from npufw.commands import evaluate_blob
    from npufw.hostfiles import read_blob_file

    image = _boot(read_blob_file(blob), target, register)
    with progress_bar() as progress:
        found = evaluate_blob(
            image,
            data,
            labels,
            preprocess=preprocess,
            progress=progress,
            plan=plan,
            register=register,
        )
    if as_json:
        _print_json(_with_healed(found.as_dict(), image))
        return
    _lines(found.lines())


@main.command()
@_BLOB
@_TARGET
@fault_options
@cli_abi.FIRMWARE_VERSION
@_JSON
@click.option(
    "--core",
    type=click.IntRange(0, 63),
    default=0,
    show_default=True,
    metavar="N",
    help="The core that the faults are on.",
)
def selftest(
    blob: str,
    target: str,
    plan: FaultPlan,
    core: int,
    register: VersionRegister | None,
    as_json: bool,
) -> None:
    """Run the known-answer test of BLOB on every core.

    A core that fails is taken out and the others go on. Exit 1 when a bit differs, or a float by
    too much, on any of them.

    \b
    Examples:
      npufw selftest digits.bin
      npufw selftest digits.bin --fault stuck-bank:bank=3 --without ripple
      npufw selftest digits.bin --fault instruction:seed=3 --core 1
    """
    from npuabi.errors import ErrorCode
    from npufw.cores import Cores
    from npufw.defences.core_test import CORE_TEST
    from npufw.errors import FirmwareError
    from npufw.fault_plan import fault_lines
    from npufw.hostfiles import read_blob_file

    image = _boot(read_blob_file(blob), target, register)
    if core >= image.target.cores:
        raise click.UsageError(f"--core {core}: {image.target.name} has {image.target.cores} cores")
    # The test itself is not to spare a core that it would take out.
    cores = Cores(image, {core: plan.leaving_out(CORE_TEST).hooks(image)}, register)
    log = [event for engine in cores.engines for event in engine.log]
    if as_json:
        events = [event.as_dict() for event in log]
        found = {"schema": 1, **cores.as_dict(), "faults": plan.lines(), "events": events}
        _print_json(_with_healed(found, image))
    elif not plan.plain:
        _lines(fault_lines(f"{plan.replay()} --core {core}", log))
    if cores.out:
        raise FirmwareError(ErrorCode.KNOWN_ANSWER, cores.verdict)
    if not as_json:
        click.echo(f"passed: {cores.verdict}")


@main.command()
@_BLOB
@_OWN_TARGET
@click.option(
    "--temperature",
    type=click.FloatRange(-55, 150),
    metavar="C",
    help="At C degrees Celsius: the thermal stall, with the timing set of that band.",
)
@click.option(
    "--without",
    type=click.Choice(["heat"]),
    help="With --temperature: keep the timing set of the boot.",
)
@_JSON
def profile(
    blob: str, target: str | None, temperature: float | None, without: str | None, as_json: bool
) -> None:
    """Show where the cycles of BLOB go, op by op.

    \b
    Examples:
      npufw profile digits.bin
      npufw profile digits.bin --temperature 90 --without heat
    """
    from npuabi.report_text import print_costs
    from npufw.hostfiles import read_blob_file
    from npufw.perf import profile as measure
    from npufw.perf import profile_at

    if without and temperature is None:
        raise click.UsageError("--without heat goes with --temperature")
    raw = read_blob_file(blob)
    image = _boot(raw, target)
    if temperature is None:
        cost = measure(image)
    else:
        cost = profile_at(image, temperature, reload=without is None)
    if as_json:
        head = {"schema": 1, "blob": blob, "bytes": len(raw)}
        _print_json({**head, **cost.as_dict(), "events": _events(image)})
        return
    print_costs(cost)


@main.command()
@_BLOB
@_OWN_TARGET
@click.option("-o", "--output", default="-", metavar="FILE", help="The text; default: printed.")
@click.option("--constants", metavar="FILE", help="Put the constants there, beside the text.")
@_JSON
def disasm(
    blob: str, target: str | None, output: str, constants: str | None, as_json: bool
) -> None:
    """Write BLOB as text to read and edit; "npufw asm" takes it.

    \b
    Examples:
      npufw disasm digits.bin -o digits.asm
      npufw disasm digits.bin | grep "^toa .* op %r1"
      npufw disasm resnet18.bin -o big.asm --constants big.weights
    """
    from npufw.text_commands import disassemble_file

    disassemble_file(
        blob, target=target, output=output, constants=constants, plain=not as_json, tell=_tell
    )


@main.command()
@click.argument("text", type=click.Path(allow_dash=True))
@click.option("-o", "--output", required=True, metavar="BLOB", help="The blob to write.")
@click.option("--target", help="Target file, where the text names one that is not known.")
@click.option("--unchecked", is_flag=True, help="Write what the firmware will refuse, too.")
@_JSON
def asm(text: str, output: str, target: str | None, unchecked: bool, as_json: bool) -> None:
    """Make a blob of TEXT, which "npufw disasm" wrote; - is stdin.

    CRCs, lengths, counts and padding are made anew, so that an edited text gives a sound blob.
    What the firmware would refuse is refused here, at the line of the text.

    \b
    Example:
      npufw asm digits.asm -o edited.bin
    """
    from npufw.text_commands import assemble_file

    if output == "-" and as_json:
        raise click.UsageError("--output - and --json both write to standard output")
    made = assemble_file(text, target=target, output=output, checked=not unchecked)
    if as_json:
        _print_json(made)
        return
    line = "{blob}: {bytes:,} bytes, {toas} TOAs, {tensors} tensors".format_map(made)
    _lines([line], err=output == "-")


@main.command()
@click.argument("a", type=click.Path(allow_dash=True))
@click.argument("b", type=click.Path(allow_dash=True))
@click.option("--addresses", is_flag=True, help="Show addresses, waits and cycles of TOAs too.")
@click.option("--target", help="Target file of a blob whose target is not known.")
@_JSON
def diff(a: str, b: str, addresses: bool, target: str | None, as_json: bool) -> None:
    """Say what differs between the blobs A and B, op by op.

    Ops are matched by their names. The exit code is 0, whether they differ or not.

    \b
    Examples:
      npufw diff slow.bin fast.bin
      npufw diff slow.bin fast.bin --addresses
    """
    from npufw.text_commands import compare_files

    found = compare_files(a, b, target=target, addresses=addresses, tell=_tell)
    if as_json:
        _print_json({"schema": 1, "a": a, "b": b, **found.as_dict()})
        return
    _lines(found.lines())


# Commands with files of their own.
main.add_command(calibrate)
main.add_command(faults)
main.add_command(gates)
main.add_command(cli_abi.explain)
main.add_command(cli_abi.migrate)
main.add_command(flash)
main.add_command(fuse)
main.add_command(keygen)
