"""The sanitizer finds nothing in sound programs, and what it passes runs the same in every order.

Legal orders of the units are drawn from the records alone (tests/orders.py). Random graphs are held
against it in test_random_graphs.py, models at all levels in test_model_levels.py, planted faults in
test_planted_faults.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pytest
from click.testing import CliRunner
from numpy.typing import NDArray

import npuc
from npuabi.enums import Space, ToaFlag
from npuabi.errors import AbiError
from npuabi.records import TensorDescriptor
from npuabi.target import load_target
from npufw.boot import Image, boot
from npufw.cli import main as npufw
from npufw.engine import Engine
from npufw.sanitize import sanitize
from npufw.selftest import generated_inputs
from tests.compiled import built, same
from tests.mutations import MUTATIONS
from tests.orders import orders
from tests.plant import Plant, planted

MODELS = Path(__file__).parents[2] / "models"
SMALL = ("conv_bn_relu", "digits", "ds_cnn", "resnet8")


@cache
def image_of(model: str, target: str = "edge", **options: Any) -> Image:
    made = npuc.compile(MODELS / f"{model}.txt", target=target, **options)
    return boot(made.blob, load_target(target))


@pytest.mark.parametrize("precision", ["int8", "int16", "fp16"])
@pytest.mark.parametrize("model", SMALL)
def test_nothing_is_found_in_any_precision(model: str, precision: str) -> None:
    assert list(sanitize(image_of(model, precision=precision)).lines()) == []


@pytest.mark.parametrize("precision", ["int8", "fp16"])
def test_an_op_may_read_one_tensor_in_two_ways(precision: str, tmp_path: Path) -> None:
    graph = tmp_path / "product.txt"
    graph.write_text(
        """graph @g(%x: tensor<1x17x14x1xf32>) {
          %r = relu(%x)
          %t = reshape(%r) {shape = [1, 17, 1, 14]}
          %y = matmul(%t, %r)
          return %y
        }""",
        encoding="utf-8",
    )
    made = npuc.compile(graph, target="tiny", precision=precision, calibrate="random", level=1)
    assert list(sanitize(boot(made.blob, made.target)).lines()) == []


def test_the_command_names_both_descriptors_their_ops_and_lines(tmp_path: Path) -> None:
    race = next(m for m in MUTATIONS if m.name == "dependency dropped")
    (plant,) = planted(race, image_of("digits"), Random(4), 1)
    bad, good = tmp_path / "bad.bin", tmp_path / "good.bin"
    bad.write_bytes(plant.blob())
    good.write_bytes(Plant(image_of("digits")).blob())
    told = CliRunner().invoke(npufw, ["run", str(bad), "--sanitize", "--json"])
    assert told.exit_code == 1
    assert "Traceback" not in told.output
    values = json.loads(told.stdout)
    assert values.keys() == {"schema", "findings", "dropped"}
    (finding,) = values["findings"]
    assert finding["kind"] == "race"
    assert len(finding["toas"]) == 2
    assert {t["file"] for t in finding["toas"]} == {"digits.txt"}
    assert told.stderr == (
        "error: sanitizer (0x49): the sanitizer found 1 race; see the findings; nothing was run\n"
    )
    lines = CliRunner().invoke(npufw, ["run", str(bad), "--sanitize"])
    assert (lines.exit_code, lines.stdout) == (1, f"race: {finding['text']}\n")
    fine = CliRunner().invoke(npufw, ["run", str(good), "--sanitize", "--json"])
    assert fine.exit_code == 0
    assert json.loads(fine.stdout)["findings"] == []
    assert "findings" not in json.loads(
        CliRunner().invoke(npufw, ["run", str(good), "--json"]).stdout
    )


# --- every legal order -------------------------------------------------------------------------


@pytest.mark.parametrize("model", SMALL)
def test_no_order_of_the_units_changes_an_output_of_a_model(model: str) -> None:
    image = image_of(model)
    inputs = generated_inputs(image)
    expected = Engine(image).run(inputs)
    for order in orders(image, 9, Random(model)):
        assert same(Engine(image, events=order).run(inputs), expected)


@pytest.mark.parametrize("seed", range(4000, 4016), ids="seed-{}".format)
def test_no_order_of_the_units_changes_an_output_of_a_random_graph(seed: int) -> None:
    found = built(seed, ops=5, target="tiny", sram_limit_kib=Random(seed).choice((4, 8, 16)))
    expected = found.run()
    for order in orders(found.image, 9, Random(seed)):
        assert same(Engine(found.image, events=order).run(found.case.inputs), expected)


# --- what is passed is deterministic -------------------------------------------------------------


def bent(image: Image, random: Random) -> Plant:
    """Change one record at random, by a little or by a lot."""
    plant = Plant(image)
    toa = random.randrange(len(plant.toas))
    operand = random.choice([i for i in range(5) if plant.tensor(toa, i) is not None])
    random.choice((moved, stretched, resized, hurried, pointed, swapped))(
        plant, toa, operand, random
    )
    return plant


def moved(plant: Plant, toa: int, operand: int, random: Random) -> None:
    by = random.choice((-64, -16, 16, 64, 256, 4096, plant.image.target.bank_bytes))
    plant.operand(toa, operand, base=max(0, record_of(plant, toa, operand).base + by))


def stretched(plant: Plant, toa: int, operand: int, random: Random) -> None:
    strides = list(record_of(plant, toa, operand).strides)
    dim = random.randrange(4)
    strides[dim] = max(0, strides[dim] + random.choice((-16, 16, 64)))
    plant.operand(toa, operand, strides=tuple(strides))


def resized(plant: Plant, toa: int, operand: int, random: Random) -> None:
    dims = list(record_of(plant, toa, operand).dims)
    dim = random.randrange(4)
    dims[dim] = max(1, dims[dim] + random.choice((-16, -1, 1, 16)))
    for each in (0, 4):
        plant.operand(toa, each, dims=tuple(dims))


def hurried(plant: Plant, toa: int, operand: int, random: Random) -> None:
    own, unit = plant.toas[toa], random.randrange(4)
    waits = tuple(max(0, n - (i == unit)) for i, n in enumerate(own.waits))
    flags = own.flags & ~(ToaFlag.WAIT_DMA_IN << unit) if random.random() < 0.5 else own.flags
    plant.change(toa, waits=waits, flags=flags)


def pointed(plant: Plant, toa: int, operand: int, random: Random) -> None:
    plant.point(toa, operand, random.randrange(len(plant.tensors)))


def swapped(plant: Plant, toa: int, operand: int, random: Random) -> None:
    place = random.randrange(len(plant.ring) - 1)
    plant.ring[place : place + 2] = plant.ring[place + 1], plant.ring[place]


def record_of(plant: Plant, toa: int, operand: int) -> TensorDescriptor:
    record = plant.tensor(toa, operand)
    assert record is not None
    return record


def outcomes(image: Image, inputs: dict[str, NDArray[Any]]) -> Iterator[object]:
    """Yield what comes out in several orders, over memories that hold other things at first."""
    fills = (0x00, 0x7F, 0x80, 0xFF)
    for number, order in enumerate(orders(image, 8, Random(1))):
        engine = Engine(image, events=order)
        for space in (Space.SRAM, Space.ARENA):
            engine.memory.spaces[space][...] = fills[number % len(fills)]
        try:
            yield [array.tobytes() for array in engine.run(inputs).values()]
        except AbiError as error:
            yield str(error)


@pytest.mark.parametrize("model", ["digits", "conv_bn_relu"])
def test_what_passes_gives_the_same_in_every_order_over_any_memory(model: str) -> None:
    image = image_of(model, target="tiny")
    random, passed, stopped = Random(7), 0, 0
    for _ in range(120):
        plant = bent(image, random)
        try:
            changed = boot(plant.blob(), image.target)
        except AbiError:
            continue
        if sanitize(changed).kept:
            stopped += 1
            continue
        passed += 1
        found = list(outcomes(changed, generated_inputs(image)))
        assert all(one == found[0] for one in found)
    # Enough of both, or the test would say nothing.
    assert min(passed, stopped) >= 15
