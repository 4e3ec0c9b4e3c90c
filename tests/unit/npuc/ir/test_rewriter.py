"""The pattern rewriter: what it changes, what it keeps, and that it ends."""

from __future__ import annotations

import pytest

from npuc.diagnostics import CompileError
from npuc.frontend.text import parse_text
from npuc.ir.core import Graph, Op
from npuc.ir.rewriter import Pattern, Rewriter, apply_patterns, erase_dead
from npuc.ir.verifier import verify
from npuc.ops.identity import Identity
from npuc.ops.relu import Relu
from tests.work import calls


class FoldReluOfRelu(Pattern):
    """relu(relu(x)) is relu(x)."""

    def match_and_rewrite(self, op: Op, rewriter: Rewriter) -> bool:
        producer = op.inputs[0].owner
        if not isinstance(op, Relu) or not isinstance(producer, Relu):
            return False
        rewriter.replace_with(op, Relu([producer.inputs[0]], location=op.location))
        return True


class DropIdentity(Pattern):
    """identity(x) is x, where the output keeps its name."""

    def match_and_rewrite(self, op: Op, rewriter: Rewriter) -> bool:
        if not isinstance(op, Identity) or not rewriter.can_replace(op.result, op.inputs[0]):
            return False
        rewriter.replace(op, op.inputs)
        return True


class Swap(Pattern):
    """Never ends: relu becomes identity and identity relu."""

    def match_and_rewrite(self, op: Op, rewriter: Rewriter) -> bool:
        cls = Relu if isinstance(op, Identity) else Identity
        rewriter.replace_with(op, cls(op.operands))
        return True


def graph(*lines: str) -> Graph:
    return parse_text("\n".join(["graph @g(%x: tensor<1x4xf32>) {", *lines, "}"]))


def names(made: Graph) -> list[str]:
    return [f"{op.result.name}={op.NAME}({op.inputs[0].name})" for op in made.ops]


def test_a_rewrite_gives_the_new_op_the_old_name_and_reaches_its_readers() -> None:
    made = graph("%a = relu(%x)", "%b = relu(%a)", "%c = relu(%b)", "return %c")
    assert apply_patterns(made, [FoldReluOfRelu()])
    erase_dead(made)
    verify(made)
    assert names(made) == ["c=relu(x)"]


def test_an_output_keeps_its_name_when_its_producer_goes() -> None:
    made = graph("%a = relu(%x)", "%y = identity(%a)", "return %y")
    apply_patterns(made, [DropIdentity()])
    verify(made)
    assert names(made) == ["y=relu(x)"]


@pytest.mark.parametrize(
    "lines",
    [
        ["%y = identity(%x)", "return %y"],
        ["%a = relu(%x)", "%y = identity(%a)", "return %a, %y"],
    ],
    ids=["input", "output"],
)
def test_a_value_with_a_name_of_its_own_does_not_become_an_output(lines: list[str]) -> None:
    made = graph(*lines)
    assert not apply_patterns(made, [DropIdentity()])
    (op,) = (op for op in made.ops if isinstance(op, Identity))
    with pytest.raises(ValueError, match="cannot become the output %y"):
        Rewriter(made).replace(op, op.inputs)


def test_nothing_changes_where_nothing_matches() -> None:
    made = graph("%a = relu(%x)", "return %a")
    assert not apply_patterns(made, [FoldReluOfRelu(), DropIdentity()])


def test_patterns_that_never_end_are_an_error() -> None:
    made = graph("%a = relu(%x)", "return %a")
    with pytest.raises(CompileError, match="patterns Swap do not come to an end"):
        apply_patterns(made, [Swap()])


def test_dead_ops_go_with_their_producers_and_outputs_stay() -> None:
    made = graph("%a = relu(%x)", "%b = relu(%a)", "%c = relu(%b)", "%y = relu(%a)", "return %y")
    assert erase_dead(made) == 2
    verify(made)
    assert names(made) == ["a=relu(x)", "y=relu(a)"]


def test_a_chain_of_twenty_thousand_is_rewritten() -> None:
    """C11."""
    made = parse_chain(20_000)
    apply_patterns(made, [FoldReluOfRelu()])
    erase_dead(made)
    assert names(made) == ["v19999=relu(x)"]


def test_the_work_of_rewriting_grows_with_the_number_of_ops() -> None:
    """C11."""

    def work(count: int) -> int:
        made = parse_chain(count)
        return calls(lambda: apply_patterns(made, [FoldReluOfRelu()]) and erase_dead(made))

    assert work(2000) < 2.1 * work(1000)


def parse_chain(count: int) -> Graph:
    lines = [f"%v{i} = relu(%{f'v{i - 1}' if i else 'x'})" for i in range(count)]
    return graph(*lines, f"return %v{count - 1}")
