"""Small programs for the tests of the ABI: any number of tensors and TOAs, all legal."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from npuabi.bands import band_sets
from npuabi.container import Program, pack_symbols, table_header
from npuabi.enums import (
    Direction,
    DType,
    Layout,
    Mode,
    Opcode,
    Precision,
    Rounding,
    SignatureScheme,
    Space,
    ToaFlag,
    Unit,
)
from npuabi.records import (
    NO_TENSOR,
    Interface,
    KnownAnswer,
    Signature,
    SourceEntry,
    StateEntry,
    TensorDescriptor,
    Toa,
)
from npuabi.target import load_target

Build = Callable[[int, int, int], Program]

_SYMBOLS, _AT = pack_symbols(["image", "conv1", "conv2d", "net.npu", "größe"])


def _tensor(index: int) -> TensorDescriptor:
    return TensorDescriptor(
        base=index * 16,
        dims=(1, 16, 4, 4),
        strides=(256, 256, 64, 16),
        space=Space.SRAM,
        dtype=DType.I8,
        layout=Layout.NCHW16C,
        alignment_log2=4,
        bank=0,
        lane=0,
        zero_point=-3,
        scale=0.5,
        symbol=_AT["größe" if index % 2 else "image"],
        extent=256,
    )


def _toa(index: int) -> Toa:
    return Toa(
        opcode=Opcode.CONV,
        unit=Unit.MAC,
        precision=Precision.INT8,
        mode=Mode.OUTPUT_STATIONARY,
        flags=ToaFlag.CLEAR | ToaFlag.WRITE | (ToaFlag.WAIT_MAC if index else ToaFlag(0)),
        op=0,
        tensors=(0, NO_TENSOR, NO_TENSOR, NO_TENSOR, 0),
        waits=(0, 0, index % (1 << 16), 0),
        kernel=(1, 1),
        stride=(1, 1),
        dilation=(1, 1),
        pads=(0, 0, 0, 0),
        groups=1,
        clamp=(-128, 127),
        setup_cycles=2,
        sample_taps=167,
        cycles=index,
    )


def _build(tensor_count: int, toa_count: int, constant_bytes: int) -> Program:
    tensors = tuple(map(_tensor, range(tensor_count)))
    toas = tuple(map(_toa, range(toa_count)))
    constants = bytes(i * 7 % 251 for i in range(constant_bytes))
    return Program(
        header=table_header(
            target=load_target("edge"),
            tensors=tensors,
            toas=toas,
            constants=constants,
            arena_bytes=4096,
            macs=12,
            cycles=34,
            rounding=Rounding.DOUBLE,
            precision=Precision.INT8,
        ),
        tensors=tensors,
        toas=toas,
        ring=tuple(range(toa_count)),
        constants=constants,
        interface=(
            Interface(
                direction=Direction.INPUT,
                rank=3,
                dtype=DType.I8,
                tensor=0,
                symbol=_AT["image"],
                shape=(16, 4, 4, 1),
            ),
        ),
        sources=(
            SourceEntry(
                symbol=_AT["conv1"],
                kind=_AT["conv2d"],
                file=_AT["net.npu"],
                line=3,
                column=5,
                macs=12,
            ),
        ),
        symbols=_SYMBOLS,
        states=(StateEntry(symbol=_AT["image"], tensor=0, initial=0),),
        bands=band_sets(load_target("edge")),
        known_answer=KnownAnswer(seed=1, std=1.0, output_crc=0x12345678, samples=0, offset=0),
        signatures=(
            Signature(
                scheme=SignatureScheme.ED25519,
                security_version=3,
                public_key=tuple(range(32)),
                signature=tuple(range(64)),
            ),
        ),
    )


@pytest.fixture(scope="session")
def build() -> Build:
    """Return the builder: counts of tensors and TOAs, bytes of constants -> Program."""
    return _build
