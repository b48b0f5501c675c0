"""Finds tensors outside of compiled code of which more and more stay alive, such as those in a cache or a list, and
what holds the results of compiled code that steps leave behind."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import chain, pairwise, repeat
from threading import Lock
from time import monotonic, perf_counter_ns
from typing import Any, NamedTuple, Protocol

from stepscope.tracer.inductor.compat import without_modes
from stepscope.tracer.runtime.lifetimes.growth import growth_so_far
from stepscope.tracer.runtime.lifetimes.holders import searching
from stepscope.tracer.runtime.lifetimes.kept_holders import Holder, described, growing
from stepscope.tracer.runtime.lifetimes.live_tensors import Count, TensorForm, counted, live_tensors, storages, without
from stepscope.tracer.runtime.lifetimes.tracker import Tracker
from stepscope.tracer.schema.memory import Growth, KeptTensors

LOOKS = (6, 12, 18), (100, 200, 300), (1000, 2000, 3000)
"""The steps in which tensors are counted, or later if it would have cost too much. A later series follows if none grew
in one, if it was not complete by then, and after the first one in any case: what grew there may have been freed since,
as at the end of an episode."""
LEAST_STEPS = 3
"""Least number of steps from the last look but one to the last step of a recording."""
LEAST_BYTES = 64 << 10
"""Bytes per step by which tensors of one form must grow."""
MOST_FORMS = 4
MOST_SHARE = 0.02
"""Largest share of the time since the recording began that looks and searches have taken, for another look to begin
that is not the last one of a series in which tensors have grown."""
FIRST_NS = 100_000_000
"""What the first look is assumed to take."""
SECONDS = 1.0
"""Time after which a search for holders does not look through the heap once more."""
NEVER = sys.maxsize
NONE = Count(0, 0, 0)


class KeptSink(Protocol):
    """The part of the recorder that is used here."""

    @property
    def is_on(self) -> bool: ...
    @property
    def lifetimes(self) -> Tracker | None: ...
    @property
    def cuda_graphs(self) -> Any: ...
    def write(self, record: KeptTensors | Growth) -> None: ...
    def failed(self, where: str, error: BaseException) -> None: ...


class Look(NamedTuple):
    """The numbers of tensors at the start of a step, and the addresses of their storages; no tensor itself."""

    step: int
    ns: int
    counts: dict[TensorForm, Count]
    storages: frozenset[int]


class KeptTensorsWatch:
    """Counts the live tensors in a few steps. What holds them is searched only if there are more and more."""

    def __init__(self, sink: KeptSink) -> None:
        self._sink = sink
        self._began_ns = perf_counter_ns()
        self._spent_ns, self._longest_ns = 0, FIRST_NS
        self._lock = Lock()
        self._looks: list[Look] = []
        self._steps: Sequence[int] = ()
        self._due, self._looked = NEVER, -1
        """The step of the next look, and that of the last one."""
        self._restart()

    def at_step(self, step: int) -> int:
        """Look at the live tensors if it is time in this step, and return the step. Raises nothing."""
        if (step >= self._due or step + 1 < self._looked) and self._lock.acquire(blocking=False):
            try:
                if step + 1 < self._looked:
                    self._restart()
                if step >= self._due and self._may_look():
                    self._look(step)
            except Exception as error:
                self._due, self._looked = NEVER, -1
                self._sink.failed("kept tensors", error)
            finally:
                self._lock.release()
        return step

    def at_end(self, step: int) -> None:
        """Look once more after the last step if only the last look of a series in which tensors grew is missing."""
        with self._lock:
            if self._lacks_one() and step - self._looks[-1].step >= LEAST_STEPS and self._follows_all():
                self._write(self._count(step, perf_counter_ns()))

    def _restart(self) -> None:
        """Begin again, as when what seemed to be steps were parts of the first one."""
        self._series = iter(LOOKS)
        self._looked = -1
        self._begin(-1)

    def _begin(self, after: int) -> None:
        """Begin the next series of looks that are after a step."""
        self._looks = []
        self._steps = next((steps for steps in self._series if steps[0] > after), ())
        self._due = self._steps[0] if self._steps else NEVER

    @property
    def _spacing(self) -> int:
        return self._steps[1] - self._steps[0]

    def _delay(self, step: int) -> None:
        """Look again in a later step of the series, unless the next one begins by then."""
        self._due = step + self._spacing
        if any(self._steps[-1] < first <= self._due for first, *_ in LOOKS):
            self._begin(step)

    def _may_look(self) -> bool:
        return self._sink.is_on and not self._sink.cuda_graphs.is_capturing() and self._follows_all()

    def _follows_all(self) -> bool:
        """Return whether all calls are followed; else results of graphs would seem to be from elsewhere."""
        tracker = self._sink.lifetimes
        return tracker is not None and tracker.is_on and tracker.every == 1

    def _look(self, step: int) -> None:
        began = perf_counter_ns()
        if self._spent_ns + self._longest_ns > MOST_SHARE * (began - self._began_ns) and not self._lacks_one():
            self._delay(step)
            return
        holders = self._count(step, began)
        if len(self._looks) < len(self._steps):
            self._due = max(self._steps[len(self._looks)], step + self._spacing)
            return
        self._write(holders)
        self._look_at_growth(step)
        if holders and self._steps is not LOOKS[0]:
            self._due = NEVER
        else:
            self._begin(step)

    def _lacks_one(self) -> bool:
        """Return whether only the last look of a series is missing, and tensors have grown so far."""
        return len(self._looks) == len(self._steps) - 1 > 0 and bool(grown(self._looks))

    def _write(self, holders: dict[TensorForm, Holder]) -> None:
        for form, holder in holders.items():
            self._sink.write(self._record(form, holder))

    def _look_at_growth(self, step: int) -> None:
        began, tracker = perf_counter_ns(), self._sink.lifetimes
        with without_modes():
            for record in growth_so_far(tracker, step) if tracker is not None else ():
                self._sink.write(record)
        self._spent_ns += perf_counter_ns() - began

    def _count(self, step: int, began: int) -> dict[TensorForm, Holder]:
        """Count the tensors; return the holders with names of those that grew, after the last look of a series."""
        try:
            with searching(), without_modes():
                groups = live_tensors(self._followed())
                self._looks.append(Look(step, began, counted(groups), storages(groups)))
                self._looked = step
                self._longest_ns = perf_counter_ns() - began
                return self._holders(groups) if len(self._looks) == len(self._steps) else {}
        finally:
            self._spent_ns += perf_counter_ns() - began

    def _followed(self) -> set[int]:
        """Return the `id` of each live storage that a graph has allocated."""
        tracker = self._sink.lifetimes
        live = tracker.storages() if tracker is not None else []
        return {id(storage) for one in live if not one.is_given and (storage := one.reference()) is not None}

    def _holders(self, groups: dict[TensorForm, list[Any]]) -> dict[TensorForm, Holder]:
        """Return the holders with names of the forms that grew. Empties `groups`."""
        deadline = monotonic() + SECONDS
        old = self._looks[0].storages
        kept = {form: without(groups[form], old) for form in grown(self._looks)[:MOST_FORMS]}
        groups.clear()  # no other tensor is held by this search
        added = {form: self._looks[-1].counts[form].tensors - _first(self._looks, form).tensors for form in kept}
        limits = chain([deadline], repeat(deadline - SECONDS / 2))  # the others leave time for the description
        found = [(form, growing(kept.pop(form), number, next(limits))) for form, number in added.items()]
        named = [(form, described(one, deadline)) for form, one in found]
        return {form: holder for form, holder in named if holder is not None}

    def _record(self, form: TensorForm, holder: Holder) -> KeptTensors:
        counts = [look.counts.get(form, NONE) for look in self._looks]
        return KeptTensors(
            step=[look.step for look in self._looks],
            ns=[look.ns for look in self._looks],
            tensors=[one.tensors for one in counts],
            with_graph=[one.with_graph for one in counts],
            storage_bytes=[one.storage_bytes for one in counts],
            dtype=form.dtype,
            sizes=list(form.sizes),
            device=form.device,
            holder=holder.words,
            hits=holder.hits,
            lost_keys=holder.lost_keys,
            most_elements=holder.most_elements,
            file=holder.file,
            line=holder.line,
            cycle_is_collected=holder.cycle_is_collected,
        )


def _first(looks: Sequence[Look], form: TensorForm) -> Count:
    return looks[0].counts.get(form, NONE)


def grown(looks: Sequence[Look]) -> list[TensorForm]:
    """Return the forms of which each step added at least one tensor and enough bytes, most bytes first."""
    forms = {form for form in looks[-1].counts if all(_grows(form, one, other) for one, other in pairwise(looks))}
    return sorted(forms, key=lambda form: -looks[-1].counts[form].storage_bytes)


def _grows(form: TensorForm, before: Look, after: Look) -> bool:
    then, now = before.counts.get(form, NONE), after.counts.get(form, NONE)
    steps = after.step - before.step
    return now.tensors - then.tensors >= steps and now.storage_bytes - then.storage_bytes >= LEAST_BYTES * steps
