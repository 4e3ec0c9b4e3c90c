"""The rules of a network's inputs and outputs: where the host's arrays meet tensor records."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from npuabi.enums import Direction, Layout, Space
from npuabi.errors import ErrorCode
from npuabi.geometry import dense_strides, device_dims
from npuabi.records import Interface, TensorDescriptor
from npuabi.target import Target
from npufw.errors import FirmwareError
from npufw.kernels.base import Fault

__all__ = ["INTERFACE_RULES", "check_interface"]

Port = tuple[Interface, TensorDescriptor]


def _shape(port: Port, target: Target) -> Fault:
    entry, tensor = port
    dims = device_dims(entry.shape[: entry.rank])
    if dims != tensor.dims:
        text = f"shape {entry.shape[: entry.rank]} is {dims} on the device, got {tensor.dims}"
        return ErrorCode.BAD_DIMS, text
    return None


def _kind(port: Port, target: Target) -> Fault:
    entry, tensor = port
    if entry.dtype is not tensor.dtype:
        return ErrorCode.BAD_DTYPE, f"is {entry.dtype.text}, its tensor {tensor.dtype.text}"
    # Up to rank 2 the channels are the row: nhwc keeps them dense.
    wanted = Layout.NHWC if entry.rank <= 2 else Layout.NCHW
    if tensor.layout is not wanted:
        text = f"lies as {tensor.layout.name.lower()}, expected {wanted.name.lower()}"
        return ErrorCode.BAD_LAYOUT, text
    if tensor.space is not Space.ARENA:
        text = f"lies in {tensor.space.name.lower()}, the host reaches the arena only"
        return ErrorCode.BAD_OPERANDS, text
    return None


def _pitch(port: Port, target: Target) -> Fault:
    _, tensor = port
    wanted = dense_strides(tensor.dims, tensor.dtype, tensor.layout, row_pitch=target.row_pitch)
    rows = zip(tensor.dims, tensor.strides, wanted, strict=True)
    if any(n > 1 and stride != want for n, stride, want in rows):
        text = f"strides are {tensor.strides}, rows of pitch {target.row_pitch} give {wanted}"
        return ErrorCode.BAD_PITCH, text
    return None


def _aligned(port: Port, target: Target) -> Fault:
    _, tensor = port
    if tensor.base % target.dma_alignment:
        text = f"base 0x{tensor.base:x} is no multiple of the target's {target.dma_alignment}"
        return ErrorCode.MISALIGNED, text
    return None


INTERFACE_RULES: tuple[Callable[[Port, Target], Fault], ...] = (_shape, _kind, _pitch, _aligned)
"""In this order, on each input and output."""


def check_interface(ports: Sequence[Port], names: Sequence[str], target: Target) -> None:
    """Raise FirmwareError unless *ports* obey the rules and *names* are distinct."""
    for index, (port, name) in enumerate(zip(ports, names, strict=True)):
        where = f"{port[0].direction.name.lower()} {name!r} (interface {index})"
        for rule in INTERFACE_RULES:
            fault = rule(port, target)
            if fault is not None:
                raise FirmwareError(fault[0], f"{where}: {fault[1]}")
    for direction in Direction:
        own = [n for n, p in zip(names, ports, strict=True) if p[0].direction is direction]
        if len(set(own)) != len(own):
            text = f"two {direction.name.lower()}s have one name: {sorted(own)}"
            raise FirmwareError(ErrorCode.BAD_SYMBOL, text)
        if direction is Direction.OUTPUT and not own:
            raise FirmwareError(ErrorCode.BAD_COUNT, "the network has no output")
