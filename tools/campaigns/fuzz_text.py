"""Mutated graph texts through the parser: mistakes with their places, or a graph; nothing else.

A trial is a function of its id: one of the model texts, one to four mutations. What parses must
print, and the print must parse to what prints the same.
"""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path

from npuc.frontend.text import parse_text
from npuc.ir.printer import print_graph
from tools.campaigns.base import Campaign
from tools.campaigns.fuzzing import Verdict, counted, judged

__all__ = ["FUZZ_TEXT", "mutated", "trial"]

MODELS = Path(__file__).parents[2] / "models"
_NAMES = ("conv_bn_relu", "digits", "transformer")
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


def trial(number: int) -> Verdict:
    """Return what became of text *number*."""
    return judged(lambda: _verdict(mutated(number)))


def _verdict(text: str) -> Verdict:
    graph = parse_text(text, folder=MODELS)
    printed = print_graph(graph, elide=_ELIDED)
    again = print_graph(parse_text(printed, folder=MODELS), elide=_ELIDED)
    return "parsed", "" if again == printed else "its print parses to another graph"


FUZZ_TEXT = Campaign(
    name="fuzz-text",
    title="graph texts with pieces put in, taken out and moved",
    short=100,
    long=100_000,
    run=lambda ids, progress: counted(ids, progress, "texts", trial),
    group="fuzz",
)
