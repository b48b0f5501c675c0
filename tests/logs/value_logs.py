"""Builds logs with values: graphs from short descriptions of launches, and calls with statistics of tensors."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from stepscope.tracer.schema.graphs import (
    Argument,
    Graph,
    Held,
    LaunchKind,
    LaunchSite,
    MemoryStatement,
    Provenance,
    Role,
    SiteProvenance,
    Version,
)
from stepscope.tracer.schema.launches import Calls, Launches, TensorMeta, Tensors
from stepscope.tracer.schema.process_ends import End, Frame, Overhead
from stepscope.tracer.schema.statistics import Exact, Sparse, Values
from stepscope.tracer.schema.values import Moment, ValueLayout
from tests.logs.synthetic import MONOTONIC_NS, LogBuilder, run

LAUNCH_NS, CALL_NS = 100, 100_000


@dataclass(frozen=True)
class Stat:
    """The statistics of one value row."""

    numel: int = 64
    nan: int = 0
    pinf: int = 0
    ninf: int = 0
    zero: int = 0
    near: int = 0
    sub: int = 0
    min: float | None = -1.0
    max: float | None = 1.0
    mean: float | None = 0.25
    std: float | None = 0.5
    first_bad: int | None = None
    dtype: str = "float32"
    looked_at: int | None = None
    skipped: str | None = None
    exact: tuple[Any, Any] | None = None
    item: int | None = None
    part: str | None = None
    digest: int = 0
    """0 if unknown."""


FINE = Stat()
NAN = Stat(nan=5, first_bad=17)
ALL_NAN = Stat(nan=64, min=None, max=None, mean=None, std=None, first_bad=0)
PLUS = Stat(pinf=3, first_bad=2)
MASK = Stat(ninf=28, first_bad=1)


@dataclass
class Program:
    """A builder of one graph, which tracks the row of each argument's version as the recorder does."""

    number: int = 0
    phase: Any = "forward"
    compile_id: str = "0/0"
    again: bool = False
    """Whether every argument is read before each launch."""
    sites: list[LaunchSite] = field(default_factory=list)
    memory: list[MemoryStatement] = field(default_factory=list)
    layout: list[tuple[int, int, Moment, str]] = field(default_factory=list)
    """(site, argument, moment, name) in the order of reading."""
    rows: dict[str, Version] = field(default_factory=dict)
    allocated: set[str] = field(default_factory=set)
    stacks: dict[int, str] = field(default_factory=dict)

    def allocate(self, *names: str) -> Program:
        for name in names:
            self.allocated.add(name)
            self.memory.append(MemoryStatement("allocate", name, "call", len(self.sites) + 10))
        return self

    def reuse(self, name: str, of: str) -> Program:
        """Let `name` take over the memory of `of`."""
        self.allocated.add(name)
        self.memory.append(MemoryStatement("reuse", name, "call", len(self.sites) + 10, of))
        return self

    def free(self, *names: str) -> Program:
        for name in names:
            self.memory.append(MemoryStatement("free", name, "call", len(self.sites) + 10))
        return self

    def launch(
        self,
        kernel: str,
        reads: Sequence[str] = (),
        writes: Sequence[str] = (),
        kind: LaunchKind = "extern",
        aten: Sequence[str] = (),
        fx: Sequence[str] = (),
        parameters: Mapping[int, str] | None = None,
    ) -> Program:
        """Add a launch; a name in both `reads` and `writes` is one argument with the role inout."""
        site, arguments = len(self.sites), []
        names = [*reads, *(name for name in writes if name not in reads)]
        for position, name in enumerate(names):
            role: Role = "in" if name not in writes else "inout" if name in reads else "out"
            storage = name.split("@")[0]
            known = self.rows.get(name)
            held: Held = "written" if known and known.moment == "after" else "input"
            if known is None and (storage in self.allocated or (role == "out" and storage.startswith("buf"))):
                held = "uninitialised"
            if role != "out" and held != "uninitialised" and (known is None or self.again):
                version = Version(site, position, "before")
                self.layout.append((site, position, "before", name))
                known = self.rows[name] = known or version
            parameter = (parameters or {}).get(position)
            version_or_none = known if role != "out" else None
            arguments.append(Argument(name, role, storage, parameter, storage, held, version_or_none))
        for position, name in enumerate(names):
            if name in writes:
                self.rows[name] = Version(site, position, "after")
                self.layout.append((site, position, "after", name))
        self.sites.append(
            LaunchSite(site, "call", site + 10, kernel, kind, arguments, [], aten=list(aten), snodes=[f"op{site}"])
        )
        if fx:
            self.stacks[site] = ",".join(fx)
        return self

    def graph(self) -> Graph:
        return Graph(
            graph=self.number, wrapper_key=f"cw{self.number}", compile_id=self.compile_id,
            aot_id=f"{self.number}_{self.phase}", phase=self.phase, cached=False, dynamic=False, functions=["call"],
            sites=self.sites, memory=self.memory,
        )  # fmt: skip

    def provenance(self) -> Provenance:
        frames = [Frame("/src/model.py", 10 + site.site, "forward", f"line of {site.kernel}") for site in self.sites]
        sites = [
            SiteProvenance(s.site, [[s.site]], self.stacks.get(s.site, "").split(",") if s.site in self.stacks else [])
            for s in self.sites
        ]
        return Provenance(self.number, frames, sites)


