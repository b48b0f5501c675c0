"""Converts printed model runs to the records that a recording in the process itself would have written."""

from __future__ import annotations

import math
import os
import platform
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from stepscope.tracer._version import __version__
from stepscope.tracer.aoti.printed_graphs import alike, assignment, continues, file, graph, key, tensor
from stepscope.tracer.aoti.printed_launches import LaunchPrints, ModelRun
from stepscope.tracer.aoti.printer_output import PrintedTensor
from stepscope.tracer.aoti.printing_code import PrintingCodes, with_code
from stepscope.tracer.aoti.profiler_times import Durations
from stepscope.tracer.aoti.saved_files import Kept
from stepscope.tracer.runtime.argument_forms import TOO_MANY, ArgumentForms
from stepscope.tracer.schema.constants import FORMAT_VERSION
from stepscope.tracer.schema.gaps import Skipped
from stepscope.tracer.schema.graphs import Graph
from stepscope.tracer.schema.launches import Calls, DeviceTimes, Launches, SameTensors, TensorMeta, Tensors
from stepscope.tracer.schema.record import Record
from stepscope.tracer.schema.records import Run
from stepscope.tracer.schema.scalars import CallSymbols, InputSize
from stepscope.tracer.schema.statistics import COUNTS, NONFINITE, RECORDED_NUMBERS, Exact, Sparse, Values
from stepscope.tracer.schema.steps import Steps
from stepscope.tracer.schema.values import OF_THE_CALL, Moment, SavedTensor, ValueLayout

NOT_RETURNED, UNKNOWN_END = -1, -2
PRINTER = "PyTorch's debug printer"
_Row = tuple[int, int, Moment, PrintedTensor]


def run_record(argv: Sequence[str], pid: int, level: str, rank: int | None = None) -> Run:
    """Return the run record of a process whose output is read. Its version of torch is unknown, and the version of
    Python is that of the process which reads the output."""
    return Run(
        format_version=FORMAT_VERSION, stepscope_version=__version__, python_version=platform.python_version(),
        torch_version=None, triton_version=None, cuda_version=None, devices=[], rank=rank, world_size=None, pid=pid,
        parent_pid=os.getpid(), argv=list(argv), config={}, level=level, monotonic_ns=time.perf_counter_ns(),
        unix_ns=time.time_ns(), utc_offset_s=time.localtime().tm_gmtoff,
    )  # fmt: skip


