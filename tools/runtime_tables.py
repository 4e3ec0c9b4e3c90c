"""The runtime's tables and diagrams, derived from its declarations."""

from __future__ import annotations

from collections.abc import Callable

from npuabi.markdown import table
from npurt.lifecycle import OWNERS, TRANSITIONS, State

__all__ = ["RUNTIME_REGIONS"]


def _alias(state: State) -> str:
    return state.value.replace("-", "_").replace(" ", "_")


def _diagram() -> str:
    lines = [f'    state "{state} ({OWNERS[state]})" as {_alias(state)}' for state in State]
    lines += [f"    [*] --> {_alias(State.HOST_OWNED)}: an input is made"]
    lines += [f"    [*] --> {_alias(State.QUEUED)}: outputs are made"]
    lines += [
        f"    {_alias(row.source)} --> {_alias(row.target)}: {row.step} ({row.by})"
        for row in TRANSITIONS
    ]
    lines += [f"    {_alias(State.RELEASED)} --> [*]"]
    return "\n".join(["```mermaid", "stateDiagram-v2", *lines, "```"])


def _steps() -> str:
    rows = [
        (row.source, OWNERS[row.source], row.step, row.by, row.target, row.meaning)
        for row in TRANSITIONS
    ]
    return table(["state", "owner", "step", "taken by", "to", "what it is"], rows)


RUNTIME_REGIONS: dict[str, Callable[[], str]] = {
    "lifecycle-diagram": _diagram,
    "lifecycle-steps": _steps,
}