class ValueLog:
    """A builder of the log of a run with values."""

    def __init__(self, *programs: Program, level: str = "values", **run_changes: Any) -> None:
        self.log = LogBuilder(run_changes.get("pid", 4711)).record(run(level=level, **run_changes))
        self.calls = 0
        self._layouts: list[ValueLayout] = []
        for program in programs:
            self.log.record(program.graph()).record(program.provenance())

    def call(
        self, program: Program, step: int = 0, sizes: Mapping[tuple[int, int], list[int]] | None = None, **stats: Stat
    ) -> int:
        """Add a call; `stats`, by default `FINE`, are keyed by tensor, ``name_<site>`` or ``name_after``."""
        number, self.calls = self.calls, self.calls + 1
        start = MONOTONIC_NS + 1_000_000 + number * CALL_NS
        count = len(program.sites)
        calls = Calls([number], [program.number], [0], [step], [1], [None], [start], [CALL_NS // 2], [count], ["ok"])
        starts = [start + (i + 1) * LAUNCH_NS for i in range(count)]
        self.log.record(Launches(calls, list(range(count)), starts, [at + LAUNCH_NS // 2 for at in starts]))
        for (site, argument), size in (sizes or {}).items():
            meta = TensorMeta(argument, "float32", size, [1] * len(size), "cpu", 0, 4096)
            self.log.record(Tensors(program.number, number, site, [meta]))
        rows = [
            stats.get(f"{name}_{site}", stats.get(f"{name}_{moment}", stats.get(name, FINE)))
            for site, _, moment, name in program.layout
        ]
        layout = layout_of(program, rows)
        if layout not in self._layouts:
            self._layouts.append(replace(layout, layout=len(self._layouts)))
            self.log.record(self._layouts[-1])
        at = next(i for i, known in enumerate(self._layouts) if replace(known, layout=0) == replace(layout, layout=0))
        self.log.record(values_of([number], [at], rows))
        return number

    def end(self) -> LogBuilder:
        return self.log.record(Overhead(1_000, 1_000_000, 20_000, 1, 0, 400)).record(End("exit", MONOTONIC_NS + 10**12))


def layout_of(program: Program, rows: Sequence[Stat], number: int = 0) -> ValueLayout:
    places = program.layout
    return ValueLayout(
        layout=number, graph=program.number, site=[p[0] for p in places], argument=[p[1] for p in places],
        moment=[p[2] for p in places], item=[r.item for r in rows], part=[r.part for r in rows],
        dtype=[r.dtype for r in rows], numel=[r.numel for r in rows],
        looked_at=[r.numel if r.looked_at is None else r.looked_at for r in rows], skipped=[r.skipped for r in rows],
    )  # fmt: skip


def values_of(calls: list[int], layouts: list[int], rows: Sequence[Stat]) -> Values:
    def sparse(name: str) -> Sparse:
        found = [(i, getattr(row, name)) for i, row in enumerate(rows) if getattr(row, name)]
        return Sparse([i for i, _ in found], [value for _, value in found])

    exact = [(i, row.exact) for i, row in enumerate(rows) if row.exact is not None]
    bad = [(i, row.first_bad) for i, row in enumerate(rows) if row.first_bad is not None]
    return Values(
        call=calls, layout=layouts, min=[r.min for r in rows], max=[r.max for r in rows], mean=[r.mean for r in rows],
        std=[r.std for r in rows], nan=sparse("nan"), positive_infinity=sparse("pinf"),
        negative_infinity=sparse("ninf"), zero=sparse("zero"), near_overflow=sparse("near"),
        subnormal=sparse("sub"), first_bad=Sparse([i for i, _ in bad], [value for _, value in bad]),
        exact=Exact([i for i, _ in exact], [e[0] for _, e in exact], [e[1] for _, e in exact]),
        digest=b64encode(b"".join(row.digest.to_bytes(8, "little") for row in rows)).decode()
        if any(row.digest for row in rows)
        else None,
    )  # fmt: skip


def attention() -> Program:
    """Return the program of an attention: scores, softmax and output; the scores are freed."""
    return (
        Program()
        .allocate("buf0")
        .launch("extern_kernels.bmm", ["primals_1", "primals_2"], ["buf0"], aten=["aten.bmm"], fx=["bmm"])
        .allocate("buf1")
        .launch(
            "cpp_fused__softmax_0", ["buf0"], ["buf1"], "cpp", aten=["aten.mul", "aten._softmax"], fx=["mul", "softmax"]
        )
        .free("buf0")
        .allocate("buf2")
        .launch("extern_kernels.bmm", ["buf1", "primals_3"], ["buf2"], aten=["aten.bmm"], fx=["bmm_1"])
    )
