"""Writes `stepscope export --to html`, a folder of pages that any web server hosts under any address.

The pages are those of the dashboard, with relative links. Scripts read what they would ask the server from files.
"""

from __future__ import annotations

import os
import re
from html import unescape
from pathlib import Path

from stepscope.viewer.errors import StepscopeError
from stepscope.viewer.exports.formats import Wanted
from stepscope.viewer.exports.html.addresses import route_patterns
from stepscope.viewer.exports.html.rewrite import Rewriter, import_map
from stepscope.viewer.exports.html.visit import Visit, Visited
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.text.formats import to_json
from stepscope.viewer.web import assets

CONTENTS = "folder.json"
"""File that tells scripts which pages and answers the folder has."""
_TITLE = re.compile(r"<title>(.*?)</title>", re.S)


def export(trace: Trace, wanted: Wanted) -> int:
    """Write the folder, and return the number of its pages."""
    _refuse(wanted.path)
    imports = import_map()
    visited = Visit(trace, imports, wanted.pages.source_link).run(wanted.pages.most, wanted.pages.say)
    left_out = _left_out(visited)
    wanted.pages.say("writing the folder")
    rewriter = Rewriter(visited, imports)
    for key in visited.pages:
        html = rewriter.rewritten(visited.html(key), left_out.replace("`", "") if key == "/" else "")
        _write(wanted.path / visited.files[key], html.encode())
    for key, answer in visited.answers.items():
        _write(wanted.path / visited.files[key], answer)
    for name in (*assets.static_files(), assets.SHEET):
        _write(wanted.path / "static" / name, assets.content(name))
    _write(wanted.path / CONTENTS, to_json(_contents(visited)).encode())
    if left_out:
        wanted.pages.remark(left_out)
    return len(visited.pages)


def _refuse(path: Path) -> None:
    """Refuse what is no new or empty folder in a folder that exists."""
    if path.exists() and not path.is_dir():
        raise StepscopeError(f"{path} is a file: name a new or empty folder with -o.")
    if path.is_dir() and os.listdir(path):
        raise StepscopeError(f"The folder {path} is not empty: name a new or empty folder with -o.")
    if not path.absolute().parent.is_dir():
        raise StepscopeError(f"There is no folder {path.parent}: make it first, or give another -o.")


def _left_out(visited: Visited) -> str:
    if not visited.left_out:
        return ""
    return (
        f"This folder has {visited.count:,} pages and launches; {visited.left_out:,} more that its pages link to"
        " were left out. `--max-pages` takes more of them, and `stepscope serve TRACE` shows all."
    )


def _contents(visited: Visited) -> dict[str, object]:
    titles = {key: _TITLE.search(visited.html(key)) for key in visited.pages}
    return {
        "routes": route_patterns(),
        "files": visited.files,
        "titles": {key: unescape(found[1]).rsplit(" · ", 2)[0] for key, found in titles.items() if found},
    }


def _write(file: Path, content: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
