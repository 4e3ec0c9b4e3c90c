"""Random float graphs over all ops, with calibration data and inputs, for property tests.

A graph is a function of one ``random.Random``: hypothesis' ``st.randoms()`` shrinks it, and a plain
loop replays it from its seed. Invariant: every graph that is returned passes the verifier, and
its text alone (``Case.text``) builds it again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npuabi.enums import DType
from npuc.frontend.text import parse_text
from npuc.ir.const import Const, Splat
from npuc.ir.const import Random as RandomData
from npuc.ir.core import REGISTRY, Graph, Op, State, Value
from npuc.ir.printer import print_graph
from npuc.ir.types import Quant, TensorType
from npuc.ops.pointwise import Unary
from tests.random_movement import MOVES, expand

__all__ = ["Case", "random_case"]

Array = NDArray[Any]

_MOST_ELEMENTS = 6000
_MOST_WEIGHTS = 12000
_CHANNELS = (1, 2, 3, 6, 8, 15, 16, 17, 20, 24, 31, 32, 33)
_FUNCTIONS = [cls for _, cls in sorted(REGISTRY.items()) if issubclass(cls, Unary)]
"""Ops of one tensor, element by element: each is as likely as the others."""
_GROWING: dict[str, Callable[[Iterable[bool]], bool]] = {
    **dict.fromkeys(("div", "exp", "pow", "reciprocal", "rsqrt", "square"), all),
    "mul": any,
}
"""Ops that might leave float32 on what other ops made: how many operands must be modest."""
_EDGES = (0, 0, 0, 1, 1, 2, 3, 4)


@dataclass(frozen=True)
class Case:
    """A graph as text, arrays to calibrate it with, and inputs: two frames where it has a state."""

    text: str
    calibrate: dict[str, Array]
    inputs: dict[str, Array]

    def graph(self) -> Graph:
        """Return a fresh graph: a compilation rewrites the one it is given."""
        return parse_text(self.text)

    @property
    def frame(self) -> dict[str, Array]:
        """The first frame of the inputs."""
        sizes = {v.name: v.tensor.dims[0] for v in self.graph().inputs}
        return {name: array[: sizes[name]] for name, array in self.inputs.items()}


def random_case(random: Random, *, ops: int = 7) -> Case:
    """Return a graph of at most *ops* drawn ops (most bring constants or a second operand)."""
    maker = _Maker(random)
    for _ in range(random.randint(1, 3)):
        maker.add_input()
    if not random.randint(0, 7):
        maker.add_state()
    for _ in range(random.randint(1, ops)):
        maker.add_op()
    graph = maker.finish()
    numbers = np.random.default_rng(random.randint(0, 1 << 30))
    return Case(
        text=print_graph(graph),
        calibrate={v.name: _array(v, numbers, copies=3) for v in graph.inputs},
        inputs={v.name: _array(v, numbers, copies=1 + len(graph.states)) for v in graph.inputs},
    )


def _array(value: Value, numbers: np.random.Generator, *, copies: int) -> Array:
    dims = value.tensor.dims
    shape = (dims[0] * copies, *dims[1:])
    if value.tensor.dtype is DType.I8:
        return numbers.integers(-128, 128, shape).astype(np.int8)
    return numbers.normal(0.2, 1.5, shape).astype(np.float32)


class _Maker:
    """Adds ops on values that exist; what does not fit together is not added."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.graph = Graph("random")
        self.values: list[Value] = []
        self._count = 0

    def pick(self, *choices: Any) -> Any:
        """Return one of *choices*."""
        return self.random.choice(choices)

    def between(self, low: int, high: int) -> int:
        """Return an integer, both ends included."""
        return self.random.randint(low, high)

    def value(self, *ranks: int) -> Value | None:
        """Return an existing float value of one of these ranks, later ones more often."""
        able = [v for v in self.values if not ranks or v.tensor.rank in ranks]
        if not able:
            return None
        return able[max(self.between(0, len(able) - 1), self.between(0, len(able) - 1))]

    def modest(self) -> Value | None:
        """Return a value that no op can have made large."""
        able = [v for v in self.values if _modest(v)]
        return self.random.choice(able) if able else None

    def fresh(self) -> str:
        """Return a name that is new."""
        self._count += 1
        return f"v{self._count}"

    def add_input(self) -> None:
        """Add a graph input: mostly an image, else any rank; now and then int8 codes."""
        shape = _shape(self)
        name = self.fresh()
        codes = self.between(0, 9) == 9
        quant = Quant.per_tensor(self.pick(0.05, 0.013, 1.0), self.between(-128, 127))
        tensor = TensorType(shape, DType.I8, quant) if codes else TensorType(shape)
        argument = Value(name, tensor)
        self.graph.arguments.append(argument)
        if codes:
            self.append("dequantize", [argument])
        else:
            self.values.append(argument)

    def add_state(self) -> None:
        """Add a state, in the shape of an input or another; behind all inputs."""
        shape = self.pick(_shape(self), self.graph.arguments[0].tensor.dims)
        argument = Value(self.fresh(), TensorType(shape))
        data = self.pick(Splat(0.25), RandomData(seed=self.between(0, 1 << 20), mean=0.0, std=1.0))
        initial = Const(data, TensorType(shape), name=argument.name)
        self.graph.states.append(State("kept", argument, initial))
        self.graph.arguments.append(argument)
        self.values.append(argument)

    def update(self, state: State) -> Value:
        """Return what *state* holds next: modest, so that it may be taken for an input."""
        kept = state.argument
        able = [v for v in self.values if v.tensor == kept.tensor]
        held = [v for v in able if v is not kept and _modest(v)]
        if held and self.between(0, 1):
            return self.random.choice(held)
        bounded = self.append("clip", [self.random.choice(able)], min=-2.0, max=3.0)
        return self.values[-1] if bounded else kept

    def constant(self, *shape: int, mean: float = 0.0, std: float = 0.5) -> Value:
        """Add a constant of generated numbers."""
        data = RandomData(seed=self.between(0, 1 << 20), mean=mean, std=std)
        return self.graph.append(Const(data, TensorType(shape), name=self.fresh())).result

    def splat(self, number: float, *shape: int) -> Value:
        """Add a constant of one number."""
        return self.graph.append(Const(Splat(number), TensorType(shape), name=self.fresh())).result

    def append(self, name: str, operands: Sequence[Value | None], **attributes: Any) -> bool:
        """Add an op; False when its operands or its result are refused."""
        try:
            made: Op = REGISTRY[name](operands, attributes)
            made.verify()
        except ValueError:
            return False
        sizes = [v.tensor.elements for v in made.results]
        if min(sizes) < 1 or max(sizes) > _MOST_ELEMENTS or _refused(made):
            made.operands = []
            return False
        if name in _GROWING and not _GROWING[name](map(_modest, made.activations)):
            made.operands = []
            return False
        for result in made.results:
            result.name = self.fresh()
        self.graph.append(made)
        self.values += [v for v in made.results if v.tensor.dtype is DType.F32]
        return True

    def add_op(self) -> None:
        """Add one op of a drawn kind."""
        _KINDS[self.between(0, len(_KINDS) - 1)](self)

    def finish(self) -> Graph:
        """Return the graph: what nobody reads is an output, and sometimes one that is read."""
        updates = [self.update(state) for state in self.graph.states]
        unused = [v for op in self.graph.ops for v in op.results if not isinstance(op, Const)]
        outputs = [v for v in unused if not v.users]
        outputs += [v for v in unused if v.users and self.between(0, 7) == 7]
        kept = [v for v in outputs if v not in updates or self.between(0, 1)]
        self.graph.outputs = [*(kept or outputs or self.graph.arguments[:1]), *updates]
        for op in reversed(list(self.graph.ops)):
            if isinstance(op, Const) and not op.result.users:
                op.erase()
        return self.graph


