"""The command ``npuc``.

Invariant: a command is thin over the library and imports what it needs when it runs, so that
``npuc --help`` is quick; how errors end the program is ``npuabi.commands``' business.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from npuabi import __version__
from npuabi.commands import CommandGroup
from npuc.cli_options import PRECISIONS, compile_options, part

if TYPE_CHECKING:
    from npuc.driver import Options

__all__ = ["main"]

_ELIDED_ELEMENTS = 16


@click.group(cls=CommandGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="npuc")
def main() -> None:
    """Compile networks for the NPU."""


_EXAMPLES = """
\b
Examples:
  npuc compile models/digits.txt -o digits.bin
  npuc compile net.txt --calibrate samples.npz --target tiny -O3
  npuc compile net.txt --shape image=1x3x64x64 --json
  npuc compile net.txt --dump-ir ir/ --timing
  npuc compile net.txt --sign maker.key --security-version 3
"""


@main.command("compile", epilog=_EXAMPLES)
@click.argument("model", type=click.Path(allow_dash=True))
@click.option("-o", "--output", metavar="BLOB", help="The blob; default: MODEL's name with .bin.")
@compile_options
@click.option("--print-ir-after-all", "print_ir", is_flag=True, help="Print the IR to stderr.")
@click.option("--dump-ir", metavar="DIR", help="Write the IR behind each pass to a file in DIR.")
@click.option("--timing", is_flag=True, help="Print how long each pass took.")
@click.option("--sign", "key", metavar="KEY", help="Sign the blob with the key in this file.")
@click.option(
    "--security-version",
    type=click.IntRange(0, 0xFFFFFFFF),
    help="Of the signed blob; a device refuses less than its anti-rollback counter.  [default: 0]",
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def compile_command(
    model: str,
    output: str | None,
    options: Options,
    print_ir: bool,
    dump_ir: str | None,
    timing: bool,
    key: str | None,
    security_version: int | None,
    as_json: bool,
) -> None:
    """Compile the graph text MODEL (- is standard input) to a blob."""
    from npuc.cli_compile import Output, run_compile

    if security_version is not None and key is None:
        raise click.UsageError("--security-version is part of a signature: give --sign KEY")

    report = Output(
        blob=output,
        as_json=as_json,
        timing=timing,
        print_ir=print_ir,
        dump_ir=dump_ir,
        key=key,
        security_version=security_version or 0,
    )
    run_compile(model, options, report)


_CHECK_EXAMPLES = """
\b
Examples:
  npuc check models/digits.txt
  npuc check net.txt --input samples.npz --precision int16
  npuc check net.txt --mixed 2          which ops to keep wider, as --keep options
  npuc check net.txt --target tiny -O3 --json
"""


@main.command(epilog=_CHECK_EXAMPLES)
@click.argument("model", type=click.Path(allow_dash=True))
@click.option(
    "--input",
    "given",
    multiple=True,
    metavar="FILE",
    help="X.npz, X.npy, NAME=X.npy or an image; default: the first calibration sample.",
)
@compile_options
@click.option(
    "--mixed",
    "count",
    type=click.IntRange(0),
    default=0,
    metavar="N",
    help="Propose N ops for a wider precision, and say what that gives.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def check(
    context: click.Context,
    model: str,
    given: tuple[str, ...],
    options: Options,
    count: int,
    as_json: bool,
) -> None:
    """Run inputs at four levels and say where the numbers part.

    L1 is float arithmetic on the graph as written, L2 the reference of the quantised graph, L3 the
    tiled program, L4 the blob in the emulator. Exit code 1 when L2, L3 and L4 do not agree. N times
    the compiled batch are N batches, consecutive frames of a graph with states; the worst is shown.
    """
    from npuc.check.command import run_check

    if not run_check(model, options, given=given, count=count, as_json=as_json):
        context.exit(1)


@main.command()
@click.argument("text", type=click.Path(allow_dash=True))
@click.option("--passes", default="", metavar="A,B", help="Passes to run, in this order.")
@part("target")
@part("rounding")
@click.option(
    "--precision",
    type=click.Choice(PRECISIONS[1:]),
    default="int8",
    show_default=True,
    help="For the passes calibrate and quantise.",
)
@part("keep")
@part("shapes")
@part("calibrate")
@part("preprocess")
@click.option("--elide", is_flag=True, help="Leave out the numbers of larger constants.")
@click.option("--mlir", is_flag=True, help="Print MLIR's generic form.")
@click.option(
    "-o", "--output", default="-", metavar="FILE", help="Where to write; - is standard output."
)
def opt(
    text: str,
    passes: str,
    target: str,
    rounding: str,
    precision: str,
    keep: dict[str, str],
    shapes: dict[str, tuple[int, ...]],
    calibrate: str | None,
    preprocess: str | None,
    elide: bool,
    mlir: bool,
    output: str,
) -> None:
    """Run passes on the graph TEXT (- is standard input); print it."""
    from npuabi.enums import Rounding
    from npuabi.files import refuse_overwriting, write_atomically
    from npuabi.target import load_target
    from npuc.frontend.files import files_of
    from npuc.frontend.source import load_source
    from npuc.frontend.text import check_constants, parse
    from npuc.ir.mlir import print_mlir
    from npuc.ir.printer import print_graph
    from npuc.passes import passes_by_name
    from npuc.passes.calibrate import Calibrate
    from npuc.passes.context import PassContext
    from npuc.passes.manager import PassManager
    from npuc.passes.precision import set_precisions
    from npuc.samples import calibration_samples

    try:
        steps = passes_by_name(passes)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--passes") from error
    source = load_source(text)
    context = PassContext(
        target=load_target(target),
        rounding=Rounding[rounding.upper()],
        folder=source.folder,
        shapes=shapes,
    )
    with source.shown():
        graph = parse(source)
        named = (text, target, str(calibrate), str(preprocess))
        refuse_overwriting(output, [*named, *files_of(graph, source.folder)])
        check_constants(graph)
        if any(isinstance(step, Calibrate) for step in steps):
            context.calibration = calibration_samples(graph, calibrate, context, preprocess)
        set_precisions(graph, context, precision, keep)
        PassManager(steps).run(graph, context)
        show = print_mlir if mlir else print_graph
        printed = show(graph, elide=_ELIDED_ELEMENTS if elide else None)
    for note in context.notes:
        click.echo(str(note), err=True)
    write_atomically(output, printed.encode())


_WHY_EXAMPLES = """
\b
Examples:
  npuc why models/digits.txt n3         the op whose result is %n3
  npuc why models/digits.txt 27         the op on line 27
  npuc why net.txt c1 --target tiny -O3 --json
