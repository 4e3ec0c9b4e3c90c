"""tile: each whole-op task becomes stripes with their DMA, in double-buffered slots.

Invariant: a compute task afterwards touches SRAM only; every other access is a DMA task. The
stripes of a task stand in its place, in the order they are computed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from npuabi.enums import DType, Layout, Space
from npuabi.geometry import LANES, dense_strides
from npuabi.target import Target
from npuc.diagnostics import CompileError
from npuc.ir.const import Const, Dense
from npuc.ir.core import Graph, Op, Value
from npuc.ir.types import Buffer, Place, TensorType
from npuc.npu.builder import bytes_type
from npuc.npu.modes import choose_mode
from npuc.npu.pack import HEAD_BYTES, block_bytes
from npuc.npu.regions import (
    Box,
    Reach,
    geometry,
    reach_of,
    residual_box,
    root_of,
    slice_buffer,
)
from npuc.npu.residency import Residency
from npuc.npu.stripes import Cut, Cutter, Slot, boxes, packed, streamed
from npuc.npu.tables import constant_bytes, stripe_params
from npuc.npu.tasks import (
    BufferOp,
    Constant,
    Depthwise,
    DmaIn,
    DmaOut,
    Norm,
    Reads,
    Task,
    View,
    buffer_type,
)
from npuc.passes.context import PassContext
from npuc.passes.edit import Names
from npuc.passes.level import Level

__all__ = ["Tile"]


@dataclass(frozen=True, slots=True)
class Stripe:
    """One TOA to be: an output box, a range of input bricks, what it reads."""

    box: Box
    reach: Reach
    bricks: tuple[int, int] | None
    clear: bool
    write: bool


@dataclass(frozen=True)
class Tile:
    """Cut tasks to fit ``budget_percent`` of SRAM; ``copies`` 2 double-buffers the slots."""

    NAME: ClassVar[str] = "tile"
    LEVEL: ClassVar[Level] = Level.TASKS

    budget_percent: int = 100
    copies: int = 2
    best_mode: bool = True

    def run(self, graph: Graph, context: PassContext) -> None:
        """Rewrite *graph* in place."""
        tasks = [op for op in graph.ops if isinstance(op, Task)]
        if any(isinstance(task, DmaIn | DmaOut) for task in tasks):
            raise CompileError.at(graph.location, f"graph @{graph.name} is tiled already")
        budget = context.sram_bytes * self.budget_percent // 100
        cutter = Cutter(context.target, copies=self.copies)
        residency = Residency(tasks, cutter, budget=budget)
        cuts = residency.choose()
        context.sram_needed = residency.needed
        names = Names(graph)
        for task, cut in zip(tasks, cuts, strict=True):
            slots = cutter.slots(task, cut)
            _Emitter(graph, task, cut, slots, context.target, self, names).emit()
        _sweep(graph)


class _Slots:
    """The SRAM buffers that one operand's streamed pieces take turns in."""

    def __init__(self, graph: Graph, before: Op, size: int, names: Sequence[str]) -> None:
        self._made = [self._make(graph, before, name, size) for name in names]
        self._next = 0
        self.loaded: object = None
        self.value: Value | None = None

    @staticmethod
    def _make(graph: Graph, before: Op, name: str, size: int) -> Value:
        slot = BufferOp(
            [], {"role": "slot"}, result_types=[bytes_type(size, Space.SRAM)], names=[name]
        )
        return graph.insert(slot, before=before).result

    def take(self) -> Value:
        """Return the next slot in turn."""
        slot = self._made[self._next % len(self._made)]
        self._next += 1
        return slot


