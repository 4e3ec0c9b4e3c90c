"""One kernel an opcode, and the table that boot and engine look them up in."""

from __future__ import annotations

from npuabi.enums import Opcode
from npufw.kernels.add import ADD
from npufw.kernels.argmax import ARGMAX
from npufw.kernels.avg_pool import AVG_POOL
from npufw.kernels.base import Kernel
from npufw.kernels.cast import CAST
from npufw.kernels.conv import CONV
from npufw.kernels.copy import COPY
from npufw.kernels.depth_to_space import DEPTH_TO_SPACE
from npufw.kernels.depthwise import DEPTHWISE
from npufw.kernels.dequantize import DEQUANTIZE
from npufw.kernels.div import DIV
from npufw.kernels.dma import DMA_IN, DMA_OUT
from npufw.kernels.eval import EVAL
from npufw.kernels.global_avg_pool import GLOBAL_AVG_POOL
from npufw.kernels.log_softmax import LOG_SOFTMAX
from npufw.kernels.lookup import LOOKUP
from npufw.kernels.matmul import MATMUL
from npufw.kernels.max_pool import MAX_POOL
from npufw.kernels.maximum import MAXIMUM
from npufw.kernels.minimum import MINIMUM
from npufw.kernels.mul import MUL
from npufw.kernels.norm import NORM
from npufw.kernels.prelu import PRELU
from npufw.kernels.quantize import QUANTIZE
from npufw.kernels.reduce import REDUCE
from npufw.kernels.remap import REMAP
from npufw.kernels.rescale import RESCALE
from npufw.kernels.resize import RESIZE
from npufw.kernels.softmax import SOFTMAX
from npufw.kernels.space_to_depth import SPACE_TO_DEPTH
from npufw.kernels.sub import SUB
from npufw.kernels.transpose import TRANSPOSE

__all__ = ["KERNELS"]

_ALL = (
    DMA_IN,
    DMA_OUT,
    CONV,
    DEPTHWISE,
    MAX_POOL,
    AVG_POOL,
    GLOBAL_AVG_POOL,
    ADD,
    RESCALE,
    COPY,
    QUANTIZE,
    DEQUANTIZE,
    CAST,
    SOFTMAX,
    MATMUL,
    REDUCE,
    ARGMAX,
    LOG_SOFTMAX,
    REMAP,
    TRANSPOSE,
    RESIZE,
    DEPTH_TO_SPACE,
    SPACE_TO_DEPTH,
    NORM,
    LOOKUP,
    EVAL,
    SUB,
    MUL,
    DIV,
    MINIMUM,
    MAXIMUM,
    PRELU,
)

KERNELS: dict[Opcode, Kernel] = {kernel.opcode: kernel for kernel in _ALL}
"""Every opcode of the ABI."""
