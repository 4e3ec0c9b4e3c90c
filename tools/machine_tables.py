"""The machine's reference tables, derived from its declarations: targets, opcodes, rules.

Invariant: nothing is stated here that the code states; each function walks one declaration and
returns Markdown.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable
from dataclasses import fields
from enum import IntEnum

from npuabi.enums import DType, Layout, Opcode
from npuabi.geometry import Geometry
from npuabi.markdown import cleaned, table
from npuabi.target import Target, load_target, target_names
from npufw.interface_rules import INTERFACE_RULES
from npufw.kernels import KERNELS
from npufw.kernels.base import OPERANDS, Kernel, OperandRule
from npufw.sanitize_findings import Kind
from npufw.tensor_rules import TENSOR_RULES
from npufw.toa_rules import TOA_RULES

__all__ = ["MACHINE_REGIONS"]

_KERNEL_NAMES = re.compile(r"^[A-Z_]+(?: and [A-Z_]+)?:? ")


def _targets() -> str:
    loaded = [load_target(name) for name in target_names()]
    keys = [f.name for f in fields(Target) if f.name != "name"]
    rows = [(f"`{key}`", *(getattr(t, key) for t in loaded)) for key in keys]
    rows += [
        ("bytes of SRAM a core", *(f"{t.sram_bytes:,}" for t in loaded)),
        ("int8 MACs a cycle and core", *(t.peak_macs_per_cycle for t in loaded)),
    ]
    return table(["", *(f"`{t.name}`" for t in loaded)], rows)


def _names(members: Iterable[IntEnum]) -> str:
    return ", ".join(f"`{m.name.lower()}`" for m in sorted(members))


def _opcodes() -> str:
    rows = [
        (
            opcode.value,
            f"`{opcode.name}`",
            _names([kernel.unit]),
            _operands(kernel),
            _names(kernel.modes),
            _names(kernel.precisions),
        )
        for opcode, kernel in ((opcode, KERNELS[opcode]) for opcode in Opcode)
    ]
    titles = ["value", "opcode", "unit", "operands ([optional])", "mode", "precision register"]
    return table(titles, rows)


def _operands(kernel: Kernel) -> str:
    taken = [name for name in OPERANDS if name in kernel.required | kernel.optional]
    return ", ".join(name if name in kernel.required else f"[{name}]" for name in taken)


def _semantics() -> str:
    rows = []
    for opcode in Opcode:
        module = inspect.getmodule(KERNELS[opcode].run)
        text = cleaned(module.__doc__ if module else None).replace("\n\n", " ")
        text = _KERNEL_NAMES.sub("", text)
        rows.append((f"`{opcode.name}`", text[:1].upper() + text[1:]))
    return table(["opcode", "what it does"], rows)


def _operand_rules() -> str:
    rows = [
        (
            f"`{opcode.name}`",
            rule.name,
            "any" if rule.dtypes == frozenset(DType) else _names(rule.dtypes),
            _names(rule.layouts),
            "0" if rule.lane_zero else "any",
        )
        for opcode in Opcode
        for rule in KERNELS[opcode].rules
        if isinstance(rule, OperandRule)
    ]
    return table(["opcode", "operand", "dtype", "layout", "lane"], rows)


def _layouts() -> str:
    rows = []
    for layout in Layout:
        block = Geometry((1, 1, 1, 1), (0, 0, 0, 0), DType.I8, layout)
        inner = " x ".join(map(str, block.inner)) or "1"
        rows.append((layout.value, f"`{layout.name.lower()}`", inner, block.inner_bytes))
    return table(["value", "layout", "inner block, elements", "bytes of int8"], rows)


def _rules() -> str:
    groups = (
        ("each tensor", TENSOR_RULES),
        ("each input and output", INTERFACE_RULES),
        ("each TOA", TOA_RULES),
    )
    rows = [
        (word, ", ".join(f"`{rule.__name__.removeprefix('_')}`" for rule in rules))
        for word, rules in groups
    ]
    return table(["of", "rules, in this order"], rows)


def _kinds() -> str:
    return table(["finding", "what it is"], [(f"`{kind.word}`", kind.meaning) for kind in Kind])


MACHINE_REGIONS: dict[str, Callable[[], str]] = {
    "targets": _targets,
    "opcodes": _opcodes,
    "semantics": _semantics,
    "operand-rules": _operand_rules,
    "layouts": _layouts,
    "rules": _rules,
    "sanitizer-kinds": _kinds,
}
