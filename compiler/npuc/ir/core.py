"""SSA core: values, ops and their order; the class decorator that declares an op once.

Invariants: every operand is defined before its use; ``Value.users`` counts every use; an op is in
at most one graph. Nothing here recurses, so a graph may be as deep as memory allows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass
from typing import Any, ClassVar, Self, TypeVar

from numpy.typing import NDArray

from npuabi.enums import DType, Rounding
from npuc.diagnostics import UNKNOWN, CompileError, Location
from npuc.ir.types import Quant, TensorType, Type

__all__ = [
    "REGISTRY",
    "Array",
    "AttrKind",
    "Graph",
    "Limit",
    "Op",
    "State",
    "Value",
    "attr",
    "op",
    "operand",
]

Array = NDArray[Any]
O = TypeVar("O", bound="Op")  # noqa: E741


class Value:
    """An SSA value: a name for printing, a type, its producer and its users."""

    __slots__ = ("name", "owner", "type", "users")

    def __init__(self, name: str, type: Type, owner: Op | None = None) -> None:
        self.name = name
        self.type = type
        self.owner = owner
        self.users: dict[Op, int] = {}

    @property
    def tensor(self) -> TensorType:
        """The tensor type, also of a buffer."""
        return self.type if isinstance(self.type, TensorType) else self.type.tensor

    def replace_uses(self, new: Value) -> None:
        """Make every user of this value use *new* instead."""
        for user in list(self.users):
            user.operands = [new if v is self else v for v in user.operands]

    def __repr__(self) -> str:
        return f"%{self.name}: {self.type}"


@dataclass(frozen=True, slots=True)
class Limit:
    """One restriction of the NPU; *text* is both the diagnostic and the docs row.

    ``holds(op)`` says whether the op obeys; ``remedy`` says what would help when it does not.
    """

    text: str
    holds: Callable[[Any], bool]
    remedy: str = ""


class AttrKind:
    """How an attribute is checked and printed: one of the names below."""

    INT = "int"
    FLOAT = "float"
    BOOL = "bool"
    STRING = "string"
    INTS = "ints"
    FLOATS = "floats"


@dataclass(frozen=True, slots=True)
class OperandField:
    """Declaration of one operand: optional, or variadic (then the last one).

    A ``parameter`` (weights, bias, gamma) is a constant that belongs to the op: it gets no range
    and no layout, as activations do. One that is ``codes`` is stored as int8 codes, per tensor,
    beside activations that are codes; others stay as they are.
    """

    name: str
    doc: str
    optional: bool = False
    variadic: bool = False
    parameter: bool = False
    codes: bool = False


@dataclass(frozen=True, slots=True)
class AttrField:
    """Declaration of one attribute; MISSING as default means that it must be given."""

    name: str
    doc: str
    kind: str
    default: Any = MISSING


def operand(
    doc: str,
    *,
    optional: bool = False,
    variadic: bool = False,
    parameter: bool = False,
    codes: bool = False,
) -> Any:
    """Declare a tensor operand (``Value``, ``Value | None`` or ``Sequence[Value]``)."""
    return {
        "role": "operand",
        "doc": doc,
        "optional": optional,
        "variadic": variadic,
        "parameter": parameter,
        "codes": codes,
    }


def attr(doc: str, kind: str, *, default: Any = MISSING) -> Any:
    """Declare an attribute; a default of None means that it may be absent."""
    return {"role": "attr", "doc": doc, "kind": kind, "default": default}


class Op:
    """One operation; a subclass, declared with :func:`op`, states all that is known about it.

    Operands are stored in order in ``operands``, absent optional ones as None at their place, and
    read by their declared names; attributes are stored in ``attributes`` (defaults filled in) and
    read by their declared names too.
    """

    NAME: ClassVar[str] = ""
    OPERANDS: ClassVar[tuple[OperandField, ...]] = ()
    ATTRS: ClassVar[tuple[AttrField, ...]] = ()
    LIMITS: ClassVar[Sequence[Limit]] = ()
    STACKS: ClassVar[bool] = False
    """Whether ``stacks`` holds for every instance."""
    COMPUTES: ClassVar[bool] = True
    """Whether the op does more than state, convert or lay out a tensor."""
    BROADCASTS: ClassVar[bool] = False
    """Whether operands of other shapes are repeated to the result's."""
    ROWS: ClassVar[bool] = False
    """Whether activations may lie in rows (nchw) as well as in bricks, all in one layout."""
    RELAYS: ClassVar[bool] = False
    """Whether each activation may lie in any layout, at no cost more."""
    TIED: ClassVar[bool] = False
    """Whether quantised results are in the parameters of the first operand."""
    TIED_OPERANDS: ClassVar[bool] = False
    """Whether all activations, results included, are in the same parameters."""
    FIXED: ClassVar[Mapping[DType, Quant]] = {}
    """Parameters that the quantised result has in every model, by element type."""
    WEIGHT_AXIS: ClassVar[int | None] = None
    """The output channels' axis of the second operand, of ops with weights and a bias."""

    def __init__(
        self,
        operands: Sequence[Value | None],
        attributes: dict[str, Any] | None = None,
        *,
        result_types: Sequence[Type] | None = None,
        names: Sequence[str] = (),
        location: Location = UNKNOWN,
    ) -> None:
        given = attributes or {}
        self.location = location
        self.attributes = {a.name: given.get(a.name, a.default) for a in self.ATTRS}
        self._operands: list[Value | None] = []
        self.graph: Graph | None = None
        self.previous: Op | None = None
        self.next: Op | None = None
        self.results: tuple[Value, ...] = ()
        self.operands = list(operands)
        types = self.infer() if result_types is None else result_types
        labels = list(names) + [""] * (len(types) - len(names))
        self.results = tuple(Value(n, t, self) for n, t in zip(labels, types, strict=True))

    @property
    def operands(self) -> list[Value | None]:
        """Operands in declared order; assigning keeps the users' counts right."""
        return list(self._operands)

    @operands.setter
    def operands(self, values: Sequence[Value | None]) -> None:
        for old in self._operands:
            if old is not None:
                old.users[self] -= 1
                if not old.users[self]:
                    del old.users[self]
        self._operands = list(values)
        for new in self._operands:
            if new is not None:
                new.users[self] = new.users.get(self, 0) + 1

    @property
    def inputs(self) -> list[Value]:
        """Operands that are present, in order."""
        return [v for v in self._operands if v is not None]

    @property
    def activations(self) -> list[Value]:
        """Operands that are present and no parameters, in order."""
        return [
            value
            for index, value in enumerate(self._operands)
            if value is not None and not self.field(index).parameter
        ]

    def field(self, index: int) -> OperandField:
        """Return the declaration of the operand at *index*."""
        return self.OPERANDS[min(index, len(self.OPERANDS) - 1)]

    @property
    def result(self) -> Value:
        """The only result."""
        (value,) = self.results
        return value

    def infer(self) -> Sequence[Type]:
        """Return the result types.

        Raises ValueError, with a text for the user, when operands or attributes disagree, and
        NotImplementedError when the types can only be stated. For quantised operands the result's
        quantisation is not inferable: ops that need one are built with ``result_types``, and
        ``verify`` checks the shape against ``infer``.
        """
        raise NotImplementedError(self.NAME)

    def verify(self) -> None:
        """Check what ``infer`` does not; raise ValueError with a text for the user."""

    def reference(self, operands: Sequence[Array | None], rounding: Rounding) -> tuple[Array, ...]:
        """Return the exact results, slow and obviously right.

        Float tensors are float64 arrays at L1 and float32 at the device's edges; quantised ones
        are integer arrays of the type's dtype, computed with *rounding*. Which arithmetic is used
        follows from the types alone.
        """
        raise NotImplementedError(self.NAME)

    def stacks(self) -> bool:
        """Return whether samples stacked along axis 0 make ``reference`` return stacked results.

        Activations and results then have the samples on axis 0, and no row reads another one.
        False is always safe: calibration takes one sample at a time.
        """
        return self.STACKS

    def wants_rows(self) -> bool:
        """Return whether the op computes on rows: in any other layout it copies."""
        return False

    def bounds(self) -> tuple[float, float] | None:
        """Return (low, high) of an op that does nothing but clamp its operand, else None."""
        return None

    def lower(self, builder: Any) -> None:
        """Append this quantised op's tasks to an ``npuc.npu.builder.Builder``."""
        raise NotImplementedError(self.NAME)

    @classmethod
    def examples(cls) -> Iterator[Self]:
        """Yield small float instances; the generic tests run every one."""
        return iter(())

    def broken_limits(self) -> list[Limit]:
        """Return the limits that this op breaks; empty when the NPU can run it."""
        return [limit for limit in self.LIMITS if not limit.holds(self)]

    def error(self, text: str) -> CompileError:
        """Return a diagnostic at this op's place."""
        return CompileError.at(self.location, f"{self.NAME}: {text}")

    def erase(self) -> None:
        """Remove the op from its graph; its results must have no users."""
        used = [v.name for v in self.results if v.users]
        if used:
            raise ValueError(f"{self.NAME} is erased while %{used[0]} is used")
        self.operands = []
        if self.graph is not None:
            self.graph.remove(self)


