"""The table of ``make bench``: us, a peer and a bound, measured in one interleaved run.

``python -m tools.bench [--json FILE] [MODEL ...]``. Invariant: figures of one row come from the
same rounds, each round timing us, the peer and the bound once; a figure is a median, and only
ratios are worth keeping. A peer that is not installed is said to be so.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from npuc.frontend.text import parse_file
from npuc.ir.core import Graph, Op
from npurt.play import play
from npurt.scenario import parse_scenario
from tools.commands import run_json
from tools.onnx_export import to_onnx

__all__ = ["Row", "emulated_jobs", "main", "measure", "sums"]

MODELS = Path(__file__).parents[1] / "models"
NAMES = (
    *("digits", "autoencoder", "ds_cnn", "mobilenet_v1_025_96", "resnet8", "transformer", "unet"),
    *("mobilenet_v2", "mobilenet_v1", "resnet18", "resnet50"),
)
ROUNDS = 5
ROUND_SECONDS = 0.3  # spent on the peer, and on the bound, in a round
LARGE = ("mobilenet_v2", "mobilenet_v1", "resnet18", "resnet50")
REPEATS = {True: 2, False: 20}  # our runs in a round, of large networks and others
LONG_COMPILE_SECONDS = 2
ARRAY_MACS = 256  # a cycle of one 16x16 array, all busy
_LOAD = """
duration_s = 150
[[model]]
name = "a"
run_ms = 8
ddr_ms = 2
descriptor_ms = 0.5
[[model]]
name = "b"
run_ms = 3
ddr_ms = 1
[[client]]
model = "a"
arrivals = "poisson"
rate_per_s = 150
[[client]]
model = "b"
arrivals = "poisson"
rate_per_s = 150
priority = 3
deadline_ms = 500
cancel = 0.02
[[client]]
model = "b"
arrivals = "periodic"
period_ms = 20
priority = 7
"""
"""Fifty thousand jobs that preempt each other, miss deadlines and are cancelled."""
PEER = "onnxruntime fp32"
ABSENT = "not installed"


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the table; peer and bound are None where there is none."""

    what: str
    unit: str
    us: float
    peer: float | None = None
    peer_name: str = ""
    bound: float | None = None
    bound_name: str = ""

    @property
    def ratio(self) -> float | None:
        """Ours over the peer's: below 1 we are better."""
        return None if self.peer is None else self.us / self.peer

    @property
    def of_bound(self) -> float | None:
        """The bound over ours: 1 is perfect."""
        return None if self.bound is None else self.bound / self.us


@dataclass(frozen=True, kw_only=True)
class Sums:
    """The matrix product that one op stands for, once a group."""

    groups: int
    rows: int
    depth: int
    columns: int

    @property
    def macs(self) -> int:
        """Multiplications and additions."""
        return self.groups * self.rows * self.depth * self.columns


def sums(graph: Graph) -> list[Sums]:
    """Return the matrix products of all convolutions, dense ops and matmuls, in order."""
    return [_SUMS[op.NAME](op) for op in graph.ops if op.NAME in _SUMS]


def _conv_sums(op: Op) -> Sums:
    batch, filters, *pixels = op.result.tensor.dims
    _, *window = op.inputs[1].tensor.dims
    groups = op.attributes["group"]
    return Sums(
        groups=groups,
        rows=batch * math.prod(pixels),
        depth=math.prod(window),
        columns=filters // groups,
    )


def _dense_sums(op: Op) -> Sums:
    *rows, outputs = op.result.tensor.dims
    depth = op.inputs[1].tensor.dims[1]
    return Sums(groups=1, rows=math.prod(rows), depth=depth, columns=outputs)


def _matmul_sums(op: Op) -> Sums:
    *stack, rows, columns = op.result.tensor.dims
    depth = op.inputs[0].tensor.dims[-1]
    return Sums(groups=math.prod(stack), rows=rows, depth=depth, columns=columns)


def _transposed_sums(op: Op) -> Sums:
    batch, channels, *pixels = op.inputs[0].tensor.dims
    _, *window = op.inputs[1].tensor.dims
    groups = op.attributes["group"]
    return Sums(
        groups=groups,
        rows=batch * math.prod(pixels),
        depth=channels // groups,
        columns=math.prod(window),
    )


_SUMS: dict[str, Callable[[Op], Sums]] = {
    "conv2d": _conv_sums,
    "conv_transpose2d": _transposed_sums,
    "dense": _dense_sums,
    "matmul": _matmul_sums,
}


def measure(name: str) -> list[Row]:
    """Return the rows of one model."""
    path = MODELS / f"{name}.txt"
    graph = parse_file(path)
    products = sums(graph)
    bare, peer = _bare_products(products), _peer(graph)
    with tempfile.TemporaryDirectory() as folder:
        blob = str(Path(folder) / "model.bin")
        compiled = _compile(path, blob)
        repeat = str(REPEATS[name in LARGE])
        rounds = [_round(blob, repeat, peer, bare) for _ in range(ROUNDS)]
    us, theirs, bound = (_median(column) for column in zip(*rounds, strict=True))
    host = Row(
        what=f"{name}: host, one image",
        unit="ms",
        us=us if us is not None else math.nan,
        peer=theirs,
        peer_name=PEER if peer else f"{PEER}: {ABSENT}",
        bound=bound,
        bound_name="numpy fp32 products alone",
    )
    compile_s = statistics.median(report["compile_s"] for report in compiled)
    cycles = Row(
        what=f"{name}: modelled cycles",
        unit="cycles",
        us=compiled[0]["cycles"],
        bound=math.ceil(sum(product.macs for product in products) / ARRAY_MACS),
        bound_name="MACs / 256",
    )
    return [host, Row(what=f"{name}: compile", unit="s", us=compile_s), cycles]


