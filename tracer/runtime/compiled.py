"""Modules in C++ beside the Python code that does the same: built by Inductor's own toolchain when first wanted."""

from __future__ import annotations

import threading
from collections.abc import Callable
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

_loading = threading.RLock()  # a signal handler may load a wrapper in the midst
_found: dict[str, Any] = {}
"""Modules, or why there is none, by their names."""


def load(name: str, file: str, set_up: Callable[[Any], object] = id) -> Any:
    """The module `name` whose source is `file` in this folder; built, in a second or two, where no cache has it, and
    then `set_up`. Raises RuntimeError, at each call the same, where it cannot be built."""
    with _loading:
        if name not in _found:
            _found[name] = _module_or_reason(name, file, set_up)
    if isinstance(_found[name], str):
        raise RuntimeError(_found[name])
    return _found[name]


def forget_parent_process() -> None:
    """In a forked child: a thread that was loading is not there."""
    global _loading
    _loading = threading.RLock()


def _module_or_reason(name: str, file: str, set_up: Callable[[Any], object]) -> Any:
    from stepscope.tracer.inductor.stats_toolchain import build_library

    try:
        path = str(build_library(Path(__file__).with_name(file).read_text("utf-8")))
        spec = spec_from_file_location(name, path, loader=ExtensionFileLoader(name, path))
        assert spec is not None
        assert spec.loader is not None
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        set_up(module)
        return module
    except Exception as error:  # no compiler, no headers of Python, an unusual build of either
        return f"{type(error).__name__}: {error}"
