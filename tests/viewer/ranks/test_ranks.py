"""Ranks: which are alike in what, where they begin to differ, and that healthy ranks are left alone."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest

from stepscope.tracer.schema.graphs import LaunchSite, ReplicatedParameters
from stepscope.tracer.schema.launches import Calls, Launches, TensorMeta, Tensors
from stepscope.tracer.schema.process_ends import End
from stepscope.tracer.schema.steps import Steps
from stepscope.viewer.graphs.rows import SourceLine
from stepscope.viewer.ingest.torch_trace.rank_facts import collectives_of, comparable_graph
from stepscope.viewer.ranks.queries.compare import are_stages
from stepscope.viewer.ranks.queries.difference import MOST_LINES, rank_difference
from stepscope.viewer.ranks.queries.ranks import Ranks, ranks
from stepscope.viewer.store.open import open_trace
from tests.logs import synthetic
from tests.logs.rank_logs import (
    ALL_GATHER,
    ALL_REDUCE,
    CODE,
    GRAPH,
    SCHEDULE,
    WAIT,
    add_compile,
    found_in,
    opened_ranks,
    rank_log,
    with_change,
    write,
)
from tests.logs.synthetic import LogBuilder
from tests.logs.value_logs import Program
from tests.viewer.client import Client


def states(found: Ranks) -> dict[str, str]:
    return {str(row.aspect): row.state for row in found.aspects}


def test_healthy_ranks_have_no_finding(tmp_path: Path) -> None:
    """Other devices, folders, estimates and tensor-parallel groups; cache decisions and collectives alike."""
    groups = [("1", "0"), ("1", "0"), ("2", "0"), ("2", "0")]
    logs = {rank: rank_log(rank, [{"groups": groups[rank]}] * 3) for rank in range(4)}
    found, findings = opened_ranks(write(tmp_path, logs))
    assert findings == []
    assert set(states(found).values()) == {"alike"}
    assert [row.rank for row in found.rows] == [0, 1, 2, 3]
    assert [(row.compiles, row.collectives, row.missing_waits, row.misses) for row in found.rows] == [(3, 6, 0, 3)] * 4
    assert found.missing == []
    assert found.first is None


CHANGES: dict[str, tuple[dict[str, Any], dict[str, str], str, int]] = {
    "order": ({"schedule": [ALL_GATHER, WAIT, ALL_REDUCE, WAIT]}, {"collectives": "critical"}, "all_gather", 4),
    "missing": ({"schedule": SCHEDULE[:2]}, {"collectives": "critical"}, "no more|all_reduce_", 6),
    "size": ({"size": "(8, 4)"}, {"collectives": "critical"}, r"\(8, 4\)", 4),
    "group": ({"groups": ("0", "5")}, {"collectives": "critical"}, "group 5", 6),
    "waits": ({"schedule": [ALL_REDUCE, ALL_GATHER, WAIT, WAIT]}, {"collectives": "warning"}, "wait_tensor", 5),
    "graph": ({"operator": "cos"}, {"graphs": "warning"}, "1/0 Dynamo graph", 1),
    "tensors": ({"shape": (4, 8)}, {"tensors": "warning"}, "1/0 operations", 1),
    "cache": ({"cache": "hit"}, {"caches": "info"}, "1/0 FX graph cache hit", 1),
    "time": ({"duration_us": 4_000_000}, {"times": "warning"}, "1/0", 1),
    "frame": ({"function": "loss"}, {"compile_ids": "warning"}, "1/0 loss", 1),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_one_rank_does_otherwise_is_one_finding(tmp_path: Path, name: str) -> None:
    change, expected, said, place = CHANGES[name]
    found, findings = opened_ranks(write(tmp_path, with_change(3, changed=1, at=1, **change)))
    assert {finding.evidence["aspect"]: finding.severity for finding in findings} == expected
    assert len(findings) == 1
    finding = findings[0]
    assert re.search(said, finding.title), finding.title
    assert (finding.evidence["left_place"], finding.rank) == (place + 1, 1)
    assert [group["ranks"] for group in finding.evidence["groups"]] == ["ranks 0, 2", "rank 1"]
    assert {aspect for aspect, state in states(found).items() if state != "alike"} == set(expected)
    assert found.first is not None
    assert found.first.aspect in expected
    assert "1/0" in f"{found.first.first and found.first.first.compile_id}"


def test_a_rank_that_compiles_once_more(tmp_path: Path) -> None:
    logs = {rank: rank_log(rank, [{}, {}]) for rank in range(3)}
    add_compile(logs[2], 2, frame=1, number=1)
    found, findings = opened_ranks(write(tmp_path, logs))
    assert [finding.evidence["aspect"] for finding in findings] == ["compile_ids"]
    assert states(found)["caches"] == "differ"  # because of that compile, so that it has no finding of its own
    assert states(found)["graphs"] == states(found)["collectives"] == "alike"  # the others have no 1/1 to differ in
    assert [finding.evidence["right"] for finding in findings if finding.evidence["aspect"] == "compile_ids"] == [
        "1/1 forward (model.py:10): ok"
    ]


@pytest.mark.parametrize(
    ("training", "more", "severity"),
    [("forward", "inference", "info"), ("forward", "forward", "warning"), ("inference", "inference", "warning")],
)
def test_a_rank_that_evaluates_alone(tmp_path: Path, training: Any, more: Any, severity: str) -> None:
    """Ranks that only infer should compile the same."""
    logs = {rank: rank_log(rank, [{"schedule": None}]) for rank in range(2)}
    add_compile(logs[0], 0, frame=0, number=1, schedule=None)
    for log in logs.values():
        log.record(Program(0, training, "0/0").graph())
    logs[0].record(Program(1, more, "0/1").graph())
    _, findings = opened_ranks(write(tmp_path, logs))
    assert {finding.evidence["aspect"]: finding.severity for finding in findings} == {"compile_ids": severity}


def test_a_rank_that_made_no_graph_is_no_stage(tmp_path: Path) -> None:
    logs = {0: rank_log(0, [{"schedule": None}]), 1: rank_log(1, [])}
    ids: Any = {"rank": 1, "frame_id": 0, "frame_compile_id": 0, "attempt": 0}
    logs[1].torch("dynamo_start", {"stack": []}, **ids)
    logs[1].torch("compilation_metrics", {"co_name": "forward", "has_guarded_code": True}, **ids)
    found, _ = opened_ranks(write(tmp_path, logs))
    assert "differ" in states(found).values()
    assert "stages" not in states(found).values()


def test_a_graph_without_the_collectives_of_the_others(tmp_path: Path) -> None:
    logs = {rank: rank_log(rank, [{}]) for rank in (0, 1)}
    logs[2] = rank_log(2, [{"schedule": None}])
    ids = {"rank": 2, "frame_id": 0, "frame_compile_id": 0, "attempt": 0}
    logs[2].torch("inductor_output_code", {"filename": "/tmp/c.py"}, b"def call(args):\n    pass\n", **ids)
    found, findings = opened_ranks(write(tmp_path, logs))
    assert [(finding.evidence["aspect"], finding.severity) for finding in findings] == [("collectives", "critical")]
    assert "rank 2 has none" in findings[0].title
    assert [row.collectives for row in found.rows] == [2, 2, 0]


def test_a_graph_that_one_rank_has_not_logged_is_no_difference(tmp_path: Path) -> None:
    logs = {0: rank_log(0, [{}]), 1: rank_log(1, [{"schedule": None}])}
    assert opened_ranks(write(tmp_path, logs))[1] == []


def test_stages_of_a_pipeline_are_information(tmp_path: Path) -> None:
    stages: list[dict[str, Any]] = [
        {"operator": "sin", "groups": ("1", "1")},
        {"operator": "cos", "groups": ("2", "2")},
    ]
    logs = {rank: rank_log(rank, [stages[rank // 2]]) for rank in range(4)}
    found, findings = opened_ranks(write(tmp_path / "healthy", logs))
    assert [(finding.evidence["aspect"], finding.severity) for finding in findings] == [("graphs", "info")]
    assert "stages of a pipeline" in findings[0].title
    assert states(found)["graphs"] == "stages"

    stages[1]["groups"], stages[1]["size"] = ("1", "1"), "(8, 4)"  # now both stages meet in group 1
    logs = {rank: rank_log(rank, [stages[rank // 2]]) for rank in range(4)}
    _, findings = opened_ranks(write(tmp_path / "mismatch", logs))
    severities = {finding.evidence["aspect"]: finding.severity for finding in findings}
    assert severities == {"collectives": "critical", "graphs": "warning"}


@pytest.mark.parametrize(("shared", "severity"), [([0, 1], "warning"), ([0], "info")])
def test_ranks_that_hold_the_same_parameters_are_no_stages(tmp_path: Path, shared: list[int], severity: str) -> None:
    """The operation and the line are those of the first difference."""
    logs = {rank: rank_log(rank, [{"operator": operator}]) for rank, operator in enumerate(("sin", "cos"))}
    for log in logs.values():
        log.record(ReplicatedParameters("0/0", ["L['self']._parameters['weight']"], ["weight"], shared))
    found, findings = opened_ranks(write(tmp_path, logs))
    (finding,) = findings
    assert (states(found)["graphs"], finding.severity) == ("differ" if severity == "warning" else "stages", severity)
    if severity == "warning":
        assert finding.proof == ["The first operation that differs is L_x_.sin() on rank 0 and L_x_.cos() on rank 1."]
        assert finding.source == SourceLine("/node1/model.py", 33, "forward", "return x.sin()")
    else:
        assert (finding.proof, finding.source) == ([], None)


@pytest.mark.parametrize("same", [0, MOST_LINES])
def test_an_operation_that_only_one_rank_has(tmp_path: Path, same: int) -> None:
    """Names of values and the order of inputs may differ behind it, and a graph may be long."""
    ours = GRAPH.format(device=0, folder="/node0", operator="sin", group="0")
    before = "".join(f"        tan_{number} = L_x_.tan();\n" for number in range(same))
    ours = ours.replace("         # File", f"{before}         # File", 1)
    theirs = ours.replace("sin:", "sin_1:").replace("(sin", "(sin_1").replace(
        "         # File", '        exp: "f32[4, 4][4, 1]cuda:0" = L_x_.exp();  L_x_ = None\n         # File', 1
    )  # fmt: skip
    logs = {rank: LogBuilder(100 + rank) for rank in range(2)}
    for (rank, log), graph in zip(logs.items(), (ours, theirs), strict=True):
        ids = {"rank": rank, "frame_id": 0, "frame_compile_id": 0}
        log.torch("dynamo_output_graph", {"sizes": {}}, graph.encode(), **ids)
        log.record(ReplicatedParameters("0/0", ["L['self']._parameters['weight']"], ["weight"], [0, 1]))
    _, findings = opened_ranks(write(tmp_path, logs))
    (finding,) = (one for one in findings if one.evidence["aspect"] == "graphs")
    assert finding.title.endswith("differ from those of rank 1, first in the 0/0 Dynamo graph")
    told = "The first operation that differs is L_x_.exp() on rank 1, which rank 0 does not have there."
    assert finding.proof == [told]


def test_a_difference_within_a_stage_is_a_warning(tmp_path: Path) -> None:
    logs = {rank: rank_log(rank, [{"operator": "sin" if rank < 2 else "cos"}, {}]) for rank in range(4)}
    logs[3] = rank_log(3, [{"operator": "cos"}, {"operator": "tan"}])
    _, findings = opened_ranks(write(tmp_path, logs))
    assert [(finding.evidence["aspect"], finding.severity) for finding in findings] == [("graphs", "warning")]
    assert (findings[0].evidence["left_rank"], findings[0].evidence["right_rank"]) == (2, 3)
    assert findings[0].evidence["left_place"] == 2


@pytest.mark.parametrize(
    ("programs", "stages"),
    [
        ("AB", True), ("AABB", True), ("ABAB", True), ("ABBC", True), ("AABBBBCC", True), ("ABCABC", True),
        ("AAAA", False), ("AAAB", False), ("ABBB", False), ("AABA", False), ("AABBA", False), ("ABCA", False),
    ],
)  # fmt: skip
def test_which_ranks_may_be_stages(programs: str, stages: bool) -> None:
    assert are_stages(programs) is stages


def test_order_in_which_graphs_ran(tmp_path: Path) -> None:
    logs = {rank: rank_log(rank, [{}, {}]) for rank in range(3)}
    orders = [["0/0", "1/0", "0/0", "1/0"], ["0/0", "1/0", "0/0", "1/0"], ["0/0", "1/0", "1/0", "0/0"]]
    for rank, order in enumerate(orders):
        payload = {"graph_execution_order": [{"compile_id": name} for name in order]}
        logs[rank].artifact("graph_execution", orjson.dumps(payload), rank=rank)
    with open_trace(write(tmp_path, logs)) as trace:
        findings = found_in(trace)
        assert [(finding.evidence["aspect"], finding.severity) for finding in findings] == [("graphs", "warning")]
        assert "call 3 in the order in which graphs ran" in findings[0].title
        shown = rank_difference(trace, "graphs", 0, 2)
    assert shown.basis == "executed"
    assert [(row.left_index, row.right_index) for row in shown.rows if row.is_first] == [(None, 2)]


def test_logs_of_a_rank_that_was_started_again(tmp_path: Path) -> None:
    logs = {rank: rank_log(rank, [{}]) for rank in range(2)}
    write(tmp_path, logs)
    again = LogBuilder(999)
    again._time += timedelta(hours=1)
    for number in range(2):
        add_compile(again, 0, number)
    again.write(tmp_path / "dedicated_log_torch_trace_rank_0_zzz.log")
    found, findings = opened_ranks(tmp_path)
    assert [(row.rank, row.pid, row.nth, row.of, row.compared) for row in found.rows] == [
        (0, 100, 1, 2, False),
        (0, 999, 2, 2, True),
        (1, 101, 1, 1, True),
    ]
    assert [found.rows[1].log, found.rows[2].log] == found.compared
    assert [finding.evidence["aspect"] for finding in findings] == ["compile_ids"]


def test_missing_ranks(tmp_path: Path) -> None:
    logs = {rank: rank_log(rank, [{}]) for rank in (0, 1, 3)}
    assert opened_ranks(write(tmp_path / "gap", logs))[0].missing == [2]
    for rank in (0, 1):
        log = synthetic.recorded(rank=rank, world_size=4, pid=500 + rank)
        log.write(tmp_path / "world" / f"stepscope_trace_rank_{rank}_{500 + rank}_aa.log")
    found, findings = opened_ranks(tmp_path / "world")
    assert (found.world_size, found.missing, findings) == (4, [2, 3], [])


def test_a_rank_in_the_name_of_a_log_only(tmp_path: Path) -> None:
    log = synthetic.compile_records(LogBuilder())
    log.write(tmp_path / "dedicated_log_torch_trace_rank_12_x.log")
    log.write(tmp_path / "dedicated_log_torch_trace_rank_13.log")
    found, _ = opened_ranks(tmp_path)
    assert [row.rank for row in found.rows] == [12, 13]


def test_names_and_records_that_disagree_are_told(tmp_path: Path) -> None:
    rank_log(0, [{}]).write(tmp_path / "dedicated_log_torch_trace_rank_3_x.log")
    with open_trace(tmp_path) as trace:
        assert [(row.rank, row.record_rank) for row in ranks(trace).rows] == [(3, 0)]
        assert "gives rank 3, its records give rank 0" in Client(trace).get("/ranks").text


# Launches


def distributed(rank: int, launched: Sequence[str], sizes: Sequence[int] = (4, 4), end: bool = True) -> LogBuilder:
    """A log of stepscope's with one step; sites 0 and 1 launch collectives, 2 waits."""
    kernels = [ALL_REDUCE, ALL_GATHER, WAIT]
    sites = [
        LaunchSite(i, "call", 20 + i, kernel, "collective", [synthetic.argument(f"buf{i}", "inout")], [])
        for i, kernel in enumerate(kernels)
    ]
    graph = replace(synthetic.graph(), sites=sites, functions=["call"], memory=[])
    log = LogBuilder(700 + rank).record(synthetic.run(rank=rank, world_size=2, pid=700 + rank)).record(graph)
    for site, size in enumerate(sizes):
        meta = TensorMeta(0, "float32", [size, 8], [8, 1], "cpu", 0, size * 32)
        log.record(Tensors(0, 0, site, [meta]))
    start = synthetic.MONOTONIC_NS + 1_000
    count = len(launched)
    log.record(
        Launches(
            Calls([0], [0], [0], [0], [1], [None], [start], [1000], [count], ["ok"]),
            site=[kernels.index(kernel) for kernel in launched],
            start_ns=[start + 10 * i for i in range(count)],
            end_ns=[start + 10 * i + 5 for i in range(count)],
        )
    )
    log.record(Steps([0], ["train"], ["user"], [start - 10], [start + 2_000]))
    return log.record(End("exit", start + 5_000)) if end else log


