"""Scenario files: what each key may be, and that anything else is refused in one clear sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from npurt.errors import ScenarioError
from npurt.scenario import KEYS, load_scenario, parse_scenario

MODEL = '[[model]]\nname = "m"\nrun_ms = 10\n'
CLIENT = '[[client]]\nmodel = "m"\narrivals = "closed"\n'
START = "duration_s = 1\n"

HEADS = {
    "scenario": START + "{key}\n" + MODEL + CLIENT,
    "machine": START + "[machine]\n{key}\n" + MODEL + CLIENT,
    "policy": START + "[policy]\n{key}\n" + MODEL + CLIENT,
    "model": START + '[[model]]\nname = "m"\n{key}\n' + CLIENT,
    "client": START + MODEL + CLIENT + "{key}\n",
    **{
        kind: START + MODEL + f'[[client]]\nmodel = "m"\narrivals = "{kind}"\n' + "{key}\n"
        for kind in ("closed", "periodic", "poisson", "burst")
    },
    **{
        kind: START + MODEL + CLIENT + f'[[fault]]\nat_s = 0\nkind = "{kind}"\n' + "{key}\n"
        for kind in ("heat", "job", "core", "stall")
    },
}
"""A scenario that is right but for the table of that name, which gets one key."""

NUMBERS = [(kind, name) for kind, keys in KEYS.items() for name in keys]
WRONG = (
    "true",
    '"3"',
    "nan",
    "inf",
    "-inf",
    "-1",
    "1e300",
    "[1]",
    "{}",
    "1979-05-27",
    "0x" + "f" * 9000,
)


def scenario_with(kind: str, name: str, value: str) -> str:
    """Return a scenario whose key *name* of table *kind* is *value*; its siblings are right."""
    siblings = [
        f"{other} = {max(2, key.low):g}"
        for other, key in KEYS[kind].items()
        if key.default is None and other != name
    ]
    if kind == "scenario" and name == "duration_s":
        return f"duration_s = {value}\n" + MODEL + CLIENT
    lines = [f"{name} = {value}", *siblings] if kind != "scenario" else [f"{name} = {value}"]
    return HEADS[kind].replace("{key}", "\n".join(lines))


def refused(text: str) -> str:
    with pytest.raises(ScenarioError) as caught:
        parse_scenario(text)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 300
    return message


@pytest.mark.parametrize(("kind", "name"), NUMBERS)
def test_a_number_has_a_type_and_a_range_and_the_message_names_both(kind: str, name: str) -> None:
    key = KEYS[kind][name]
    parse_scenario(scenario_with(kind, name, f"{max(key.low, min(key.high, 2)):g}"))
    for value in (*WRONG, *(["1.5"] if key.whole else [])):
        message = refused(scenario_with(kind, name, value))
        assert f"{name} ({key.help}) is a" in message
        assert f"from {key.low:g} to {key.high:g}, got " in message


@pytest.mark.parametrize(("kind", "name"), [n for n in NUMBERS if KEYS[n[0]][n[1]].default is None])
def test_a_number_without_a_default_must_be_there(kind: str, name: str) -> None:
    text = scenario_with(kind, name, "1").replace(f"{name} = 1\n", "", 1)
    assert f"{name} is missing: {KEYS[kind][name].help}" in refused(text)


@pytest.mark.parametrize("kind", [kind for kind in KEYS if kind != "scenario"])
def test_an_unknown_key_is_refused_with_those_that_there_are(kind: str) -> None:
    message = refused(scenario_with(kind, "run_sm", "1"))
    assert "unknown key 'run_sm'" in message
    assert all(name in message for name in KEYS[kind])


PLACES = {
    "what = 1\n" + START: "unknown key 'what'; there are seed, duration_s, [machine], ",
    START: "there is no [[client]]",
    START + MODEL: "there is no [[client]]",
    START + CLIENT: "[[client]] 1: model is no model",
    START + MODEL + '[[client]]\nmodel = "n"\n': "[[client]] 1: model is m, got 'n'",
    START
    + MODEL
    + CLIENT
    + '[[client]]\nmodel = "m"\n': "[[client]] 2: arrivals is missing: closed or",
    START + MODEL + CLIENT + "[[fault]]\nat_s = 1\n": "[[fault]] 1: kind is missing: heat or",
    START + MODEL + MODEL + CLIENT: "[[model]] 2: a second model 'm'",
    START + "[[model]]\nname = 5\n": "[[model]] 1: name is a name in quotes, got 5",
    START + MODEL + "ddr_ms = 11\n" + CLIENT: "ddr_ms is a part of run_ms",
    START + "machine = 3\n": "[machine] is a table, got 3",
    START + "[model]\n": "[[model]] is a list of tables, got {}",
    START + MODEL + CLIENT + "cores = [3]\n": "[[client]] 1: cores is a list of 0 to 2, got [3]",
    START + MODEL + CLIENT + "cores = []\n": "cores is a list of 0 to 2, got []",
    START + MODEL + CLIENT + "cores = [true]\n": "cores is a list of 0 to 2, got [True]",
    START + MODEL + CLIENT + "cores = [0x" + "f" * 9000 + "]\n": "cores is a list of 0 to 2, got",
    START
    + MODEL
    + CLIENT
    + '[[fault]]\nkind = "core"\nat_s = 0\ncore = 3\n': "core is 0 to 2, got 3",
    START
    + '[[model]]\nname = "m"\nblob = "../m.bin"\n'
    + CLIENT: "lies outside the scenario's folder",
    START
    + '[[model]]\nname = "m"\nblob = "/m.bin"\n'
    + CLIENT: "lies outside the scenario's folder",
    START
    + '[[model]]\nname = "m"\nblob = "m.bin"\nrun_ms = 1\n': "there is only name, got 'run_ms'",
    START + "[[client]]\n" * 1001: "at most 1000 [[client]], got 1001",
    "a = " + "[" * 100_000: "this is no TOML",
    "a = " + "9" * 9_000: "this is no TOML",
    "duration_s = 1\nduration_s = 2": "this is no TOML",
    "\0": "this is no TOML",
}


@pytest.mark.parametrize("number", range(len(PLACES)))
def test_what_else_is_wrong_is_named_with_its_place(number: int) -> None:
    text, message = list(PLACES.items())[number]
    assert message in refused(text)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"\xff\xfe\x00", "a scenario is UTF-8 text"),
        (b"#" * ((1 << 20) + 1), "a scenario has at most 1048576 bytes"),
        (b"duration_s = 0", "duration_s (emulated time) is a number from 0.001"),
        (b"", "duration_s is missing: emulated time"),
    ],
)
def test_a_file_that_is_no_scenario_is_named(raw: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "load.toml"
    path.write_bytes(raw)
    with pytest.raises(ScenarioError, match=r"load\.toml: ") as caught:
        load_scenario(str(path))
    assert message in str(caught.value)


def test_a_model_may_be_a_blob_and_costs_what_its_cycle_model_says(tmp_path: Path) -> None:
    golden = Path(__file__).parents[2] / "golden" / "abi-0.1" / "conv_bn_relu.bin"
    (tmp_path / "m.bin").write_bytes(golden.read_bytes())
    text = START + '[[model]]\nname = "m"\nblob = "m.bin"\n' + CLIENT
    model = parse_scenario(text, tmp_path).models["m"]
    assert 0 < model.work.ddr_us <= model.work.alone_us
    assert 0 < model.descriptor_us <= model.work.alone_us


def test_times_are_in_microseconds_and_rates_are_not() -> None:
    client = '[[client]]\nmodel = "m"\narrivals = "poisson"\nrate_per_s = 3\ndeadline_ms = 2\n'
    made = parse_scenario("seed = 9\nduration_s = 2\n" + MODEL + client)
    assert (made.seed, made.duration_us) == (9, 2e6)
    assert made.models["m"].work.alone_us == 10_000
    assert made.clients[0].values["rate_per_s"] == 3
    assert made.clients[0].values["deadline_ms"] == 2000