def _modest(value: Value) -> bool:
    """Whether *value* is an input of small numbers, a constant, or held in a range by its op."""
    owner = value.owner
    return owner is None or isinstance(owner, Const) or bool(owner.FIXED)


def _refused(made: Op) -> bool:
    """Whether the NPU has no such op; a batch_norm is always made something else."""
    return made.NAME != "batch_norm" and bool(made.broken_limits())


def _shape(maker: _Maker) -> tuple[int, ...]:
    rank = maker.pick(4, 4, 4, 4, 3, 2, 1)
    batch = maker.pick(1, 1, 2, 3)
    channels = maker.pick(*_CHANNELS)
    pixels = (maker.between(1, 20), maker.between(1, 20))
    shape: tuple[int, ...] = (batch, channels, *pixels)[:rank]
    if rank == 1:
        shape = (channels,)
    while math.prod(shape) > _MOST_ELEMENTS:
        shape = tuple(-(-d // 2) for d in shape)
    return shape


def _window(maker: _Maker, *, most: int = 5) -> dict[str, Any]:
    """Return the attributes of a window: any pads, or one of ONNX's automatic ones."""
    made: dict[str, Any] = {
        "strides": (maker.pick(1, 1, 1, 2, 3, most), maker.pick(1, 1, 1, 2, 3, most)),
        "dilations": (maker.pick(1, 1, 1, 2, 3), maker.pick(1, 1, 1, 2, 3)),
    }
    how = maker.pick("NOTSET", "NOTSET", "NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")
    if how == "NOTSET":
        made["pads"] = tuple(maker.pick(*_EDGES) for _ in range(4))
    else:
        made["auto_pad"] = how
    return made


def _line(maker: _Maker) -> None:
    """A convolution or pool of one axis."""
    x = maker.value(3)
    if x is None:
        return
    made: dict[str, Any] = {
        "strides": (maker.pick(1, 1, 2, 3),),
        "dilations": (maker.pick(1, 1, 2, 3),),
        "pads": (maker.pick(*_EDGES), maker.pick(*_EDGES)),
    }
    kind = maker.pick("conv1d", "max_pool1d", "avg_pool1d")
    if kind != "conv1d":
        maker.append(kind, [x], kernel_shape=(maker.between(1, 5),), **made)
        return
    channels, outputs = x.tensor.dims[1], maker.pick(*_CHANNELS)
    shape = (outputs, channels, maker.between(1, 5))
    weights = maker.constant(*shape, std=1 / math.sqrt(math.prod(shape[1:])))
    if maker.append(kind, [x, weights, maker.constant(outputs)], **made):
        _follow(maker)


def _conv(maker: _Maker) -> None:
    x = maker.value(4)
    if x is None:
        return
    channels = x.tensor.dims[1]
    groups = [g for g in range(1, channels + 1) if channels % g == 0]
    group = maker.pick(1, 1, 1, groups[-1], maker.pick(*groups), maker.pick(*groups[1:-1] or [1]))
    multiplier = maker.pick(1, 1, 2, 3, 7)
    outputs = group * multiplier if group > 1 else maker.pick(*_CHANNELS)
    kernel = (maker.pick(1, 1, 2, 3, 3, 4, 5), maker.pick(1, 1, 2, 3, 3, 4, 5))
    shape = (outputs, channels // group, *kernel)
    if math.prod(shape) > _MOST_WEIGHTS or outputs > 66:
        return
    fan_in = math.sqrt(math.prod(shape[1:]))
    operands: list[Value | None] = [x, maker.constant(*shape, std=1 / fan_in)]
    if maker.between(0, 1):
        operands.append(maker.constant(outputs))
    if not maker.append("conv2d", operands, group=group, **_window(maker)):
        return
    _follow(maker)


def _follow(maker: _Maker) -> None:
    """What often stands behind a convolution, so that the fusions happen."""
    y = maker.values[-1]
    if maker.between(0, 3) == 3:
        _norm_of(maker, y)
        y = maker.values[-1]
    if maker.between(0, 3) == 3:
        _activation_of(maker, y)
        y = maker.values[-1]
    same = [v for v in maker.values if v.tensor.shape == y.tensor.shape]
    if len(same) > 1 and maker.between(0, 1):
        maker.append(maker.pick("add", "add", "sub"), [y, maker.random.choice(same)])
        if maker.between(0, 1):
            _activation_of(maker, maker.values[-1])


def _norm_of(maker: _Maker, x: Value) -> None:
    channels = x.tensor.dims[1]
    operands = [
        maker.constant(channels, mean=1.0, std=0.2),
        maker.constant(channels, std=0.2),
        maker.constant(channels, std=0.2),
        maker.splat(maker.pick(0.5, 1.0), channels),
    ]
    maker.append("batch_norm", [x, *operands])


def _norm(maker: _Maker) -> None:
    x = maker.value(2, 4)
    if x is not None:
        _norm_of(maker, x)


def _activation_of(maker: _Maker, x: Value) -> None:
    if maker.between(0, 1):
        maker.append(maker.pick("relu", "relu6"), [x])
    else:
        low, high = maker.pick((0.0, 6.0), (-1.0, 1.0), (None, 0.5), (-0.3, None), (0.25, 0.75))
        maker.append("clip", [x], min=low, max=high)


def _activation(maker: _Maker) -> None:
    x = maker.value()
    if x is not None:
        _activation_of(maker, x)


def _function(maker: _Maker) -> None:
    """A function of one tensor, with the attributes of one of its examples."""
    cls = maker.pick(*_FUNCTIONS)
    x = maker.modest() if cls.NAME in _GROWING else maker.value()
    if x is not None:
        maker.append(cls.NAME, [x], **maker.pick(*cls.VARIANTS))


def _pair(maker: _Maker) -> None:
    """A function of two tensors, or of three."""
    name = maker.pick("add", "add", "add", "sub", "mul", "div", "div", "min", "max")
    x = maker.modest() if name == "div" else maker.value()
    if x is None:
        return
    how = maker.between(0, 3)
    if how == 0:
        maker.append(name, [x, x])
    elif how == 1:
        shape = [maker.pick(d, 1) for d in x.tensor.dims]
        drop = maker.between(0, max(len(shape) - 1, 0))
        operands = [x, maker.constant(*shape[drop:])]
        maker.append(name, operands[:: maker.pick(1, -1)])
    else:
        able = [v for v in maker.values if _broadcasts(v, x) and (name != "div" or _modest(v))]
        more = [maker.random.choice(able) for _ in range(1 + (name in ("min", "max")))]
        maker.append(name, [x, *more[: maker.between(1, 2)]])


def _prelu(maker: _Maker) -> None:
    x = maker.value()
    if x is not None:
        shape = [maker.pick(d, 1) for d in x.tensor.dims]
        drop = maker.between(0, max(len(shape) - 1, 0))
        maker.append("prelu", [x, maker.constant(*shape[drop:])])


def _broadcasts(a: Value, b: Value) -> bool:
    pairs = zip(reversed(a.tensor.dims), reversed(b.tensor.dims), strict=False)
    return all(m == n or 1 in (m, n) for m, n in pairs)


def _pool(maker: _Maker) -> None:
    x = maker.value(4)
    if x is None:
        return
    attributes = _window(maker, most=4)
    attributes["kernel_shape"] = (maker.between(1, 5), maker.between(1, 5))
    attributes["ceil_mode"] = maker.between(0, 1)
    if maker.between(0, 1):
        maker.append("max_pool2d", [x], **attributes)
    else:
        maker.append("avg_pool2d", [x], count_include_pad=maker.between(0, 1), **attributes)


def _global_pool(maker: _Maker) -> None:
    x = maker.value(4)
    if x is not None:
        maker.append("global_avg_pool", [x])


def _dense(maker: _Maker) -> None:
    x = maker.value(2)
    if x is None:
        x = maker.value(3, 4)
        if x is None or not maker.append("flatten", [x]):
            return
        x = maker.values[-1]
    depth, outputs = x.tensor.dims[1], maker.pick(*_CHANNELS)
    if depth * outputs > 4 * _MOST_WEIGHTS:
        return
    operands: list[Value | None] = [x, maker.constant(outputs, depth, std=1 / math.sqrt(depth))]
    if maker.between(0, 1):
        operands.append(maker.constant(outputs))
    if maker.append("dense", operands) and maker.between(0, 1):
        _activation_of(maker, maker.values[-1])


def _matmul(maker: _Maker) -> None:
    """By a constant matrix, a constant stack, or an activation reshaped to fit."""
    x = maker.value(2, 3, 4)
    if x is None:
        return
    *batch, rows, depth = x.tensor.dims
    columns = maker.pick(rows, maker.pick(*_CHANNELS))
    how = maker.between(0, 3)
    if how == 0 and depth * columns < _MOST_WEIGHTS:
        matrix = maker.constant(depth, columns, std=1 / math.sqrt(depth))
        if maker.append("matmul", [x, matrix]) and maker.between(0, 1):
            maker.append("add", [maker.values[-1], maker.constant(columns)])
    elif how == 1:
        stack = [maker.pick(n, 1) for n in batch]
        if math.prod((*stack, columns, rows)) < _MOST_WEIGHTS:
            maker.append("matmul", [maker.constant(*stack, columns, rows, std=0.3), x])
    elif maker.append("reshape", [x], shape=(*batch, depth, rows)):
        maker.append("matmul", [x, maker.values[-1]][:: maker.pick(1, -1)])


def _row_norm(maker: _Maker) -> None:
    """A layer, instance or group norm of some value."""
    x = maker.value(1, 2, 3, 4)
    if x is None:
        return
    dims = x.tensor.dims
    kind = maker.pick("layer_norm", "layer_norm", "instance_norm", "group_norm")
    attributes: dict[str, Any] = {"epsilon": maker.pick(1e-5, 1e-3)}
    shape = dims[1:2]
    if kind == "layer_norm":
        axis = maker.between(min(1, len(dims) - 1), len(dims) - 1)
        attributes["axis"] = maker.pick(axis, axis - len(dims))
        shape = dims[axis:]
    elif kind == "group_norm" and shape:
        attributes["num_groups"] = maker.pick(*[g for g in range(1, 8) if shape[0] % g == 0])
    if not shape:
        return
    scale, bias = maker.constant(*shape, mean=1.0, std=0.2), maker.constant(*shape, std=0.2)
    maker.append(kind, [x, scale, bias], **attributes)


def _reduction(maker: _Maker) -> None:
    """A sum, mean or maximum over some axes, or the place of the maximum."""
    x = maker.value()
    if x is None:
        return
    rank = x.tensor.rank
    kind = maker.pick("reduce_mean", "reduce_sum", "reduce_max", "argmax" if rank else "reduce_max")
    attributes: dict[str, Any] = {"keepdims": maker.between(0, 1)}
    if kind == "argmax":
        attributes["axis"] = maker.between(-rank, rank - 1)
        attributes["select_last_index"] = maker.between(0, 1)
    elif maker.between(0, 3):
        axes = maker.random.sample(range(rank), maker.between(0, rank))
        attributes["axes"] = [maker.pick(axis, axis - rank) for axis in axes]
    maker.append(kind, [x], **attributes)


def _flatten(maker: _Maker) -> None:
    x = maker.value()
    if x is not None:
        maker.append("flatten", [x], axis=maker.between(0, x.tensor.rank))


def _reshape(maker: _Maker) -> None:
    x = maker.value()
    if x is None:
        return
    left, shape = x.tensor.elements, []
    for _ in range(maker.between(0, 3)):
        size = maker.pick(*[d for d in range(1, min(left, 40) + 1) if left % d == 0])
        shape.append(size)
        left //= size
    shape.insert(maker.between(0, len(shape)), left)
    maker.append("reshape", [x], shape=tuple(shape))


def _concat(maker: _Maker) -> None:
    x = maker.value(2, 3, 4)
    if x is None:
        return
    axis = maker.between(0 if maker.between(0, 3) == 3 else 1, x.tensor.rank - 1)
    rest = _without(x, axis)
    able = [v for v in maker.values if v.tensor.rank == x.tensor.rank and _without(v, axis) == rest]
    pieces = [x] + [maker.random.choice(able) for _ in range(maker.between(0, 2))]
    maker.append("concat", pieces, axis=maker.pick(axis, axis - x.tensor.rank))


def _without(value: Value, axis: int) -> tuple[int, ...]:
    dims = value.tensor.dims
    return dims[:axis] + dims[axis + 1 :]


def _split(maker: _Maker) -> None:
    x = maker.value(1, 2, 3, 4)
    if x is None:
        return
    axis = maker.between(0, x.tensor.rank - 1)
    sizes: list[int] = []
    left = x.tensor.dims[axis]
    while left and len(sizes) < 3:
        sizes.append(maker.between(1, left))
        left -= sizes[-1]
    if left:
        sizes.append(left)
    maker.append("split", [x], axis=axis, split=tuple(sizes))


def _softmax(maker: _Maker) -> None:
    x = maker.value(1, 2, 3, 4)
    if x is not None:
        kind = maker.pick("softmax", "log_softmax")
        maker.append(kind, [x], axis=maker.between(-x.tensor.rank, -1))


def _identity(maker: _Maker) -> None:
    x = maker.value()
    if x is not None:
        maker.append("identity", [x])


def _requantise(maker: _Maker) -> None:
    """A quantize and dequantize pair, as a quantised model holds it; sometimes codes only."""
    x = maker.value()
    if x is None:
        return
    scale, zero_point = maker.pick(0.03, 0.1, 0.5), maker.between(-128, 127)
    if maker.between(0, 1):
        maker.append("fake_quant", [x], scale=scale, zero_point=zero_point)
        return
    if maker.append("quantize", [x], scale=scale, zero_point=zero_point) and maker.between(0, 3):
        last = next(reversed(list(maker.graph.ops)))
        maker.append("dequantize", [last.result])


def _cast(maker: _Maker) -> None:
    """To f16 and back; what is between is stored as the precision says."""
    x = maker.value()
    if x is not None and maker.append("cast", [x], to="f16"):
        last = next(reversed(list(maker.graph.ops)))
        maker.append("cast", [last.result], to="f32")


_KINDS: tuple[Callable[[_Maker], None], ...] = (
    _conv,
    _conv,
    _conv,
    _conv,
    _line,
    _line,
    _norm,
    _activation,
    _function,
    _function,
    _function,
    _function,
    _pair,
    _pair,
    _prelu,
    _pool,
    _pool,
    _global_pool,
    _dense,
    _matmul,
    _matmul,
    _row_norm,
    _row_norm,
    _reduction,
    _reduction,
    _flatten,
    _reshape,
    _concat,
    _concat,
    _split,
    _split,
    _softmax,
    _identity,
    expand,
    _requantise,
    _cast,
    *MOVES,
)
