"""Where templates, styles and scripts are, and the one import map that serves page, report and tests."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from pathlib import Path
from urllib.parse import quote

_IMPORTED = re.compile(r"""^(?:import|export)\b[^"';]*["'](#js/[^"']+)["']""", re.M)
SHEET = "css/stepscope.css"
"""What every page and the report link to: the sheets of `SHEETS` as one file."""
SHEETS = (
    "core/colours", "core/page", "core/plot", "overview/findings", "crash/crash", "steps/steps", "values/values",
    "memory/memory", "report/report", "records/views", "search/search", "ranks/ranks",
)  # fmt: skip
"""In the order of the cascade. Sheets that are not here are linked by the pages that need them."""
CONTENT_TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8"}


def folder(name: str) -> Path:
    """`templates` or `static`, beside the package `viewer`."""
    return Path(__file__).parents[2] / name


@cache
def static_files() -> dict[str, Path]:
    """Every style and script, by its path below ``/static/``."""
    root = folder("static")
    files = [*root.glob("css/**/*.css"), *root.glob("js/**/*.js")]
    return {path.relative_to(root).as_posix(): path for path in sorted(files)}


def content(name: str) -> bytes:
    """What is served below ``/static/``. Raises a KeyError where nothing has this name."""
    if name == SHEET:
        return b"\n".join(content(f"css/{sheet}.css") for sheet in SHEETS)
    return static_files()[name].read_bytes()


def script_modules() -> dict[str, Path]:
    return {f"#{name}": path for name, path in static_files().items() if path.suffix == ".js" and path.stem != "theme"}


def served_import_map() -> dict[str, dict[str, str]]:
    return {"imports": {name: address(name[1:]) for name in script_modules()}}


def address(name: str) -> str:
    """Where a file of `static_files` is served; another one when its content is another, so that it can be kept."""
    return f"/static/{name}?v={version(content(name))}"


def version(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def inlined_import_map(*roots: str) -> dict[str, dict[str, str]]:
    """The same specifiers as `data:` URLs, for a page that is one file: `roots` and all that they import."""
    modules, waiting, needed = script_modules(), [*roots], dict[str, str]()
    while waiting:
        name = waiting.pop()
        if name not in needed:
            needed[name] = _data_url(modules[name])
            waiting += _IMPORTED.findall(modules[name].read_text("utf-8"))
    return {"imports": dict(sorted(needed.items()))}


def _data_url(path: Path) -> str:
    """Percent signs only where they are needed: a fifth shorter than base64, and can be read in the file."""
    return "data:text/javascript;charset=utf-8," + quote(path.read_bytes(), safe=" !$()*+,-./:;=?@[]^_`{|}~")


def csp_hash(text: str) -> str:
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"