REGISTRY: dict[str, type[Op]] = {}
"""Every op by its name in graph text."""


def _operand_property(index: int, spec: OperandField) -> property:
    if spec.variadic:
        return property(lambda self: tuple(self._operands[index:]), doc=spec.doc)
    return property(
        lambda self: self._operands[index] if index < len(self._operands) else None, doc=spec.doc
    )


def _attr_property(name: str, doc: str) -> property:
    return property(lambda self: self.attributes[name], doc=doc)


def op(name: str) -> Callable[[type[O]], type[O]]:
    """Register a class as the op *name* and turn its declared fields into accessors.

    A field is written ``x: Value = operand("doc")`` or ``axis: int = attr("doc", AttrKind.INT)``.
    """

    def decorate(cls: type[O]) -> type[O]:
        if name in REGISTRY:
            raise ValueError(f"op {name} is declared twice")
        operands: list[OperandField] = list(cls.OPERANDS)
        attrs: list[AttrField] = list(cls.ATTRS)
        for key, spec in list(vars(cls).items()):
            if key.startswith("__") or not isinstance(spec, dict) or "role" not in spec:
                continue
            rest = {k: v for k, v in spec.items() if k != "role"}
            if spec["role"] == "operand":
                operands.append(OperandField(name=key, **rest))
                setattr(cls, key, _operand_property(len(operands) - 1, operands[-1]))
            else:
                attrs.append(AttrField(name=key, **rest))
                setattr(cls, key, _attr_property(key, spec["doc"]))
        cls.NAME, cls.OPERANDS, cls.ATTRS = name, tuple(operands), tuple(attrs)
        REGISTRY[name] = cls
        return cls

    return decorate


