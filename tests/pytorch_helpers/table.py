"""docs/pytorch_helpers.md as data: its rows by section, and the names that PyTorch's own source has."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "pytorch_helpers.md"
HEAD = ["helper", "what it does", "with stepscope", "proven by"]
TICKED = re.compile(r"`([^`]+)`")
TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


@dataclass(frozen=True)
class Row:
    section: str
    helper: str
    does: str
    here: str
    proof: str

    @property
    def names(self) -> list[str]:
        """What stands in backticks in the first column."""
        return TICKED.findall(self.helper)

    @property
    def tests(self) -> list[tuple[str, str]]:
        """Files and functions."""
        return TEST.findall(self.proof)


@cache
def sections() -> dict[str, str]:
    """The text below each heading; headings without their backticks."""
    parts = PAGE.read_text("utf-8").split("\n## ")[1:]
    return {title.replace("`", ""): text for title, _, text in (part.partition("\n") for part in parts)}


@cache
def rows() -> list[Row]:
    found = []
    for section, text in sections().items():
        for cells in map(_cells, text.splitlines()):
            if cells and cells != HEAD and set(cells[0]) != {"-"}:
                found.append(Row(section, *cells))
    return found


def _cells(line: str) -> list[str]:
    """Of a line of a table; empty for another line."""
    if not line.startswith("|"):
        return []
    return [cell.strip().replace(r"\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def named_in(section: str) -> set[str]:
    return {name for row in rows() if row.section == section for name in row.names}


def installed() -> Path:
    """The folder of the torch that is installed, which is not imported."""
    spec = find_spec("torch")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def source(module: str) -> ast.Module:
    """The parsed source of `torch/…`."""
    return ast.parse(installed().joinpath(module.removeprefix("torch/")).read_text("utf-8"))


def variables(folder: str, pattern: str) -> set[str]:
    """Environment variables that some module of `torch/…` reads and whose names hold `pattern`."""
    read = re.compile(r"""(?:environ(?:\.get)?|getenv)\s*[\[(]\s*["']([A-Z_]+)["']""")
    modules = installed().joinpath(folder.removeprefix("torch/")).rglob("*.py")
    names = {name for module in modules for name in read.findall(module.read_text("utf-8"))}
    return {name for name in names if re.search(pattern, name)}


def definitions(module: str, *, private: bool, members: bool = True) -> set[str]:
    """Functions, classes and constants of a module; with `members` the methods and constants of its classes, too."""
    found = set()
    for node in source(module).body:
        found |= set(_bound(node))
        if isinstance(node, ast.ClassDef) and members:
            found |= {f"{node.name}.{name}" for part in node.body for name in _bound(part)}
    return {name for name in found if not _is_dunder(name) and (private or not name.startswith("_"))}


def _bound(node: ast.AST) -> Iterator[str]:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield node.name
    elif isinstance(node, ast.Assign):
        yield from (target.id for target in node.targets if isinstance(target, ast.Name))
    elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        yield node.target.id


def _is_dunder(name: str) -> bool:
    return name.rpartition(".")[2].startswith("__")


def texts(module: str) -> set[str]:
    """Every text in a module's code, without its docstrings."""
    tree = source(module)
    kept = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    nodes = (node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in kept)
    return {node.value for node in nodes if isinstance(node.value, str)}


def settings(module: str, pattern: str) -> dict[str, set[str]]:
    """Settings whose name holds `pattern` -> the environment variables that set them; by dotted names."""
    return dict(_settings(source(module).body, "", re.compile(pattern)))


def _settings(body: list[ast.stmt], prefix: str, pattern: re.Pattern[str]) -> Iterator[tuple[str, set[str]]]:
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from _settings(node.body, f"{prefix}{node.name}.", pattern)
        for name in _bound(node) if isinstance(node, (ast.Assign, ast.AnnAssign)) else ():
            if pattern.search(name):
                yield prefix + name, set(re.findall(r"'([A-Z][A-Z_]{5,})'", ast.unparse(node)))
