"""Finds templates, styles and scripts, and builds the import maps of pages and reports."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

_IMPORTED = re.compile(r"""(?:^(?:import|export)\b[^"';]*|\bimport\()["'](#js/[^"']+)["']""", re.M)
_COMMENT = re.compile(r"/\*.*?\*/", re.S)
_REMARK = re.compile(r"^[ \t]*(?:(?://[^\n]*|/\*\*(?:[^*]|\*(?!/))*\*/)?\n|[ \t]+)", re.M)
"""Lines of scripts that are only a comment or empty, and indents."""
_AROUND = re.compile(r"\s*([{};])\s*")
SHEET = "css/stepscope.css"
"""Style sheet of every page and report, which joins the sheets in `SHEETS`."""
FIRST_SHEETS = (
    "core/colours", "core/page", "core/tables", "overview/findings", "crash/crash", "steps/strip", "memory/minis",
    "report/report",
)  # fmt: skip
"""Sheets of every page and of the first page of a report, in the order of the cascade."""
SHEETS = (
    *FIRST_SHEETS, "core/plot", "steps/steps", "values/values", "memory/memory", "records/views", "search/search",
    "ranks/ranks", "judged/judged", "compare/compare",
)  # fmt: skip
"""Sheets in the order of the cascade; pages that need other sheets link to them."""
CLASSIC = ("theme", "start")
"""Scripts that are no modules: they run before others."""
CONTENT_TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8"}


def folder(name: str) -> Path:
    """Return the folder `templates` or `static`, beside the package `viewer`."""
    return Path(__file__).parents[2] / name


@cache
def static_files() -> dict[str, Path]:
    """Return every style and script, by its path below ``/static/``."""
    root = folder("static")
    files = [*root.glob("css/**/*.css"), *root.glob("js/**/*.js")]
    return {path.relative_to(root).as_posix(): path for path in sorted(files)}


def content(name: str) -> bytes:
    """Return a file as it is served below ``/static/``: scripts have no comments and indents.

    Raise KeyError if there is none with this name."""
    if name == SHEET:
        return b"\n".join(content(f"css/{sheet}.css") for sheet in SHEETS)
    path = static_files()[name]
    return compact_script(path).encode() if path.suffix == ".js" else path.read_bytes()


def compact_script(path: Path) -> str:
    """Return a script without indents and without lines that hold only a comment."""
    return _REMARK.sub("", path.read_text("utf-8"))


def script_modules() -> dict[str, Path]:
    return {
        f"#{name}": path for name, path in static_files().items() if path.suffix == ".js" and path.stem not in CLASSIC
    }


def served_import_map() -> dict[str, dict[str, str]]:
    return {"imports": {name: address(name[1:]) for name in script_modules()}}


def address(name: str) -> str:
    """Return the address of a static file, which contains a hash of its content so that browsers may cache it."""
    return f"/static/{name}?v={version(content(name))}"


def version(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def modules_of(*roots: str) -> dict[str, str]:
    """Return the compact text of the modules `roots` and of all that they import, by name."""
    modules, waiting, needed = script_modules(), [*roots], dict[str, str]()
    while waiting:
        name = waiting.pop()
        if name not in needed:
            needed[name] = compact_script(modules[name])
            waiting += _IMPORTED.findall(needed[name])
    return dict(sorted(needed.items()))


def compact_sheets(names: Iterable[str]) -> str:
    """Return style sheets as one, without comments and without the space around rules and declarations."""
    text = "\n".join(content(f"css/{name}.css").decode() for name in names)
    return _AROUND.sub(r"\1", _COMMENT.sub("", text)).strip()


def csp_hash(text: str) -> str:
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"
