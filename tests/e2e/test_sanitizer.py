"""The sanitizer names planted faults and nothing else; legal orders of units give equal bits."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import npuc
from npuabi.errors import AbiError
from npuabi.target import load_target, target_names
from npuc.driver import Compilation
from npufw.boot import Image, boot, device_of
from npufw.cli import main as npufw
from npufw.engine import Engine
from npufw.sanitize import sanitize, sanitize_blob
from npufw.sanitize_findings import Findings
from npufw.selftest import generated_inputs
from tests.compiled import built, same
from tests.hazards import shuffled_events
from tests.mutations import MUTATIONS
from tests.plant import Mutation, Plant, planted

MODELS = Path(__file__).parents[2] / "models"
EDGE = load_target("edge")
SMALL = ("conv_bn_relu", "digits", "ds_cnn", "resnet8")


@cache
def compiled(model: str, target: str = "edge", **options: Any) -> Compilation:
    return npuc.compile(MODELS / f"{model}.txt", target=target, **options)


def image_of(model: str, **options: Any) -> Image:
    made = compiled(model, **options)
    return boot(made.blob, device_of(made.blob, None))


# --- nothing where nothing is ------------------------------------------------------------------


@pytest.mark.parametrize("level", [0, 3])
@pytest.mark.parametrize("target", target_names())
def test_nothing_is_found_in_models(target: str, level: int) -> None:
    for model in ("conv_bn_relu", "digits"):
        assert list(sanitize(image_of(model, target=target, level=level)).lines()) == []


@pytest.mark.parametrize("precision", ["int8", "int16", "fp16"])
@pytest.mark.parametrize("model", SMALL)
def test_nothing_is_found_in_any_precision(model: str, precision: str) -> None:
    assert list(sanitize(image_of(model, precision=precision)).lines()) == []


# --- planted faults ----------------------------------------------------------------------------


def plants() -> list[tuple[str, Mutation]]:
    return [(model, mutation) for mutation in MUTATIONS for model in ("digits", "tight")]


@cache
def program(model: str) -> Image:
    if model == "digits":
        return image_of("digits")
    return image_of("conv_bn_relu", sram_limit_kib=16)


def test_thirty_kinds_of_faults_are_planted() -> None:
    names = {mutation.name for mutation in MUTATIONS}
    assert len(names) == len(MUTATIONS) >= 30
    for mutation in MUTATIONS:
        assert any(list(planted(mutation, program(m), Random(1), 1)) for m in ("digits", "tight"))


@pytest.mark.parametrize(
    ("model", "mutation"), plants(), ids=lambda v: v if isinstance(v, str) else v.name
)
def test_a_planted_fault_is_named(model: str, mutation: Mutation) -> None:
    for plant in planted(mutation, program(model), Random(mutation.name), 2):
        words, ops = verdict(plant)
        assert words & mutation.expected, f"{mutation.name}: {words} of {mutation.expected}"
        assert ops is None or ops & plant.ops


def verdict(plant: Plant) -> tuple[set[str], set[int] | None]:
    """Return the words of what is found or refused, and the ops that findings name."""
    try:
        blob = plant.blob()
        findings = sanitize_blob(blob, plant.image.target)
    except AbiError as error:
        return {error.code.name.lower()}, None
    words = {finding.kind.word for finding in findings.kept}
    words |= {w for f in findings.kept for w in f.text.replace(")", "(").split("(")}
    return words, named(findings)


def named(findings: Findings) -> set[int] | None:
    steps = findings.image.steps
    facts = [toa for finding in findings.as_list() for toa in finding["toas"]]
    return {steps[fact["ring"]].toa.op for fact in facts if fact["toa"] is not None} or None


def test_the_command_names_both_descriptors_their_ops_and_lines(tmp_path: Path) -> None:
    race = next(m for m in MUTATIONS if m.name == "dependency dropped")
    (plant,) = planted(race, program("digits"), Random(4), 1)
    bad, good = tmp_path / "bad.bin", tmp_path / "good.bin"
    bad.write_bytes(plant.blob())
    good.write_bytes(compiled("digits").blob)
    told = CliRunner().invoke(npufw, ["run", str(bad), "--sanitize", "--json"])
    assert told.exit_code == 1
    assert "Traceback" not in told.output
    finding = json.loads(told.stdout)["findings"][0]
    assert finding["kind"] == "race"
    assert len(finding["toas"]) == 2
    assert {t["file"] for t in finding["toas"]} == {"digits.txt"}
    fine = CliRunner().invoke(npufw, ["run", str(good), "--sanitize", "--json"])
    assert fine.exit_code == 0
    assert json.loads(fine.stdout)["findings"] == []


# --- every legal order -------------------------------------------------------------------------


@pytest.mark.parametrize("model", SMALL)
def test_shuffled_units_change_no_output_of_a_model(model: str) -> None:
    image = image_of(model)
    inputs = generated_inputs(image)
    expected = Engine(image).run(inputs)
    for seed in range(2):
        events = shuffled_events(image, Random(seed))
        given = Engine(image, events=events).run(inputs)
        assert all(np.array_equal(given[name], array) for name, array in expected.items())


@pytest.mark.parametrize("seed", range(4000, 4012))
def test_a_random_graph_is_sound_and_any_order_of_its_units_gives_its_outputs(seed: int) -> None:
    found = built(seed)
    assert list(sanitize(found.image).lines()) == []
    expected = found.run()
    for order in range(2):
        events = shuffled_events(found.image, Random(order))
        assert same(Engine(found.image, events=events).run(found.case.inputs), expected)
