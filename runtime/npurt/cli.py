"""The command ``npurt``.

Invariant: a command is thin over the library and imports what it needs when it runs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from npuabi.commands import CommandGroup
from npurt.errors import NpurtError

if TYPE_CHECKING:
    from npurt.observer import Observer

__all__ = ["main"]


class _Group(CommandGroup):
    ERRORS = (*CommandGroup.ERRORS, NpurtError)


_METRICS = click.option(
    "--metrics", metavar="FILE", help="Write metrics in Prometheus' text form (extra: serve)."
)
_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="npu-toolchain", prog_name="npurt")
def main() -> None:
    """Run many jobs on the NPU's cores, and find out beforehand how that will go."""


@main.command()
@click.argument("scenario", required=False, type=click.Path(dir_okay=False))
@click.option("--seed", type=click.IntRange(0), help="Use this seed instead of the scenario's.")
@click.option("--trace", metavar="T.json", help="Write what the cores did, for Perfetto.")
@click.option(
    "--log", metavar="L.jsonl", help="Write what became of each job, a JSON object a line."
)
@_METRICS
@_JSON
def bench(scenario: str | None, *, as_json: bool, **options: Any) -> None:
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

    if scenario is not None:
        _play(scenario, as_json=as_json, **options)
        return
    if any(value is not None for value in options.values()):
        raise click.UsageError(f"{' and '.join(f'--{o}' for o in options)} go with a SCENARIO")
    from npurt.bench import bench_dict, compare, curve
    from npurt.bench_text import print_bench
    from npurt.board import Board

    with progress_bar() as progress:
        found, against = curve(Board(), progress=progress), compare(Board())
    if as_json:
        click.echo(json.dumps(bench_dict(found, against), indent=2))
    else:
        print_bench(found, against, Console(soft_wrap=False))


def _play(
    path: str,
    *,
    seed: int | None,
    trace: str | None,
    log: str | None,
    metrics: str | None,
    as_json: bool,
) -> None:
    from dataclasses import replace

    from rich.console import Console

    from npuabi.files import refuse_overwriting
    from npuabi.progress import progress_bar
    from npurt.bench import played_dict
    from npurt.bench_text import print_played
    from npurt.observer import Observers
    from npurt.play import play
    from npurt.scenario import load_scenario

    for output in filter(None, (trace, log, metrics)):
        refuse_overwriting(output, [path])
    scenario = load_scenario(path)
    if seed is not None:
        scenario = replace(scenario, seed=seed)
    cores, end_us = scenario.machine.cores, scenario.duration_us
    with (
        _traced(trace, cores, end_us) as tracer,
        _logged(log) as logger,
        _metered(metrics) as meter,
    ):
        told = [each for each in (tracer, logger, meter) if each is not None]
        observer = Observers(told) if told else None
        with progress_bar() as progress:
            played = play(scenario, observer=observer, progress=progress)
    if as_json:
        click.echo(json.dumps(played_dict(played), indent=2))
    else:
        print_played(played, Console())


@main.command()
@click.option(
    "--jobs", type=click.IntRange(1), default=100_000, show_default=True, help="How many at least."
)
@click.option("--seed", type=click.IntRange(0), help="Of all random numbers; default 1.")
@click.option("--minutes", type=click.FloatRange(0, min_open=True), help="Stop after so long.")
@click.option("--resume", metavar="FILE", help="Keep the state there each round, go on from it.")
@click.option("--round", "number", type=click.IntRange(0), help="Run this round alone, once more.")
@_METRICS
@_JSON
def soak(
    jobs: int,
    seed: int | None,
    minutes: float | None,
    resume: str | None,
    number: int | None,
    metrics: str | None,
    as_json: bool,
) -> None:
    """Put random load on emulated devices in rounds and check all invariants at every step.

    Jobs are cancelled, fail, miss deadlines and find no memory; models are swapped, cores stall and
    are lost, the device heats up. A failure names the seed and the round that replays it.

    \b
    Examples:
      npurt soak
      npurt soak --jobs 1000000 --resume soak.json
      npurt soak --seed 3 --round 17
    """
    from npuabi.progress import progress_bar
    from npurt.soak import ROUND_JOBS, Totals, keep_totals, load_totals, run_round
    from npurt.soak import soak as run_soak
    from npurt.soak_text import print_soak

    if number is not None and (resume is not None or minutes is not None):
        raise click.UsageError("--round runs one round: neither --resume nor --minutes go with it")
    if resume == "-":
        raise click.UsageError("--resume keeps its state in a file, not in a stream")
    with _metered(metrics) as observer, progress_bar() as progress:
        if number is not None:
            totals = run_round(1 if seed is None else seed, number, observer=observer)
        else:
            start = (
                load_totals(resume, seed) if resume else Totals(seed=1 if seed is None else seed)
            )
            totals = run_soak(
                start,
                -(-jobs // ROUND_JOBS),
                minutes=minutes,
                keep=None if resume is None else partial(keep_totals, resume),
                observer=observer,
                progress=progress,
            )
    if as_json:
        click.echo(json.dumps(totals.as_dict(), indent=2))
    else:
        print_soak(totals, number)


@contextmanager
def _traced(path: str | None, cores: int, end_us: float) -> Iterator[Observer | None]:
    """Yield what writes a trace to *path* in the end."""
    if path is None:
        yield None
        return
    from npuabi.files import write_atomically
    from npurt.trace import Tracer

    tracer = Tracer(cores)
    yield tracer
    tracer.close(end_us)
    write_atomically(path, tracer.text().encode())
    if tracer.dropped:
        click.echo(f"note: the trace leaves out the last {tracer.dropped:,} events", err=True)


@contextmanager
def _logged(path: str | None) -> Iterator[Observer | None]:
    """Yield what writes a log to *path* in the end."""
    if path is None:
        yield None
        return
    from npuabi.files import write_atomically
    from npurt.logs import job_log

    with job_log() as (log, lines):
        yield log
        write_atomically(path, lines.getvalue().encode())


@contextmanager
def _metered(path: str | None) -> Iterator[Observer | None]:
    """Yield what writes metrics to *path* in the end."""
    if path is None:
        yield None
        return
    from npuabi.files import write_atomically
    from npurt.metrics import Metrics

    metrics = Metrics()
    yield metrics
    write_atomically(path, metrics.text())
