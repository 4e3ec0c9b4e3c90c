"""The sanitizer on small programs made by hand: one fault each, named with who takes part."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from npuabi.container import write_blob
from npuabi.enums import Direction, DType, Layout, Opcode, Space, Unit
from npuabi.errors import AbiError
from npufw.boot import boot
from npufw.memory import geometry_of
from npufw.sanitize import sanitize, sanitize_blob
from npufw.sanitize_findings import Findings
from npufw.sanitize_pieces import Indices, Pieces
from tests.builders import EDGE, Builder, addresses
from tests.unit.npufw.programs import SHAPE, Rescaler, rescaler

NCHW: dict[str, Any] = {"layout": Layout.NCHW}
BYTES = int(np.prod(SHAPE))


def found(builder: Builder) -> Findings:
    return sanitize(boot(builder.blob(), EDGE))


def kinds(findings: Findings) -> list[str]:
    return [finding.kind.word for finding in findings.kept]


def facts(findings: Findings, kind: str) -> dict[str, Any]:
    return findings.as_list()[kinds(findings).index(kind)]


def toas(findings: Findings, kind: str) -> list[int | None]:
    return [toa["toa"] for toa in facts(findings, kind)["toas"]]


def point(made: Rescaler, toa: str, operand: int, tensor: int) -> None:
    """Make *tensor* an operand of a TOA."""
    b, index = made.builder, made.toas[toa]
    tensors = list(b.toas[index].tensors)
    tensors[operand] = tensor
    b.toas[index] = replace(b.toas[index], tensors=tuple(tensors))


def stored(made: Rescaler, tensor: int, *waits: tuple[Unit, int]) -> int:
    """Store plain *tensor* to an output of its own; return the TOA."""
    b = made.builder
    other = b.tensor(SHAPE, space=Space.ARENA, name="other", **NCHW)
    b.port(Direction.OUTPUT, "other", SHAPE, other)
    return b.toa(Opcode.DMA_OUT, input=tensor, output=other, waits=waits)


def overwritten(made: Rescaler, *waits: tuple[Unit, int]) -> int:
    """Load the input once more, over "plain" and under another name; return the TOA."""
    taker = made.builder.alias(made.tensors["plain"], dims=SHAPE, name="taker", **NCHW)
    return made.builder.toa(
        Opcode.DMA_IN, input=made.tensors["x"], output=taker, waits=waits, op="take"
    )


def test_a_sound_program_has_no_findings() -> None:
    findings = found(rescaler().builder)
    assert findings.as_list() == []
    assert list(findings.lines()) == []


def test_a_race_names_both_toas_their_lines_and_bytes_and_when_they_come() -> None:
    made = rescaler(skip="save")
    findings = found(made.builder)
    assert kinds(findings) == ["race"]
    first = made.builder.tensors[made.tensors["done"]].base
    given = facts(findings, "race")
    assert given["bytes"] == {
        "space": "sram",
        "first": first,
        "end": first + BYTES,
        "count": BYTES,
    }
    assert toas(findings, "race") == [made.toas["save"], made.toas["unpack"]]
    assert [(t["op"], t["line"]) for t in given["toas"]] == [("y", 1), ("y", 1)]
    assert [t["operand"] for t in given["toas"]] == ["input", "output"]
    assert "no wait orders the two; as timed here TOA 5 comes " in given["text"]


def test_a_race_that_the_timeline_hides_is_one_all_the_same() -> None:
    made = rescaler()
    index = made.toas["pack"]
    # Two loads run in order, but a wait for the first says nothing about the second.
    made.builder.toas[index] = replace(made.builder.toas[index], waits=(1, 0, 0, 0))
    assert kinds(found(made.builder)) == ["race"]


def test_order_follows_from_a_chain_over_several_units() -> None:
    made = rescaler()
    again = overwritten(made, (Unit.DMA_OUT, 1))
    # "pack" reads what this load overwrites: save waits for unpack, which runs behind pack.
    findings = found(made.builder)
    assert kinds(findings) == []
    made.builder.toas[again] = replace(made.builder.toas[again], flags=made.builder.toas[0].flags)
    assert kinds(found(made.builder)) == ["race"]
    assert toas(found(made.builder), "race") == [again, made.toas["pack"]]


def test_bytes_that_nobody_wrote_are_named_with_who_wrote_nearest() -> None:
    made = rescaler()
    b = made.builder
    base = 8 * EDGE.bank_bytes
    moved = b.tensor(SHAPE, base=base, bank=8, name="plain", **NCHW)
    point(made, "pack", 0, moved)
    findings = found(b)
    given = facts(findings, "uninitialised")
    assert toas(findings, "uninitialised") == [made.toas["pack"], made.toas["load"]]
    assert (
        f"{BYTES} bytes of sram at 0x{base:x} as plain, which nobody has written" in given["text"]
    )
    # The load's bytes are lost: who waits for them reads others.
    assert toas(findings, "lost") == [made.toas["pack"], made.toas["load"]]


def test_the_host_reads_outputs_as_a_toa_reads_operands() -> None:
    made = rescaler()
    made.builder.toas.pop()
    findings = found(made.builder)
    assert kinds(findings) == ["uninitialised"]
    (host,) = facts(findings, "uninitialised")["toas"]
    assert host == {"toa": None, "tensor": "y"}
    assert next(findings.lines()).startswith("uninitialised: the host reads 210 bytes of arena")


def test_lanes_that_a_dma_moved_along_mean_nothing() -> None:
    b = Builder()
    dims = (1, 5, 1, 2)
    kept = b.tensor(dims, space=Space.ARENA, name="kept")
    bricks = b.tensor(dims, name="bricks")
    back = b.tensor(dims, name="back")
    x = b.tensor(dims, space=Space.ARENA, name="x", **NCHW)
    y = b.tensor((1, 5, 1, 2), space=Space.ARENA, name="y", **NCHW)
    plain, out = b.tensor(dims, name="plain", **NCHW), b.tensor(dims, name="out", **NCHW)
    b.port(Direction.INPUT, "x", dims, x)
    b.port(Direction.OUTPUT, "y", dims, y)
    b.toa(Opcode.DMA_IN, input=x, output=plain)
    b.toa(Opcode.COPY, input=plain, output=bricks, waits=[(Unit.DMA_IN, 1)])
    b.toa(Opcode.DMA_OUT, input=bricks, output=kept, waits=[(Unit.VECTOR, 1)])
    b.toa(Opcode.DMA_IN, input=kept, output=back, waits=[(Unit.DMA_OUT, 1)])
    b.toa(Opcode.COPY, input=back, output=out, waits=[(Unit.DMA_IN, 2)])
    b.toa(Opcode.DMA_OUT, input=out, output=y, waits=[(Unit.VECTOR, 2)])
    assert kinds(found(b)) == []
    shifted = b.alias(back, dims=dims, lane=1, name="back")
    b.toas[4] = replace(b.toas[4], tensors=(shifted, *b.toas[4].tensors[1:]))
    findings = found(b)
    assert kinds(findings) == ["uninitialised"]
    assert toas(findings, "uninitialised")[:2] == [4, 3]
    assert "lanes that mean nothing in what TOA 3" in facts(findings, "uninitialised")["text"]
    assert facts(findings, "uninitialised")["bytes"]["count"] == 2


def test_a_tensor_overwritten_before_its_first_read_names_all_three() -> None:
    made = rescaler()
    b, t = made.builder, made.tensors
    taker = b.alias(t["half"], dims=(1, 1, 1, 64), dtype=DType.U8, name="taker", **NCHW)
    take = b.toa(Opcode.DMA_IN, input=t["head"], output=taker, waits=[(Unit.VECTOR, 2)])
    program = b.build()
    order = (*range(made.toas["unpack"]), take, made.toas["unpack"], made.toas["save"])
    findings = sanitize(boot(write_blob(replace(program, ring=order)), EDGE))
    assert sorted(kinds(findings)) == ["overwrite", "race"]
    assert toas(findings, "overwrite") == [made.toas["unpack"], take, made.toas["rescale"]]
    text = facts(findings, "overwrite")["text"]
    assert "as half, but TOA 6 (dma_in %dma_in) wrote taker over what TOA 3 (rescale %y)" in text


def test_a_tensor_read_again_after_its_slot_was_reused_is_a_use_after_free() -> None:
    made = rescaler()
    take = overwritten(made, (Unit.DMA_OUT, 1))
    late = stored(made, made.tensors["plain"], (Unit.DMA_IN, 3))
    findings = found(made.builder)
    assert kinds(findings) == ["use_after_free"]
    assert toas(findings, "use_after_free") == [late, take, made.toas["load"]]


def test_records_without_a_name_may_share_bytes_with_any() -> None:
    made = rescaler()
    overwritten(made, (Unit.DMA_OUT, 1))
    unnamed = made.builder.alias(made.tensors["plain"], dims=SHAPE, **NCHW)
    stored(made, unnamed, (Unit.DMA_IN, 3))
    assert kinds(found(made.builder)) == []


def test_a_read_beyond_a_tensor_names_whose_bytes_it_meets() -> None:
    made = rescaler()
    plain = made.builder.tensors[made.tensors["plain"]]
    beyond = made.builder.alias(made.tensors["plain"], dims=SHAPE, name="plain", **NCHW)
    made.builder.tensors[beyond] = replace(plain, base=plain.base + 16, symbol=0)
    late = stored(made, beyond, (Unit.VECTOR, 3))
    findings = found(made.builder)
    assert "out_of_bounds" in kinds(findings)
    assert toas(findings, "out_of_bounds") == [late, made.toas["pack"], made.toas["load"]]
    assert "they hold bricks, written by" in facts(findings, "out_of_bounds")["text"]


def test_a_load_cut_short_leaves_stale_bytes_behind() -> None:
    made = rescaler()
    b = made.builder
    again = b.toa(
        Opcode.DMA_IN,
        input=b.tensor((1, 5, 3, 7), space=Space.ARENA, name="x", base=b.tensors[0].base, **NCHW),
        output=b.alias(made.tensors["plain"], dims=(1, 5, 3, 7), name="plain", **NCHW),
        waits=[(Unit.DMA_OUT, 1)],
    )
    late = stored(made, made.tensors["plain"], (Unit.DMA_IN, 3))
    findings = found(b)
    assert kinds(findings) == ["stale"]
    assert toas(findings, "stale") == [late, made.toas["load"], again]


def test_writer_and_reader_of_one_name_agree_on_type_and_scale() -> None:
    made = rescaler()
    other = made.builder.alias(made.tensors["half"], dims=SHAPE, name="half", scale=0.5)
    point(made, "unpack", 0, other)
    findings = found(made.builder)
    assert kinds(findings) == ["mismatch"]
    assert toas(findings, "mismatch") == [made.toas["unpack"], made.toas["rescale"]]
    assert "scale and zero point (0.5, 0), not (0.0, 0)" in facts(findings, "mismatch")["text"]


def test_findings_of_the_same_ops_are_one_with_a_count() -> None:
    made = rescaler()
    nobody = made.builder.tensor(SHAPE, name="nobody", **NCHW)
    for _ in range(3):
        made.builder.toa(Opcode.COPY, input=nobody, output=made.tensors["bricks"], op="again")
    findings = found(made.builder)
    (finding,) = (f for f in findings.kept if f.kind.word == "uninitialised")
    assert finding.times == 3
    assert any(line.startswith("uninitialised (3 times): TOA 6 ") for line in findings.lines())


def test_more_than_a_hundred_sorts_of_findings_are_counted() -> None:
    made = rescaler()
    for number in range(120):
        nobody = made.builder.tensor((1, 1, 1, 16), name=f"n{number}", **NCHW)
        other = made.builder.tensor((1, 1, 1, 16), name=f"m{number}", **NCHW)
        made.builder.toa(Opcode.COPY, input=nobody, output=other, op=f"o{number}")
    findings = found(made.builder)
    assert (len(findings.kept), findings.dropped) == (100, 20)
    assert list(findings.lines())[-1] == "and 20 more"


def test_all_that_boot_refuses_is_found_with_the_toas_that_use_it() -> None:
    made = rescaler()
    b = made.builder
    for name, base in (("plain", 1 << 20), ("half", 8)):
        index = made.tensors[name]
        b.tensors[index] = replace(b.tensors[index], base=base, bank=0)
    findings = sanitize_blob(b.blob(), EDGE)
    assert kinds(findings) == ["out_of_bounds", "misaligned"]
    assert toas(findings, "out_of_bounds") == [made.toas["load"], made.toas["pack"]]
    assert facts(findings, "out_of_bounds")["code"] == "out_of_sram"
    assert "used by TOA 3 (rescale %y) and TOA 4" in facts(findings, "misaligned")["text"]
    missing = rescaler()
    index = missing.toas["unpack"]
    no_output = replace(missing.builder.toas[index], tensors=(0xFFFFFFFF,) * 5)
    missing.builder.toas[index] = no_output
    findings = sanitize_blob(missing.builder.blob(), EDGE)
    assert kinds(findings) == ["refused"]
    assert toas(findings, "refused") == [index]
    with pytest.raises(AbiError):
        sanitize_blob(b.blob()[:-1], EDGE)


def test_a_program_in_too_many_pieces_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("npufw.sanitize_pieces._MOST_RUNS", 3)
    with pytest.raises(AbiError, match="run it without --sanitize"):
        found(rescaler().builder)


@pytest.mark.parametrize("seed", range(40))
def test_pieces_are_the_bytes_of_elements_and_of_spare_lanes(seed: int) -> None:
    random = Random(seed)
    layout = random.choice((Layout.NCHW, Layout.NHWC, Layout.NCHW16C, Layout.NCHW16C))
    a, c, h, w = (random.choice((1, 2, 5, 17, 33)) for _ in range(4))
    kind: dict[str, Any] = {
        "dtype": random.choice((DType.I8, DType.F32)),
        "layout": layout,
        "lane": random.randrange(16) if layout is Layout.NCHW16C else 0,
    }
    b = Builder()
    dims = (min(a, 2), c, h, min(w, 5))
    x, t = b.tensor(dims, space=Space.ARENA, **kind), b.tensor(dims, **kind)
    held, y = b.tensor((1, 1, 1, 16), **NCHW), b.tensor((1, 1, 1, 16), space=Space.ARENA, **NCHW)
    b.port(Direction.OUTPUT, "y", (1, 1, 1, 16), y)
    b.toa(Opcode.DMA_IN, input=x, output=t, op="y")
    b.toa(Opcode.DMA_OUT, input=held, output=y, op="y")
    image = boot(b.blob(), EDGE)
    record = image.program.tensors[t]
    elements, whole = np.zeros(EDGE.sram_bytes, bool), np.zeros(EDGE.sram_bytes, np.uint8)
    elements[addresses(record)[..., None] + np.arange(record.dtype.size)] = True
    geometry_of(record).view(whole, record.base).fill(-1)
    pieces = Pieces(image)
    assert (mask(pieces, pieces.elements(t)) == elements).all()
    if record.dtype is DType.I8:
        assert (mask(pieces, pieces.spare(t)) == (whole.astype(bool) & ~elements)).all()


def mask(pieces: Pieces, found: Indices) -> NDArray[np.bool_]:
    covered = np.zeros(EDGE.sram_bytes, bool)
    for piece in found:
        extent = pieces.extent(np.array([piece]))
        assert not covered[extent.first : extent.end].any()
        covered[extent.first : extent.end] = True
    return covered
