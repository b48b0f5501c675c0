"""Tests the rules of the layout: the direction of imports, the use of torch, and the size of modules."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from jinja2 import meta

from stepscope.viewer.web import registry, render

ROOT = Path(__file__).resolve().parents[1]
MAX_LINES = 450
MAX_LINES_OF = {("tracer",): 400, ("tests", "tracer"): 400}
"""Folders with a lower limit."""

# A module of the tracer may import from its own layer and from the layers before it.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("_version",),
    ("schema",),
    ("wrapper", "config", "steps", "reading"),
    ("log",),
    ("inductor", "runtime", "judge", "aoti"),
    ("command", "recorder"),
    ("", "autostart", "demo"),
    ("integrations",),
)
PURE = frozenset({"wrapper", "schema"})
"""Folders of the tracer that only parse text and load no torch."""
WITHOUT_CIRCLES = ("tracer", "viewer")
VIEWER_MAY_USE = ("stepscope.tracer.schema", "stepscope.tracer.wrapper", "stepscope.tracer._version")
VIEWER_JOINS = "stepscope.viewer.cli."
TOP = Path("tracer", "package")
"""Folder that is installed as the package `stepscope` itself."""


@functools.cache
def modules(package: str) -> tuple[tuple[str, Path], ...]:
    """Return the modules below a folder of the checkout, with the names under which they are installed."""
    found = []
    for path in sorted((ROOT / package).rglob("*.py")):
        if TOP not in path.relative_to(ROOT).parents:
            parts = ["stepscope"] * (package != "tests") + list(path.relative_to(ROOT).with_suffix("").parts)
            found.append((".".join(parts[:-1] if parts[-1] == "__init__" else parts), path))
    return tuple(found)


@functools.cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """Return what :func:`ast.walk` finds in a module."""
    return tuple(ast.walk(ast.parse(path.read_text("utf-8"))))


@functools.cache
def is_module(name: str) -> bool:
    path = ROOT.joinpath(*name.removeprefix("stepscope.").split("."))
    return path.with_suffix(".py").exists() or (path / "__init__.py").exists()


@functools.cache
def imports(name: str, path: Path) -> tuple[str, ...]:
    """Return the module that each import statement names, at any depth of the code."""
    return tuple(_imports(name, path))


def _imports(name: str, path: Path) -> Iterator[str]:
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in nodes(path):
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


def inside(name: str, package: str) -> str | None:
    """Return the name relative to a package of stepscope, or None if it is outside of it."""
    full = f"stepscope.{package}"
    return name[len(full) + 1 :] if f"{name}.".startswith(f"{full}.") else None


def layer(name: str) -> int:
    """Return the layer of a module of the tracer, which its folder or its name at the root determines."""
    (found,) = (index for index, row in enumerate(LAYERS) if name.partition(".")[0] in row)
    return found


def test_tracer_imports_go_one_way() -> None:
    wrong = []
    for name, path in modules("tracer"):
        for imported in imports(name, path):
            to, own = inside(imported, "tracer"), inside(name, "tracer")
            if to is not None and own is not None and is_module(imported) and layer(to) > layer(own):
                wrong.append(f"{name} imports {imported}")
    assert not wrong


def test_wrappers_and_records_are_read_with_the_standard_library_alone() -> None:
    wrong = []
    for name, path in modules("tracer"):
        room = (inside(name, "tracer") or "").partition(".")[0]
        allowed = ("stepscope.tracer.schema", f"stepscope.tracer.{room}", "orjson")
        wrong += [
            f"{name} imports {imported}"
            for imported in imports(name, path)
            if room in PURE
            and imported.partition(".")[0] not in sys.stdlib_module_names
            and not f"{imported}.".startswith(tuple(f"{one}." for one in allowed))
        ]
    assert not wrong


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Return the sorted sets of modules that import each other in a circle."""
    reached: dict[str, set[str]] = {}
    for start in graph:
        found: set[str] = set()
        waiting = [start]
        while waiting:
            new = graph[waiting.pop()] - found
            found |= new
            waiting += new
        reached[start] = found
    rings = {frozenset(other for other in found if name in reached[other]) for name, found in reached.items()}
    return sorted(sorted(ring) for ring in rings if ring)


