"""Choose how each activation lies in memory.

| value | layout |
| --- | --- |
| graph inputs and outputs | NCHW, as the host sees them |
| fewer than 16 channels, made at the input and read by ungrouped conv2d only | NHWC |
| what products and norms of rows work on (see ``rows``) | NCHW, rows in whole bricks |
| everything else | NCHW16C, one 16-channel brick a bank word |

quantize, dequantize and cast convert layouts as they go; other readers of inputs, and outputs that
another op makes, get a ``to_layout``.

Invariant: afterwards every activation has a layout, and weights have none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from npuabi.enums import Layout
from npuabi.geometry import LANES
from npuc.diagnostics import Location
from npuc.ir.const import Const
from npuc.ir.core import Graph, Op, Value
from npuc.ops.cast import Cast
from npuc.ops.convolution import Convolution
from npuc.ops.dequantize import Dequantize
from npuc.ops.quantize import Quantize
from npuc.ops.to_layout import ToLayout
from npuc.passes.context import PassContext
from npuc.passes.edit import Names, separate_roles
from npuc.passes.level import Level
from npuc.passes.rows import rows_values

__all__ = ["ChooseLayout"]

_TO_HOST = (Dequantize, Cast, ToLayout)
"""Ops that write any layout."""


@dataclass(frozen=True, kw_only=True)
class ChooseLayout:
    """Set the layout of every activation."""

    NAME: ClassVar[str] = "layout"
    LEVEL: ClassVar[Level] = Level.GRAPH

    def run(self, graph: Graph, context: PassContext) -> None:
        """Annotate *graph* and convert at its integer interfaces."""
        separate_roles(graph)
        names = Names(graph)
        for argument in graph.inputs:
            _convert_input(graph, argument, names)
        returned = [_converted_output(graph, v, names, context) for v in graph.returned]
        graph.outputs = [*returned, *graph.updates]
        rows = _separated(graph, rows_values(graph), names)
        for op in graph.ops:
            for value in op.results:
                if not isinstance(op, Const) or _is_activation(value):
                    layout = Layout.NCHW if value in rows else _layout_of(graph, value)
                    value.type = value.tensor.with_layout(layout)
                    if isinstance(op, ToLayout):
                        op.attributes["layout"] = layout.name.lower()
        for argument in graph.inputs:
            argument.type = argument.tensor.with_layout(Layout.NCHW)
        for state in graph.states:
            state.argument.type = state.argument.tensor.with_layout(Layout.NCHW16C)


def _separated(graph: Graph, rows: set[Value], names: Names) -> set[Value]:
    """Give ops that take bricks only copies in bricks; return the values that lie in rows."""
    bricks: dict[Value, Value] = {}
    for op in graph.ops:
        if op.ROWS or op.RELAYS or op.wants_rows() or isinstance(op, Const):
            continue
        for value in op.activations:
            if value in rows and value not in bricks:
                bricks[value] = _turned(graph, value, Layout.NCHW16C, names, before=op)
        op.operands = [v if v is None else bricks.get(v, v) for v in op.operands]
        for value in op.results:
            if value in rows:
                made = _turned(graph, value, Layout.NCHW, names, before=op.next)
                rows = (rows - {value}) | {made}
    return rows


def _turned(
    graph: Graph, value: Value, layout: Layout, names: Names, *, before: Op | None
) -> Value:
    """Return a copy of *value* in *layout*; in rows, everyone else reads the copy."""
    place = value.owner.location if value.owner else graph.location
    name = names.fresh(f"{value.name}_{'rows' if layout is Layout.NCHW else 'bricks'}")
    made = _to_layout(value, layout, name, place)
    if layout is Layout.NCHW:
        value.replace_uses(made.result)
        made.operands = [value]
    return graph.insert(made, before=before).result


def _layout_of(graph: Graph, value: Value) -> Layout:
    if value in graph.returned:
        return Layout.NCHW
    return Layout.NHWC if _reads_plainly(value) else Layout.NCHW16C


def _reads_plainly(value: Value) -> bool:
    """Whether *value* is a narrow image that convolutions read with K packed over the taps."""
    if not isinstance(value.owner, (Quantize, ToLayout, Cast)) or value.tensor.rank < 3:
        return False
    narrow = value.tensor.dims[1] < LANES
    return narrow and bool(value.users) and all(_plain_reader(op, value) for op in value.users)


def _plain_reader(op: Op, value: Value) -> bool:
    return isinstance(op, Convolution) and op.group == 1 and op.residual is not value


def _is_activation(value: Value) -> bool:
    return any(value in user.activations for user in value.users)


def _convert_input(graph: Graph, argument: Value, names: Names) -> None:
    """Give the readers of *argument* that cannot read NCHW a copy that they can read."""
    readers = [op for op in argument.users if not isinstance(op, (Quantize, Cast))]
    if not readers:
        return
    first = next(graph.ops, None)
    name = names.fresh(f"{argument.name}_bricks")
    made = _to_layout(argument, Layout.NCHW16C, name, graph.location)
    for op in readers:
        op.operands = [made.result if v is argument else v for v in op.operands]
    graph.insert(made, before=first)
    if _reads_plainly(made.result):
        made.attributes["layout"] = Layout.NHWC.name.lower()


def _converted_output(graph: Graph, value: Value, names: Names, context: PassContext) -> Value:
    """Return *value* in NCHW; the name goes with the graph's output."""
    if value in graph.inputs or isinstance(value.owner, Const):
        return value
    if value.owner is None:  # A state: it keeps its bricks and its name, the host knows the copy.
        name = names.fresh(f"{value.name}_copy")
        context.ports[name] = value.name
        return graph.append(_to_layout(value, Layout.NCHW, name, graph.location)).result
    if isinstance(value.owner, _TO_HOST) and not value.users:
        return value
    made = _to_layout(value, Layout.NCHW, value.name, value.owner.location)
    value.name = names.fresh(f"{value.name}_bricks")
    return graph.append(made).result


def _to_layout(value: Value, layout: Layout, name: str, place: Location) -> ToLayout:
    return ToLayout(
        [value],
        {"layout": layout.name.lower()},
        result_types=[value.tensor.with_layout(layout)],
        names=[name],
        location=place,
    )
