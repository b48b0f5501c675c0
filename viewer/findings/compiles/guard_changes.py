"""Describes the guards that failed in the recompiles of one frame, with their values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from stepscope.viewer.compiles.queries.events import CompileEvent
from stepscope.viewer.compiles.queries.guard_advice import advice
from stepscope.viewer.compiles.queries.guard_text import ANOTHER, EMPTY, FREED, KEYS, FailedGuard, failed_guards
from stepscope.viewer.findings.evidence import grouped
from stepscope.viewer.graphs.queries.program_names import in_wrapped_module
from stepscope.viewer.ingest.torch_trace.torch_text import is_wrapper
from stepscope.viewer.text.formats import plural

_MOST_VALUES = 5
_REQUEST = re.compile(r"\.?\s*Please (?:open|file|report) an issue\b.*")
"""Request for reports of PyTorch's own bugs, which titles omit."""
STATE = "GLOBAL_STATE changed"
_STATES = {
    "autocast_state": "autocast",
    "default_dtype": "the default dtype",
    "deterministic_algorithms": "the use of deterministic algorithms",
    "grad_mode": "grad mode",
    "num_threads": "the number of threads",
}
"""What programs call the parts of this state."""
GRADIENTS = "requires_grad of "
_STACKED = re.compile(r"\b___stack\d+")
"""A value that Python held on its stack at a graph break, as Dynamo names it."""
_NO_ATTRIBUTE = re.compile(r"^'([\w.]+)' object has no attribute '(\w+)'$")
"""The error with which a guard ended, which PyTorch writes in place of the guard."""

_DISPATCH, _DISPATCH_KEYS = "dispatch key set of ", re.compile(r"DispatchKeySet\((.*)\)")
_NOT_OF_INFERENCE = "ADInplaceOrView"
"""The dispatch key that tensors have unless they are made in inference mode."""


@dataclass(frozen=True)
class GuardChange:
    """The first failed guards of several recompiles that check the same expression."""

    source: str
    values: list[str]
    """Values that the compiled code expected or that a call passed, each once, in the order of compiles."""
    guard: str
    """The last guard, as PyTorch writes it."""
    recompiles: int
    is_static: bool = False
    """Whether PyTorch makes no size dynamic that has changed."""

    @property
    def advice(self) -> str | None:
        """Return a change of the program that would avoid these recompiles, or None if none is known."""
        return advice(self.source, self.values, self.guard, is_static=self.is_static)

    @property
    def is_of_grad_mode(self) -> bool:
        """Return whether grad mode changed alone, as for an evaluation."""
        return self.source == f"{STATE}: grad_mode"

    @property
    def is_of_gradients(self) -> bool:
        """Return whether an input requires gradients now, or no longer."""
        return self.source.startswith(GRADIENTS)

    @property
    def text(self) -> str:
        """Return text like ``self.step changed (0, 1, 2, … 7)``, or the guard that failed if one value is known."""
        if self.source.startswith(KEYS):
            return f"the {self.source} changed" + (f" ({self._shown})" if len(self.values) > 1 else "")
        if len(self.values) < 2:
            if self.source.startswith(FREED) and _STACKED.search(self.source):
                return "an object that is made before the graph break, and for which the code was compiled, was freed"
            if self.source.startswith(FREED):
                return f"{self.source.removeprefix(FREED)}, for which the code was compiled, was freed"
            if self.source.startswith(("type of ", "identity of ")):  # the guard names addresses
                return f"the {self.source} changed"
            if self.source == ANOTHER:
                return f"{ANOTHER} was compiled"
            if self.values == [EMPTY]:
                return f"{self.source} is no longer empty"
            if self.source.startswith(STATE):
                return _state_text(self.source)
            if missing := _NO_ATTRIBUTE.match(self.guard):
                value = "None" if missing[1] == "NoneType" else f"of the type {missing[1]}"
                return f"a guard reads the attribute {missing[2]} of a value that is now {value}"
            return self.guard if ": " in self.guard else f"the guard {self.guard} failed"
        if (kind := self._of_inference()) is not None:
            return kind
        if len(self.values) == 2:
            return f"{self.source} changed from {self.values[0]} to {self.values[1]}"
        return f"{self.source} changed ({self._shown})"

    def _of_inference(self) -> str | None:
        """Return that a tensor is made in inference mode now, or no longer, if the dispatch keys differ in nothing
        else."""
        sets = [found.group(1).split(", ") for value in self.values if (found := _DISPATCH_KEYS.fullmatch(value))]
        if len(self.values) != 2 or len(sets) != 2 or {*sets[0]} ^ {*sets[1]} != {_NOT_OF_INFERENCE}:
            return None
        since = "now" if _NOT_OF_INFERENCE in sets[0] else "no longer"
        return f"{self.source.removeprefix(_DISPATCH)} is {since} a tensor of torch.inference_mode()"

    @property
    def _shown(self) -> str:
        """Return the first values and the last one."""
        first, last = self.values[: _MOST_VALUES - 1], self.values[-1]
        return ", ".join(self.values if len(self.values) <= _MOST_VALUES else [*first, f"… {last}"])


