"""The command ``npuc``.

Invariant: a command is thin over the library and imports what it needs when it runs, so that
``npuc --help`` is quick; how errors end the program is ``npuabi.commands``' business.
"""

from __future__ import annotations

import json

import click

from npuabi.commands import CommandGroup

__all__ = ["main", "parse_keep", "parse_shapes"]

_ELIDED_ELEMENTS = 16
_PRECISIONS = ("auto", "int8", "int16", "fp16", "fp32")
_ROUNDINGS = ("double", "single", "even")


def parse_shapes(
    _: click.Context, __: click.Parameter, values: tuple[str, ...]
) -> dict[str, tuple[int, ...]]:
    """Return dims by input name from options of the form ``NAME=AxBxC``; for click."""
    shapes: dict[str, tuple[int, ...]] = {}
    for value in values:
        name, _equals, text = value.removeprefix("%").partition("=")
        dims = text.split("x")
        if not name or not all(d.isascii() and d.isdigit() and len(d) < 11 for d in dims):
            raise click.BadParameter(f"{value!r} is not of the form image=1x3x32x32")
        if name in shapes:
            raise click.BadParameter(f"{name} is given twice")
        shapes[name] = tuple(map(int, dims))
    return shapes


def parse_keep(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """Return precisions by result name from options of the form ``NAME=int16``; for click."""
    kept: dict[str, str] = {}
    for value in values:
        name, _equals, precision = value.removeprefix("%").rpartition("=")
        if not name or not precision:
            raise click.BadParameter(f"{value!r} is not of the form conv1=int16")
        if name in kept:
            raise click.BadParameter(f"{name} is given twice")
        kept[name] = precision
    return kept


@click.group(cls=CommandGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="npu-toolchain", prog_name="npuc")
def main() -> None:
    """Compile networks for the NPU."""


_EXAMPLES = """
\b
Examples:
  npuc compile models/digits.txt -o digits.bin
  npuc compile net.txt --calibrate samples.npz --target tiny -O3
  npuc compile net.txt --shape image=1x3x64x64 --json
  npuc compile net.txt --dump-ir ir/ --timing
"""


@main.command("compile", epilog=_EXAMPLES)
@click.argument("model", type=click.Path(allow_dash=True))
@click.option("-o", "--output", metavar="BLOB", help="The blob; default: MODEL's name with .bin.")
@click.option("--target", default="edge", show_default=True, help="Target name or TOML file.")
@click.option(
    "--precision",
    type=click.Choice(_PRECISIONS),
    default="auto",
    show_default=True,
    help="Of the arithmetic; auto: int8 for a quantised graph or with samples, else fp16.",
)
@click.option(
    "--keep",
    multiple=True,
    metavar="NAME=PRECISION",
    callback=parse_keep,
    help="Another precision for the op whose result is %NAME; may be repeated.",
)
@click.option(
    "--rounding",
    type=click.Choice(_ROUNDINGS),
    default="double",
    show_default=True,
    help="Whose bits: LiteRT's reference, its single-rounding builds, or ONNX Runtime.",
)
@click.option(
    "--calibrate",
    metavar="X.npz|random",
    help="Samples that fix the ranges of codes; default: the graph's calibration attribute.",
)
@click.option(
    "--percentile",
    type=click.FloatRange(50, 100, min_open=True),
    default=100.0,
    show_default=True,
    help="Share of each sample's values that a range covers, in percent.",
)
@click.option(
    "--shape",
    "shapes",
    multiple=True,
    metavar="NAME=AxBxC",
    callback=parse_shapes,
    help="Dims of a dynamic input.",
)
@click.option(
    "-O",
    "level",
    type=click.Choice(["0", "1", "2", "3"]),
    default="2",
    show_default=True,
    help="Effort of tiling, placement and order; never changes a number.",
)
@click.option(
    "--sram-limit", type=click.IntRange(1), metavar="KIB", help="Use at most this much SRAM."
)
@click.option("--no-fuse", is_flag=True, help="Leave ops unfused; for study, changes numbers.")
@click.option("--print-ir-after-all", "print_ir", is_flag=True, help="Print the IR to stderr.")
@click.option("--dump-ir", metavar="DIR", help="Write the IR behind each pass to a file in DIR.")
@click.option("--timing", is_flag=True, help="Print how long each pass took.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def compile_command(
    model: str,
    output: str | None,
    target: str,
    precision: str,
    keep: dict[str, str],
    rounding: str,
    calibrate: str | None,
    percentile: float,
    shapes: dict[str, tuple[int, ...]],
    level: str,
    sram_limit: int | None,
    no_fuse: bool,
    print_ir: bool,
    dump_ir: str | None,
    timing: bool,
    as_json: bool,
) -> None:
    """Compile the graph text MODEL (- is standard input) to a blob."""
    from npuc.cli_compile import Output, run_compile
    from npuc.driver import Options

    options = Options(
        target=target,
        precision=precision,
        keep=keep,
        rounding=rounding,
        calibrate=calibrate,
        shapes=shapes,
        level=int(level),
        sram_limit_kib=sram_limit,
        percentile=percentile,
        fuse=not no_fuse,
    )
    report = Output(blob=output, as_json=as_json, timing=timing, print_ir=print_ir, dump_ir=dump_ir)
    run_compile(model, options, report)


@main.command()
@click.argument("text", type=click.Path(allow_dash=True))
@click.option("--passes", default="", metavar="A,B", help="Passes to run, in this order.")
@click.option("--target", default="edge", show_default=True, help="Target name or TOML file.")
@click.option("--rounding", type=click.Choice(_ROUNDINGS), default="double", show_default=True)
@click.option(
    "--precision",
    type=click.Choice(_PRECISIONS),
    default="int8",
    show_default=True,
    help="For the passes calibrate and quantise.",
)
@click.option(
    "--keep",
    multiple=True,
    metavar="NAME=PRECISION",
    callback=parse_keep,
    help="Another precision for the op whose result is %NAME; may be repeated.",
)
@click.option(
    "--shape",
    "shapes",
    multiple=True,
    metavar="NAME=AxBxC",
    callback=parse_shapes,
    help="Dims of a dynamic input.",
)
@click.option(
    "--calibrate",
    metavar="X.npz|random",
    help="Samples for the pass calibrate; default: the graph's calibration attribute.",
)
@click.option("--elide", is_flag=True, help="Leave out the numbers of larger constants.")
@click.option("--mlir", is_flag=True, help="Print MLIR's generic form.")
@click.option("-o", "--output", default="-", metavar="FILE", help="Where to write; - is stdout.")
def opt(
    text: str,
    passes: str,
    target: str,
    rounding: str,
    precision: str,
    keep: dict[str, str],
    shapes: dict[str, tuple[int, ...]],
    calibrate: str | None,
    elide: bool,
    mlir: bool,
    output: str,
) -> None:
    """Run passes on graph text TEXT (- is standard input) and print the graph."""
    from npuabi.enums import Rounding
    from npuabi.files import write_atomically
    from npuabi.target import load_target
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
        check_constants(graph)
        if any(isinstance(step, Calibrate) for step in steps):
            context.calibration = calibration_samples(graph, calibrate, context)
        set_precisions(graph, context, precision, keep)
        PassManager(steps).run(graph, context)
        show = print_mlir if mlir else print_graph
        printed = show(graph, elide=_ELIDED_ELEMENTS if elide else None)
    for note in context.notes:
        click.echo(str(note), err=True)
    write_atomically(output, printed.encode())


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
    """Say what the NPU can do with every op of graph text, or with the op NAME."""
    from npuc import support, support_text
    from npuc.ir.core import REGISTRY

    if name is not None and (name not in REGISTRY or "." in name or name == "const"):
        close = " or ".join(support.close_names(name))
        hint = f", did you mean {close}" if close else ""
        raise click.BadParameter(f"no op {name!r}{hint}: npuc ops lists all", param_hint="NAME")
    chosen = support.supported() if name is None else [support.support_of(REGISTRY[name])]
    if as_json:
        click.echo(json.dumps(support_text.as_json(chosen), indent=2))
    elif markdown:
        click.echo(support_text.ops_page().removesuffix("\n"))
    elif name is None:
        click.echo("\n".join(support_text.matrix()))
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
