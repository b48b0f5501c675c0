"""Scalar arguments of launches: what the panel, the index, a crash and `repro` say of them, per call."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stepscope.tracer.log.launch_ring import FunctionShape, LaunchRing, SymbolValues
from stepscope.tracer.schema.graphs import Argument, Graph, LaunchSite
from stepscope.tracer.schema.launches import Calls, Launches, SameTensors, TensorMeta, Tensors
from stepscope.tracer.schema.ring_format import RingSymbols, read_ring
from stepscope.tracer.schema.scalars import Assignment, CallSymbols, Scalar
from stepscope.viewer.findings.crash.suspects import reach_facts, scalar_sentences, suspect
from stepscope.viewer.graphs.queries.launches import launch_detail
from stepscope.viewer.repro.write import write_reproducer
from stepscope.viewer.steps.rows import LaunchDetail
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace
from tests.logs.synthetic import MONOTONIC_NS, LogBuilder, run
from tests.viewer.crash.test_crash import ring

WRAPPER = """# AOT ID: ['0_inference']
cpp_fused_x = async_compile.cpp_pybinding(['const float*', 'float*', 'const int64_t', 'const double'], r'''
extern "C"  void  kernel(const float* in_ptr0, float* out_ptr0, const int64_t ks0, const double ks1)
{
    for(int64_t x0=static_cast<int64_t>(0L); x0<static_cast<int64_t>(ks0*ks0); x0+=static_cast<int64_t>(1L))
    {
        auto tmp0 = in_ptr0[static_cast<int64_t>(x0)];
        out_ptr0[static_cast<int64_t>(x0 + 2L*ks0)] = tmp0;
    }
}
''')

def call(args):
    arg0_1, arg1_1 = args
    s77 = arg0_1
    buf0 = empty_strided_cpu((s77, s77), (s77, 1), torch.float32)
    cpp_fused_x(arg1_1, buf0, s77, zuf0)
    zuf0 = buf0.item()
    cpp_fused_x(arg1_1, buf0, 2*s77, zuf0)