def _compile(path: Path, blob: str) -> list[dict[str, Any]]:
    """Return the reports of three compilations, or of one that takes long."""
    reports: list[dict[str, Any]] = []
    while len(reports) < 3 and (not reports or reports[0]["compile_s"] < LONG_COMPILE_SECONDS):
        reports.append(run_json("npuc", "compile", str(path), "-o", blob, "--json"))
    return reports


def _round(
    blob: str, repeat: str, peer: Callable[[], object] | None, bare: Callable[[], object]
) -> tuple[float | None, float | None, float | None]:
    """Return ms an image of us, of the peer and of the bound.

    The peer comes last: its threads spin for a while after their work and slow what follows.
    """
    ours = run_json("npufw", "run", blob, "--repeat", repeat, "--json")["host_ms"]["median"]
    bound = _timed(bare)
    return ours, _timed(peer) if peer else None, bound


def _timed(call: Callable[[], object]) -> float:
    """Return the median ms of as many calls as fit a round, at least one, after a warm-up."""
    call()
    times: list[float] = []
    end = time.perf_counter() + ROUND_SECONDS
    while not times or time.perf_counter() < end:
        start = time.perf_counter()
        call()
        times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times)


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def _bare_products(products: Sequence[Sums]) -> Callable[[], object]:
    """Return a call that does the products in float32 and nothing else."""
    rng = np.random.default_rng(0)
    pairs = [
        (
            rng.random((p.groups, p.rows, p.depth), np.float32),
            rng.random((p.groups, p.depth, p.columns), np.float32),
        )
        for p in products
    ]
    return lambda: [np.matmul(a, b) for a, b in pairs]


def _peer(graph: Graph) -> Callable[[], object] | None:
    """Return a call that runs *graph* in ONNX Runtime, or None where that is not installed."""
    if not all(importlib.util.find_spec(name) for name in ("onnx", "onnxruntime")):
        return None
    import onnxruntime

    session = onnxruntime.InferenceSession(
        to_onnx(graph).SerializeToString(), providers=["CPUExecutionProvider"]
    )
    rng = np.random.default_rng(0)
    feed = {v.name: rng.random(v.tensor.dims, np.float32) for v in graph.arguments}
    return lambda: session.run(None, feed)


def emulated_jobs() -> Row:
    """Return the seconds that a million jobs take in emulated time, from a twentieth of them."""
    seconds = 0.0
    for _ in range(3):
        start = time.process_time()
        played = play(parse_scenario(_LOAD))
        taken = (time.process_time() - start) * 1e6 / played.simulation.submitted
        seconds = min(seconds or taken, taken)
    return Row(what="npurt: 1,000,000 emulated jobs", unit="s", us=seconds)


def machine() -> str:
    """Return one line about what the figures were measured on; a load above 1 spoils them."""
    return (
        f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}, "
        f"numpy {np.__version__}, BLAS {_blas()}, load {os.getloadavg()[0]:.1f}"
    )


def _blas() -> str:
    if not importlib.util.find_spec("threadpoolctl"):
        return str(np.show_config(mode="dicts")["Build Dependencies"]["blas"]["name"])
    import threadpoolctl

    libraries = [x for x in threadpoolctl.threadpool_info() if x["user_api"] == "blas"]
    kernels = {f"{x['internal_api']} {x.get('architecture', '')}".strip() for x in libraries}
    return ", ".join(sorted(kernels)) or "unknown"


def _table(rows: Sequence[Row]) -> Table:
    table = Table(caption=machine(), caption_justify="left")
    table.add_column("what")
    for head in ("us", "peer", "ratio", "bound", "of bound"):
        table.add_column(head, justify="right")
    for row in rows:
        table.add_row(
            f"{row.what}, {row.unit}",
            _number(row.us),
            f"{_number(row.peer)} {row.peer_name}".strip(),
            _number(row.ratio),
            f"{_number(row.bound)} {row.bound_name}".strip(),
            "" if row.of_bound is None else f"{row.of_bound:.1%}",
        )
    return table


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _json(rows: Sequence[Row]) -> str:
    lines = [asdict(row) | {"ratio": row.ratio, "of_bound": row.of_bound} for row in rows]
    return json.dumps({"schema": 1, "machine": machine(), "rows": lines}, indent=2) + "\n"


def main() -> None:
    """Measure, print the table and perhaps keep it as JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="*", default=NAMES, metavar="MODEL")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the figures")
    arguments = parser.parse_args()
    rows: list[Row] = []
    for name in arguments.models:
        print(f"measuring {name} ...", file=sys.stderr)
        rows += measure(name)
    rows.append(emulated_jobs())
    wide = None if sys.stdout.isatty() else 140
    Console(width=wide).print(_table(rows))
    if arguments.json:
        arguments.json.write_text(_json(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
