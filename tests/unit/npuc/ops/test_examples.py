"""Facts every op must satisfy; a new op is under test the moment it is registered."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

import npuc.ops
from npuabi.enums import DType, Rounding
from npuc.ir.const import Const
from npuc.ir.core import REGISTRY, Array, Op, Value

OPS = [cls for name, cls in sorted(REGISTRY.items()) if not name.startswith("npu.")]
NAMED = {f"{cls.NAME}-{n}": example for cls in OPS for n, example in enumerate(cls.examples())}
EXAMPLES = [pytest.param(example, id=name) for name, example in NAMED.items()]


def sample(value: Value | None, rng: np.random.Generator) -> Array | None:
    """Return contents for an operand; positive, so that they may be variances too."""
    if value is None:
        return None
    if value.tensor.dtype is DType.F32:
        return rng.uniform(0.5, 2.0, value.tensor.dims)
    return rng.integers(-128, 128, value.tensor.dims).astype(value.tensor.numpy)


@pytest.mark.parametrize("op", EXAMPLES)
def test_reference_has_the_inferred_shapes(op: Op) -> None:
    rng = np.random.default_rng(0)
    results = op.reference([sample(v, rng) for v in op.operands], Rounding.DOUBLE)
    assert [r.shape for r in results] == [v.tensor.dims for v in op.results]


@pytest.mark.parametrize("op", EXAMPLES)
def test_examples_verify(op: Op) -> None:
    op.verify()


@pytest.mark.parametrize("op", EXAMPLES)
def test_examples_fit_the_npu_unless_the_op_has_no_form_there(op: Op) -> None:
    assert bool(op.broken_limits()) == (op.NAME == "batch_norm")


@pytest.mark.parametrize("op", [p for p in EXAMPLES if "const" not in str(p.id)])
def test_reference_leaves_its_operands_alone(op: Op) -> None:
    rng = np.random.default_rng(1)
    arrays = [sample(v, rng) for v in op.operands]
    before = [None if a is None else a.copy() for a in arrays]
    op.reference(arrays, Rounding.DOUBLE)
    for old, new in zip(before, arrays, strict=True):
        assert old is None or np.array_equal(old, np.asarray(new))


def stacks(op: Op) -> bool:
    """Return whether an example can hold several samples: one batch on axis 0 throughout."""
    values = [*op.activations, *op.results]
    return (
        op.stacks() and len({v.tensor.shape[:1] for v in values}) == 1 and values[0].tensor.rank > 0
    )


@pytest.mark.parametrize("op", [p for p in EXAMPLES if stacks(NAMED[str(p.id)])])
def test_ops_that_say_so_keep_stacked_samples_apart(op: Op) -> None:
    rng = np.random.default_rng(2)
    first, second = ([sample(v, rng) for v in op.operands] for _ in range(2))
    stacked = list(first)
    for index, value in enumerate(op.operands):
        if value in op.activations:
            stacked[index] = np.concatenate([first[index], second[index]])
        else:
            second[index] = first[index]
    alone = [op.reference(arrays, Rounding.DOUBLE) for arrays in (first, second)]
    together = op.reference(stacked, Rounding.DOUBLE)
    for found, *wanted in zip(together, *alone, strict=True):
        np.testing.assert_allclose(found, np.concatenate(wanted), rtol=1e-12, atol=1e-12)


def test_every_op_has_examples() -> None:
    assert [cls.NAME for cls in OPS if not list(cls.examples())] == []


def test_every_op_is_passed_on_by_the_package() -> None:
    assert [cls for cls in OPS if getattr(npuc.ops, cls.__name__, None) is not cls] == []


def test_every_op_is_in_the_file_of_its_name() -> None:
    for cls in OPS:
        home = "npuc.ir" if cls is Const else "npuc.ops"
        assert cls.__module__ == f"{home}.{cls.NAME}"
        assert cls.__name__ in importlib.import_module(cls.__module__).__all__


def test_every_operand_attribute_and_limit_is_documented() -> None:
    for cls in OPS:
        texts = [f.doc for f in cls.OPERANDS] + [f.doc for f in cls.ATTRS]
        texts += [limit.text for limit in cls.LIMITS]
        assert all(texts), cls.NAME
        assert cls.__doc__
