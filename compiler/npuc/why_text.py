"""``npuc why`` for people and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import click

from npuabi.progress import progress_bar
from npuc.driver import Options
from npuc.frontend.source import load_source
from npuc.why import Device, Explanation, explain

__all__ = ["run_why"]


def run_why(model: str, wanted: Sequence[str], options: Options, *, as_json: bool) -> None:
    """Print what became of the ops *wanted* of *model*. Raises CompileError, OSError."""
    source = load_source(model)
    with source.shown(), progress_bar() as progress:
        found = explain(source, wanted, options, progress=progress)
    if as_json:
        click.echo(json.dumps(_report_json(model, found), indent=2))
        return
    click.echo("\n\n".join("\n".join(_lines(source.file, one)) for one in found))


def _report_json(model: str, found: Sequence[Explanation]) -> dict[str, Any]:
    return {"schema": 1, "model": model, "ops": [asdict(one) for one in found]}


def _lines(file: str, one: Explanation) -> Iterator[str]:
    yield f"{file}:{one.line}: {one.text}"
    itself = f"{one.op} %{one.name}"
    if one.into is not None:
        yield f"{itself} {'runs as itself' if one.into == itself else f'runs as {one.into}'}"
    elif one.refusals or one.elsewhere:
        yield f"{itself} is not compiled, because the graph is refused"
    else:
        yield f"{itself} has no work on the device"
    yield from (f"  refused: {text}" for text in one.refusals)
    yield from (f"  {text}" for text in one.decisions)
    if one.elsewhere:
        yield f"  refused for {len(one.elsewhere)} other reasons, the first on {one.elsewhere[0]}"
    for tensor in one.tensors:
        yield f"  {tensor.role:<10} %{tensor.name}: {tensor.type}"
        if tensor.origin:
            yield f"  {'':<10} parameters {tensor.origin}"
    if one.device is not None:
        yield from (f"  {line}" for line in _device_lines(one.device))
    elif one.into is not None:
        yield "  no TOA: the result is its operand's memory"


def _device_lines(device: Device) -> Iterator[str]:
    cost = device.cost
    cut = f" in {device.k_ranges} ranges of K" if device.k_ranges > 1 else ""
    modes = ", ".join(m.replace("_", "-") for m in device.modes if m != "none")
    yield f"opcodes    {', '.join(device.opcodes) or 'dma'}{f', {modes}' if modes else ''}"
    if device.stripes:
        yield f"stripes    {device.stripes}, at most {device.stripe}{cut}"
    if device.banks:
        listed = (f"{name} {_spans(banks)}" for name, banks in device.banks.items())
        yield f"banks      {'; '.join(listed)}"
    yield (
        f"DMA        {device.dma_in} in, {device.dma_in_bytes:,} bytes; "
        f"{device.dma_out} out, {device.dma_out_bytes:,} bytes"
    )
    used = f", {cost.mac_utilisation:.1%} of the arrays' peak" if cost.macs else ""
    yield f"cycles     {cost.cycles:,}, {device.share:.1%} of all{used}; bound by {cost.bound}"
    lost = ", ".join(f"{name} {count:,}" for name, count in device.stalls.items() if count)
    yield f"stalls     {lost or 'none'}"


def _spans(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))