LAUNCHED = [ALL_REDUCE, WAIT, ALL_GATHER, WAIT]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("other", "sizes", "end", "severity", "said"),
    [
        (LAUNCHED, (4, 4), True, None, ""),
        ([ALL_REDUCE, ALL_GATHER, WAIT, WAIT], (4, 4), True, None, ""),
        ([ALL_GATHER, WAIT, ALL_REDUCE, WAIT], (4, 4), True, "critical", "collective 1 in step 0"),
        (LAUNCHED, (4, 6), True, "critical", r"collective 2 in step 0: .*\[4,8\].*\[6,8\]"),
        (LAUNCHED[:2], (4, 4), True, "critical", "collective 2 in step 0: .* rank 1 has no more"),
        (LAUNCHED[:2], (4, 4), False, "warning", "rank 1 has no more"),
        ([ALL_GATHER, WAIT], (4, 4), False, "critical", "collective 1 in step 0"),
    ],
)
def test_launched_collectives(
    tmp_path: Path, other: list[str], sizes: tuple[int, int], end: bool, severity: str | None, said: str
) -> None:
    distributed(0, LAUNCHED).write(tmp_path / "stepscope_trace_rank_0_700_a.log")
    distributed(1, other, sizes, end).write(tmp_path / "stepscope_trace_rank_1_701_a.log")
    with open_trace(tmp_path) as trace:
        findings = found_in(trace)
        assert [finding.severity for finding in findings] == ([severity] if severity else [])
        if findings:
            assert re.search(said, findings[0].title), findings[0].title
            shown = rank_difference(trace, "collectives", 0, 1)
            assert (shown.basis, shown.inside) == ("launched", "step 0")
            assert sum(row.is_first for row in shown.rows) == 1
            assert all("wait_tensor" not in item.text for row in shown.rows for item in (row.left, row.right) if item)


