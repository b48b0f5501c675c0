"""Builds the output of `stepscope --version`."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

from stepscope.tracer._version import __version__


def versions() -> str:
    """Return the versions of stepscope, torch and Python in one line, without importing torch, which takes seconds."""
    try:
        torch = f"torch {version('torch')}"
    except PackageNotFoundError:
        torch = "no torch"
    return f"stepscope {__version__} ({torch}, Python {platform.python_version()})"
