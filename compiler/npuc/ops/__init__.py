"""Every op of graph text; importing this package registers them all.

Adding an op is one file and one line here.
"""

from npuc.ir.const import Const
from npuc.ops.add import Add
from npuc.ops.avg_pool2d import AvgPool2d
from npuc.ops.batch_norm import BatchNorm
from npuc.ops.clip import Clip
from npuc.ops.concat import Concat
from npuc.ops.conv2d import Conv2d
from npuc.ops.dense import Dense
from npuc.ops.dequantize import Dequantize
from npuc.ops.expand import Expand
from npuc.ops.flatten import Flatten
from npuc.ops.global_avg_pool import GlobalAvgPool
from npuc.ops.identity import Identity
from npuc.ops.max_pool2d import MaxPool2d
from npuc.ops.quantize import Quantize
from npuc.ops.relu import Relu
from npuc.ops.reshape import Reshape
from npuc.ops.softmax import Softmax
from npuc.ops.split import Split
from npuc.ops.to_layout import ToLayout

__all__ = [
    "Add",
    "AvgPool2d",
    "BatchNorm",
    "Clip",
    "Concat",
    "Const",
    "Conv2d",
    "Dense",
    "Dequantize",
    "Expand",
    "Flatten",
    "GlobalAvgPool",
    "Identity",
    "MaxPool2d",
    "Quantize",
    "Relu",
    "Reshape",
    "Softmax",
    "Split",
    "ToLayout",
]