# Facts


def test_collectives_of_generated_code() -> None:
    found = collectives_of(CODE.format(size="(s0, 4)", first="0", second="7"))
    assert found == [
        [ALL_REDUCE, "0", "(s0, 4)", "float32", "sum"],
        [WAIT, None, "(s0, 4)", "float32", None],
        [ALL_GATHER, "7", "(s0, 4)", "float32", "2"],
        [WAIT, None, "(8, 4)", None, None],
    ]
    assert collectives_of("# torch.ops._c10d_functional.all_reduce_.default(buf0, 'sum', '0')\n") == []


@pytest.mark.parametrize(
    "check",
    ["size_stride(arg0_1, (8, 4), (4, 1), 'input')", "tensor_metadata(arg0_1, (8, 4), (4, 1), torch.float32)",
     "size_stride_grouped((arg1_1, arg0_1), ((), (8, 4)), ((), (4, 1)), 'input')"],
)  # fmt: skip
def test_the_size_of_a_collective_is_the_one_that_the_code_checks(check: str) -> None:
    code = f"async_compile.wait(globals())\n    assert_{check}\n    {ALL_REDUCE}(arg0_1, 'sum', '0')\n"
    assert [size for _, _, size, *_ in collectives_of(code)] == ["(8, 4)"]


def test_what_ranks_may_differ_in_is_not_compared() -> None:
    one, other = (
        comparable_graph(GRAPH.format(device=device, folder=folder, operator="sin", group=group).encode())
        for device, folder, group in ((1, "/a", "3"), (12, "/b", "4"))
    )
    assert one == other
    assert comparable_graph(b"x: cuda:1, y: cuda:2") != comparable_graph(b"x: cuda:1, y: cuda:1")