class PrintedLog:
    """Converts runs to records, in their order."""

    def __init__(
        self,
        base_ns: int,
        wants: Callable[[str], bool],
        times: Durations | None = None,
        codes: PrintingCodes | None = None,
    ) -> None:
        """Create the converter.

        `wants` returns whether a kernel's values and saved tensors are recorded; `times` are the durations of the
        launches from a profiler; `codes` looks up the generated code.
        """
        self._base_ns, self.wants, self._times, self._codes = base_ns, wants, times, codes
        self._of_kernel: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
        """Call and position of each launch of a kernel, if there are times from a profiler."""
        self._graphs: dict[tuple[tuple[str, tuple[str, ...]], ...], Graph] = {}
        self._last: tuple[tuple[str, tuple[str, ...]], ...] = ()
        self._sizes: dict[int, list[InputSize]] = {}
        """Symbols that are sizes of inputs, for graphs whose code is known."""
        self._layouts: dict[tuple[object, ...], int] = {}
        self._forms: dict[int, ArgumentForms] = {}
        self._position = 0
        self._lanes: set[int] = set()
        self.calls = 0
        self.launches = 0
        self.skipped: Counter[tuple[str, str]] = Counter()

    def records(self, run: ModelRun, *, is_cut_off: bool = False) -> Iterator[Record]:
        """Yield the records of a run; `is_cut_off` says that the text ended during the run."""
        self._lanes.add(run.lane)
        if not run.launches:
            self.skipped["statistics of a model's inputs", "no launch of that run was printed"] += 1
            return
        if not (is_cut_off and continues(self._last, key(run))):
            self._last = key(run)
        known = self._graphs.get(self._last)
        if known is None:
            known = self._graphs[self._last] = self._graph(run)
            yield known
        call, self.calls = self.calls, self.calls + 1
        self.launches += len(run.launches)
        yield from self._tensors(known, call, run)
        yield from self._launches(known, call, run)
        assigned = assignment(known.symbols, run, self._sizes.get(known.graph, ()))
        if assigned is not None:
            yield CallSymbols([call], [0], [assigned])
        yield from self._values(known, call, run)
        yield from self._saved(call, run)

    def _graph(self, run: ModelRun) -> Graph:
        made = graph(len(self._graphs), run)
        code = self._codes.of(run) if self._codes is not None else None
        if code is None:
            return made
        self._sizes[made.graph] = code.sizes
        return with_code(made, code)

    def end(self) -> Iterator[Record]:
        """Yield the times from a profiler, and records about the limits of printed text."""
        yield from self._profiled()
        if any(site.arguments for known in self._graphs.values() for site in known.sites):
            yield Skipped("arguments of launches", f"{PRINTER} leaves out weights, views and what a fallback returns")
        if len(self._lanes) > 1:
            why = "several threads printed at the same time, so a launch may be assigned to the run of another thread"
            yield Skipped("which run a launch belongs to", why)
        if self._position:
            yield Skipped("times of launches", "the text contains no times, so starts are positions in the text")
        else:
            why = "the times shown are those at which the printed lines before and after each launch were read"
            yield Skipped("times of launches", why)
        for (what, why), count in self.skipped.items():
            yield Skipped(what, f"{why} ({count:,} times)" if count > 1 else why)

    def _profiled(self) -> Iterator[Record]:
        """Yield the times of kernels that have equally many launches in the profile and the text."""
        for kernel, places in self._of_kernel.items():
            times = (self._times or {}).get(kernel, ())
            if len(times) == len(places):
                calls, positions = zip(*places, strict=True)
                yield DeviceTimes(list(calls), list(positions), list(times), "profiler")
            else:
                why = f"the profile has {len(times):,} of them, the text {len(places):,}"
                yield Skipped(f"durations of the launches of {kernel}", why)

    def _launches(self, known: Graph, call: int, run: ModelRun) -> Iterator[Record]:
        starts, ends = zip(*[self._interval(launch) for launch in run.launches], strict=True)
        start_ns, end_ns = starts[0], max((*starts, *ends))
        timed = run.launches[0].begin_ns is not None and end_ns > start_ns
        returned = all(launch.returned for launch in run.launches)
        state = "printed" if not timed else "ok" if returned else "raised"
        columns = Calls(
            [call], [known.graph], [0], [call], [run.lane], [None], [start_ns], [end_ns - start_ns],
            [len(starts)], [state],
        )  # fmt: skip
        if run.launches[0].begin_ns is not None and returned:
            yield Steps([call], ["inference"], ["call"], [start_ns], [end_ns if timed else UNKNOWN_END])
        yield Launches(columns, list(range(len(starts))), list(starts), list(ends))
        if self._times is not None:
            for position, launch in enumerate(run.launches):
                self._of_kernel[launch.kernel].append((call, position))

    def _interval(self, launch: LaunchPrints) -> tuple[int, int]:
        """Return when the lines of a launch were read, or its position in a text without times."""
        if launch.begin_ns is None:
            self._position += 1
            return self._base_ns + self._position, UNKNOWN_END if launch.returned else NOT_RETURNED
        if not launch.returned:
            return launch.begin_ns, NOT_RETURNED
        is_known = launch.end_ns is not None and launch.end_ns > launch.begin_ns  # else both were read at once
        return launch.begin_ns, launch.end_ns if is_known and launch.end_ns else UNKNOWN_END

    def _tensors(self, known: Graph, call: int, run: ModelRun) -> Iterator[Tensors | SameTensors]:
        forms = self._forms.setdefault(
            known.graph, ArgumentForms(known.graph, [len(site.arguments) for site in known.sites])
        )
        for number, launch in enumerate(run.launches):
            metas: list[TensorMeta] = []
            for position in range(len(launch.arguments)):
                one = tensor(launch, position, "before") or tensor(launch, position, "after")
                if one is not None and one.dtype and one.size is not None and one.stride is not None and one.device:
                    metas.append(TensorMeta(position, one.dtype, one.size, one.stride, one.device, None, None))
            form = tuple((m.argument, m.dtype, *m.size, None, *m.stride) for m in metas)
            record = forms.record_of(call, number, 0, form, metas.copy) if metas else None
            if record is not None:
                yield record
            if isinstance(record, Tensors) and forms.is_full(number, 0):
                self.skipped["sizes of a launch site", TOO_MANY] += 1

    def _values(self, known: Graph, call: int, run: ModelRun) -> Iterator[Record]:
        rows = [*_inputs(known, run), *_rows(known, run, self.wants)]
        whole = [row for row in rows if row[3].whole and row[3].numel is not None and row[3].dtype]
        if len(whole) < len(rows):
            why = "a printed block is incomplete, or the lines of several threads are mixed in it"
            self.skipped["statistics of an argument", why] += len(rows) - len(whole)
        if not whole:
            return
        about = [(s, a, m, t.dtype, t.numel, _unknown(t)) for s, a, m, t in whole]
        form = (known.graph, *about)
        if form not in self._layouts:
            self._layouts[form] = len(self._layouts)
            nothing: list[None] = [None] * len(whole)
            yield ValueLayout(
                self._layouts[form], known.graph, [s for s, *_ in whole], [a for _, a, *_ in whole],
                [m for *_, m, _ in whole], list(nothing), list(nothing), [t.dtype or "" for *_, t in whole],
                [t.numel or 0 for *_, t in whole], [t.numel or 0 for *_, t in whole], [why for *_, why in about],
            )  # fmt: skip
        yield _encode(call, self._layouts[form], [t for *_, t in whole])

    def _saved(self, call: int, run: ModelRun) -> Iterator[SavedTensor]:
        moments: tuple[Moment, ...] = ("before", "after")
        for site, launch in enumerate(run.launches):
            for moment in moments if self.wants(launch.kernel) else ():
                for position in range(len(launch.arguments)):
                    named = file(launch, position, moment)
                    if named is None:
                        continue
                    kept = named.kept or Kept(_NOT_KEPT)
                    if kept.problem is None:
                        yield SavedTensor(
                            call, site, position, None, moment, kept.file, kept.dtype, kept.size, kept.tensor_bytes,
                            kept.sha256,
                        )  # fmt: skip
                    else:
                        self.skipped["saved tensors", kept.problem] += 1


