"""Checks in generated code that buffers are allocated and freed as scheduled; they replace torch's own checks.

Inductor generates the calls for ``torch._inductor.config.test_configs.track_memory_lifecycle``, and implements them in
torch/_inductor/runtime/debug_utils.py. The functions here take the same arguments and can replace those. Unlike
torch's, they keep each run of a function apart (in another thread, in a nested graph, after a run that raised), since
the tracked storages are attached to the frame of the running function.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import PurePath
from types import FrameType
from typing import TYPE_CHECKING, Any, Protocol
from weakref import ref

from stepscope.tracer.inductor.compat import (
    calling_frame,
    debug_functions_replaced,
    memory_checks,
    tracked_allocation_imported,
)
from stepscope.tracer.runtime.calls import running_call
from stepscope.tracer.runtime.lifetimes.mismatches import LifetimeError
from stepscope.tracer.runtime.lifetimes.step_names import FunctionNames, names_at
from stepscope.tracer.runtime.lifetimes.step_reports import (
    MOST_TOLD,
    CheckedStep,
    StepMismatch,
    describe_mismatches,
    holders_of,
    reports,
    to_record,
)
from stepscope.tracer.schema.gaps import Skipped
from stepscope.tracer.schema.memory import MemoryStepMismatch

if TYPE_CHECKING:
    import torch

    from stepscope.tracer.config import TraceConfig

_log = logging.getLogger("stepscope")
_skipped: set[str] = set()


class CheckSink(Protocol):
    """The part of the recorder that is used here."""

    config: TraceConfig

    def layout(self, record: MemoryStepMismatch) -> None: ...
    def skipped(self, record: Skipped) -> None: ...
    def describe_launch(self, graph: int, site: int) -> str: ...


_sink: CheckSink | None = None
_stand_ins = ExitStack()


def attach(sink: CheckSink) -> None:
    """Write mismatches to the recorder `sink` too, and apply its settings."""
    global _sink
    _sink = sink
    forget()


def forget() -> None:
    """Forget the mismatches that were reported in another log: of an earlier recording or the parent process."""
    reports.forget()
    _skipped.clear()


def stand_in() -> None:
    """Make wrappers that are loaded from now on call the functions here instead of torch's."""
    _stand_ins.enter_context(debug_functions_replaced(STAND_INS))
    _stand_ins.enter_context(tracked_allocation_imported())


def detach() -> None:
    """Detach the recorder; wrappers that were loaded meanwhile still call the functions here."""
    global _sink
    _sink = None
    _stand_ins.close()


def tracked_empty_strided(
    size: Sequence[int],
    stride: Sequence[int],
    *,
    dtype: torch.dtype,
    device: torch.device | str | int,
    name: str,
    pin_memory: bool = False,
) -> torch.Tensor:
    """Return `torch.empty_strided` of `size` and `stride` (in elements), tracked as `name`.

    `device` keeps its index, as in ``cuda:1``. Raises what `torch.empty_strided` raises.
    Source: torch/_inductor/runtime/debug_utils.py.
    """
    import torch

    tensor = torch.empty_strided(size, stride, dtype=dtype, device=device, pin_memory=pin_memory)
    _track(calling_frame(sys._getframe(1)), tensor, name)
    return tensor


def track_tensor(tensor: torch.Tensor, name: str) -> None:
    """Track the storage of `tensor` as `name`; a storage may have several names. Raises nothing.

    A tensor without a storage (sparse) is not checked. Source: torch/_inductor/runtime/debug_utils.py.
    """
    _track(calling_frame(sys._getframe(1)), tensor, name)


def check_memory_step(allocated: Sequence[str], freed: Sequence[str], is_final_step: bool = False) -> None:
    """Compare the buffers that were allocated and freed since the last check with the names in `allocated` and `freed`.

    A storage should live as long as the last of its names; so a buffer that is reused in the function's source is no
    mismatch. Not checked are names that the function has but never tracked (inputs, items of an operator's result),
    empty buffers, and in the final step names that are returned or never deleted. If the source cannot be read, only
    unexpected deaths and allocations are reported.

    A mismatch is reported once, with the bytes, the launch before it and the holders of a storage that should be dead:
    to the logger ``stepscope`` and in the running recording, which counts repeats. If the recording has
    ``lifetimes="assert"`` or torch's setting is ``assert``, LifetimeError is raised instead of logging.
    ``torch.ops._inductor_debug.check_memory_step`` is checked too. Source: torch/_inductor/runtime/debug_utils.py.
    """
    _check(calling_frame(sys._getframe(1)), allocated, freed, is_final_step)


