"""Calls in generated code that check when buffers are born and die: torch's own, without its faults.

Inductor writes them for ``torch._inductor.config.test_configs.track_memory_lifecycle``; what they call there is
torch/_inductor/runtime/debug_utils.py. The functions here take the same arguments and can stand in for those.
The calls that one run of one function makes belong together: another thread, a graph inside a graph and a run
after one that raised start afresh, since what is tracked hangs on the frame of the running function.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import PurePath
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from weakref import ref

from stepscope.tracer.inductor.compat import debug_functions_replaced, memory_checks, tracked_allocation_imported
from stepscope.tracer.records import MemoryStepMismatch, MismatchKind, Skipped
from stepscope.tracer.runtime.expected import LifetimeError
from stepscope.tracer.runtime.holders import find_holders
from stepscope.tracer.runtime.launches import running_call
from stepscope.tracer.runtime.step_names import FunctionNames, names_at

if TYPE_CHECKING:
    import torch

    from stepscope.tracer.config import TraceConfig

MOST_SAID = 10_000
_log = logging.getLogger("stepscope")
_said: set[tuple[object, ...]] = set()

_WORDS: dict[MismatchKind, str] = {
    "missing_death": "should have died and is alive",
    "unexpected_death": "has died and should be alive",
    "missing_allocation": "should have been allocated and was not",
    "unexpected_allocation": "was allocated and should not have been",
}


class Sink(Protocol):
    """What is needed of a recorder."""

    config: TraceConfig

    def layout(self, record: MemoryStepMismatch) -> None: ...
    def skipped(self, record: Skipped) -> None: ...


_sink: Sink | None = None
_stand_ins = ExitStack()


def attach(sink: Sink) -> None:
    """What is found is written there too, and done as its settings say."""
    global _sink
    _sink = sink
    _said.clear()


def stand_in() -> None:
    """Wrappers that are loaded from now on call the functions here instead of torch's."""
    _stand_ins.enter_context(debug_functions_replaced(STAND_INS))
    _stand_ins.enter_context(tracked_allocation_imported())


def detach() -> None:
    """The recorder is gone; wrappers that were loaded meanwhile go on calling the functions here."""
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
    """`torch.empty_strided` of `size` and `stride` (in elements), tracked as `name`.

    `device` keeps its index, ``cuda:1``. Raises what `torch.empty_strided` raises.
    torch/_inductor/runtime/debug_utils.py.
    """
    import torch

    tensor = torch.empty_strided(size, stride, dtype=dtype, device=device, pin_memory=pin_memory)
    _track(sys._getframe(1), tensor, name)
    return tensor


def track_tensor(tensor: torch.Tensor, name: str) -> None:
    """Track the storage of `tensor` as `name`; a storage may have several names. Raises nothing.

    Of a tensor without a storage (sparse) nothing is expected then. torch/_inductor/runtime/debug_utils.py.
    """
    _track(sys._getframe(1), tensor, name)


def check_memory_step(allocated: Sequence[str], freed: Sequence[str], is_final_step: bool = False) -> None:
    """Compare what was allocated and what has died since the last check with the names of buffers that should.

    What shares memory lives as long as the last of its names should; so a buffer that is reused, by the function's
    source, is no mismatch. Nothing is expected of names that the function has and never tracked (inputs, items of
    what an operator returned), of buffers of no bytes, and in the final step of what is returned or never deleted.
    Where the source cannot be read, only unexpected deaths and allocations are told.

    A mismatch is said once, with the bytes and with who holds a storage that should be dead: to the logger
    ``stepscope`` and in the recording that runs. Raises LifetimeError instead where the recording has
    ``lifetimes="assert"`` or torch's setting is ``assert``. torch/_inductor/runtime/debug_utils.py.
    """
    frame = sys._getframe(1)
    mode = _mode()
    steps = _steps_of(frame) if mode != "off" else None
    if steps is None:
        return
    code, line = frame.f_code, frame.f_lineno
    names = names_at(code.co_filename, line)
    found = steps.check(allocated, freed, is_final_step, names, line)
    where = f"{PurePath(code.co_filename).name}:{line}"
    if mode == "assert" and found:
        raise LifetimeError(f"stepscope: at {where}: {_in_words(found, _holders(found))}")
    new = [one for one in found if _is_new((code.co_filename, line, one.kind, one.name))]
    if new:
        _report(new, where, code.co_filename, line, is_final_step)


class Mismatch(NamedTuple):
    kind: MismatchKind
    name: str
    storage_bytes: int | None
    reference: ref[Any] | None


class _Tracked:
    """A storage, and the names that it has."""

    __slots__ = ("freed", "names", "reference", "storage_bytes")

    def __init__(self, storage: Any, died: list[_Tracked]) -> None:
        self.storage_bytes: int = storage.nbytes()
        self.names: dict[str, bool] = {}
        """In the order in which it got them; False: found in the source only."""
        self.freed: set[str] = set()
        """Names that should be dead by now."""
        self.reference = ref(storage, lambda _: died.append(self))


