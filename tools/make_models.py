"""Write the models with made-up weights: texts, and the arrays beside them.

Run as ``python -m tools.make_models [FOLDER]``. Invariant: texts and arrays follow from the seeds
in tools/networks, bit for bit on every machine.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from tools.archive import write_npz
from tools.networks import NETWORKS, SAMPLES
from tools.networks.conv_bn_relu import conv_bn_relu_weights

__all__ = ["main", "write_models"]


def write_models(folder: Path) -> None:
    """Write all texts with their weights and calibration samples."""
    for name, text in NETWORKS.items():
        (folder / f"{name}.txt").write_text(text(), encoding="utf-8", newline="\n")
    write_npz(folder / "conv_bn_relu.npz", {"w": conv_bn_relu_weights()})
    for name, arrays in SAMPLES.items():
        write_npz(folder / f"{name}.npz", arrays())


def main() -> None:
    """Write the models to the folder that is named on the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=Path("models"))
    write_models(parser.parse_args().folder)


if __name__ == "__main__":
    main()