"""
NUMBERS = [
    Scalar(2, "ks0", "s77", "int64_t"),
    Scalar(3, "ks1", "zuf0", "double"),
]
Opened = Callable[[LogBuilder], Trace]


def site(number: int, line: int, scalars: list[Scalar]) -> LaunchSite:
    arguments = [
        Argument("arg1_1", "in", "arg1_1", "in_ptr0", "arg1_1", "input"),
        Argument("buf0", "out", "buf0", "out_ptr0", "buf0", "uninitialised"),
    ]
    return LaunchSite(number, "call", line, "cpp_fused_x", "cpp", arguments, [], scalars=scalars)


def log(values: list[Any], assigned: list[int] | None = None, **symbols: Any) -> LogBuilder:
    """A call for each of `values`, of two launches; `zuf0` is known behind the first one."""
    found = LogBuilder().record(run())
    ids: Any = {"frame_id": 0, "frame_compile_id": 0, "attempt": 0}
    found.torch("inductor_output_code", {"filename": "/tmp/x/cwrapper.py"}, WRAPPER.encode(), **ids)
    second = [replace(NUMBERS[0], expression="2 * s77"), NUMBERS[1], Scalar(None, "alpha", "0.5", "float")]
    sites = [site(0, 17, NUMBERS), site(1, 19, second)]
    graph = Graph(
        0, "cwrapper", "0/0", "0_inference", "inference", False, True, ["call"], sites, [], symbols=["s77", "zuf0"]
    )
    found.record(graph)
    for number, value in enumerate(values):
        if value not in values[:number]:
            size = value if isinstance(value, int) else 4
            meta = TensorMeta(0, "float32", [size, size], [size, 1], "cpu", 0, 4 * size * size, storage=4096)
            for at in (0, 1):
                found.record(Tensors(0, number, at, [meta, replace(meta, argument=1, storage=8192)]))
        else:
            found.record(SameTensors(0, number, 0, 0, values.index(value)))
        start = MONOTONIC_NS + 1000 * number
        columns = Calls([number], [0], [0], [number], [1], [None], [start], [900], [2], ["ok"])
        found.record(Launches(columns, [0, 1], [start + 10, start + 50], [start + 20, start + 60]))
    given = [Assignment([0, 1], [0, 1], [value, 0.5]) for value in values]
    calls = list(range(len(values)))
    return found.record(replace(CallSymbols(calls, assigned or calls, given), **symbols))


def detail(trace: Trace, launch: int) -> LaunchDetail:
    found = launch_detail(trace, launch)
    assert found is not None
    return found


def shown(trace: Trace, launch: int) -> list[tuple[str | None, str | None, str | None]]:
    return [(row.name, row.value, row.type) for row in detail(trace, launch).site.scalars]


def test_each_call_has_its_own_values(opened: Opened) -> None:
    trace = opened(log([16, 9, 16]))
    assert [shown(trace, launch)[0] for launch in (0, 2, 4)] == [
        ("ks0", "16", "int64_t"), ("ks0", "9", "int64_t"), ("ks0", "16", "int64_t")
    ]  # fmt: skip
    assert shown(trace, 3) == [("ks0", "18", "int64_t"), ("ks1", "0.5", "double"), ("alpha", "0.5", "float")]


def test_sizes_of_tensors_are_those_of_the_call_with_the_same_numbers(opened: Opened) -> None:
    trace = opened(log([16, 9, 16]))
    sizes = [detail(trace, launch).site.arguments[0].tensors[0]["size"] for launch in (0, 2, 4)]
    assert sizes == [[16, 16], [9, 9], [16, 16]]


def test_a_number_that_is_read_later_is_not_known_before(opened: Opened) -> None:
    trace = opened(log([16]))
    assert shown(trace, 0)[1] == ("ks1", None, "double")
    assert shown(trace, 1)[1] == ("ks1", "0.5", "double")


@pytest.mark.parametrize(("value", "text"), [(True, "True"), ("inf", "inf"), (None, None), ([1], None), ("s0", None)])
def test_values_of_every_form(opened: Opened, value: Any, text: str | None) -> None:
    assert shown(opened(log([value])), 0)[0][1] == text


def test_the_index_has_them(opened: Opened) -> None:
    trace = opened(log([16, 9, 16], assigned=[0, 1, 0]))
    found = sql.rows(
        trace,
        "SELECT call, value FROM call_symbols JOIN symbol_values USING (assignment) WHERE symbol = 's77' ORDER BY call",
    )
    assert found == [(0, "16"), (1, "9"), (2, "16")]
    assert sql.rows(trace, "SELECT name, value FROM scalars WHERE value IS NOT NULL") == [("alpha", "0.5")]


def test_index_ranges_are_those_of_the_call(opened: Opened) -> None:
    trace = opened(log([16, 9]))
    for launch, size in ((0, 16), (2, 9)):
        found = suspect(trace, launch)
        assert found is not None
        reads, writes = sorted(reach_facts(found), key=lambda row: row["does"])
        assert (reads["last"], reads["leaves_storage"]) == (size * size - 1, False)
        assert (writes["last"], writes["leaves_storage"]) == (size * size - 1 + 2 * size, True)
        assert scalar_sentences(found) == [
            f"ks0 = {size} (int64_t, s77)",
            "ks1: the log has no value of zuf0",
        ]


def test_a_script_has_them(opened: Opened, tmp_path: Path) -> None:
    trace = opened(log([16, 9, 16]))
    for launch, expected in ((1, "32, float('0.5')"), (3, "18, float('0.5')"), (5, "32, float('0.5')")):
        written = write_reproducer(trace, launch, tmp_path / f"{launch}.py", embed_bytes=0)
        assert f"return kernel(a[0], a[1], {expected})" in written.path.read_text()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"assigned": [0, 5]}, "broken_payload"),
        ({"assigned": [0]}, "broken_payload"),
        ({"assignments": [Assignment([0], [0, 0], [1])] * 2}, "broken_payload"),
        ({"call": [0, 99]}, "unknown_launch"),
        ({"assignments": [Assignment([7], [0], [1])] * 2}, None),
    ],
)
def test_damage_is_counted_and_the_rest_is_read(opened: Opened, change: Any, reason: str | None) -> None:
    trace = opened(log([16, 9], **change))
    found = {row[0] for row in sql.rows(trace, "SELECT reason FROM problem_counts")}
    assert found == ({reason} if reason else set())
    assert [name for name, *_ in shown(trace, 0)] == ["ks0", "ks1"]


def test_a_log_without_them_is_read_as_before(opened: Opened) -> None:
    data = log([16]).data
    old = re.sub(rb'"scalars":\[[^\]]*\]', b'"scalars":[]', data)
    trace = opened(old)  # type: ignore[arg-type]
    assert shown(trace, 0) == []


def symbol_block(call: int, count: int, *entries: tuple[int, int, int, int]) -> list[int]:
    """Of the launch ring, word by word: (symbol, launches, form, word)."""
    words = [4, call, count, *[0] * 12, *(word for entry in entries for word in entry)]
    return [len(words) + 1, *words]


def test_numbers_of_a_call_that_runs_are_in_the_ring() -> None:
    half = 0x3FE0_0000_0000_0000
    found = read_ring(ring([symbol_block(7, 3, (0, 0, 0, -16), (1, 1, 1, half), (2, 1, 2, 1))]))
    assert found.symbols == [RingSymbols(7, (0, 1, 2), (0, 1, 1), [-16, 0.5, True])]
    assert type(found.symbols[0].values[2]) is bool
    assert found.damaged == 0


@pytest.mark.parametrize("block", [symbol_block(7, 2, (0, 0, 0, 1)), symbol_block(7, 1, (0, 0, 9, 1))])
def test_a_block_of_numbers_that_cannot_be_is_counted(block: list[int]) -> None:
    found = read_ring(ring([block]))
    assert (found.symbols, found.damaged) == ([], 1)


def test_what_the_ring_holds_is_what_was_written(tmp_path: Path) -> None:
    said: list[str] = []
    written = LaunchRing(lambda: tmp_path / "x.log", said.append)
    call = SimpleNamespace(block=None, symbol_block=None, cells=None, number=7)
    written.begin(call, FunctionShape(0, 1))
    for one in (SymbolValues((0, 1), 0, (16, 0.5)), SymbolValues((2,), 3, (False,)), SymbolValues((3,), 3, (None,))):
        written.symbols(call, one, 4)
    found = read_ring((tmp_path / "x.log.ring").read_bytes())
    assert found.symbols == [RingSymbols(7, (0, 1, 2), (0, 0, 3), [16, 0.5, False])]
    written.drop(call)
    assert call.symbol_block is None
    written.close(keep=False)
    assert said == []
