"""Graph text with random constants: what all networks with made-up weights are written with.

Random weights have He's deviation, so that a signal neither dies nor explodes on its way down.
"""

from __future__ import annotations

from collections.abc import Sequence

from tools.graph_text import GraphText

__all__ = ["Network", "Pads"]

Pads = Sequence[int]


class Network(GraphText):
    """Graph text of a network; each random constant has the next seed."""

    seed = 0

    def random(self, name: str, mean: float, std: float, *dims: int) -> str:
        """Add a constant of the documented generator."""
        self.seed += 1
        source = f"random(seed = {self.seed}, mean = {mean!r}, std = {round(std, 6)!r})"
        return self.constant(name, source, *dims)

    def conv(
        self,
        name: str,
        x: str,
        shape: tuple[int, ...],
        stride: int,
        pads: Pads,
        *,
        group: int = 1,
        bias: bool = False,
    ) -> str:
        """Add a convolution whose weights have He's deviation."""
        fan_in = shape[1] * shape[2] * shape[3]
        operands = [x, self.random(f"{name}_w", 0.0, (2 / fan_in) ** 0.5, *shape)]
        if bias:
            operands.append(self.random(f"{name}_b", 0.0, 0.05, shape[0]))
        groups = {} if group == 1 else {"group": group}
        return self.op(name, "conv2d", *operands, strides=[stride, stride], pads=pads, **groups)

    def dense(self, name: str, x: str, shape: tuple[int, int], *, gain: float = 2.0) -> str:
        """Add a dense layer with bias whose weights have deviation sqrt(gain / inputs)."""
        weights = self.random(f"{name}_w", 0.0, (gain / shape[1]) ** 0.5, *shape)
        return self.op(name, "dense", x, weights, self.random(f"{name}_b", 0.0, 0.1, shape[0]))

    def norm(self, name: str, x: str, channels: int, *, gamma: float = 1.0) -> str:
        """Add a batch norm with *gamma* on average."""
        self.random(f"{name}_gamma", gamma, 0.05, channels)
        self.random(f"{name}_beta", 0.0, 0.1, channels)
        self.random(f"{name}_mean", 0.0, 0.05, channels)
        self.constant(f"{name}_var", "splat(1.0)", channels)
        statistics = [f"{name}_{part}" for part in ("gamma", "beta", "mean", "var")]
        return self.op(name, "batch_norm", x, *statistics, epsilon=1e-05)

    def head(self, x: str, channels: int, classes: int, *, spread: float = 2.0) -> str:
        """Add global pooling, dense and softmax; return the finished text.

        *spread* is the deviation of the logits for features of mean square 1.
        """
        self.op("pooled", "global_avg_pool", x)
        self.op("features", "flatten", "pooled")
        self.random("fc_w", 0.0, spread / channels**0.5, classes, channels)
        self.random("fc_b", 0.0, 0.1, classes)
        self.op("logits", "dense", "features", "fc_w", "fc_b")
        return self.finish(self.op("probabilities", "softmax", "logits", axis=1))