"""


@main.command(epilog=_WHY_EXAMPLES)
@click.argument("model", type=click.Path(allow_dash=True))
@click.argument("ops", nargs=-1, required=True, metavar="OP...")
@compile_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def why(model: str, ops: tuple[str, ...], options: Options, as_json: bool) -> None:
    """Say what became of ops of MODEL.

    OP is a result's name, or a line of the text. Told are its precision and parameters and where
    they come from, what it was fused with or why not, its stripes, banks, DMA and cycles; or the
    limit that refuses it, and what would help.
    """
    from npuc.why_text import run_why

    run_why(model, ops, options, as_json=as_json)


_OPS_EXAMPLES = """
\b
Examples:
  npuc ops                  every op, its precisions, what it becomes
  npuc ops conv2d           operands, attributes, limits of one
  npuc ops --json
"""


@main.command(epilog=_OPS_EXAMPLES)
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--markdown", is_flag=True, help="Print the page docs/ops.md.")
def ops(name: str | None, as_json: bool, markdown: bool) -> None:
    """List the ops and what the NPU makes of them, or show op NAME."""
    from npuabi.progress import progress_bar
    from npuabi.target import load_target
    from npuc import support, support_text
    from npuc.ir.core import REGISTRY

    if name is not None and (name not in REGISTRY or "." in name or name == "const"):
        close = " or ".join(support.close_names(name))
        hint = f", did you mean {close}" if close else ""
        raise click.BadParameter(f"no op {name!r}{hint}: npuc ops lists all", param_hint="NAME")
    if name is None or markdown:
        with progress_bar() as progress:
            chosen = support.supported(progress)
    else:
        chosen = [support.support_of(REGISTRY[name], load_target("edge"))]
    if as_json:
        click.echo(json.dumps(support_text.as_json(chosen), indent=2))
    elif markdown:
        click.echo(support_text.ops_page(chosen).removesuffix("\n"))
    elif name is None:
        click.echo("\n".join(support_text.matrix(chosen)))
    else:
        click.echo("\n".join(support_text.details(chosen[0])))


@main.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def targets(as_json: bool) -> None:
    """List the targets and their numbers."""
    from dataclasses import asdict

    from npuabi.target import load_target, target_names

    loaded = [asdict(load_target(name)) for name in target_names()]
    if as_json:
        click.echo(json.dumps({"schema": 1, "targets": loaded}, indent=2))
        return
    width = max(map(len, loaded[0]))
    for key in loaded[0]:
        click.echo(f"{key:<{width}}" + "".join(f"{t[key]:>12}" for t in loaded))


@main.command()
@click.option("--c-header", "form", flag_value="c_header", help="Print the C header.")
@click.option("--markdown", "form", flag_value="markdown", default=True, help="Print the page.")
def abi(form: str) -> None:
    """Print the records, enums and error codes of the ABI."""
    from npuabi.render import c_header, markdown

    click.echo((c_header() if form == "c_header" else markdown()).removesuffix("\n"))
