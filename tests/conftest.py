"""Rules for all tests: where NPU_FORBID_SKIPS is set, as in .ci/run, a skipped test has failed."""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest

FORBIDDEN = bool(os.environ.get("NPU_FORBID_SKIPS"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.skipped and not hasattr(report, "wasxfail"):
        _fail(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    if report.skipped:
        _fail(report)
    return report


def _fail(report: pytest.TestReport | pytest.CollectReport) -> None:
    if FORBIDDEN:
        report.outcome = "failed"
        report.longrepr = f"skipped, which NPU_FORBID_SKIPS forbids: {report.longrepr}"
