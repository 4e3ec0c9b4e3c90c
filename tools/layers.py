"""Layers of a small trainable network in numpy, each with its own derivative.

Invariant: ``backward`` follows the ``forward`` of the same batch, takes the derivative of the loss
by the layer's output and returns that by its input; it leaves those of the parameters in ``grads``
under the keys of ``params``. Arrays are float32 NCHW.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Array",
    "BatchNorm",
    "Conv",
    "Dense",
    "Depthwise",
    "GlobalAvgPool",
    "Layer",
    "MaxPool",
    "Relu",
    "Residual",
    "Sequential",
]

Array = NDArray[Any]
MOMENTUM = 0.95  # of the running statistics, per batch
EPSILON = 1e-5  # ONNX's default for batch norm


def _he(rng: np.random.Generator, fan_in: int, *shape: int) -> Array:
    return np.asarray(rng.standard_normal(shape) * np.sqrt(2.0 / fan_in), np.float32)


class Layer(ABC):
    """A function of one array; the base has no parameters."""

    def __init__(self) -> None:
        self.params: dict[str, Array] = {}
        self.grads: dict[str, Array] = {}
        self.training = False

    @abstractmethod
    def forward(self, x: Array) -> Array:
        """Return the layer's output and keep what ``backward`` needs."""

    @abstractmethod
    def backward(self, dy: Array) -> Array:
        """Return the derivative by the input."""

    def leaves(self) -> Iterator[Layer]:
        """Yield the layers that hold parameters, in order."""
        yield self


class Conv(Layer):
    """3x3 (pad 1) or 1x1 convolution, stride 1, without bias; ``w`` is OIHW."""

    def __init__(self, rng: np.random.Generator, channels: int, filters: int, kernel: int) -> None:
        super().__init__()
        fan_in = channels * kernel * kernel
        self.pad = kernel // 2
        self.params["w"] = _he(rng, fan_in, filters, channels, kernel, kernel)

    def forward(self, x: Array) -> Array:
        self.columns = _windows(x, self.pad)
        return _einsum("nchwij,ocij->nohw", self.columns, self.params["w"])

    def backward(self, dy: Array) -> Array:
        self.grads["w"] = _einsum("nohw,nchwij->ocij", dy, self.columns)
        turned = self.params["w"][:, :, ::-1, ::-1]
        return _einsum("nohwij,ocij->nchw", _windows(dy, self.pad), turned)


class Depthwise(Layer):
    """3x3 depthwise convolution, pad 1, stride 1, without bias; ``w`` is (C, 1, 3, 3)."""

    def __init__(self, rng: np.random.Generator, channels: int) -> None:
        super().__init__()
        self.params["w"] = _he(rng, 9, channels, 1, 3, 3)

    def forward(self, x: Array) -> Array:
        self.columns = _windows(x, 1)
        return _einsum("nchwij,cij->nchw", self.columns, self.params["w"][:, 0], blas=False)

    def backward(self, dy: Array) -> Array:
        self.grads["w"] = _einsum("nchw,nchwij->cij", dy, self.columns, blas=False)[:, None]
        turned = self.params["w"][:, 0, ::-1, ::-1]
        return _einsum("nchwij,cij->nchw", _windows(dy, 1), turned, blas=False)


