"""Value rows from the log to the launch, the kernel, the buffer, the heat map and the curves."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest

from stepscope.tracer.schema.graphs import Argument, LaunchSite, MemoryStatement, Version
from stepscope.tracer.schema.launches import Calls, DeviceTimes, Launches
from stepscope.tracer.schema.statistics import COUNTS
from stepscope.tracer.schema.values import SavedTensor, ValueLayout
from stepscope.viewer.graphs.queries.launches import launch_detail
from stepscope.viewer.overview.queries.damage import problem_counts
from stepscope.viewer.overview.queries.overview import overview
from stepscope.viewer.overview.summary import summary, summary_text
from stepscope.viewer.steps.queries.steps import timeline
from stepscope.viewer.steps.rows import LaunchDetail
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.values.queries.buffers import buffer_detail, buffer_rows
from stepscope.viewer.values.queries.curves import value_curve
from stepscope.viewer.values.queries.heatmap import heat_map
from stepscope.viewer.values.queries.kernels import kernel_detail, kernel_rows
from stepscope.viewer.values.queries.saved_tensors import saved_tensor, saved_tensors
from stepscope.viewer.values.queries.values import unravelled
from stepscope.viewer.values.rows import HEALTH, ArgumentValues, ValueRow
from tests.logs.synthetic import MONOTONIC_NS, LogBuilder, recorded
from tests.logs.value_logs import FINE, MASK, NAN, PLUS, Program, Stat, ValueLog, attention, layout_of, values_of

Open = Callable[[LogBuilder | bytes], Trace]


def detail(trace: Trace, launch: int) -> LaunchDetail:
    found = launch_detail(trace, launch)
    assert found is not None
    return found


def one(opened: Open, stat: Stat, size: list[int] | None = None) -> ValueRow:
    """The row of an output with these statistics."""
    program = Program().launch("extern_kernels.mm", ["primals_1"], ["buf0"])
    log = ValueLog(program)
    log.call(program, 0, {(0, 1): size} if size else None, buf0=stat)
    (row,) = detail(opened(log.end()), 0).values[1].after
    return row


def test_a_row_keeps_every_number(opened: Open) -> None:
    stat = Stat(100, 3, 2, 1, 40, 4, 5, -2.5, 7.25, 0.5, 1.5, 12, "float16", 80)
    row = one(opened, stat)
    assert (row.numel, row.looked_at, row.dtype, row.moment, row.first_bad) == (100, 80, "float16", "after", 12)
    assert [getattr(row, name) for name in COUNTS] == [3, 2, 1, 40, 4, 5]
    assert (row.min, row.max, row.mean, row.std, row.largest) == (-2.5, 7.25, 0.5, 1.5, 7.25)
    assert row.l2 == pytest.approx(math.sqrt(74 * 0.5**2 + 73 * 1.5**2))
    assert row.first_bad_index is None
    assert row.health == "nan"


def test_what_is_absent_is_zero_or_unknown(opened: Open) -> None:
    row = one(opened, FINE)
    assert [getattr(row, name) for name in COUNTS] == [0] * 6
    assert row.first_bad is None
    assert row.health == "finite"


def test_nothing_is_known_of_a_skipped_row(opened: Open) -> None:
    row = one(opened, Stat(skipped="a sparse tensor", looked_at=0))
    assert row.skipped == "a sparse tensor"
    unknown = (*COUNTS, "min", "max", "mean", "std", "l2", "largest", "first_bad")
    assert {getattr(row, name) for name in unknown} == {None}
    assert row.health == "not_recorded"


def test_one_element_has_a_norm_and_no_deviation(opened: Open) -> None:
    row = one(opened, Stat(1, min=-3.0, max=-3.0, mean=-3.0, std=None))
    assert (row.l2, row.largest, row.std) == (3.0, 3.0, None)


def test_integers_are_exact(opened: Open) -> None:
    row = one(opened, Stat(dtype="int64", min=0.0, max=9.007199254740992e15, exact=(-(2**53) - 1, 2**53 + 1)))
    assert (row.min, row.max, row.largest) == (-(2**53) - 1, 2**53 + 1, 2**53 + 1)
    row = one(opened, Stat(dtype="int32", min=-7.0, max=5.0))
    assert (row.min, row.max, row.largest) == (-7, 5, 7)
    assert type(row.min) is type(row.largest) is int
    row = one(opened, Stat(dtype="uint64", min=0.0, max=None, exact=(0, 2**64 - 1)))
    assert row.max == 2**64 - 1


def test_float64_is_exact(opened: Open) -> None:
    row = one(opened, Stat(dtype="float64", min=-0.1, max=None, exact=(-0.1, 1e300)))
    assert (row.min, row.max, row.largest) == (-0.1, 1e300, 1e300)


@pytest.mark.parametrize(
    ("stat", "health"),
    [
        (NAN, "nan"), (PLUS, "positive_infinity"), (MASK, "negative_infinity"), (replace(PLUS, nan=1), "nan"),
        (replace(MASK, pinf=1), "positive_infinity"), (Stat(near=1), "extreme"), (Stat(sub=1), "extreme"),
        (Stat(zero=64), "zero"), (Stat(zero=63), "finite"), (Stat(0, looked_at=0), "finite"),
    ],
)  # fmt: skip
def test_health(opened: Open, stat: Stat, health: str) -> None:
    assert one(opened, stat).health == health


def test_the_first_bad_element_by_dimension(opened: Open) -> None:
    assert one(opened, Stat(first_bad=17, nan=1), [2, 4, 8]).first_bad_index == [0, 2, 1]
    assert one(opened, Stat(first_bad=17, nan=1), [3, 4]).first_bad_index is None
    assert unravelled(5, []) is None
    assert unravelled(5, [2, 0]) is None


def first(values: list[ArgumentValues], argument: int) -> ValueRow | None:
    return next(iter(values[argument].before), None)


def test_before_is_the_row_of_the_version_that_was_read(opened: Open) -> None:
    program = attention()
    log = ValueLog(program)
    for step in range(2):
        log.call(program, step, primals_1=Stat(mean=float(step)), buf0=Stat(mean=step + 0.5))
    trace = opened(log.end())
    for step in range(2):
        mm, softmax = detail(trace, 3 * step), detail(trace, 3 * step + 1)
        own = first(mm.values, 0)
        assert own is not None
        assert (own.launch, own.moment, own.mean) == (3 * step, "before", step)
        carried = first(softmax.values, 0)
        assert carried is not None
        assert (carried.launch, carried.moment, carried.mean) == (3 * step, "after", step + 0.5)
        assert mm.values[2].before == []
        assert mm.site.arguments[2].held == "uninitialised"
        assert softmax.values[0].after == []


def test_in_place_before_and_after_differ(opened: Open) -> None:
    program = Program().launch("a", ["x"], ["buf0"]).launch("b", ["buf0"], ["buf0"])
    log = ValueLog(program)
    log.call(program, buf0_0=Stat(mean=1.0), buf0_1=Stat(mean=2.0))
    (values,) = detail(opened(log.end()), 1).values
    assert ([row.mean for row in values.before], [row.mean for row in values.after]) == ([1.0], [2.0])


def looped(times: int = 3) -> LogBuilder:
    """A site that runs several times in a call, in a while loop, on what it wrote the time before."""
    log = ValueLog()
    arguments = [
        Argument("x", "in", "x", None, "x", "written", Version(0, 1, "after")),
        Argument("x", "out", "x", None, "x", "written"),
    ]
    site = LaunchSite(0, "call", 1, "cpp_fused_body_0", "cpp", arguments, [])
    log.log.record(replace(Program().graph(), sites=[site]))
    columns = Calls([7], [0], [0], [0], [1], [None], [6_000_000_000], [10_000], [times], ["ok"])
    starts = [6_000_000_000 + 100 * (i + 1) for i in range(times)]
    log.log.record(Launches(columns, [0] * times, starts, [start + 50 for start in starts]))
    ones = [1] * times
    log.log.record(
        ValueLayout(
            0, 0, [0] * times, ones, ["after"] * times, [None] * times, [None] * times, ["float32"] * times,
            [64] * times, [64] * times, [None] * times,
        )
    )  # fmt: skip
    log.log.record(values_of([7], [0], [Stat(mean=float(i)) for i in range(times)]))
    return log.end()


def test_rows_of_a_loop_find_their_launches(opened: Open) -> None:
    trace = opened(looped())
    assert [[row.mean for row in detail(trace, i).values[1].after] for i in range(3)] == [[0.0], [1.0], [2.0]]
    assert [[row.mean for row in detail(trace, i).values[0].before] for i in range(3)] == [[], [0.0], [1.0]]
    assert problem_counts(trace) == {}


def test_items_of_a_version(opened: Open) -> None:
    program = Program().launch("torch.ops.aten.topk", ["x"], ["buf0"]).launch("b", ["buf0"], ["buf1"])
    reads = program.sites[1].arguments
    reads[0] = replace(reads[0], version=Version(0, 1, "after", 1))
    program.layout.insert(2, program.layout[1])
    stats = [FINE, Stat(item=0, mean=1.0), Stat(item=1, mean=2.0), FINE]
    log = ValueLog(program)
    log.log.record(call_records(program))
    log.log.record(layout_of(program, stats)).record(values_of([0], [0], stats))
    trace = opened(log.end())
    assert [row.item for row in detail(trace, 0).values[1].after] == [0, 1]
    assert [row.mean for row in detail(trace, 1).values[0].before] == [2.0]


def call_records(program: Program) -> Launches:
    count = len(program.sites)
    start = MONOTONIC_NS + 1_000
    columns = Calls([0], [program.number], [0], [0], [1], [None], [start], [10_000], [count], ["ok"])
    starts = [start + 100 * i for i in range(count)]
    return Launches(columns, list(range(count)), starts, [at + 10 for at in starts])


def test_a_trace_without_values_says_nothing_of_them(opened: Open) -> None:
    trace = opened(recorded())
    assert detail(trace, 0).values == []
    shown = timeline(trace, 0, 0)
    assert shown is not None
    assert shown.launches.health == []
    assert {row.value_rows for row in kernel_rows(trace)} == {None}
    assert {row.versions for row in buffer_rows(trace, 0)} == {None}
    heat = heat_map(trace, 0)
    assert {cell for row in heat.cells for cell in row} == {-1}
    assert overview(trace).counts.value_rows is None
    assert summary(trace)["ingest"]["not_recorded"] == []


def test_the_summary_counts_values_and_says_what_they_cannot_show(opened: Open) -> None:
    program = attention()
    log = ValueLog(program)
    log.call(program)
    trace = opened(log.end())
    answer = summary(trace)
    assert answer["counts"]["value_rows"] == 6
    assert answer["overhead"]["stats_ns"] == 400
    assert answer["findings"] == []
    (told,) = answer["ingest"]["not_recorded"]
    assert "buffers only" in told["why"]
    assert overview(trace).notes == [told["why"]]
    text = summary_text(trace)
    assert text.startswith("No findings in 1 step, 3 launches, 6 values read.")
    assert "6 values read in 400 ns" in text


def test_the_summary_shows_what_went_in_and_out(opened: Open) -> None:
    program = attention()
    log = ValueLog(program)
    log.call(program, buf0=PLUS, buf1=NAN)
    lines = summary_text(opened(log.end())).split("\n")
    assert lines[0] == "✖ fp32 overflow in matmul (model.py:10) becomes NaN in softmax (model.py:11) in step 0"
    assert lines[1] == "  launch 1 of step 0"
    assert lines[3].startswith(
        "  matmul wrote buf0: +inf in 3 of 64 elements, first at 2; largest finite magnitude 1 (float32)"
    )
    assert any(line.startswith("  softmax (in a kernel of 2 operators) wrote buf1: NaN in 5") for line in lines)
    assert max(map(len, lines)) <= 100


def test_health_of_the_timeline_is_the_worst_output(opened: Open) -> None:
    program = Program().launch("a", ["x"], ["buf0", "buf1"]).launch("b", ["y"], [])
    log = ValueLog(program)
    log.call(program, buf0=FINE, buf1=PLUS, y=NAN)
    shown = timeline(opened(log.end()), 0, 0)
    assert shown is not None
    assert [HEALTH[i] if i >= 0 else None for i in shown.launches.health] == ["positive_infinity", None]


def test_a_bin_has_the_health_of_its_worst_launch(opened: Open) -> None:
    program = Program()
    for number in range(40):
        program.launch("k", [f"x{number}"], [f"buf{number}"])
    log = ValueLog(program)
    log.call(program, buf7=NAN)
    shown = timeline(opened(log.end()), 0, 0, width=2)
    assert shown is not None
    assert 0 in shown.launches.health
    assert max(shown.launches.count) > 1


def test_device_times_find_their_launches(opened: Open) -> None:
    log = recorded(end=False)
    log.record(DeviceTimes([0, 0, 1], [0, 2, 0], [11, 33, 44], "events"))
    log.record(DeviceTimes([0, 99, 0], [1, 0, 3], [-5, 1, 1], "timestamps"))
    trace = opened(log)
    found = {detail(trace, launch).site.kernel: detail(trace, launch).device_duration_ns for launch in range(4)}
    assert found["extern_kernels.mm"] == 11
    assert found["true_graph_0"] == 33
    assert sorted(
        detail(trace, launch).device_duration_ns or 0 for launch in range(4)
    ) == [0, 11, 33, 44]  # fmt: skip
    assert problem_counts(trace) == {"unknown_launch": 1}
    assert {row.device_duration_ns for row in kernel_rows(trace)} == {11, 33, 44}


def test_kernels(opened: Open) -> None:
    program = attention()
    log = ValueLog(program)
    for step in range(4):
        log.call(program, step, buf1=NAN if step == 2 else Stat(mean=step / 2), buf0=Stat(max=4.0 + step))
    trace = opened(log.end())
    rows = {row.kernel: row for row in kernel_rows(trace)}
    assert (rows["extern_kernels.bmm"].sites, rows["extern_kernels.bmm"].launches) == (2, 8)
    assert (rows["cpp_fused__softmax_0"].health, rows["extern_kernels.bmm"].health) == ("nan", "finite")
    assert sum(row.value_rows or 0 for row in rows.values()) == 24
    shown = kernel_detail(trace, "cpp_fused__softmax_0", limit=3)
    assert shown is not None
    assert (len(shown.launches), shown.total_launches) == (3, 4)
    assert [row.health for row in shown.launches] == ["finite", "finite", "nan"]
    (argument,) = shown.arguments
    assert (argument.name, argument.moment, argument.rows, argument.health) == ("buf1", "after", 4, "nan")
    spreads = {spread.name: (spread.low, spread.high, spread.values) for spread in argument.varies}
    assert (spreads["mean"], spreads["nan"]) == ((0.0, 1.5, 4), (0, 5, 2))
    assert {"min", "max", "std", "numel", "zero"} <= {spread.name for spread in argument.never}
    assert kernel_detail(trace, "no such kernel") is None


def test_buffers_by_their_memory(opened: Open) -> None:
    program = attention()
    program.memory.append(MemoryStatement("reuse", "buf9", "call", 99, "buf1"))
    log = ValueLog(program)
    for step in range(3):
        log.call(program, step, {(0, 0): [8, 8]}, buf0=PLUS if step == 1 else FINE)
    trace = opened(log.end())
    rows = {row.buffer: row for row in buffer_rows(trace, 0)}
    assert list(rows) == ["primals_1", "primals_2", "buf0", "buf1", "primals_3", "buf2"]
    assert [row.is_input for row in rows.values()] == [True, True, False, False, True, False]
    assert (rows["buf0"].written_by, rows["buf0"].read_by) == (["extern_kernels.bmm"], ["cpp_fused__softmax_0"])
    assert (rows["primals_1"].dtype, rows["primals_1"].size) == ("float32", [8, 8])
    assert (rows["buf0"].versions, rows["buf0"].health) == (3, "positive_infinity")
    shown = buffer_detail(trace, 0, "buf0")
    assert shown is not None
    assert shown.steps == [0, 1, 2]
    assert shown.start_ns == [0, 100_000, 200_000]
    assert shown.limit == pytest.approx(3.4028234663852886e38)
    assert [row.health for row in shown.versions] == ["finite", "positive_infinity", "finite"]
    assert [statement.event for statement in shown.memory] == ["allocate", "free"]
    assert [site.kernel for site in shown.sites] == ["extern_kernels.bmm", "cpp_fused__softmax_0"]
    few = buffer_detail(trace, 0, "buf0", limit=2)
    assert few is not None
    assert 1 in few.steps
    assert (len(few.versions), few.total_versions) == (2, 3)
    assert buffer_detail(trace, 0, "nothing") is None


def test_buffers_of_a_log_that_does_not_say_whose_memory_it_is(opened: Open) -> None:
    rows = {row.buffer: row for row in buffer_rows(opened(recorded()), 0)}
    assert set(rows) == {"arg0_1", "arg1_1", "buf0", "buf2", "true_graph_0_arg0_1", "true_graph_0_buf0"}
    assert rows["buf0"].read_by == ["cpp_fused_relu_0", "true_graph_0"]
    found = buffer_detail(opened(recorded()), 0, "buf1")
    assert found is not None
    assert found.row.buffer == "buf0"


def test_curves(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    program = attention()
    log = ValueLog(program)
    for step in range(5):
        log.call(program, step, buf0=Stat(max=float(step), nan=step % 2))
    trace = opened(log.end())
    curve = value_curve(trace, 0, 2, None, None, "after")
    assert curve is not None
    assert (curve.name, curve.kernel, curve.dtype, curve.step) == (
        "buf0",
        "extern_kernels.bmm",
        "float32",
        [0, 1, 2, 3, 4],
    )
    assert curve.columns["max"] == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert curve.columns["nan"] == [0, 1, 0, 1, 0]
    assert value_curve(trace, 0, 2, 1, None, "after") is None
    assert value_curve(trace, 99, 0, None, None, "after") is None
    monkeypatch.setattr("stepscope.viewer.values.queries.curves.MOST_POINTS", 2)
    short = value_curve(trace, 0, 2, None, None, "after")
    assert short is not None
    assert len(short.launch) == 2


def test_saved_tensors(opened: Open) -> None:
    program = attention()
    log = ValueLog(program)
    log.call(program)
    tensor = SavedTensor(0, 1, 1, None, "after", "saved/a.pt", "float32", [8, 8], 256, "ab")
    log.log.record(tensor).record(replace(tensor, call=5)).record(replace(tensor, file="../../etc/passwd"))
    log.log.record(replace(tensor, file="C:\\x.pt")).record(replace(tensor, file="/etc/passwd"))
    trace = opened(log.end())
    assert problem_counts(trace) == {"unknown_launch": 1, "broken_payload": 3}
    (row,) = saved_tensors(trace)
    assert (row.launch, row.argument, row.file, row.size, row.tensor_bytes, row.log) == (
        1,
        1,
        "saved/a.pt",
        [8, 8],
        256,
        0,
    )
    assert saved_tensor(trace, row.tensor) == row
    assert saved_tensor(trace, 9) is None
    (saved,) = detail(trace, 1).values[1].saved
    assert vars(row) == vars(row) | vars(saved), "the place of a saved tensor has its row"