class MemorySteps:
    """What one run of a function has tracked. Hangs on its frame as what a debugger would be, and is none."""

    def __init__(self) -> None:
        self._reset()

    def __call__(self, *_: object) -> MemorySteps:
        """A debugger that comes later calls it for every line."""
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
            tracked = self._by_storage[id(storage)] = _Tracked(storage, self._died)
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
    ) -> list[Mismatch]:
        """The step that ends at `line`."""
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
        """Names that the statements since the last step have given to tracked storages."""
        after = self._line if self._line < line else -1
        for _, name, base in source.aliases_between(after, line):
            tracked = self._by_name.get(base)
            if tracked is not None and self._by_name.get(name) is not tracked:
                self._name(name, tracked, False)

    def _deaths(self, source: FunctionNames | None) -> list[Mismatch]:
        found = []
        for tracked in self._died:
            names = self._counted(tracked, source)
            if names and names[-1] not in tracked.freed and tracked.storage_bytes:
                found.append(Mismatch("unexpected_death", names[-1], tracked.storage_bytes, None))
        return found

    def _counted(self, tracked: _Tracked, source: FunctionNames | None) -> list[str]:
        """Its names that something is expected of."""
        scheduled = source.scheduled if source is not None else frozenset()
        return [name for name, is_told in tracked.names.items() if is_told or name in scheduled]

    def _alive(self, freed: Sequence[str], is_final: bool, source: FunctionNames | None) -> list[Mismatch]:
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
                found.append(Mismatch("missing_death", name, tracked.storage_bytes, tracked.reference))
        return found

    def _allocations(self, allocated: Sequence[str], source: FunctionNames | None, line: int) -> list[Mismatch]:
        expected = set(allocated)
        found = [
            Mismatch("unexpected_allocation", name, tracked.storage_bytes, None)
            for name, tracked in self._added.items()
            if expected.isdisjoint(tracked.names) and tracked.storage_bytes
        ]
        if source is not None:
            found += [
                Mismatch("missing_allocation", name, None, None)
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


def _track(frame: FrameType, tensor: torch.Tensor, name: str) -> None:
    steps = _steps_of(frame) if _mode() != "off" else None
    if steps is not None:
        steps.track(name, tensor)


def _steps_of(frame: FrameType) -> MemorySteps | None:
    """What hangs on `frame`, which ends with it; None: a debugger has that place."""
    steps = frame.f_trace
    if isinstance(steps, MemorySteps):
        return steps
    if steps is None and sys.gettrace() is None:
        frame.f_trace = steps = MemorySteps()
        return steps
    if _sink is not None:
        _skip(_sink, "a debugger or a coverage tool traces the functions that make them")
    return None


def _skip(to: Sink, why: str) -> None:
    if _is_new((why,)):
        to.skipped(Skipped("checks of memory steps", why))


def _mode() -> str:
    """``off``, ``log`` or ``assert``: the stricter of the recording's and torch's; ``log`` where neither says it."""
    asked = {memory_checks()} | ({_sink.config.lifetimes} if _sink is not None else set())
    if "assert" in asked:
        return "assert"
    return "off" if _sink is not None and _sink.config.lifetimes == "off" and None in asked else "log"


def _is_new(key: tuple[object, ...]) -> bool:
    if key in _said or len(_said) >= MOST_SAID:
        return False
    _said.add(key)
    return True


def _holders(found: Sequence[Mismatch]) -> list[list[str]]:
    held = [one.reference() if one.reference is not None else None for one in found]
    searched = [storage for storage in held if storage is not None]
    words = iter(find_holders(searched)) if searched else iter(())
    return [next(words) if storage is not None else [] for storage in held]


def _in_words(found: Sequence[Mismatch], holders: Sequence[list[str]]) -> str:
    parts = []
    for one, held in zip(found, holders, strict=True):
        size = f" ({one.storage_bytes:,} bytes)" if one.storage_bytes is not None else ""
        by = f"; held by {', '.join(held)}" if held else ""
        parts.append(f"{one.name}{size} {_WORDS[one.kind]}{by}")
    return "; ".join(parts)


def _report(found: list[Mismatch], where: str, filename: str, line: int, is_final: bool) -> None:
    holders = _holders(found)
    text = f"stepscope: at {where}: {_in_words(found, holders)}"
    _log.warning(text)
    if _sink is None:
        return
    call = running_call()
    record = MemoryStepMismatch(
        graph=call.graph if call is not None else None,
        call=call.number if call is not None else None,
        file=filename,
        line=line,
        is_final_step=is_final,
        kind=[one.kind for one in found],
        buffer=[one.name for one in found],
        storage_bytes=[one.storage_bytes for one in found],
        holders=holders,
    )
    _sink.layout(record)


STAND_INS = {
    "check_memory_step": check_memory_step,
    "track_tensor": track_tensor,
    "tracked_empty_strided": tracked_empty_strided,
}
"""For the functions of these names in torch/_inductor/runtime/debug_utils.py."""
