"""Every op of graph text; importing this package registers them all.

Adding an op is one file and one line here: ``import X as X`` is how a name is passed on.
"""

from npuc.ir.const import Const as Const
from npuc.ops.add import Add as Add
from npuc.ops.avg_pool2d import AvgPool2d as AvgPool2d
from npuc.ops.batch_norm import BatchNorm as BatchNorm
from npuc.ops.cast import Cast as Cast
from npuc.ops.clip import Clip as Clip
from npuc.ops.concat import Concat as Concat
from npuc.ops.conv2d import Conv2d as Conv2d
from npuc.ops.dense import Dense as Dense
from npuc.ops.depth_to_space import DepthToSpace as DepthToSpace
from npuc.ops.dequantize import Dequantize as Dequantize
from npuc.ops.expand import Expand as Expand
from npuc.ops.flatten import Flatten as Flatten
from npuc.ops.gather import Gather as Gather
from npuc.ops.global_avg_pool import GlobalAvgPool as GlobalAvgPool
from npuc.ops.group_norm import GroupNorm as GroupNorm
from npuc.ops.identity import Identity as Identity
from npuc.ops.instance_norm import InstanceNorm as InstanceNorm
from npuc.ops.layer_norm import LayerNorm as LayerNorm
from npuc.ops.matmul import MatMul as MatMul
from npuc.ops.max_pool2d import MaxPool2d as MaxPool2d
from npuc.ops.pad import Pad as Pad
from npuc.ops.quantize import Quantize as Quantize
from npuc.ops.relu import Relu as Relu
from npuc.ops.reshape import Reshape as Reshape
from npuc.ops.resize import Resize as Resize
from npuc.ops.slice import Slice as Slice
from npuc.ops.softmax import Softmax as Softmax
from npuc.ops.space_to_depth import SpaceToDepth as SpaceToDepth
from npuc.ops.split import Split as Split
from npuc.ops.squeeze import Squeeze as Squeeze
from npuc.ops.tile import Tile as Tile
from npuc.ops.to_layout import ToLayout as ToLayout
from npuc.ops.transpose import Transpose as Transpose
from npuc.ops.unsqueeze import Unsqueeze as Unsqueeze
