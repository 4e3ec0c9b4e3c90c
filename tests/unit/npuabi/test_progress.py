"""A progress bar is for people who wait at a terminal; all others see nothing."""

from __future__ import annotations

import io
import sys

import pytest

from npuabi.progress import progress_bar, silent


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def written(monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, after_s: float) -> str:
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    with progress_bar(after_s=after_s) as progress:
        progress("calibrate", 3, 8)
        progress("calibrate", 8, 8)
    return stream.getvalue()


def test_a_terminal_shows_the_step_and_its_count(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = written(monkeypatch, Terminal(), 0.0)
    assert "calibrate" in shown
    assert "8/8" in shown


def test_short_work_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert written(monkeypatch, Terminal(), 60.0) == ""


def test_a_pipe_gets_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert written(monkeypatch, io.StringIO(), 0.0) == ""
    with progress_bar() as progress:
        assert progress is silent
