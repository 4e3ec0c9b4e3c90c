"""The command ``npurt``.

Invariant: a command is thin over the library and imports what it needs when it runs.
"""

from __future__ import annotations

import json

import click

from npuabi.commands import CommandGroup
from npurt.errors import NpurtError

__all__ = ["main"]


class _Group(CommandGroup):
    ERRORS = (*CommandGroup.ERRORS, NpurtError)


_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="npu-toolchain", prog_name="npurt")
def main() -> None:
    """Run many jobs on the NPU's cores, and find out beforehand how that will go."""


@main.command()
@click.argument("scenario", required=False, type=click.Path(dir_okay=False))
@click.option("--seed", type=click.IntRange(0), help="Use this seed instead of the scenario's.")
@click.option("--trace", metavar="T.json", help="Write what the cores did, for Perfetto.")
@_JSON
def bench(scenario: str | None, seed: int | None, trace: str | None, as_json: bool) -> None:
    """Play SCENARIO, a TOML file, in emulated time; without one show what threads gain and lose.

    Without SCENARIO: the concurrency curve of clients with a context each and of clients of the
    service, and eight naive clients against the service, beside what was measured on a board.

    \b
    Examples:
      npurt bench
      npurt bench load.toml --trace load.json
      npurt bench load.toml --seed 7 --json
    """
    from rich.console import Console

    from npuabi.progress import progress_bar

    if scenario is None:
        if trace is not None or seed is not None:
            raise click.UsageError("--trace and --seed go with a SCENARIO")
        from npurt.bench import bench_dict, compare, curve
        from npurt.bench_text import print_bench
        from npurt.board import Board

        with progress_bar() as progress:
            found, against = curve(Board(), progress=progress), compare(Board())
        if as_json:
            click.echo(json.dumps(bench_dict(found, against), indent=2))
        else:
            print_bench(found, against, Console(soft_wrap=False))
        return
    _play(scenario, seed, trace, as_json=as_json)


def _play(path: str, seed: int | None, trace: str | None, *, as_json: bool) -> None:
    from dataclasses import replace

    from rich.console import Console

    from npuabi.files import refuse_overwriting, write_atomically
    from npuabi.progress import progress_bar
    from npurt.bench import played_dict
    from npurt.bench_text import print_played
    from npurt.play import play
    from npurt.scenario import load_scenario
    from npurt.trace import Tracer

    if trace is not None:
        refuse_overwriting(trace, [path])
    scenario = load_scenario(path)
    if seed is not None:
        scenario = replace(scenario, seed=seed)
    tracer = Tracer(scenario.machine.cores) if trace is not None else None
    with progress_bar() as progress:
        played = play(scenario, observer=tracer, progress=progress)
    if tracer is not None and trace is not None:
        tracer.close(scenario.duration_us)
        write_atomically(trace, tracer.text().encode())
        if tracer.dropped:
            click.echo(f"note: the trace leaves out the last {tracer.dropped:,} events", err=True)
    if as_json:
        click.echo(json.dumps(played_dict(played), indent=2))
    else:
        print_played(played, Console())