class _Emitter:
    """Writes the stripes of one task before it, then removes it."""

    def __init__(
        self,
        graph: Graph,
        task: Task,
        cut: Cut,
        slots: dict[str, Slot],
        target: Target,
        options: Tile,
        names: Names,
    ) -> None:
        self._graph = graph
        self._task = task
        self._planned = slots
        self._target = target
        self._options = options
        self._names = names
        self._stripes = _stripes(task, cut)
        self._slots: dict[str, _Slots] = {}
        self._chunks: dict[tuple[object, ...], Value] = {}

    def emit(self) -> None:
        """Emit all stripes."""
        for stripe in self._stripes:
            self._emit_stripe(stripe)
        self._task.erase()

    def _emit_stripe(self, stripe: Stripe) -> None:
        task = self._task
        source = self._fetch("in", task.inputs[0], stripe.reach.box)
        operands = [source]
        out, store = self._destination(stripe)
        operands.append(out)
        operands += self._constants(stripe)
        residual = task.named("residual")
        if residual is not None:
            box = residual_box(task, residual, stripe.reach, stripe.box)
            operands.append(self._fetch("residual", residual, box))
        made = task.with_operands(
            operands,
            pads=stripe.reach.pads,
            strides=stripe.reach.strides,
            clear=stripe.clear,
            write=stripe.write,
        )
        if self._depthwise:
            made.attributes["groups"] = stripe.box.size[1]
        if isinstance(task, Norm) and task.attributes["groups"] > 1:
            group = task.output.tensor.dims[1] // task.attributes["groups"]
            made.attributes["groups"] = stripe.box.size[1] // group
        made.attributes["mode"] = choose_mode(made, self._target, best=self._options.best_mode)
        self._graph.insert(made, before=task)
        if store is not None and stripe.write:
            self._dma(DmaOut, out, store)

    def _fetch(self, name: str, value: Value, box: Box) -> Value:
        """Return SRAM that holds *box* of *value*: a view, or a slot that a DMA fills."""
        source = slice_buffer(self._graph, value, box, before=self._task)
        if not streamed(value):
            return source
        slots = self._ring(name)
        if slots.loaded == box and slots.value is not None:
            return slots.value
        slots.loaded, slots.value = box, self._typed(slots.take(), self._packed(source))
        self._dma(DmaIn, source, slots.value)
        return slots.value

    def _destination(self, stripe: Stripe) -> tuple[Value, Value | None]:
        """Return where the stripe writes, and the arena view it is stored to, if any."""
        target = slice_buffer(self._graph, self._task.output, stripe.box, before=self._task)
        if not streamed(self._task.output):
            return target, None
        slots = self._ring("out")
        if slots.loaded != stripe.box or slots.value is None:
            slots.loaded = stripe.box
            slots.value = self._typed(slots.take(), self._packed(target))
        return slots.value, target

    def _constants(self, stripe: Stripe) -> list[Value]:
        """Return parameters and weights of a stripe in SRAM, fetched when they changed."""
        params, weights = self._task.named("params"), self._task.named("weights")
        if params is None:
            return []
        if self._task.READS is Reads.TABLES:
            return [self._own_params(stripe)]
        first, count = stripe.box.start[1], stripe.box.size[1]
        key = (first, count, stripe.bricks) if weights is not None else ()
        chunk = self._chunk(key, params, weights, stripe)
        slots = self._ring("const")
        if slots.loaded != key or slots.value is None:
            size = geometry(buffer_type(chunk)).extent
            slots.loaded = key
            slots.value = self._typed(slots.take(), bytes_type(size, Space.SRAM))
            self._dma(DmaIn, chunk, slots.value)
        return self._chunk_views(slots.value, params, weights, stripe)

    def _own_params(self, stripe: Stripe) -> Value:
        """Return parameters that belong to this stripe, or to others with the same tables."""
        data = stripe_params(self._task, stripe.box, stripe.reach.box)
        key = (data.tobytes(),)
        if key not in self._chunks:
            self._chunks[key] = self._constant(data)
        slots = self._ring("const")
        if slots.loaded != key or slots.value is None:
            slots.loaded = key
            slots.value = self._typed(slots.take(), bytes_type(data.size, Space.SRAM))
            self._dma(DmaIn, self._chunks[key], slots.value)
        return self._typed(slots.value, _words_type(data.size))

    def _chunk_views(
        self, slot: Value, params: Value, weights: Value | None, stripe: Stripe
    ) -> list[Value]:
        if weights is None:
            return [self._typed(slot, _in_sram(buffer_type(params)))]
        blocks = -(-stripe.box.size[1] // LANES)
        head = HEAD_BYTES + blocks * block_bytes(self._dtype)
        part = _weights_type(buffer_type(weights), stripe, depthwise=self._depthwise)
        return [self._typed(slot, _words_type(head)), self._typed(slot, part, offset=head)]

    @property
    def _dtype(self) -> DType:
        return self._task.inputs[0].tensor.dtype

    @property
    def _depthwise(self) -> bool:
        return isinstance(self._task, Depthwise)

    def _chunk(
        self, key: tuple[object, ...], params: Value, weights: Value | None, stripe: Stripe
    ) -> Value:
        """Return the constant that holds a stripe's parameters and weights, made once."""
        if weights is None and key not in self._chunks:
            size = geometry(buffer_type(params)).extent
            self._chunks[key] = self._typed(params, bytes_type(size, Space.CONSTANTS))
        elif weights is not None and key not in self._chunks:
            data = _chunk_bytes(params, weights, stripe, block_bytes(self._dtype))
            self._chunks[key] = self._constant(data)
        return self._chunks[key]

    def _constant(self, data: NDArray[np.uint8]) -> Value:
        raw = TensorType((1, 1, 1, data.size), DType.U8)
        const = Const(Dense(data.reshape(1, 1, 1, -1)), raw)
        self._graph.insert(const, before=self._task)
        made = Constant(
            [const.result],
            result_types=[bytes_type(data.size, Space.CONSTANTS)],
            names=[self._names.fresh(f"{self._task.attributes['name']}.data")],
        )
        return self._graph.insert(made, before=self._task).result

    def _ring(self, name: str) -> _Slots:
        if name not in self._slots:
            planned = self._planned[name]
            label = f"{self._task.attributes['name']}.{name}"
            fresh = [self._names.fresh(label) for _ in range(planned.copies)]
            self._slots[name] = _Slots(self._graph, self._task, planned.size, fresh)
        return self._slots[name]

    def _packed(self, part: Value) -> Buffer:
        buffer = buffer_type(part)
        return packed(buffer, buffer.tensor, self._target)

    def _typed(self, slot: Value, buffer: Buffer, *, offset: int = 0) -> Value:
        root, base = root_of(slot)
        view = View([root], {"offset": base + offset}, result_types=[buffer])
        return self._graph.insert(view, before=self._task).result

    def _dma(self, kind: type[Task], source: Value, target: Value) -> None:
        named = {"name": self._task.attributes["name"], "kind": self._task.attributes["kind"]}
        task = kind([source, target], named, location=self._task.location)
        self._graph.insert(task, before=self._task)


def _stripes(task: Task, cut: Cut) -> Iterator[Stripe]:
    for box in boxes(task, cut):
        reach = reach_of(task, box)
        if not cut.k_bricks:
            yield Stripe(box, reach, None, clear=True, write=True)
            continue
        depth = task.inputs[0].tensor.dims[1]
        bricks = -(-depth // LANES)
        for first in range(0, bricks, cut.k_bricks):
            last = min(first + cut.k_bricks, bricks)
            channels = min(last * LANES, depth) - first * LANES
            part = replace(reach, box=reach.box.along(1, first * LANES, channels))
            yield Stripe(box, part, (first, last), clear=first == 0, write=last == bricks)


def _in_sram(buffer: Buffer) -> Buffer:
    return replace(buffer, place=Place(Space.SRAM))


def _words_type(size: int) -> Buffer:
    """Return the type of *size* bytes of parameters."""
    words = TensorType((1, 1, 1, size // 4), DType.I32, layout=Layout.NCHW)
    return Buffer(words, dense_strides(words.dims, DType.I32, Layout.NCHW), Place(Space.SRAM))


def _weights_type(weights: Buffer, stripe: Stripe, *, depthwise: bool) -> Buffer:
    """Return the type of the weights of one stripe: its output channels and K range."""
    _, i, kh, kw = weights.tensor.dims
    count = stripe.box.size[1]
    if depthwise:
        dims = (1, count, kh, kw)
    else:
        dims = (count, stripe.reach.box.size[1] if stripe.bricks else i, kh, kw)
    layout = weights.tensor.layout or Layout.NCHW
    strides = dense_strides(dims, weights.tensor.dtype, layout)
    return Buffer(weights.tensor.with_shape(dims), strides, Place(Space.SRAM))


def _chunk_bytes(params: Value, weights: Value, stripe: Stripe, block: int) -> NDArray[np.uint8]:
    """Return head, parameter blocks and weight blocks of a stripe's channels and K range."""
    first = stripe.box.start[1] // LANES
    last = first + -(-stripe.box.size[1] // LANES)
    words = constant_bytes(params)
    blocks = words[HEAD_BYTES:].reshape(-1, block)[first:last]
    buffer = buffer_type(weights)
    channel_dim = 1 if buffer.tensor.layout is Layout.NCHW16C else 0
    packed = constant_bytes(weights).reshape(geometry(buffer).counts[channel_dim], -1)[first:last]
    if stripe.bricks is not None:
        bricks = geometry(buffer).counts[1]
        packed = packed.reshape(last - first, bricks, -1)[:, slice(*stripe.bricks)]
    return np.concatenate([words[:HEAD_BYTES], blocks.ravel(), packed.ravel()])


def _sweep(graph: Graph) -> None:
    """Remove views, buffers and constants that nothing uses any more."""
    outputs = set(graph.outputs)
    for op in reversed(list(graph.ops)):
        idle = not any(v.users or v in outputs for v in op.results)
        keep = isinstance(op, BufferOp) and op.role == "input"
        if op.results and idle and not keep:
            op.erase()
