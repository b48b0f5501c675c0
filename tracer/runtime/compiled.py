"""Builds C++ code that replaces slower Python code, once; Inductor's own toolchain compiles it on first use."""

from __future__ import annotations

import threading
from collections.abc import Callable
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

_loading = threading.RLock()  # a signal handler may load a wrapper meanwhile
_found: dict[str, Any] = {}
"""What was built, or the reason why it could not be built, by name."""


def once(name: str, build: Callable[[], Any]) -> Any:
    """Return what `build` returned at the first call with this name.

    Building takes a second or two unless the compiled code is cached. Raises the same RuntimeError at each call if it
    failed.
    """
    if name not in _found:
        with _loading:
            if name not in _found:
                _found[name] = _built_or_reason(build)
    if isinstance(_found[name], str):
        raise RuntimeError(_found[name])
    return _found[name]


def load(name: str, source: Path, set_up: Callable[[Any], object] = id) -> Any:
    """Return the extension module `name` compiled from the C++ file `source`, after passing it to `set_up` once.

    Raises RuntimeError like `once`.
    """
    return once(name, lambda: _module(name, source, set_up))


def forget_parent_process() -> None:
    """Replace the lock in a forked child, where a thread that had acquired it does not exist."""
    global _loading
    _loading = threading.RLock()


def _built_or_reason(build: Callable[[], Any]) -> Any:
    try:
        return build()
    except Exception as error:  # no compiler, no Python headers, or an unusual build of either
        return f"{type(error).__name__}: {error}"


def _module(name: str, source: Path, set_up: Callable[[Any], object]) -> Any:
    from stepscope.tracer.inductor.stats_toolchain import build_library

    path = str(build_library(source.read_text("utf-8")))
    spec = spec_from_file_location(name, path, loader=ExtensionFileLoader(name, path))
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    set_up(module)
    return module