def _state_text(source: str) -> str:
    """Return text like ``grad mode and the default dtype changed``."""
    parts = source.removeprefix(STATE).strip(": ").split()
    return f"{' and '.join(_STATES.get(part, part) for part in parts) or 'a global state of PyTorch'} changed"


def reasons_of(events: Iterable[CompileEvent]) -> list[str]:
    """Return the reason of each recompile as PyTorch writes it, without the compile whose guard failed."""
    return [_REQUEST.sub("", event.cause.partition(": ")[2] or event.cause) for event in events]


def guard_changes(events: Sequence[CompileEvent]) -> list[GuardChange]:
    """Return the guards that failed first in the recompiles, the most frequent one first, of equal ones the last."""
    first = [_first_guard(event, reason) for event, reason in zip(events, reasons_of(events), strict=True)]
    first = _with_keys(first, events)
    is_static = any(event.is_static for event in events)
    changes = [_change(same, is_static) for same in grouped(first, lambda guard: guard.source)]
    return sorted(reversed(changes), key=lambda change: -change.recompiles)


def _with_keys(guards: Iterable[FailedGuard], events: Iterable[CompileEvent]) -> list[FailedGuard]:
    """Return the guards, of which those that check the length of a dictionary count as checks of its keys."""
    sources = {guard.source for event in events for guard in failed_guards(event.text)}
    keys = {f"len({source.removeprefix(KEYS)})": source for source in sources if source.startswith(KEYS)}
    return [replace(one, source=keys[one.source], expected=None) if one.source in keys else one for one in guards]


def changes_text(changes: Sequence[GuardChange]) -> str:
    """Return the most frequent change and the number of other guards; "" without changes."""
    if not changes:
        return ""
    others = len(changes) - 1
    return changes[0].text + (f", and {plural(others, 'other guard')} failed" if others else "")


def advice_lines(changes: Sequence[GuardChange]) -> list[str]:
    """Return the advice for the most frequent change, and what its name means, as the lines of a proof."""
    if not changes:
        return []
    stacked = _STACKED.search(changes[0].text)
    meant = f"{stacked[0]} is a value from before the graph break after which this code resumes." if stacked else None
    return [line for line in (meant, changes[0].advice) if line]


def _first_guard(event: CompileEvent, reason: str) -> FailedGuard:
    """Return the guard that failed first. A compile for another state, such as that of training for a call of an
    evaluation, says nothing about a compile for the same state that failed, too."""
    guard = failed_guards(f"{event.compile_id}: {reason}")[0]
    if guard.guard.startswith(STATE) or _is_of_another(event, guard):
        others = (one for one in failed_guards(event.text) if not one.guard.startswith(STATE))
        guard = next((one for one in others if not _is_of_another(event, one)), guard)
    if _is_of_another(event, guard):
        return replace(guard, source=ANOTHER)
    return replace(guard, source=in_wrapped_module(event.frame_file, guard.source))


def is_of_another(event: CompileEvent) -> bool:
    """Return whether a recompile is the first compile of one of torch's own modules or functions, which share a frame
    with each other."""
    return all(_is_of_another(event, guard) for guard in failed_guards(event.text))


def _is_of_another(event: CompileEvent, guard: FailedGuard) -> bool:
    return guard.source in ("type of fn", "identity of fn") and is_wrapper(event.frame_file or "")


def _change(guards: Sequence[FailedGuard], is_static: bool) -> GuardChange:
    values = [value for guard in guards for value in (guard.expected, guard.actual) if value is not None]
    return GuardChange(guards[-1].source, list(dict.fromkeys(values)), guards[-1].guard, len(guards), is_static)
