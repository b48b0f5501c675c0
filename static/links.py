"""Make `build/import/stepscope`: the package as a wheel would install it, of links to the files of this checkout.

    python static/links.py
    PYTHONPATH=build/import python -m stepscope ...

An editable install, mypy and the tests import stepscope from there. What is linked where stands in pyproject.toml, in
the table that the wheel is built by (`tool.hatch.build.targets.wheel.sources`).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FOLDER = "build/import"
MODULES = "tracer/package"
"""What is in here is installed as ``stepscope/__init__.py`` and so on."""
ENTRY_POINTS = ("_stepscope_autostart.py", "_stepscope_pytest.py")
"""The modules that torch and pytest load, found also where the package is not, because they are installed beside it."""


def modules_of_the_package(root: Path) -> dict[str, str]:
    """Where files of the checkout are installed."""
    names = sorted(file.name for file in (root / MODULES).glob("*.py"))
    return {f"{MODULES}/{name}": name if name in ENTRY_POINTS else f"stepscope/{name}" for name in names}


def make_links(root: Path) -> Path:
    """The folder to put on ``sys.path``. Links that are right are left alone, so that processes may do this at once."""
    wheel: dict[str, Any] = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["tool"]["hatch"]["build"]
    folders: dict[str, str] = wheel["targets"]["wheel"]["sources"]
    for link in (root / FOLDER).glob("*/*.py"):
        if not link.exists():  # of a file that the checkout had before
            link.unlink()
    for source, target in {**folders, **modules_of_the_package(root)}.items():
        _link(root / FOLDER / target, root / source)
    return root / FOLDER


def _link(link: Path, to: Path) -> None:
    path = os.path.relpath(to, link.parent)
    if link.is_symlink() and os.readlink(link) == path:
        return
    link.parent.mkdir(parents=True, exist_ok=True)
    temporary = link.with_name(f".{link.name}.{os.getpid()}")
    temporary.symlink_to(path)
    temporary.replace(link)


if __name__ == "__main__":
    sys.stdout.write(f"{make_links(Path(__file__).resolve().parents[1])}\n")
