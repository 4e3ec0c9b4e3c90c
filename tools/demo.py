"""The demo: a trained network from graph text to answers on the emulated NPU.

Run as ``make demo``. Invariant: it shows nothing that the printed commands do not give when typed.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np

from npuabi.enums import Rounding
from npuc.frontend.text import parse_file
from npuc.ir.interpreter import evaluate
from tools.commands import show, show_line

__all__ = ["float_correct", "main"]

GRAPH = Path("models/digits.txt")
IMAGES = Path("models/digits_test.npz")
BLOB = Path("build/digits.bin")
OP = "logits"  # whose descriptor is shown


def float_correct(graph_text: Path, data: Path) -> tuple[int, int]:
    """Return how many images the float graph classifies rightly, and how many there are."""
    graph = parse_file(graph_text)
    with np.load(data) as test:
        images, labels = test["image"], test["labels"]
    correct = 0
    for image, label in zip(images, labels, strict=True):
        (scores,) = evaluate(graph, {"image": image[None]}, Rounding.DOUBLE).values()
        correct += int(scores.argmax()) == int(label)
    return correct, len(labels)


def _section(title: str) -> None:
    print(f"\n== {title}\n", flush=True)


def _demo() -> None:
    BLOB.parent.mkdir(exist_ok=True)
    _section("Compile a trained network to a blob of 64-byte descriptors")
    show("npuc", "compile", str(GRAPH), "-o", str(BLOB))
    _section("Level 1: the float graph on 360 test images (the compiler's float64 reference)")
    correct, count = float_correct(GRAPH, IMAGES)
    print(f"{correct} of {count} correct, top-1 {correct / count:.2%}")
    _section("Level 4: the same images through the emulated firmware, in int8")
    show("npufw", "eval", str(BLOB), "--data", str(IMAGES))
    _section("One descriptor, byte by byte")
    show_line(f"npufw inspect {BLOB} --op {OP} | sed -n '/^TOA .*: conv/,/ crc /p'")
    print("\nNext: . .venv/bin/activate; then npuc --help, npufw --help, README.md")


def main() -> int:
    """Run the demo; return 1 when one of its commands failed."""
    try:
        _demo()
    except subprocess.CalledProcessError as error:
        print(f"the command above failed with exit code {error.returncode}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
