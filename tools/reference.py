"""The compiler's reference tables, derived from its declarations: ops, passes, tasks, options.

Invariant: nothing is stated here that the code states; each function walks one declaration and
returns Markdown.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any

import click

from npuabi.markdown import sentence, table
from npuc.cli import main as npuc_main
from npuc.frontend import limits
from npuc.ir.core import REGISTRY
from npuc.npu.tasks import Task
from npuc.passes import GRAPH_PASSES, PIPELINE, npu_passes
from npuc.passes.manager import Pass
from npuc.passes.quantise import Quantise
from npuc.support_text import attribute_table
from npufw.cli import main as npufw_main

__all__ = ["COMPILER_REGIONS"]

# --- passes and tasks -------------------------------------------------------------------------


def _passes() -> str:
    rows = [(f"`{p.NAME}`", _level(p), sentence(_doc(p)), _options(p)) for p in PIPELINE]
    return table(["pass", "level", "what it does", "options"], rows)


def _level(kind: type[Pass]) -> str:
    if kind not in GRAPH_PASSES:
        return "L3"
    return "L1" if GRAPH_PASSES.index(kind) <= GRAPH_PASSES.index(Quantise) else "L2"


def _doc(kind: type[Pass]) -> str | None:
    module = inspect.getmodule(kind)
    return module.__doc__ if module else kind.__doc__


def _fields(thing: object) -> list[str]:
    return [f.name for f in fields(thing)] if is_dataclass(thing) else []


def _options(kind: type[Pass]) -> str:
    step = kind()
    return ", ".join(f"`{name} = {getattr(step, name)}`" for name in _fields(step))


def _levels() -> str:
    columns: dict[str, list[Any]] = {}
    for level in range(4):
        for step in npu_passes(level, 100):
            for name in _fields(step):
                column = columns.setdefault(f"`{step.NAME}.{name}`", [])
                column.append(getattr(step, name))
    shown = {name: values for name, values in columns.items() if len(set(values)) > 1}
    rows = [(f"`-O{level}`", *(v[level] for v in shown.values())) for level in range(4)]
    return table(["level", *shown], rows)


def _tasks() -> str:
    kinds = sorted((k for k in REGISTRY.values() if issubclass(k, Task)), key=lambda k: k.OPCODE)
    rows = [
        (
            f"`{kind.NAME}`",
            ", ".join(f"[{o.name}]" if o.optional else o.name for o in kind.OPERANDS),
            sentence(kind.__doc__),
        )
        for kind in kinds
    ]
    return table(["task", "operands ([optional])", "what it does"], rows)


# --- text and commands ------------------------------------------------------------------------

_LIMIT_WORDS = {
    "MAX_CONSTANT_ELEMENTS": "elements of one constant",
    "MAX_DIM": "a dim",
    "MAX_RANK": "dims of a type (the device has 4)",
    "MAX_TENSOR_ELEMENTS": "elements of a tensor",
    "MAX_TEXT_BYTES": "bytes of a graph text",
}


def _text_limits() -> str:
    rows = [(_LIMIT_WORDS[name], f"{getattr(limits, name):,}") for name in limits.__all__]
    return table(["of", "at most"], rows)


def _command(tool: str, group: click.Group, name: str) -> Callable[[], str]:
    def make() -> str:
        command = group.commands[name]
        context = click.Context(command)
        options = [p for p in command.params if isinstance(p, click.Option)]
        records = (option.get_help_record(context) for option in options)
        rows = [(f"`{record[0]}`", record[1]) for record in records if record]
        usage = " ".join([tool, name, *command.collect_usage_pieces(context)])
        return f"`{usage}`\n\n{table(['option', 'what it does'], rows)}"

    return make


def _commands(tool: str, group: click.Group) -> dict[str, Callable[[], str]]:
    """Return the makers of all commands of a group, and of the groups in it."""
    found: dict[str, Callable[[], str]] = {}
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            found |= _commands(f"{tool} {name}", command)
        else:
            found[f"{tool.replace(' ', '-')}-{name}"] = _command(tool, group, name)
    return found


COMPILER_REGIONS: dict[str, Callable[[], str]] = {
    "passes": _passes,
    "levels": _levels,
    "tasks": _tasks,
    "task-attributes": lambda: attribute_table(Task),
    "text-limits": _text_limits,
    **_commands("npuc", npuc_main),
    **_commands("npufw", npufw_main),
}