def _check(frame: FrameType | None, allocated: Sequence[str], freed: Sequence[str], is_final_step: bool) -> None:
    mode = _mode()
    steps = _steps_of(frame) if frame is not None and mode != "off" else None
    if frame is None or steps is None:
        return
    code, line = frame.f_code, frame.f_lineno
    found = steps.check(allocated, freed, is_final_step, names_at(code.co_filename, line), line)
    if found:
        _tell(found, code.co_filename, line, is_final_step, raises=mode == "assert")


def _tell(found: list[StepMismatch], file: str, line: int, is_final_step: bool, raises: bool) -> None:
    """Report new mismatches; with `raises`, raise LifetimeError for all of `found`, new or not."""
    call = running_call()
    rows = call.rows if call is not None else []
    site = rows[len(rows) // 3 * 3 - 3] if len(rows) >= 3 else None
    place = CheckedStep(call.graph if call is not None else None, site, file, line, is_final_step)
    number = call.number if call is not None else None
    new = reports.add(place, number, found)
    told = found if raises else new
    if reports.is_full and _sink is not None:
        _skip(_sink, f"more than {MOST_TOLD:,} different mismatches; further ones are not recorded")
    if not told:
        return
    holders = holders_of(told)
    if _sink is not None and new:
        held = [words for one, words in zip(told, holders, strict=True) if any(one is other for other in new)]
        _sink.layout(to_record(place, number, new, held))
    after = ""
    if _sink is not None and place.graph is not None and place.site is not None:
        after = f", after {_sink.describe_launch(place.graph, place.site)}"
    text = f"stepscope: at {PurePath(file).name}:{line}{after}: {describe_mismatches(told, holders)}"
    if raises:
        raise LifetimeError(text)
    _log.warning(text)


class _Tracked:
    __slots__ = ("first", "freed", "names", "reference", "storage_bytes")

    def __init__(self, storage: Any, name: str, died: list[_Tracked]) -> None:
        self.first = name
        self.storage_bytes: int = storage.nbytes()
        self.names: dict[str, bool] = {}
        """Names in the order in which the storage got them; False if a name was found in the source only."""
        self.freed: set[str] = set()
        """Names that should have been freed."""
        self.reference = ref(storage, lambda _: died.append(self))


class TrackedRun:
    """The storages that one run of a function has tracked, attached to its frame as `f_trace`."""

    def __init__(self) -> None:
        self._reset()

    def __call__(self, *_: object) -> TrackedRun:
        """Ignore a trace event; Python calls this for every line once a debugger is active."""
        return self

    def _reset(self) -> None:
        self._by_name: dict[str, _Tracked] = {}
        self._by_storage: dict[int, _Tracked] = {}
        self._added: dict[str, _Tracked] = {}
        self._died: list[_Tracked] = []
        self._untold: set[str] = set()
        self._line = -1

    def track(self, name: str, tensor: Any) -> None:
        try:
            storage = tensor.untyped_storage()
        except (AttributeError, RuntimeError, NotImplementedError):
            self._untold.add(name)
            return
        tracked = self._by_storage.get(id(storage))
        if tracked is None or tracked.reference() is not storage:
            tracked = self._by_storage[id(storage)] = _Tracked(storage, name, self._died)
            self._added[name] = tracked
        self._name(name, tracked, True)

    def _name(self, name: str, tracked: _Tracked, is_told: bool) -> None:
        before = self._by_name.get(name)
        if before is not None and before is not tracked:
            before.names.pop(name, None)
        tracked.names[name] = is_told or tracked.names.get(name, False)
        tracked.freed.discard(name)
        self._by_name[name] = tracked

    def check(
        self,
        allocated: Sequence[str],
        freed: Sequence[str],
        is_final: bool,
        source: FunctionNames | None,
        line: int,
    ) -> list[StepMismatch]:
        """Return the mismatches of the step that ends at `line`."""
        if source is not None:
            self._adopt(source, line)
        for name in freed:
            if name in self._by_name:
                self._by_name[name].freed.add(name)
        found = [*self._deaths(source), *self._alive(freed, is_final, source)]
        found += self._allocations(allocated, source, line)
        self._advance(is_final)
        self._line = line
        return found

    def _adopt(self, source: FunctionNames, line: int) -> None:
        """Add the names that statements since the last step have given to tracked storages."""
        after = self._line if self._line < line else -1
        for _, name, base in source.aliases_between(after, line):
            tracked = self._by_name.get(base)
            if tracked is not None and self._by_name.get(name) is not tracked:
                self._name(name, tracked, False)

    def _deaths(self, source: FunctionNames | None) -> list[StepMismatch]:
        found = []
        for tracked in self._died:
            names = self._counted(tracked, source)
            if names and names[-1] not in tracked.freed and tracked.storage_bytes:
                found.append(StepMismatch("unexpected_death", names[-1], tracked.storage_bytes, None, tracked.first))
        return found

    def _counted(self, tracked: _Tracked, source: FunctionNames | None) -> list[str]:
        """Return the names of a storage that are checked."""
        scheduled = source.scheduled if source is not None else frozenset()
        return [name for name, is_told in tracked.names.items() if is_told or name in scheduled]

    def _alive(self, freed: Sequence[str], is_final: bool, source: FunctionNames | None) -> list[StepMismatch]:
        if source is None:
            return []
        found = []
        for name in freed:
            tracked = self._by_name.get(name)
            if tracked is None or not tracked.storage_bytes or tracked.reference() is None:
                continue
            sharing = source.sharing(tracked.names)
            awaited = {one for one in sharing if tracked.names.get(one) or one in source.scheduled} - tracked.freed
            lives_on = is_final and (sharing & source.returned or not sharing & source.deleted)
            if not awaited and not lives_on:
                found.append(
                    StepMismatch("missing_death", name, tracked.storage_bytes, tracked.reference, tracked.first)
                )
        return found

    def _allocations(self, allocated: Sequence[str], source: FunctionNames | None, line: int) -> list[StepMismatch]:
        expected = set(allocated)
        found = [
            StepMismatch("unexpected_allocation", name, tracked.storage_bytes, None, tracked.first)
            for name, tracked in self._added.items()
            if expected.isdisjoint(tracked.names) and tracked.storage_bytes
        ]
        if source is not None:
            found += [
                StepMismatch("missing_allocation", name, None, None, name)
                for name in allocated
                if name not in self._by_name and name not in self._untold and name not in source.elsewhere
                if source.bound.get(name, sys.maxsize) > line
            ]
        return found

    def _advance(self, is_final: bool) -> None:
        if is_final:
            self._reset()
            return
        dead, self._died[:] = self._died[:], []
        for tracked in dead:
            for name in tracked.names:
                if self._by_name.get(name) is tracked:
                    del self._by_name[name]
        self._by_storage = {key: one for key, one in self._by_storage.items() if one.reference() is not None}
        self._added.clear()


def _track(frame: FrameType | None, tensor: torch.Tensor, name: str) -> None:
    steps = _steps_of(frame) if frame is not None and _mode() != "off" else None
    if steps is not None:
        steps.track(name, tensor)


def _steps_of(frame: FrameType) -> TrackedRun | None:
    """Return the tracked run attached to `frame`, created if needed, or None if a debugger uses `f_trace`."""
    steps = frame.f_trace
    if isinstance(steps, TrackedRun):
        return steps
    if steps is None and sys.gettrace() is None:
        frame.f_trace = steps = TrackedRun()
        return steps
    if _sink is not None:
        _skip(_sink, "a debugger or a coverage tool traces the functions that perform them")
    return None


def _skip(to: CheckSink, why: str) -> None:
    if why not in _skipped:
        _skipped.add(why)
        to.skipped(Skipped("checks of memory steps", why))


def _mode() -> str:
    """Return ``off``, ``log`` or ``assert``: the stricter of the recording's and torch's; ``log`` if neither is set."""
    asked = {memory_checks()} | ({_sink.config.lifetimes} if _sink is not None else set())
    if "assert" in asked:
        return "assert"
    return "off" if _sink is not None and _sink.config.lifetimes == "off" and None in asked else "log"


class _TorchsTracker:
    """Replaces torch's own tracker for callers that still use torch's functions: wrappers that were loaded, and the
    operator of the check if it was registered, before the recording began."""

    def set_tensor(self, name: str, tensor: torch.Tensor) -> None:
        _track(calling_frame(sys._getframe(1)), tensor, name)

    def check_step_delta(
        self, expected_allocated: Sequence[str], expected_freed: Sequence[str], is_final_step: bool
    ) -> None:
        _check(calling_frame(sys._getframe(1)), expected_allocated, expected_freed, is_final_step)


_torchs_tracker = _TorchsTracker()


STAND_INS: dict[str, Callable[..., Any]] = {
    "check_memory_step": check_memory_step,
    "track_tensor": track_tensor,
    "tracked_empty_strided": tracked_empty_strided,
    "get_mem_tracker": lambda: _torchs_tracker,
}
"""Replacements for the functions of torch/_inductor/runtime/debug_utils.py, by name."""