_NOT_KEPT = "their files are where the printer wrote them; the next launch of a kernel overwrites them"


def _inputs(known: Graph, run: ModelRun) -> Iterator[_Row]:
    """Yield the inputs of the model that no launch names, as values of the call."""
    for position, name in enumerate(known.inputs):
        if name in run.inputs:
            yield OF_THE_CALL, position, "before", run.inputs[name]


def _rows(known: Graph, run: ModelRun, wants: Callable[[str], bool]) -> Iterator[_Row]:
    """Yield each version of a buffer once: after the launch that wrote it, else before the first that used it.

    Launches of kernels that `wants` rejects are skipped.
    """
    seen: dict[tuple[int, int, str], PrintedTensor] = {}
    for number, launch in enumerate(run.launches):
        if not wants(launch.kernel):
            continue
        for position in range(len(launch.arguments)):
            argument = known.sites[number].arguments[position]
            before, after = tensor(launch, position, "before"), tensor(launch, position, "after")
            version = argument.version
            if before is not None and version is not None:
                earlier = seen.get((version.site, version.argument, version.moment))
                if not alike(earlier, before):
                    seen[number, position, "before"] = before
                    yield number, position, "before", before
            if after is not None and (argument.role != "in" or not alike(before, after)):
                seen[number, position, "after"] = after
                yield number, position, "after", after


def _unknown(one: PrintedTensor) -> str | None:
    """Return why a row has no statistics, or None if it has."""
    if one.numel and (one.min is None or one.max is None):
        return f"{PRINTER} prints no minimum or maximum of {one.dtype}"
    return None


def _bad(one: PrintedTensor) -> tuple[tuple[int, int, int], bool]:
    """Return the numbers of NaN, +inf and -inf, and whether they are lower bounds.

    The printed minimum and maximum are NaN if any element is.
    """
    if one.min is None or one.max is None or (math.isfinite(one.min) and math.isfinite(one.max)):
        return (0, 0, 0), False
    least = int(one.min != one.min), int(one.max == math.inf), int(one.min == -math.inf)
    if one.bad is not None and all(bool(n) >= m for n, m in zip(one.bad, least, strict=True)):
        return one.bad, False
    return least, True


def _encode(call: int, layout: int, rows: list[PrintedTensor]) -> Values:
    bad = [_bad(one) for one in rows]
    columns: dict[str, Any] = {name: Sparse([], []) for name in COUNTS}
    for which, name in enumerate(NONFINITE):
        found = [(row, counts[which]) for row, (counts, _) in enumerate(bad) if counts[which]]
        columns[name] = Sparse([row for row, _ in found], [count for _, count in found])
    for name in RECORDED_NUMBERS:
        columns[name] = [_finite(getattr(one, name, None)) for one in rows]
    return Values(
        call=[call], layout=[layout], first_bad=Sparse([], []), exact=Exact([], [], []),
        at_least=[row for row, (_, is_least) in enumerate(bad) if is_least], **columns,
    )  # fmt: skip


def _finite(value: float | None) -> float | None:
    """Return `value` if it is finite, and so is a statistic of finite elements, else None."""
    return value if value is not None and math.isfinite(value) else None
