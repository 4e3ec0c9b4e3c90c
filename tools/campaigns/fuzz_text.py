"""Mutated graph texts through the parser: mistakes with their places, or a graph; nothing else.

A trial is a function of its id: one of the model texts, one to four mutations. What parses must
print, and the print must parse to what prints the same.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from npuabi.progress import Progress
from npuc.diagnostics import CompileError
from npuc.frontend.text import parse_text
from npuc.ir.printer import print_graph
from tools.campaigns.base import Campaign, Tally

__all__ = ["FUZZ_TEXT", "mutated", "trial"]

MODELS = Path(__file__).parents[2] / "models"
_NAMES = ("conv_bn_relu", "digits", "transformer")
_BUDGET_S = 1.0
"""Of CPU: a machine that has other things to do makes nobody wrong."""
_ELIDED = 16
_PIECES = (
    *('%"(){}[]<>,=:x?q\\\n\r\té\0#@-'),
    *("-1", "0", "99999999999", "1e99", "inf", "nan", "none", "const", "true"),
    *("return", "graph", "//", "tensor", "i8", "npu.buffer()", "dense(", 'hex("', "relu", ""),
    *("state", "update", 'file("../x", "w")', "splat(", "q<scale = 0.0>", "x" * 300, "[" * 300),
)


@cache
def texts() -> tuple[str, ...]:
    """Return the texts that are mutated: graphs, and one without its files."""
    return tuple((MODELS / f"{name}.txt").read_text(encoding="utf-8") for name in _NAMES)


def mutated(number: int) -> str:
    """Return the text of trial *number*."""
    rng = random.Random(number)
    text = rng.choice(texts())
    for _ in range(rng.randint(1, 4)):
        start = rng.randrange(len(text))
        end = start + rng.choice((0, 0, 1, 2, rng.randrange(30)))
        if rng.random() < 0.8:
            piece = rng.choice(_PIECES)
        else:
            other, at = rng.choice(texts()), rng.randrange(200)
            piece = other[at : at + rng.randrange(80)]
        text = text[:start] + piece + text[end:]
    return text


def trial(number: int) -> tuple[str, str]:
    """Return (what became of the text, what is wrong with that or "")."""
    start = time.process_time()
    try:
        outcome, wrong = _verdict(mutated(number))
    except CompileError:
        outcome, wrong = "refused", ""
    except Exception as error:  # whatever it is, it is what is looked for
        outcome, wrong = "exception", f"{type(error).__name__}: {error}"
    seconds = time.process_time() - start
    return outcome, wrong or (f"took {seconds:.2f} s of CPU" if seconds > _BUDGET_S else "")


def _verdict(text: str) -> tuple[str, str]:
    graph = parse_text(text, folder=MODELS)
    printed = print_graph(graph, elide=_ELIDED)
    again = print_graph(parse_text(printed, folder=MODELS), elide=_ELIDED)
    return "parsed", "" if again == printed else "its print parses to another graph"


def _run(ids: Sequence[int], progress: Progress) -> Tally:
    tally, outcomes = Tally(), Counter[str]()
    for number in ids:
        outcome, wrong = trial(number)
        outcomes[outcome] += 1
        if wrong:
            tally.failures.append(f"{number}: {wrong}")
        tally.trials += 1
        progress("texts", tally.trials, len(ids))
    tally.figures = dict(outcomes.most_common())
    return tally


FUZZ_TEXT = Campaign(
    name="fuzz-text",
    title="graph texts with pieces put in, taken out and moved",
    short=100,
    long=100_000,
    run=_run,
    group="fuzz",
)
