"""Train the network of models/digits.txt on scikit-learn's handwritten digits and write its files.

Needs the extra ``train`` and under two minutes: ``python -m tools.train_digits [FOLDER]``.
Invariant: split, initial weights, batches and augmentation follow from fixed seeds; the test images
choose nothing (no early stop, no search): they are looked at once, at the end.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from tools.archive import write_npz
from tools.graph_text import GraphText
from tools.layers import (
    Array,
    BatchNorm,
    Conv,
    Dense,
    Depthwise,
    GlobalAvgPool,
    Layer,
    MaxPool,
    Relu,
    Residual,
    Sequential,
)

__all__ = ["graph_text", "main", "network", "split", "weights"]

SEED = 2024
TEST_IMAGES = 360
CALIBRATION_IMAGES = 128
EPOCHS = 60
BATCH = 32
PEAK_RATE = 4e-3
DECAY = 0.05  # decoupled weight decay, of weights only
SMOOTHING = 0.05  # of the labels: bounded logits quantise well
CLASSES = 10

LAYERS = ("c1", "n1", "c2", "n2", "c3", "n3", "c4", "n4", "c5", "n5", "fc")
"""Names in the graph text of the layers with parameters, in order."""

COMMENT = """\
Handwritten digits: trained by tools/train_digits.py; models/README.md says on what.
Input: 8x8 grey image, pixel / 16, so 0.0 (paper) to 1.0 (ink). Output: probabilities of 0 to 9."""


def network(rng: np.random.Generator) -> Sequential:
    """Return the untrained network; 24 and 40 channels leave lanes of a 16-channel brick empty."""
    separable = [Depthwise(rng, 24), BatchNorm(24), Relu(), Conv(rng, 24, 24, 1), BatchNorm(24)]
    return Sequential(
        [
            *(Conv(rng, 1, 24, 3), BatchNorm(24), Relu()),
            *(Residual(separable), Relu()),
            *(Conv(rng, 24, 40, 3), BatchNorm(40), Relu(), MaxPool()),
            *(Conv(rng, 40, 48, 3), BatchNorm(48), Relu()),
            *(GlobalAvgPool(), Dense(rng, 48, CLASSES)),
        ]
    )


def graph_text() -> str:
    """Return the network as graph text."""
    g = GraphText(
        name="digits",
        comment=COMMENT,
        argument="image",
        dims=(1, 1, 8, 8),
        calibration="digits_calib.npz",
    )
    stem = _block(g, 1, "image", (24, 1, 3, 3))
    deep = _block(g, 2, stem, (24, 1, 3, 3), group=24)
    point = _block(g, 3, deep, (24, 24, 1, 1), relu=False)
    g.op("sum", "add", stem, point)
    g.op("joined", "relu", "sum")
    g.blank()
    wide = _block(g, 4, "joined", (40, 24, 3, 3))
    g.op("pool", "max_pool2d", wide, kernel_shape=[2, 2], strides=[2, 2])
    g.blank()
    last = _block(g, 5, "pool", (48, 40, 3, 3))
    g.op("mean", "global_avg_pool", last)
    g.op("features", "flatten", "mean")
    g.file("fc_w", CLASSES, 48)
    g.file("fc_b", CLASSES)
    g.op("logits", "dense", "features", "fc_w", "fc_b")
    g.op("probabilities", "softmax", "logits", axis=1)
    return g.finish("probabilities")


def _block(
    g: GraphText, n: int, x: str, shape: tuple[int, ...], *, group: int = 1, relu: bool = True
) -> str:
    """Add convolution, batch norm and perhaps ReLU; return the name of the result."""
    g.file(f"c{n}_w", *shape)
    for part in ("gamma", "beta", "mean", "var"):
        g.file(f"n{n}_{part}", shape[0])
    grouped = {"group": group} if group > 1 else {}
    g.op(f"c{n}", "conv2d", x, f"c{n}_w", pads=[shape[2] // 2] * 4, **grouped)
    statistics = [f"n{n}_{part}" for part in ("gamma", "beta", "mean", "var")]
    result = g.op(f"n{n}", "batch_norm", f"c{n}", *statistics, epsilon=1e-05)
    if relu:
        result = g.op(f"r{n}", "relu", result)
    g.blank()
    return result


def weights(net: Layer) -> dict[str, Array]:
    """Return every trained array under its name in the graph text."""
    arrays: dict[str, Array] = {}
    with_parameters = [layer for layer in net.leaves() if layer.params]
    for name, layer in zip(LAYERS, with_parameters, strict=True):
        arrays |= {f"{name}_{key}": value for key, value in layer.params.items()}
        if isinstance(layer, BatchNorm):
            arrays |= {f"{name}_mean": layer.mean, f"{name}_var": layer.var}
    return {name: array.astype(np.float32) for name, array in arrays.items()}


def split(labels: Array) -> tuple[Array, Array]:
    """Return the indices of training and test images; each digit has its share of the test."""
    order = np.random.default_rng(SEED).permutation(len(labels))
    by_digit = order[np.argsort(labels[order], kind="stable")]
    # Every fifth of the images sorted by digit, 360 of 1,797: each digit gives a fifth of its own.
    test = by_digit[::5][:TEST_IMAGES]
    train = np.setdiff1d(by_digit, test)
    return train, test


def augment(rng: np.random.Generator, images: Array) -> Array:
    """Shift each image by -1, 0 or 1 pixel both ways and scale its ink by 0.9 to 1.1."""
    padded = np.pad(images, ((0, 0), (0, 0), (1, 1), (1, 1)))
    moves = rng.choice(3, size=(len(images), 2), p=[0.2, 0.6, 0.2])
    shifted = [image[:, y : y + 8, x : x + 8] for image, (y, x) in zip(padded, moves, strict=True)]
    ink = rng.uniform(0.9, 1.1, size=(len(images), 1, 1, 1))
    return (np.stack(shifted) * ink).clip(0, 1).astype(np.float32)


class Adam:
    """Adam with decoupled weight decay on arrays of two dims or more."""

    def __init__(self, layers: list[Layer]) -> None:
        self.slots = [(layer, key) for layer in layers for key in layer.params]
        self.first = [np.zeros_like(layer.params[key]) for layer, key in self.slots]
        self.second = [np.zeros_like(m) for m in self.first]
        self.step = 0

    def update(self, rate: float) -> None:
        """Move all parameters by their gradients."""
        self.step += 1
        correction = np.sqrt(1 - 0.999**self.step) / (1 - 0.9**self.step)
        for (layer, key), m, v in zip(self.slots, self.first, self.second, strict=True):
            value, grad = layer.params[key], layer.grads[key]
            m += 0.1 * (grad - m)
            v += 0.001 * (grad * grad - v)
            if value.ndim > 1:
                value *= np.float32(1 - rate * DECAY)
            value -= (rate * correction * m / (np.sqrt(v) + 1e-8)).astype(np.float32)


def loss_gradient(logits: Array, labels: Array) -> tuple[float, Array]:
    """Return the mean cross entropy against smoothed labels, and its derivative by the logits."""
    shifted = logits - logits.max(axis=1, keepdims=True)
    logs = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    target = np.full(logits.shape, SMOOTHING / CLASSES, np.float32)
    target[np.arange(len(labels)), labels] += 1 - SMOOTHING
    return float(-(target * logs).sum(axis=1).mean()), (np.exp(logs) - target) / len(labels)


def train(images: Array, labels: Array) -> Sequential:
    """Return the trained network; the rate rises in a tenth of the steps, falls as a cosine."""
    rng = np.random.default_rng(SEED)
    net = network(rng)
    layers = list(net.leaves())
    adam = Adam(layers)
    batches = len(labels) // BATCH
    for epoch in range(EPOCHS):
        _set_training(layers, True)
        total = 0.0
        order = rng.permutation(len(labels))
        for batch in np.split(order[: batches * BATCH], batches):
            loss, gradient = loss_gradient(net.forward(augment(rng, images[batch])), labels[batch])
            net.backward(gradient.astype(np.float32))
            adam.update(_rate(adam.step / (EPOCHS * batches)))
            total += loss / batches
        print(f"epoch {epoch + 1:3} of {EPOCHS}, loss {total:.4f}")
    _set_training(layers, False)
    return net


def _rate(progress: float) -> float:
    warm_up = min(1.0, progress / 0.1 + 0.02)
    return PEAK_RATE * warm_up * (0.5 + 0.5 * float(np.cos(np.pi * progress)))


def _set_training(layers: list[Layer], training: bool) -> None:
    for layer in layers:
        layer.training = training


def load() -> tuple[Array, Array]:
    """Return all images, (N, 1, 8, 8) float32 in 0..1, and their labels, int64."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = (digits.images / 16.0).astype(np.float32)[:, None]
    return images, digits.target.astype(np.int64)


def main() -> None:
    """Train, report the accuracy and write text, weights, calibration and test images."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=Path("models"))
    folder = parser.parse_args().folder
    images, labels = load()
    training, test = split(labels)
    net = train(images[training], labels[training])
    correct = int((net.forward(images[test]).argmax(axis=1) == labels[test]).sum())
    print(f"float top-1: {correct} of {len(test)} test images")
    chosen = training[np.linspace(0, len(training) - 1, CALIBRATION_IMAGES).astype(int)]
    (folder / "digits.txt").write_text(graph_text(), encoding="utf-8")
    write_npz(folder / "digits.npz", weights(net))
    write_npz(folder / "digits_calib.npz", {"image": images[chosen]})
    write_npz(folder / "digits_test.npz", {"image": images[test], "labels": labels[test]})


if __name__ == "__main__":
    main()
