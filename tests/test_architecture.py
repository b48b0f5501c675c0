"""The rules of the layout: which way imports go, what loads torch, how large a module may be."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
MAX_LINES = 450

# A module may import from its own layer and from layers before it.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("tracer._version", "tracer.ending_records", "tracer.memory_records", "tracer.value_records", "tracer.ring_format"),
    ("tracer.config", "tracer.records"),
    ("tracer.log_format",),
    ("tracer.log_writer", "tracer.launch_ring", "tracer.signals"),
    ("tracer.inductor", "tracer.runtime", "tracer.aoti"),
    ("tracer.recorder",),
    ("tracer",),
    ("tracer.autostart", "tracer.run", "tracer.crash_runs"),
)
DEFAULT_LAYER = 4
VIEWER_MAY_USE = {"tracer.records", "tracer.log_format", "tracer.ring_format", "tracer._version"}
VIEWER_JOINS = "viewer.cli"


def modules(package: str) -> Iterator[tuple[str, Path]]:
    for path in sorted((ROOT / package).rglob("*.py")):
        parts = list(path.relative_to(ROOT).with_suffix("").parts)
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


def is_module(name: str) -> bool:
    path = ROOT.joinpath(*name.split("."))
    return path.with_suffix(".py").exists() or (path / "__init__.py").exists()


def imports(name: str, path: Path) -> Iterator[str]:
    """The module that each import statement names, at any depth of the code."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                up = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*up, base] if base else up)
            for alias in node.names:
                full = f"{base}.{alias.name}"
                yield full if is_module(full) else base


def layer(name: str) -> int:
    """Where `name` stands; a module that no layer names belongs beside inductor and runtime."""
    found = [index for index, row in enumerate(LAYERS) if name in row]
    below = [index for index, row in enumerate(LAYERS) if name.startswith(tuple(f"{p}." for p in row if p != "tracer"))]
    return (found or below or [DEFAULT_LAYER])[0]


def test_tracer_imports_go_one_way() -> None:
    wrong = []
    for name, path in modules("tracer"):
        for imported in imports(name, path):
            if imported.split(".")[0] == "tracer" and is_module(imported) and layer(imported) > layer(name):
                wrong.append(f"{name} imports {imported}")
    assert not wrong


def test_tracer_does_not_know_the_viewer() -> None:
    wrong = [name for name, path in modules("tracer") for to in imports(name, path) if to.split(".")[0] == "viewer"]
    assert not wrong


def test_viewer_uses_only_the_schema_of_the_tracer() -> None:
    wrong = []
    for name, path in modules("viewer"):
        for imported in imports(name, path):
            top = imported.split(".")[0]
            if top == "torch" or (top == "tracer" and imported not in VIEWER_MAY_USE and name != VIEWER_JOINS):
                wrong.append(f"{name} imports {imported}")
    assert not wrong


@pytest.mark.parametrize("module", ["tracer", "tracer.autostart", "viewer.app", "viewer.cli"])
def test_import_loads_no_torch(module: str) -> None:
    if not is_module(module):
        pytest.skip(f"{module} does not exist yet")
    code = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def attribute_chain(node: ast.expr) -> str:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


def private_torch_names(name: str, path: Path) -> Iterator[str]:
    private = re.compile(r"torch\.(\w+\.)*_(?!_)")
    for imported in imports(name, path):
        if private.match(imported):
            yield imported
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Attribute) and private.match(attribute_chain(node)):
            yield attribute_chain(node)
        # The name as a string, as import_module and sys.modules take it.
        if (
            name.startswith("tracer")
            and isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and re.fullmatch(r"torch\._[\w.]+", node.value)
        ):
            yield node.value


def test_private_torch_names_stay_in_one_package() -> None:
    wrong = [
        f"{name}: {private}"
        for package in ("tracer", "viewer")
        for name, path in modules(package)
        if not name.startswith("tracer.inductor")
        for private in private_torch_names(name, path)
    ]
    assert not wrong


def test_modules_stay_small() -> None:
    files = [path for package in ("tracer", "viewer", "tests") for _, path in modules(package)]
    files += [
        *(ROOT / "static").rglob("*.js"),
        *(ROOT / "static").rglob("*.py"),
        *(ROOT / "docs").rglob("*.py"),
    ]
    lengths = {str(path.relative_to(ROOT)): len(path.read_text("utf-8").splitlines()) for path in files}
    assert not {name: lines for name, lines in lengths.items() if lines > MAX_LINES}


def test_sql_stays_in_queries_and_store() -> None:
    wrong = [
        name
        for name, path in modules("viewer")
        if not name.startswith(("viewer.queries", "viewer.store")) and re.search(r"\bSELECT\s", path.read_text("utf-8"))
    ]
    assert not wrong


def tracked_files() -> list[Path]:
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if done.returncode:
        pytest.skip("not a git checkout")
    return [path for name in done.stdout.decode().split("\0") if name and (path := ROOT / name).is_file()]


def test_pages_load_nothing_from_elsewhere() -> None:
    loads = re.compile(
        r"""(?:\b(?:src|href|action|poster)\s*=\s*["']?|@import\s+["']?|url\(\s*["']?|\bimport\s*\(?\s*["']|\bfrom\s+["']"""
        r"""|\bfetch\(\s*[`"']|new\s+(?:WebSocket|EventSource|Worker)\(\s*[`"'])\s*(?:https?:|wss?:)?//""",
        re.IGNORECASE,
    )
    files = [path for top in ("templates", "static") for path in (ROOT / top).rglob("*") if path.is_file()]
    wrong = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in files
        if path.suffix in {".html", ".css", ".js", ".mjs", ".svg", ".j2"}
        for number, text in enumerate(path.read_text("utf-8").splitlines(), 1)
        if loads.search(text)
    ]
    assert not wrong


def test_no_tracked_file_names_a_package_registry() -> None:
    # Lock files made on one machine would tie everyone to that machine's registry.
    hosts = re.compile(
        rb"[\w.-]*(?:pypi|pythonhosted|npmjs|yarnpkg|conda|artifactory|nexus)[\w-]*\.(?:org|com|net|io|dev)"
    )
    wrong = [str(path.relative_to(ROOT)) for path in tracked_files() if hosts.search(path.read_bytes())]
    assert not wrong
