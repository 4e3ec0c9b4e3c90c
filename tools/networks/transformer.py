"""One block of a transformer encoder: attention and a feed-forward layer, each with a norm."""

from __future__ import annotations

from tools.networks.network import Network
from tools.networks.resnet import RANDOM

__all__ = ["transformer"]

TRANSFORMER = f"""\
A block of a transformer encoder: 32 tokens of 64 numbers, 4 heads, 256 hidden units with gelu.
The attention's factor, 1 / sqrt(16), is in the weights of the queries.
{RANDOM}
Input: tokens of deviation 1. Output: tokens, normed."""

TOKENS, WIDTH, HEADS, HIDDEN = 32, 64, 4, 256
EACH = WIDTH // HEADS


class Encoder(Network):
    """A network on rows of tokens."""

    def heads(self, name: str, gain: float, perm: list[int]) -> str:
        """Add a dense layer on the tokens and split its result into heads, in the order *perm*."""
        y = self.dense(name, "tokens", (WIDTH, WIDTH), gain=gain)
        y = self.op(f"{name}_split", "reshape", y, shape=[1, TOKENS, HEADS, EACH])
        return self.op(f"{name}_heads", "transpose", y, perm=perm)

    def normed(self, name: str, y: str, shortcut: str) -> str:
        """Add the shortcut and a layer norm."""
        total = self.op(f"{name}_sum", "add", y, shortcut)
        scale = self.random(f"{name}_gamma", 1.0, 0.05, WIDTH)
        shift = self.random(f"{name}_beta", 0.0, 0.1, WIDTH)
        result = self.op(name, "layer_norm", total, scale, shift, axis=-1)
        self.blank()
        return result


def transformer() -> str:
    """Return the text of models/transformer.txt."""
    g = Encoder(
        name="transformer",
        comment=TRANSFORMER,
        argument="tokens",
        dims=(1, TOKENS, WIDTH),
        calibration="transformer_calib.npz",
    )
    queries = g.heads("q", 1.0 / EACH, [0, 2, 1, 3])
    keys = g.heads("k", 1.0, [0, 2, 3, 1])
    values = g.heads("v", 1.0, [0, 2, 1, 3])
    g.op("scores", "matmul", queries, keys)
    g.op("attention", "softmax", "scores", axis=-1)
    g.op("context", "matmul", "attention", values)
    g.op("context_tokens", "transpose", "context", perm=[0, 2, 1, 3])
    y = g.op("context_rows", "reshape", "context_tokens", shape=[1, TOKENS, WIDTH])
    y = g.normed("norm1", g.dense("o", y, (WIDTH, WIDTH), gain=1.0), "tokens")
    hidden = g.op("active", "gelu", g.dense("hidden", y, (HIDDEN, WIDTH), gain=1.0))
    return g.finish(g.normed("norm2", g.dense("narrow", hidden, (WIDTH, HIDDEN)), y))