@pytest.mark.parametrize(
    ("name", "payload"),
    [
        ("inductor_collective_schedule", b'{"a": 1}'),
        ("inductor_collective_schedule", b"[1, null, {}]"),
        ("inductor_runtime_and_tensor_meta", b'{"ops": 3}'),
        ("inductor_runtime_and_tensor_meta", b'{"ops": [3, {"name": 4, "outputs": [1, {"shape": "x"}]}]}'),
        ("graph_execution", b"[]"),
        ("graph_execution", b'{"graph_execution_order": [1, {"compile_id": 3}]}'),
        ("graph_execution", b"not json"),
    ],
)
def test_odd_payloads_are_counted_not_raised(tmp_path: Path, name: str, payload: bytes) -> None:
    logs = {rank: rank_log(rank, [{}]) for rank in range(2)}
    logs[1].artifact(name, payload, frame_id=4, frame_compile_id=0)
    with open_trace(write(tmp_path, logs)) as trace:
        client = Client(trace)
        for aspect in ("collectives", "graphs", "tensors"):
            assert client.get(f"/ranks/difference?aspect={aspect}").status_code == 200
        assert client.get("/ranks").status_code == 200
        reasons = {reason for (reason,) in trace.cursor().execute("SELECT reason FROM problem_counts").fetchall()}
    assert reasons <= {"broken_payload"}
