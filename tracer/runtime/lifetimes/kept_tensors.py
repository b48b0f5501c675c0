"""Finds tensors outside of compiled code of which more and more stay alive, such as those in a cache or a list."""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from itertools import pairwise
from threading import Lock
from time import perf_counter_ns
from typing import Any, NamedTuple, Protocol

from stepscope.tracer.inductor.compat import without_modes
from stepscope.tracer.runtime.lifetimes.kept_holders import Holder, described, growing
from stepscope.tracer.runtime.lifetimes.live_tensors import Count, TensorForm, counted, live_tensors
from stepscope.tracer.runtime.lifetimes.tracker import Tracker
from stepscope.tracer.schema.memory import KeptTensors

LOOKS = (6, 12, 18), (100, 200, 300), (1000, 2000, 3000)
"""The steps in which tensors are counted. A later series follows if none grew in one, or if it would have cost too
much."""
LEAST_BYTES = 64 << 10
"""Bytes per step by which tensors of one form must grow."""
MOST_FORMS = 4
MOST_SHARE = 0.02
"""Largest share of the time since the recording began that the looks may take."""
FIRST_NS = 100_000_000
"""What the first look is assumed to take."""
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
    def write(self, record: KeptTensors) -> None: ...
    def failed(self, where: str, error: BaseException) -> None: ...


class Look(NamedTuple):
    """The numbers of tensors at the begin of a step; no tensor itself."""

    step: int
    ns: int
    counts: dict[TensorForm, Count]


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

    def _may_look(self) -> bool:
        tracker = self._sink.lifetimes
        return self._sink.is_on and tracker is not None and tracker.is_on and not self._sink.cuda_graphs.is_capturing()

    def _look(self, step: int) -> None:
        began = perf_counter_ns()
        if self._spent_ns + self._longest_ns > MOST_SHARE * (began - self._began_ns):
            self._begin(step)
            return
        with without_modes():
            counts = counted(live_tensors(self._followed()))
        self._longest_ns = perf_counter_ns() - began
        self._spent_ns += self._longest_ns
        self._looked = step
        self._looks.append(Look(step, began, counts))
        if len(self._looks) < len(self._steps):
            self._due = max(self._steps[len(self._looks)], step + 1)
        elif self._has_told():
            self._due = NEVER
        else:
            self._begin(step)

    def _followed(self) -> set[int]:
        """Return the `id` of each live storage that a graph has allocated."""
        tracker = self._sink.lifetimes
        live = tracker.storages() if tracker is not None else []
        return {id(storage) for one in live if not one.is_given and (storage := one.reference()) is not None}

    def _has_told(self) -> bool:
        """Write a record of each form that grew and whose holder has a name; return whether there is any."""
        forms = grown(self._looks)
        if not forms:
            return False
        if gc.isenabled() and not gc.get_freeze_count():  # what only reference cycles keep alive is no leak
            gc.collect()
        with without_modes():
            groups = live_tensors(self._followed())
            last, counts = self._looks[-1].counts, counted(groups)
            self._looks[-1] = self._looks[-1]._replace(counts=counts)
            first = {form: self._looks[0].counts.get(form, NONE) for form in forms}
            forms = [one for one in forms if 2 * _added(first[one], counts.get(one)) > _added(first[one], last[one])]
            del forms[MOST_FORMS:]
            groups = {form: groups[form] for form in forms}  # no other tensor is held by this search
            found = [growing(groups.pop(form), _added(first[form], counts[form])) for form in forms]
            holders = [described(one) for one in found]
        for form, holder in zip(forms, holders, strict=True):
            if holder is not None:
                self._sink.write(self._record(form, holder))
        return any(holder is not None for holder in holders)

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
        )


def _added(first: Count, last: Count | None) -> int:
    return (last or NONE).tensors - first.tensors


def grown(looks: Sequence[Look]) -> list[TensorForm]:
    """Return the forms of which each step added at least one tensor and enough bytes, most bytes first."""
    forms = {form for form in looks[-1].counts if all(_grows(form, one, other) for one, other in pairwise(looks))}
    return sorted(forms, key=lambda form: -looks[-1].counts[form].storage_bytes)


def _grows(form: TensorForm, before: Look, after: Look) -> bool:
    then, now = before.counts.get(form, NONE), after.counts[form]
    steps = after.step - before.step
    return now.tensors - then.tensors >= steps and now.storage_bytes - then.storage_bytes >= LEAST_BYTES * steps