def test_circles_are_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"d"}, "e": {"a"}}) == [["b", "c"], ["d"]]
    assert circles({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []


@pytest.mark.parametrize("package", WITHOUT_CIRCLES)
def test_no_circle_of_imports(package: str) -> None:
    """Imports in functions and under TYPE_CHECKING count too."""
    names = {name for name, _ in modules(package)}
    graph = {name: {to for to in imports(name, path) if to in names} for name, path in modules(package)}
    assert sum(map(len, graph.values())) > 100
    assert not circles(graph)


def test_tracer_does_not_know_the_viewer() -> None:
    found = [(name, to) for name, path in modules("tracer") for to in imports(name, path)]
    assert len(found) > 100
    assert not [name for name, to in found if inside(to, "viewer") is not None]


def test_viewer_uses_only_the_schema_of_the_tracer() -> None:
    wrong = []
    for name, path in modules("viewer"):
        for imported in imports(name, path):
            of_tracer = inside(imported, "tracer") is not None
            if imported.split(".")[0] == "torch" or (
                of_tracer and not imported.startswith(VIEWER_MAY_USE) and not f"{name}.".startswith(VIEWER_JOINS)
            ):
                wrong.append(f"{name} imports {imported}")
    assert not wrong


def test_everything_is_imported_as_a_part_of_stepscope() -> None:
    wrong = [
        f"{name} imports {imported}"
        for folder in ("tracer", "viewer", "tests")
        for name, path in modules(folder)
        for imported in imports(name, path)
        if imported.split(".")[0] in ("tracer", "viewer")
    ]
    assert not wrong


@pytest.mark.parametrize("module", ["stepscope.tracer", "stepscope.tracer.autostart", "stepscope.viewer.web.app"])
def test_import_loads_no_torch(module: str) -> None:
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
    for node in nodes(path):
        if isinstance(node, ast.Attribute) and private.match(attribute_chain(node)):
            yield attribute_chain(node)
        # A string can also name a module, for import_module and sys.modules.
        if (
            name.startswith("stepscope.tracer")
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
        if not name.startswith("stepscope.tracer.inductor")
        for private in private_torch_names(name, path)
    ]
    assert not wrong


def limit_of(path: Path) -> int:
    return next((lines for room, lines in MAX_LINES_OF.items() if path.parts[: len(room)] == room), MAX_LINES)


def test_modules_stay_small() -> None:
    files = [path for package in ("tracer", "viewer", "tests") for _, path in modules(package)]
    files += [
        *(ROOT / "static").rglob("*.js"),
        *(ROOT / "static").rglob("*.py"),
        *(ROOT / "docs").rglob("*.py"),
    ]
    lengths = {path.relative_to(ROOT): len(path.read_text("utf-8").splitlines()) for path in files}
    assert not {str(path): lines for path, lines in lengths.items() if lines > limit_of(path)}


def test_sql_stays_in_queries_and_store() -> None:
    wrong = [
        name
        for name, path in modules("viewer")
        if not name.startswith("stepscope.viewer.store.")
        and "queries" not in name.split(".")
        and re.search(r"\bSELECT\s", path.read_text("utf-8"))
    ]
    assert not wrong


CAPABILITIES = {*(capability.folder for capability in registry.CAPABILITIES), "crash", "repro"}
COMPOSES = {"cli", "report"}
"""Packages that combine capabilities."""


def test_capabilities_know_only_rows_and_queries_of_each_other() -> None:
    wrong = []
    for name, path in modules("viewer"):
        room = name.split(".")[2] if name.count(".") > 1 else ""
        for imported in imports(name, path):
            parts = imported.split(".")
            is_foreign = parts[:2] == ["stepscope", "viewer"] and parts[2:] and parts[2] in CAPABILITIES - {room}
            if is_foreign and room not in COMPOSES and parts[3:4] not in (["rows"], ["queries"]):
                wrong.append(f"{name} imports {imported}")
    assert not wrong


def test_every_capability_is_one_folder_and_one_line() -> None:
    for capability in registry.CAPABILITIES:
        for module in capability.pages:
            assert capability.module(module).ROUTES, (capability.folder, module)
        if capability.has_filters:
            assert capability.module("filters").FILTERS.keys()
    rooms = [capability.folder for capability in registry.CAPABILITIES]
    assert len(rooms) == len(set(rooms))


def test_core_templates_use_no_filter_of_a_capability() -> None:
    """They are compiled without the capabilities' filters, which fails for an unknown one."""
    env = render.environment()
    core = env.overlay()
    core.filters = {
        name: one for name, one in env.filters.items() if not any(name in m.FILTERS for m in registry.filters())
    }
    own = {name for module in registry.filters() for name in module.GLOBALS} - {"vocabulary"}
    for path in (ROOT / "templates" / "core").glob("*.html"):
        text = path.read_text("utf-8")
        core.compile(text)
        assert not meta.find_undeclared_variables(core.parse(text)) & own, path


def test_the_report_and_core_name_no_template_of_a_capability() -> None:
    """The overview, which is the first page of a report, is the only one that it names."""
    named = {
        room
        for folder in ("core", "report")
        for path in (ROOT / "templates" / folder).glob("*.html")
        for room in re.findall(r'"(\w+)/\w+\.html"', path.read_text("utf-8"))
    }
    assert named == {"core", "overview", "report"}


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
    # Lock files from one machine would tie everyone to that machine's registry.
    hosts = re.compile(
        rb"[\w.-]*(?:pypi|pythonhosted|npmjs|yarnpkg|conda|artifactory|nexus)[\w-]*\.(?:org|com|net|io|dev)"
    )
    wrong = [str(path.relative_to(ROOT)) for path in tracked_files() if hosts.search(path.read_bytes())]
    assert not wrong
