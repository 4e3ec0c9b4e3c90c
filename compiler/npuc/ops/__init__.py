"""Every op of graph text; importing this package registers them all.

Adding an op is one file and one line here.
"""

from npuc.ops.add import Add
from npuc.ops.clip import Clip
from npuc.ops.conv2d import Conv2D
from npuc.ops.dense import Dense
from npuc.ops.max_pool2d import MaxPool2D
from npuc.ops.relu import Relu

__all__ = ["Add", "Clip", "Conv2D", "Dense", "MaxPool2D", "Relu"]
