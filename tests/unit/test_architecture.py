"""Who may import whom, what may be imported at all, and how large a file may grow."""

from __future__ import annotations

import ast
import importlib
import re
import sys
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = {"npuabi": "firmware", "npuc": "compiler", "npufw": "firmware", "npurt": "runtime"}
MAY_IMPORT = {
    "npuabi": set[str](),
    "npuc": {"npuabi"},
    "npufw": {"npuabi"},
    "npurt": {"npuabi", "npufw"},
}
MAY_ALSO = {"compiler/npuc/check/device.py": {"npufw"}}
"""The two levels that ``npuc check`` runs on the device; the compiler library never does."""
FOLDERS = {"compiler", "firmware", "runtime"}
DEPENDENCIES = {"click", "construct", "lark", "numpy", "rich"}
EXTRAS = {"ai_edge_litert", "flatbuffers", "onnx", "onnxruntime", "sklearn"}
FILE_LINES = 600
FUNCTION_LINES = 60


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def _files(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def _modules(package: str) -> list[Path]:
    return _files(f"{PACKAGES[package]}/{package}")


def _imports(nodes: Iterator[ast.AST]) -> set[str]:
    """Return the top-level names that the import statements among *nodes* import."""
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.split(".")[0])
    return names


def _parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _outside_functions(tree: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(tree):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield child
            yield from _outside_functions(child)


def _exported(tree: ast.Module) -> list[str] | None:
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return list(ast.literal_eval(node.value))
    return None


def _order(name: str) -> tuple[int, list[tuple[int, str]]]:
    """Sort CONSTANTS, then Classes, then functions; digits by value."""
    kind = 0 if name.isupper() and len(name) > 1 else 1 if name[:1].isupper() else 2
    parts = re.findall(r"\d+|\D+", name)
    return kind, [(int(part), "") if part.isdigit() else (-1, part) for part in parts]


ALL_FILES = _files("compiler", "firmware", "runtime", "tests", "tools")
MODULES = [path for package in PACKAGES for path in _modules(package)]


@pytest.mark.parametrize("package", PACKAGES)
def test_imports_point_one_way(package: str) -> None:
    allowed = MAY_IMPORT[package] | {package}
    modules = _modules(package)
    assert modules
    for path in modules:
        ours = _imports(ast.walk(_parse(path))) & (PACKAGES.keys() | {"npurt", "tools", "tests"})
        assert ours <= allowed | MAY_ALSO.get(_name(path), set()), _name(path)


def test_the_exceptions_are_used() -> None:
    for name, packages in MAY_ALSO.items():
        assert packages <= _imports(ast.walk(_parse(ROOT / name)))


@pytest.mark.parametrize("path", ALL_FILES, ids=_name)
def test_no_file_imports_through_a_folder_name(path: Path) -> None:
    assert not _imports(ast.walk(_parse(path))) & FOLDERS


@pytest.mark.parametrize("path", MODULES, ids=_name)
def test_packages_import_only_what_they_declare(path: Path) -> None:
    allowed = sys.stdlib_module_names | DEPENDENCIES | PACKAGES.keys()
    assert _imports(_outside_functions(_parse(path))) <= allowed


@pytest.mark.parametrize("path", ALL_FILES, ids=_name)
def test_no_file_needs_an_extra_to_be_imported(path: Path) -> None:
    assert not _imports(_outside_functions(_parse(path))) & EXTRAS


@pytest.mark.parametrize("path", MODULES, ids=_name)
def test_every_module_says_what_it_is_for(path: Path) -> None:
    assert ast.get_docstring(_parse(path))


@pytest.mark.parametrize("path", MODULES, ids=_name)
def test_all_is_there_sorted_and_truthful(path: Path) -> None:
    tree = _parse(path)
    exported = _exported(tree)
    if exported is None:
        defined = [n for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef)]
        assert not defined or path.name == "__main__.py", "definitions without __all__"
        return
    assert exported == sorted(set(exported), key=_order)
    module = importlib.import_module(_module_name(path))
    missing = [name for name in exported if not hasattr(module, name)]
    assert not missing


def _module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts[1:]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@pytest.mark.parametrize("path", ALL_FILES, ids=_name)
def test_files_stay_short(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= FILE_LINES


@pytest.mark.parametrize("path", ALL_FILES, ids=_name)
def test_functions_stay_short(path: Path) -> None:
    for node in ast.walk(_parse(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            assert node.end_lineno - node.lineno < FUNCTION_LINES, node.name


def test_no_module_imports_itself_in_a_circle() -> None:
    modules = {_module_name(path): path for path in MODULES}
    waiting = {name: _needs(name, path, modules) for name, path in modules.items()}
    while outside := [name for name in waiting if not _is_between(name, waiting)]:
        for name in outside:
            del waiting[name]
    assert sorted(waiting) == []


def _is_between(name: str, waiting: dict[str, set[str]]) -> bool:
    """Return whether the module needs some of *waiting*, and some of them need it."""
    needed = any(name in needs for needs in waiting.values())
    return needed and bool(waiting[name] & waiting.keys())


def _needs(name: str, path: Path, known: Collection[str]) -> set[str]:
    """Return the *known* modules that are run when module *name* is imported first."""
    found: set[str] = set()
    for node in _outside_functions(_parse(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    packages = {package for module in found for package in _packages(module)}
    return (found | packages) & set(known) - {name, *_packages(name)}


def _packages(module: str) -> list[str]:
    """Return the packages around a module: those of a.b.c are a and a.b."""
    parts = module.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts))]


def test_every_extra_that_is_forbidden_at_the_top_is_declared() -> None:
    declared = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    names = {"sklearn": "scikit-learn"}
    for extra in EXTRAS:
        assert f'"{names.get(extra, extra.replace("_", "-"))}>=' in declared


def test_packages_state_one_version() -> None:
    (version,) = {importlib.import_module(package).__version__ for package in PACKAGES}
    assert re.fullmatch(r"\d+\.\d+\.\d+", version)
