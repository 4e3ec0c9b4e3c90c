"""The runtime's tables and diagrams, derived from its declarations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from statistics import fmean

from npuabi.markdown import table
from npurt.bench import NAIVE_CLIENTS
from npurt.board import Board, naive_clients, service
from npurt.clients import Clients, simulate_clients
from npurt.lifecycle import OWNERS, TRANSITIONS, State
from npurt.scenario import KEYS

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


_WHERE = {
    "scenario": "top",
    "machine": "`[machine]`",
    "policy": "`[policy]`",
    "model": "`[[model]]`",
    "client": "`[[client]]`",
    **{kind: f'`arrivals = "{kind}"`' for kind in ("closed", "periodic", "poisson", "burst")},
    **{kind: f'`kind = "{kind}"`' for kind in ("heat", "job", "core", "stall")},
}


def _scenario_keys() -> str:
    rows = [
        (
            _WHERE[kind],
            f"`{name}`",
            "must be there" if key.default is None else f"{key.default:g}",
            f"{key.low:g} to {key.high:g}{', whole' if key.whole else ''}",
            key.help,
        )
        for kind, keys in KEYS.items()
        for name, key in keys.items()
    ]
    return table(["in", "key", "default", "range", "what"], rows)


_MISTAKES_US = 20_000_000
"""Emulated time that is enough: what a client does repeats within a second."""


def _mistakes() -> str:
    board = Board()
    all_wrong = naive_clients(board, NAIVE_CLIENTS)
    three = replace(all_wrong, count=3)
    rows = [
        ("all five mistakes", *_rates(board, all_wrong)),
        ("... but one model for all threads", *_rates(board, replace(all_wrong, fits=None))),
        ("... but an input buffer each", *_rates(board, replace(all_wrong, shared_buffer=False))),
        ("... but three threads", *_rates(board, three)),
        ("too many threads, and nothing else", *_rates(board, _mended(all_wrong))),
        ("no mistake, three threads of one's own", *_rates(board, _mended(three))),
    ]
    served = service(board, NAIVE_CLIENTS, _MISTAKES_US)
    rows.append(("the service", f"{served.images_per_s:.1f}", f"{served.mean_ms:.0f}"))
    return table(["eight clients", "images/s", "mean ms"], rows)


def _mended(clients: Clients) -> Clients:
    return replace(clients, shared_buffer=False, fits=None, leak_bytes=0)


def _rates(board: Board, clients: Clients) -> tuple[str, str]:
    found = simulate_clients(board.machine, clients, _MISTAKES_US).responses
    mean_ms = fmean(response.latency_us for response in found) / 1e3
    return f"{len(found) / _MISTAKES_US * 1e6:.1f}", f"{mean_ms:.0f}"


RUNTIME_REGIONS: dict[str, Callable[[], str]] = {
    "lifecycle-diagram": _diagram,
    "lifecycle-steps": _steps,
    "naive-mistakes": _mistakes,
    "scenario-keys": _scenario_keys,
}
