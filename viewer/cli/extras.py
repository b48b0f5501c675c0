"""Checks the packages that reading a trace needs, but recording does not."""

from __future__ import annotations

import sys
from importlib.util import find_spec

from stepscope.viewer.errors import StepscopeError

PACKAGES = ["duckdb", "fastapi", "fsspec", "jinja2", "starlette", "uvicorn"]
if sys.version_info < (3, 14):  # part of the standard library since 3.14
    PACKAGES.append("backports.zstd")


def need_viewer(command: str) -> None:
    """Raise StepscopeError with the command that installs a missing package."""
    missing = next((name for name in PACKAGES if not _is_there(name)), None)
    if missing is not None:
        raise StepscopeError(f"`{command}` needs {missing}, which is not installed: pip install 'stepscope[viewer]'")


def _is_there(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:  # the parent package is missing
        return False
