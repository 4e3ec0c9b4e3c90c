"""Fault specs: every model's text comes back, files say the same, and what is wrong is named."""

from __future__ import annotations

import shlex
from pathlib import Path

import numpy as np
import pytest

from npuabi.errors import ErrorCode
from npufw.errors import FirmwareError
from npufw.fault_models import MODELS
from npufw.fault_models.draws import Source
from npufw.fault_models.spec import read_faults
from npufw.fault_plan import plan_of
from npufw.gates.subject import load_subject


@pytest.mark.parametrize("name", MODELS)
def test_a_models_example_comes_back_from_its_text_and_fits_digits(name: str) -> None:
    (fault,) = read_faults([MODELS[name].example])
    (again,) = read_faults([str(fault)])
    assert again == fault
    assert list(fault.values) == [field.name for field in MODELS[name].fields]
    fault.hook(load_subject().image)


def test_a_file_says_what_the_short_form_says(tmp_path: Path) -> None:
    file = tmp_path / "faults.toml"
    file.write_text(
        '[[fault]]\nmodel = "flips"\nrate = 1e-6\nseed = 7\n'
        '[[fault]]\nmodel = "ddr-read"\nnth = 3\nforever = true\n'
    )
    short = read_faults(["flips:rate=1e-6,seed=7", "ddr-read:nth=3,forever=yes"])
    assert read_faults([str(file)]) == short


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ("flops", "there is no model 'flops': expected one of flips, flip"),
        ("flips", "rate is missing: number, 0 to 1"),
        ("flips:rate=2", "rate is '2': expected number, 0 to 1"),
        ("flips:rate=nan", "rate is 'nan'"),
        ("flips:rate=x", "rate is 'x'"),
        ("flips:rate=0.1,rate=0.2", "rate is given twice"),
        ("flips:rate", "'rate' is no field=value"),
        ("flips:rate=1,sped=3", "flips has no field 'sped': expected rate, space"),
        ("flip:region=everything", "region is 'everything': expected weights, activations"),
        ("flip:region=weights,bits=0", "bits is '0': expected whole number, 1 to 4096"),
        ("flip:region=weights,seed=-1", "seed is '-1': expected whole number from 0"),
        ("ddr-read:nth=1.5", "nth is '1.5'"),
        ("ddr-read:nth=1,forever=maybe", "forever is 'maybe': expected yes, no"),
        ("none.toml", "cannot be read"),
        ("heat:celsius=151", "celsius is '151': expected number, -55 to 150 degC"),
    ],
)
def test_a_wrong_spec_is_named_with_what_was_expected(spec: str, text: str) -> None:
    with pytest.raises(FirmwareError) as refused:
        read_faults([spec])
    assert refused.value.code is ErrorCode.FAULT_SPEC
    assert text in str(refused.value)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("[[fault]\n", "no TOML"),
        ("fault = 3\n", "expected [[fault]] tables"),
        ("[[fault]]\nrate = 1.0\n", "there is no model"),
        ('[[fault]]\nmodel = "flips"\nrate = true\n', "rate is True"),
        ("[[fault]]\nmodel = 'flips'\nrate = 0.1\n[more]\n", "and nothing else"),
        ("fault = []\n", "expected [[fault]] tables"),
        ("[[fault]]\nmodel = 'flips'\nrate = 1" + "0" * 400, "expected number, 0 to 1"),
        ("[[fault]]\nmodel = 'flips'\nrate = 1" + "0" * 5000, "no TOML"),
        ("[[fault]]\nmodel = 'flips'\nrate = 0x1" + "0" * 5000, "rate is a number too long"),
        ("a = " + "[" * 5000, "no TOML: nested too deeply"),
        ("a" + ".a" * 50_000 + " = 1", "no TOML: line 1 has more than 64 dots"),
        ("[[fault]]\nmodel = 'heat'\nmode = 'trace'\nfile = 'a,b'", "a comma begins the next"),
    ],
)
def test_a_wrong_file_is_named_with_what_was_expected(
    content: str, text: str, tmp_path: Path
) -> None:
    file = tmp_path / "f.toml"
    file.write_text(content)
    with pytest.raises(FirmwareError, match="--fault") as refused:
        read_faults([str(file)])
    assert text in str(refused.value)


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ("stuck-bank:bank=16", "bank is 16: edge has banks 0 to 15"),
        ("stuck-bank:bank=1,row=1024", "row is 1024: a bank has rows 0 to 1023"),
        ("flip:region=weights,op=nobody", "the program has no weights of 'nobody'"),
        ("flips:rate=0.1,op=nobody", "nothing in sram is all of 'nobody'"),
    ],
)
def test_a_spec_that_does_not_fit_the_program_is_refused(spec: str, text: str) -> None:
    (fault,) = read_faults([spec])
    with pytest.raises(FirmwareError) as refused:
        fault.hook(load_subject().image)
    assert text in str(refused.value)


def test_hits_come_at_their_rate_and_from_their_seed() -> None:
    for rate in (0.0, 1e-6, 1e-3, 0.3, 1.0):
        count = 200_000
        found = Source(5).hits(count, rate)
        np.testing.assert_array_equal(found, Source(5).hits(count, rate))
        assert len(set(found.tolist())) == len(found)
        assert abs(len(found) - count * rate) <= 6 * np.sqrt(count * rate * (1 - rate)) + 1e-9
    assert Source(5).hits(100, 0.5).tolist() != Source(6).hits(100, 0.5).tolist()


def test_a_bell_has_mean_0_and_deviation_1() -> None:
    drawn = Source(1).bell(100_000)
    assert abs(drawn.mean()) < 0.02
    assert abs(drawn.std() - 1) < 0.01


@pytest.mark.parametrize(
    ("specs", "text"),
    [
        (["heat:celsius=25", "heat:celsius=110"], "heat is given 2 times: a chip has one"),
        (["die:seed=1", "die:seed=1"], "die is given 2 times"),
        (["heat", "sensor:start=1", "sensor:start=2"], "sensor is given 2 times"),
        (["sensor:fault=nan"], "sensor: does nothing without --fault heat"),
        (["fuse:bit=9"], "fuse: does nothing without --die"),
        (["fuse-read:nth=1"], "fuse-read: does nothing without --die"),
    ],
)
def test_faults_of_which_one_would_be_left_out_are_refused(specs: list[str], text: str) -> None:
    """Of two temperatures the reloader would read one, and the other go on unseen."""
    with pytest.raises(FirmwareError, match=text):
        plan_of(specs, [])


def test_what_replays_a_plan_has_every_option_as_a_shell_takes_it() -> None:
    specs = ["heat:mode=trace,file=a trace.toml", "die:seed=3"]
    plan = plan_of(specs, ["ripple"], "die 3.fuses")
    words = shlex.split(plan.replay())
    given = [words[i + 1] for i, word in enumerate(words) if word == "--fault"]
    assert plan_of(given, ["ripple"], words[-1]) == plan
    assert words[-4:] == ["--without", "ripple", "--die", "die 3.fuses"]


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ("flips:rate=1e-5,space=ddr,op=r4", "in ddr all is hit"),
        ("flips:rate=1e-5,space=ddr,region=weights", "in ddr all is hit"),
        ("heat:mode=trace", "mode trace needs file"),
    ],
)
def test_a_field_that_would_be_ignored_is_refused(spec: str, text: str) -> None:
    (fault,) = read_faults([spec])
    with pytest.raises(FirmwareError, match=text):
        fault.hook(load_subject().image)
