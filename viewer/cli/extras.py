"""Which packages reading a trace needs; recording does without them."""

from __future__ import annotations

import sys
from importlib.util import find_spec

from stepscope.viewer.errors import StepscopeError

PACKAGES = ["duckdb", "fastapi", "fsspec", "jinja2", "starlette", "uvicorn"]
if sys.version_info < (3, 14):  # later ones have it in the standard library
    PACKAGES.append("backports.zstd")


def need_viewer(command: str) -> None:
    """Raises StepscopeError with the command that installs what is missing, if something is."""
    missing = next((name for name in PACKAGES if not _is_there(name)), None)
    if missing is not None:
        raise StepscopeError(f"`{command}` needs {missing}, which is not installed: pip install 'stepscope[viewer]'")


def _is_there(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:  # the package that it is in
        return False
