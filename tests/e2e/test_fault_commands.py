"""Faults through the commands run, eval, selftest and faults; chapters 2 and 5 run their gates."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from npufw.cli import main

ROOT = Path(__file__).parents[2]
BLOB = ROOT / "firmware" / "npufw" / "gates" / "digits.bin"
DATA = ROOT / "firmware" / "npufw" / "gates" / "digits.npz"


def npufw(*arguments: object, code: int = 0) -> Any:
    """Return the JSON of a command, the text of its errors beside it under ``stderr``."""
    done = CliRunner().invoke(main, [*map(str, arguments), "--json"])
    assert done.exit_code == code, done.stderr
    return {**(json.loads(done.stdout) if done.stdout else {}), "stderr": done.stderr}


def test_a_repaired_run_gives_the_outputs_of_a_plain_one_and_its_surcharge_apart() -> None:
    plain = npufw("run", BLOB)
    assert (plain["events"], plain["faults"], plain["surcharge"]) == ([], [], {})
    hit = npufw("run", BLOB, "--fault", "flip:region=weights,op=r4,seed=3")
    assert hit["outputs"] == plain["outputs"]
    assert hit["cycles"] == plain["cycles"]
    assert [event["outcome"] for event in hit["events"]] == ["injected", "detected", "repaired"]
    assert set(hit["events"][0]) == {"kind", "outcome", "cycle", "text"}
    assert hit["surcharge"]["ripple"] > 0
    again = npufw("run", BLOB, "--fault", hit["faults"][0])
    assert (again["events"], again["faults"]) == (hit["events"], hit["faults"])


def test_a_refused_run_says_what_led_to_it_and_what_replays_it() -> None:
    found = npufw("run", BLOB, "--fault", "stuck-bank:bank=3,value=1", code=1)
    assert found["error"]["code"] == "activation_lost"
    assert found["faults"] == ["stuck-bank:bank=3,row=-1,value=1"]
    assert found["events"][-1]["outcome"] == "refused"
    assert found["stderr"].startswith("error: activation_lost (0x52): ")
    silent = npufw("run", BLOB, "--fault", found["faults"][0], "--without", "ripple")
    assert [event["outcome"] for event in silent["events"]] == ["injected"]
    assert silent["outputs"]["probabilities"]["max"] is None, "NaN is no JSON"


def test_eval_counts_refused_samples_apart() -> None:
    found = npufw("eval", BLOB, "--data", DATA, "--fault", "flips:rate=2e-5,seed=1")
    assert found["refused"] > 0
    assert found["top1"] == found["correct"] / (found["samples"] - found["refused"]) > 0.98
    outcomes = {event["outcome"] for event in found["events"]}
    assert outcomes == {"injected", "detected", "repaired", "refused"}


def test_every_report_has_what_was_healed_and_what_replays_it(tmp_path: Path) -> None:
    bent = bytearray(BLOB.read_bytes())
    bent[0x1100] ^= 4
    file = tmp_path / "bent.bin"
    file.write_bytes(bent)
    for command in (("run", file), ("eval", file, "--data", DATA), ("selftest", file)):
        found = npufw(*command, "--fault", "instruction:seed=0", code=int(command[0] == "selftest"))
        assert found["events"][0]["kind"] == "record_crc"
        assert found["faults"] == ["instruction:seed=0"]
    told = CliRunner().invoke(
        main, ["selftest", str(BLOB), "--fault", "check:nth=1", "--core", "2"]
    )
    assert "replay: --fault check:nth=1,forever=no --core 2\n" in told.stdout
    blank = tmp_path / "blank.fuses"
    blank.write_bytes(bytes(320))
    told = CliRunner().invoke(main, ["run", str(BLOB), "--die", str(blank)])
    assert "unity gain" in told.stdout
    assert f"replay: --die {blank}\n" in told.stdout
    assert npufw("run", BLOB, "--die", "", code=1)["stderr"].startswith("error: ")


def test_selftest_fails_on_a_bad_bank_and_faults_are_listed() -> None:
    spec = ("--fault", "stuck-bank:bank=3,value=1", "--without", "ripple")
    found = npufw("selftest", BLOB, *spec, code=1)
    assert not found["passed"]
    listed = npufw("faults")["models"]
    assert {"flips", "flip", "stuck-bank", "ddr-read", "camera"} <= {m["name"] for m in listed}
    (one,) = npufw("faults", "flips")["models"]
    assert [field["name"] for field in one["fields"]][:2] == ["rate", "space"]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("run", BLOB, "--fault", "flops"), "there is no model 'flops'"),
        (("run", BLOB, "--without", "rippel"), "--without rippel: there is "),
        (("faults", "flops"), "there is no model 'flops'"),
    ],
)
def test_a_wrong_spec_is_one_clear_error(arguments: tuple[object, ...], text: str) -> None:
    found = npufw(*arguments, code=1)
    assert text in found["stderr"]
    assert found["stderr"].count("\n") == 1
