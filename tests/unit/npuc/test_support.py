"""npuc ops: the support matrix follows the declarations, and its three forms say the same."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from npuabi.target import load_target
from npuc.cli import main
from npuc.ir.core import REGISTRY
from npuc.support import PRECISIONS, Support, close_names, support_of, supported
from npuc.support_text import as_json, matrix, ops_page

OPS = supported()


def ops(*arguments: str) -> str:
    result = CliRunner().invoke(main, ["ops", *arguments])
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout


def test_table_page_and_json_list_the_same_ops() -> None:
    names = [support.name for support in OPS]
    assert [line.split()[0] for line in matrix(OPS)][1:] == names
    page = ops_page(OPS)
    assert [line.split("`")[1] for line in page.splitlines() if line.startswith("| [`")] == names
    assert [line[3:] for line in page.splitlines() if line.startswith("## ")] == names
    found = as_json(OPS)
    assert (found["schema"], [op["name"] for op in found["ops"]]) == (1, names)


def test_one_op_as_json_is_the_same_as_among_all() -> None:
    (found,) = json.loads(ops("softmax", "--json"))["ops"]
    assert found in json.loads(json.dumps(as_json(OPS)))["ops"]


@pytest.mark.parametrize("support", OPS, ids=lambda support: support.name)
def test_every_op_runs_in_a_precision_and_its_opcodes_are_found(support: Support) -> None:
    assert support.precisions.keys() & set(PRECISIONS)
    assert support.opcodes or support.name in ("identity", "fake_quant")


def test_one_op_is_shown_with_all_that_it_declares() -> None:
    kind = REGISTRY["conv2d"]
    text = ops("conv2d")
    fields = [(f.name, f.doc) for f in kind.OPERANDS] + [(f.name, f.doc) for f in kind.ATTRS]
    for name, doc in fields:
        assert f"\n  {name} " in text
        assert doc in text
    for limit in kind.LIMITS:
        assert limit.text in text
    assert set(support_of(kind, load_target("edge")).opcodes) == {"conv", "depthwise"}


def test_names_are_found_as_onnx_spells_them() -> None:
    assert close_names("BatchNormalization")[0] == "batch_norm"
    result = CliRunner().invoke(main, ["ops", "MaxPool"])
    assert result.exit_code == 2
    assert "no op 'MaxPool', did you mean max_pool2d" in result.stderr
