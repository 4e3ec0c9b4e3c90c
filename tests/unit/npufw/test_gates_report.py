"""How gates are printed: figures with their units, verdicts, an exit code that tells."""

from __future__ import annotations

from typing import Any

import pytest
from click.testing import CliRunner

import npufw.gates
from npufw.cli import main
from npufw.gates.base import Figures, Gate, Shown
from npufw.gates.report import print_gate


def gate(*, passed: bool, figures: Figures | None = None) -> Gate:
    shown = Shown(undefended=figures or {}, defended={}, surcharge={}, passed=passed)
    return Gate(number=1, name="n", fault="f", defence="d", show=lambda subject, progress: shown)


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("wrong_share", 0.324, "wrong 32.4 %"),
        ("latency_ms", 15.0, "latency 15 ms"),
        ("added_cycles", 1234, "added 1,234 cycles"),
        ("lost_points", 3.25, "lost 3.25 points"),
        ("devices", 1000, "devices 1,000"),
        ("cycles", 7, "cycles 7"),
        ("verdict", "old", "verdict old"),
    ],
)
def test_a_figure_is_shown_with_its_unit(
    key: str, value: Any, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    made = gate(passed=True, figures={key: value})
    print_gate(made, made.show(None, None))  # type: ignore[arg-type]
    assert f"  without    {text}\n" in capsys.readouterr().out


@pytest.mark.parametrize("passed", [True, False])
def test_a_gate_that_does_not_hold_fails_the_command(
    passed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(npufw.gates, "GATES", (gate(passed=True), gate(passed=passed)))
    done = CliRunner().invoke(main, ["gates"])
    assert done.exit_code == int(not passed)
    assert ("FAIL" in done.output) is not passed
