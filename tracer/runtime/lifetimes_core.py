"""A tracker whose hot paths are compiled: lifetimes_core.cpp, built by Inductor's own toolchain."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import cache
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from tracer.runtime.launches import Call, GraphHooks
from tracer.runtime.lifetimes import RECENT_STEPS, Place, Storage, Tracker

SOURCE = Path(__file__).with_name("lifetimes_core.cpp")
MODULE = "stepscope_lifetimes"
_loading = threading.Lock()


class CompiledTracker(Tracker):
    """Costs some tenths of a microsecond a storage, so that every step can be followed."""

    usual = 1

    def __init__(
        self, module: Any, running: Callable[[], Call | None], clock: Callable[[], int], every: int | None = None
    ) -> None:
        super().__init__(running, clock, every)
        self._module, self.life = module, module.Life
        self._core = module.Core(running, clock)

    def storages(self) -> list[Storage]:
        return [Storage(*fields) for fields in self._core.storages()]

    def _died_outside(self) -> tuple[list[int], list[int], list[int]]:
        columns: tuple[list[int], list[int], list[int]] = self._core.outside()
        return columns

    def meeter(self, hooks: GraphHooks, places: Sequence[Place]) -> Any:
        kinds = "".join(place.kind[0] for place in places)
        return self._module.Meet(self._core, hooks, kinds, tuple(place.names for place in places))


def load() -> Any:
    """The compiled module; built, in a second or two, where no cache has it. Raises RuntimeError, at each call the
    same, where it cannot be built."""
    with _loading:
        found = _module_or_reason()
    if isinstance(found, str):
        raise RuntimeError(found)
    return found


def forget_parent_process() -> None:
    """In a forked child: a thread that was loading is not there."""
    global _loading
    _loading = threading.Lock()


@cache
def _module_or_reason() -> Any:
    from tracer.inductor.stats_toolchain import build_library

    try:
        path = str(build_library(SOURCE.read_text("utf-8")))
        spec = spec_from_file_location(MODULE, path, loader=ExtensionFileLoader(MODULE, path))
        assert spec is not None
        assert spec.loader is not None
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        module.set_up(Call, RECENT_STEPS)
        return module
    except Exception as error:  # no compiler, no headers of Python, an unusual build of either
        return f"{type(error).__name__}: {error}"