class BatchNorm(Layer):
    """Normalises channels by the batch in training, by the running statistics afterwards."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.params["gamma"] = np.ones(channels, np.float32)
        self.params["beta"] = np.zeros(channels, np.float32)
        self.mean = np.zeros(channels, np.float32)
        self.var = np.ones(channels, np.float32)

    def forward(self, x: Array) -> Array:
        mean, var = self.mean, self.var
        if self.training:
            mean, var = x.mean(axis=(0, 2, 3)), x.var(axis=(0, 2, 3))
            count = x.size // x.shape[1]
            self.mean = MOMENTUM * self.mean + (1 - MOMENTUM) * mean
            self.var = MOMENTUM * self.var + (1 - MOMENTUM) * var * count / (count - 1)
        self.inverse = 1 / np.sqrt(var + EPSILON)
        self.normal = (x - _channel(mean)) * _channel(self.inverse)
        y = _channel(self.params["gamma"]) * self.normal + _channel(self.params["beta"])
        return np.asarray(y)

    def backward(self, dy: Array) -> Array:
        self.grads["gamma"] = (dy * self.normal).sum(axis=(0, 2, 3))
        self.grads["beta"] = dy.sum(axis=(0, 2, 3))
        count = dy.size // dy.shape[1]
        centred = dy - _channel(self.grads["beta"] / count)
        centred -= self.normal * _channel(self.grads["gamma"] / count)
        return np.asarray(centred * _channel(self.params["gamma"] * self.inverse))


class Relu(Layer):
    """max(x, 0)."""

    def forward(self, x: Array) -> Array:
        self.positive = x > 0
        return x * self.positive

    def backward(self, dy: Array) -> Array:
        return dy * self.positive


class MaxPool(Layer):
    """2x2 maximum, stride 2; the derivative is shared among equal maxima."""

    def forward(self, x: Array) -> Array:
        n, c, h, w = x.shape
        blocks = x.reshape(n, c, h // 2, 2, w // 2, 2)
        top = blocks.max(axis=(3, 5), keepdims=True)
        winners = (blocks == top).astype(np.float32)
        self.share = winners / winners.sum(axis=(3, 5), keepdims=True)
        return np.asarray(top[:, :, :, 0, :, 0])

    def backward(self, dy: Array) -> Array:
        n, c, h, w = dy.shape
        spread = dy[:, :, :, None, :, None] * self.share
        return np.asarray(spread.reshape(n, c, 2 * h, 2 * w))


class GlobalAvgPool(Layer):
    """Mean over the pixels: (N, C, H, W) to (N, C)."""

    def forward(self, x: Array) -> Array:
        self.shape = x.shape
        return np.asarray(x.mean(axis=(2, 3)))

    def backward(self, dy: Array) -> Array:
        h, w = self.shape[2:]
        return np.broadcast_to(dy[:, :, None, None] / (h * w), self.shape)


class Dense(Layer):
    """x @ w.T + b; ``w`` is (out, in)."""

    def __init__(self, rng: np.random.Generator, inputs: int, outputs: int) -> None:
        super().__init__()
        self.params["w"] = _he(rng, 2 * inputs, outputs, inputs)
        self.params["b"] = np.zeros(outputs, np.float32)

    def forward(self, x: Array) -> Array:
        self.x = x
        return np.asarray(x @ self.params["w"].T + self.params["b"])

    def backward(self, dy: Array) -> Array:
        self.grads["w"] = dy.T @ self.x
        self.grads["b"] = dy.sum(axis=0)
        return np.asarray(dy @ self.params["w"])


class Sequential(Layer):
    """Layers one after another."""

    def __init__(self, layers: Sequence[Layer]) -> None:
        super().__init__()
        self.layers = list(layers)

    def forward(self, x: Array) -> Array:
        for layer in self.layers:
            x = layer.forward(x)
        return x

    def backward(self, dy: Array) -> Array:
        for layer in reversed(self.layers):
            dy = layer.backward(dy)
        return dy

    def leaves(self) -> Iterator[Layer]:
        for layer in self.layers:
            yield from layer.leaves()


class Residual(Sequential):
    """x + f(x), f being layers one after another."""

    def forward(self, x: Array) -> Array:
        return x + super().forward(x)

    def backward(self, dy: Array) -> Array:
        return dy + super().backward(dy)


def _windows(x: Array, pad: int) -> Array:
    """Return the views (n, c, h, w, i, j) of *x* under a kernel of 2 * pad + 1, zero padded."""
    padded = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    kernel = 2 * pad + 1
    return np.lib.stride_tricks.sliding_window_view(padded, (kernel, kernel), axis=(2, 3))


def _einsum(subscripts: str, *operands: Array, blas: bool = True) -> Array:
    """Contract; without BLAS where no axis is summed over whole matrices."""
    return np.asarray(np.einsum(subscripts, *operands, optimize=blas))


def _channel(values: Array) -> Array:
    return values[:, None, None]