@dataclass(frozen=True, slots=True)
class State:
    """A tensor that is kept from run to run.

    ``argument`` is what it holds when a run begins; ``initial``, a const, that of the first run.
    """

    name: str
    argument: Value
    initial: Op
    location: Location = UNKNOWN

    def refuses(self, value: Value) -> str:
        """Return why the state cannot hold *value* after a run; empty when it can."""
        kept, given = self.argument.tensor, value.tensor
        fits = kept.rank == given.rank and all(
            a == b or None in (a, b) for a, b in zip(kept.shape, given.shape, strict=True)
        )
        alike = kept.numpy.kind == "f" or kept.quant == given.quant
        if fits and alike and kept.dtype is given.dtype:
            return ""
        return f"%{value.name} is {given}, state {self.name!r} is {kept}"


class Graph:
    """A named list of ops in execution order, with arguments and returned values.

    Each of ``states`` has an argument, behind the inputs, and an output, behind the returned
    values, in the order of ``states``.

    Ops form a doubly linked list: insertion and removal take constant time.
    """

    def __init__(
        self,
        name: str,
        arguments: Sequence[Value] = (),
        *,
        attributes: dict[str, Any] | None = None,
        location: Location = UNKNOWN,
    ) -> None:
        self.name = name
        self.arguments = list(arguments)
        self.attributes = dict(attributes or {})
        self.location = location
        self.outputs: list[Value] = []
        self.states: list[State] = []
        self._first: Op | None = None
        self._last: Op | None = None

    @property
    def inputs(self) -> list[Value]:
        """The arguments that the host gives."""
        return self.arguments[: len(self.arguments) - len(self.states)]

    @property
    def returned(self) -> list[Value]:
        """The outputs that the host gets."""
        return self.outputs[: len(self.outputs) - len(self.states)]

    @property
    def updates(self) -> list[Value]:
        """What each state holds after a run."""
        return self.outputs[len(self.outputs) - len(self.states) :]

    @property
    def ops(self) -> Iterator[Op]:
        """The ops in order; the current one may be removed while iterating."""
        current = self._first
        while current is not None:
            following = current.next
            yield current
            current = following

    def __len__(self) -> int:
        return sum(1 for _ in self.ops)

    def append(self, op: O) -> O:
        """Add *op* at the end."""
        return self.insert(op, before=None)

    def insert(self, op: O, *, before: Op | None) -> O:
        """Add *op* before another one, or at the end."""
        if op.graph is not None:
            raise ValueError(f"{op.NAME} is in a graph already")
        previous = self._last if before is None else before.previous
        op.graph, op.previous, op.next = self, previous, before
        if previous is None:
            self._first = op
        else:
            previous.next = op
        if before is None:
            self._last = op
        else:
            before.previous = op
        return op

    def remove(self, op: Op) -> None:
        """Unlink *op*; its operands and results are left alone."""
        if op.previous is None:
            self._first = op.next
        else:
            op.previous.next = op.next
        if op.next is None:
            self._last = op.previous
        else:
            op.next.previous = op.previous
        op.graph = op.previous = op.next = None

    def replace(self, old: Value, new: Value) -> None:
        """Use *new* wherever *old* was used, the graph's outputs included."""
        old.replace_uses(new)
        self.outputs = [new if v is old else v for v in self.outputs]

    def take(self, other: Graph) -> None:
        """Become *other*: its arguments, ops and outputs replace this graph's."""
        self.arguments, self.outputs, self.states = other.arguments, other.outputs, other.states
        self._first, self._last = other._first, other._last
        for op in self.ops:
            op.graph = self

    def is_output(self, value: Value) -> bool:
        """Return whether the graph returns *value*."""
        return any(v is value for v in self.outputs)
