"""Loads C++ modules that replace slower Python code; Inductor's own toolchain compiles them on first use."""

from __future__ import annotations

import threading
from collections.abc import Callable
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

_loading = threading.RLock()  # a signal handler may load a wrapper meanwhile
_found: dict[str, Any] = {}
"""Module, or the reason why it could not be built, by name."""


def load(name: str, source: Path, set_up: Callable[[Any], object] = id) -> Any:
    """Return the extension module `name` compiled from the C++ file `source`, after passing it to `set_up` once.

    Compiling takes a second or two unless the module is cached. Raises the same RuntimeError at each call if the
    module cannot be built.
    """
    with _loading:
        if name not in _found:
            _found[name] = _module_or_reason(name, source, set_up)
    if isinstance(_found[name], str):
        raise RuntimeError(_found[name])
    return _found[name]


def forget_parent_process() -> None:
    """Replace the lock in a forked child, where a thread that had acquired it does not exist."""
    global _loading
    _loading = threading.RLock()


def _module_or_reason(name: str, source: Path, set_up: Callable[[Any], object]) -> Any:
    from stepscope.tracer.inductor.stats_toolchain import build_library

    try:
        path = str(build_library(source.read_text("utf-8")))
        spec = spec_from_file_location(name, path, loader=ExtensionFileLoader(name, path))
        assert spec is not None
        assert spec.loader is not None
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        set_up(module)
        return module
    except Exception as error:  # no compiler, no Python headers, or an unusual build of either
        return f"{type(error).__name__}: {error}"
