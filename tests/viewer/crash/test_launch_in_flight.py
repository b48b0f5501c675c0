"""A launch that did not return: sizes are those of its call, what it would have bound is not there, and nothing is
told of this call that was seen in another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stepscope.tracer.schema.constants import UNRECORDED
from stepscope.tracer.schema.graphs import LaunchSite, Version
from stepscope.tracer.schema.launches import Calls, Launches, SameTensors, TensorMeta, Tensors
from stepscope.tracer.schema.process_ends import End
from stepscope.tracer.schema.record import Record
from stepscope.tracer.schema.statistics import Exact, Sparse, Values
from stepscope.tracer.schema.values import ValueLayout
from stepscope.viewer.findings import all_findings
from stepscope.viewer.graphs.queries.launches import launch_detail
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.repro.queries import shapes_of_function
from stepscope.viewer.steps.page import launch_page_of
from stepscope.viewer.store.open import open_trace
from stepscope.viewer.store.trace import Trace
from tests.logs.synthetic import MONOTONIC_NS, LogBuilder, argument, compile_records, graph, run
from tests.logs.unpacking import whole_report
from tests.viewer.crash.test_crash import PID, process_end, ring, ring_call

pytestmark = pytest.mark.slow


START_NS = MONOTONIC_NS + 1_000_000
OPERATOR = "torch.ops.g.bad.default"
SITES = [
    LaunchSite(
        0, "call", 20, "extern_kernels.mm", "extern", [argument("arg0_1", "in"), argument("buf0", "out")], []
    ),
    LaunchSite(1, "call", 21, "cpp_fused_relu_0", "cpp", [argument("buf0", "inout")], []),
    LaunchSite(
        2, "call", 22, OPERATOR, "fallback",
        [argument("buf0", "in"), argument("arg0_1", "inout"), argument("buf1", "out")], ["buf1"],
    ),
    LaunchSite(
        3, "call", 23, "extern_kernels.mm", "extern", [argument("buf1", "in"), argument("buf2", "out")], []
    ),
]  # fmt: skip


def metas(call: int, site: int, size: int, arguments: tuple[int, ...], storage: int) -> Tensors:
    one = TensorMeta(0, "float32", [size, 8], [8, 1], "cpu", 0, 32 * size)
    found = [replace(one, argument=number, storage=storage + 4096 * number) for number in arguments]
    return Tensors(0, call, site, found)


def whole(call: int, size: int) -> list[Record]:
    """What the recorder says of a call with sizes that it has not seen."""
    storage = 0x10000 * (call + 1)
    return [
        metas(call, 0, size, (0, 1), storage),
        metas(call, 1, size, (0,), storage + 4096),
        *died(call, size),
        metas(call, 2, size, (2,), storage + 8192),
        metas(call, 3, size, (0, 1), storage + 8192),
    ]


def died(call: int, size: int) -> list[Record]:
    """At the operator the arguments of a launch are told before it, what it binds behind it."""
    return [metas(call, 2, size, (0, 1), 0x10000 * (call + 1))]


def batch(call: int, step: int) -> Launches:
    begin = START_NS + 100_000 * step + 10_000 * (call % 10)
    one = Calls([call], [0], [0], [step], [1], [None], [begin], [900], [4], ["ok"])
    starts = [begin + 100 * n for n in range(4)]
    return Launches(one, [0, 1, 2, 3], starts, [start + 50 for start in starts])


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[..., Trace]]:
    """The operator of `in_flight`, a call, did not return in step 2."""
    traces: list[Trace] = []

    def open_it(
        records: list[Record], in_flight: int, *, has_ring: bool = True, sites: list[LaunchSite] = SITES
    ) -> Trace:
        log = compile_records(LogBuilder(PID).record(run(pid=PID)))
        log.record(graph(dynamic=True, sites=sites, functions=["call"], memory=[]))
        for record in records:
            log.record(record)
        if not has_ring:
            one = batch(in_flight, 2)
            ended = replace(one.calls, launches=[3], state=["unfinished"])
            log.record(replace(one, calls=ended, site=one.site[:3], start_ns=one.start_ns[:3],
                               end_ns=[*one.end_ns[:2], -1]))  # fmt: skip
        path = log.record(process_end()).write(tmp_path / f"stepscope_trace_rank_0_{PID}_{len(traces)}.log")
        if has_ring:
            begin = START_NS + 300_000
            launches = [(0, begin, begin + 1), (1, begin + 2, begin + 3), (2, begin + 4, -1)]
            path.with_name(path.name + ".ring").write_bytes(ring([ring_call(in_flight, 2, launches)]))
        traces.append(open_trace(path))
        return traces[-1]

    yield open_it
    for trace in traces:
        trace.close()


def crash(trace: Trace) -> Finding:
    (finding,) = [one for one in all_findings(trace) if one.kind == "crash"]
    assert finding.kernel == OPERATOR
    return finding


def sizes(finding: Finding) -> dict[tuple[str, str], Any]:
    return {(row["role"], row["argument"]): row.get("size") for row in finding.evidence["arguments"]}


TWO_CALLS = [*whole(0, 4), batch(0, 0), *whole(1, 5), batch(1, 1)]
SAME = SameTensors(0, 2, 0, 0, 0)
"""Call 2 has the sizes of call 0."""


@pytest.mark.parametrize("has_ring", [True, False])
@pytest.mark.parametrize(
    ("told", "size"),
    [([metas(2, 0, 6, (0, 1), 7), metas(2, 1, 6, (0,), 7), *died(2, 6)], 6), ([SAME], 4), ([], 5)],
    ids=["new sizes", "sizes that came back", "sizes of the call before"],
)
def test_sizes_are_of_this_call_and_the_output_is_not_there(
    opened: Callable[..., Trace], told: list[Record], size: int, has_ring: bool
) -> None:
    trace = opened([*TWO_CALLS, *told], 2, has_ring=has_ring)
    finding = crash(trace)
    assert sizes(finding) == {("in", "buf0"): [size, 8], ("inout", "arg0_1"): [size, 8], ("out", "buf1"): None}
    unseen = "not created yet: the launch did not return"
    assert finding.evidence["out"][-1] == f"buf1: {unseen}"
    assert finding.evidence["arguments"][-1]["unseen"] == unseen
    detail = launch_detail(trace, finding.launch or 0)
    assert detail is not None
    assert [(row.tensors == [], row.unseen) for row in detail.site.arguments] == [(False, None)] * 2 + [(True, unseen)]
    page = launch_page_of(trace, detail.launch)
    assert page.launch.site.arguments[2].unseen == unseen
    for redact in (False, True):
        assert "not created yet" in whole_report(trace, redact=redact)


def test_an_address_of_another_call_is_told_as_one(opened: Callable[..., Trace]) -> None:
    (read, *_) = crash(opened([*TWO_CALLS, SAME], 2)).evidence["in"]
    assert "in 128 B at 0x10000, written by launch 9" in read
    assert read.endswith(", that address in step 0")
    finding = crash(opened([*TWO_CALLS, metas(2, 0, 6, (0, 1), 7), *died(2, 6)], 2))
    assert finding.evidence["in"][0].endswith("in 192 B at 0x30000, written by launch 9 (cpp_fused_relu_0)")
    row = finding.evidence["arguments"][0]
    assert (row["address"], row["address_in_call"], row["address_step"]) == ("0x30000", True, None)


def test_an_earlier_call_of_the_same_step(opened: Callable[..., Trace]) -> None:
    """A layer that is compiled once is called many times in a step."""
    layout = ValueLayout(0, 0, [1], [0], ["after"], [None], [None], ["float32"], [32], [32], [None])
    nothing: Any = Sparse([], [])
    values = Values(
        [0], [0], [1.0], [2.0], [1.5], [0.5], nothing, nothing, nothing, nothing, nothing, nothing, nothing,
        Exact([], [], []), None,
    )  # fmt: skip
    read = replace(SITES[2].arguments[0], version=Version(1, 0, "after"))
    sites = [*SITES[:2], replace(SITES[2], arguments=[read, *SITES[2].arguments[1:]]), SITES[3]]
    finding = crash(opened([*whole(0, 4), batch(0, 2), layout, values], 1, sites=sites))
    (row, *_) = finding.evidence["arguments"]
    assert (row["values_step"], row["values_in_call"]) == (None, False)
    assert (row["address_step"], row["address_in_call"]) == (None, False)
    assert finding.evidence["in"][0].endswith(", that address in an earlier call")
    assert ": in an earlier call finite" in finding.evidence["in"][0]


def test_sizes_of_sites_that_the_call_did_not_come_to(opened: Callable[..., Trace]) -> None:
    """From them the sizes of a script would be those of another call."""
    trace = opened([*TWO_CALLS, metas(2, 0, 6, (0, 1), 7), metas(2, 1, 6, (0,), 7), *died(2, 6)], 2)
    detail = launch_detail(trace, crash(trace).launch or 0)
    assert detail is not None
    shapes = {(shape.name, shape.size[0]) for shape in shapes_of_function(trace, 0, "call", detail.call)}
    assert shapes == {("arg0_1", 6), ("buf0", 6)}


def test_sizes_that_are_not_written_down_any_more(opened: Callable[..., Trace]) -> None:
    lost = [TensorMeta(number, UNRECORDED, [], [], "", None, None) for number in range(3)]
    finding = crash(opened([*TWO_CALLS, Tensors(0, 2, 2, lost), replace(SAME, call=3)], 3))
    assert set(sizes(finding).values()) == {None}
    assert finding.evidence["in"][0] == "buf0: not recorded: the launch site has had too many sizes"


def test_memory_of_different_calls_is_not_shared(tmp_path: Path) -> None:
    """What was freed in one call is used again in the next: the first launch of the operator did not return."""
    bound = replace(argument("buf1", "out"), parameter="out")
    sites = [replace(SITES[2], kernel="extern_kernels.mm", kind="extern", arguments=[SITES[0].arguments[0], bound])]
    log = compile_records(LogBuilder(PID).record(run(pid=PID)))
    log.record(graph(sites=sites, functions=["call"], memory=[]))
    log.record(metas(0, 2, 4, (0,), 0x50000)).record(metas(1, 2, 4, (1,), 0x50000 - 4096))
    for call, state, end in ((0, "raised", -1), (1, "ok", 30)):
        one = batch(call, call)
        ended = replace(one.calls, launches=[1], state=[state])
        end_ns = end if end < 0 else one.start_ns[0] + end
        log.record(replace(one, calls=ended, site=[2], start_ns=one.start_ns[:1], end_ns=[end_ns]))
    log.record(End("exit", START_NS + 10**6))
    with open_trace(log.write(tmp_path / "x.log")) as trace:
        assert [one.kind for one in all_findings(trace)] == []
