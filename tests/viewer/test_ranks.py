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

from tests.viewer import synthetic
from tests.viewer.conftest import sample_logs
from tests.viewer.synthetic import LogBuilder
from tests.viewer.web import Client
from tracer import records as schema
from viewer.findings import all_findings
from viewer.ingest.rank_facts import collectives_of, comparable_graph
from viewer.queries.rank_compare import are_stages
from viewer.queries.rank_difference import rank_difference
from viewer.queries.ranks import Ranks, ranks
from viewer.queries.rows import Finding
from viewer.store.open import Trace, open_trace

ALL_REDUCE = "torch.ops._c10d_functional.all_reduce_.default"
ALL_GATHER = "torch.ops._c10d_functional.all_gather_into_tensor.default"
WAIT = "torch.ops._c10d_functional.wait_tensor.default"
GRAPH = """class GraphModule(torch.nn.Module):
    def forward(self, L_x_: "f32[4, 4][4, 1]cuda:{device}"):
         # File: {folder}/model.py:33 in forward, code: return x.sin()
        sin: "f32[4, 4][4, 1]cuda:{device}" = L_x_.{operator}();  L_x_ = None
        ar: "f32[4, 4][4, 1]cuda:{device}" = torch.ops._c10d_functional.all_reduce.default(sin, 'sum', '{group}')
        return (sin,)
"""
CODE = """async_compile.wait(globals())

def call(args):
    arg0_1, = args
    assert_size_stride(arg0_1, (4, 4), (4, 1))
    buf0 = empty_strided_cuda({size}, (4, 1), torch.float32)
    torch.ops._c10d_functional.all_reduce_.default(buf0, 'sum', '{first}')
    torch.ops._c10d_functional.wait_tensor.default(buf0)
    buf5 = torch.ops._c10d_functional.all_gather_into_tensor.default(buf0, 2, '{second}')
    assert_size_stride(buf5, (8, 4), (4, 1), 'torch.ops._c10d_functional.all_gather_into_tensor.default')
    torch.ops._c10d_functional.wait_tensor.default(buf5)
    return (buf5, )
"""
SCHEDULE = [ALL_REDUCE, WAIT, ALL_GATHER, WAIT]


def rank_log(rank: int, compiles: Sequence[dict[str, Any]], pid: int = 0) -> LogBuilder:
    """What PyTorch logs of some compiles on one rank; each is keywords of `add_compile`."""
    log = LogBuilder(pid or 100 + rank)
    log.torch("str", ["/src/model.py", 7])
    for number, compile in enumerate(compiles):
        add_compile(log, rank, **{"frame": number, **compile})
    return log


def add_compile(
    log: LogBuilder,
    rank: int,
    frame: int,
    number: int = 0,
    operator: str = "sin",
    size: str = "(4, 4)",
    groups: tuple[str, str] = ("0", "0"),
    schedule: Sequence[str] | None = SCHEDULE,
    shape: Sequence[int] = (4, 4),
    cache: str = "miss",
    duration_us: int = 1500,
    function: str = "forward",
) -> None:
    ids: Any = {"rank": rank, "frame_id": frame, "frame_compile_id": number, "attempt": 0}
    stack = [{"line": 12, "name": function, "filename": 7, "loc": "y = x @ w"}]
    log.torch("dynamo_start", {"stack": stack}, **ids)
    text = GRAPH.format(device=rank, folder=f"/node{rank}", operator=operator, group=groups[0])
    log.torch("dynamo_output_graph", {"sizes": {}}, text.encode(), **ids)
    log.artifact(f"fx_graph_cache_{cache}", b"{}", **ids)
    if schedule is not None:
        code = CODE.format(size=size, first=groups[0], second=groups[1])
        log.torch("inductor_output_code", {"filename": f"/tmp/{rank}/c{frame}.py"}, code.encode(), **ids)
        log.artifact("inductor_collective_schedule", orjson.dumps(schedule), **ids)
    op = {"name": "op0", "type": "compute", "estimated_runtime_ns": 17.5 + rank}
    outputs = [{"shape": list(shape), "stride": [4, 1], "dtype": "float32"}]
    log.artifact("inductor_runtime_and_tensor_meta", orjson.dumps({"ops": [{**op, "outputs": outputs}]}), **ids)
    metrics = {
        "co_name": function, "co_filename": f"/node{rank}/model.py", "co_firstlineno": 10, "fail_type": None,
        "has_guarded_code": True, "duration_us": duration_us,
    }  # fmt: skip
    log.torch("compilation_metrics", metrics, **ids)


def write(folder: Path, logs: dict[int, LogBuilder]) -> Path:
    for rank, log in logs.items():
        log.write(folder / f"dedicated_log_torch_trace_rank_{rank}_abc.log")
    return folder


def with_change(count: int, changed: int, at: int, **change: Any) -> dict[int, LogBuilder]:
    """`count` ranks with three compiles, one of which is another on rank `changed`."""
    return {
        rank: rank_log(rank, [{**(change if rank == changed and i == at else {})} for i in range(3)])
        for rank in range(count)
    }


def opened_ranks(folder: Path) -> tuple[Ranks, list[Finding]]:
    with open_trace(folder) as trace:
        return ranks(trace), found_in(trace)


def found_in(trace: Trace) -> list[Finding]:
    return [finding for finding in all_findings(trace) if finding.kind == "rank_divergence"]


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
    "cache": ({"cache": "hit"}, {"caches": "warning"}, "1/0 FX graph cache hit", 1),
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
    assert {finding.evidence["aspect"] for finding in findings} == {"compile_ids", "caches"}
    assert states(found)["graphs"] == states(found)["collectives"] == "alike"  # the others have no 1/1 to differ in
    assert [finding.evidence["right"] for finding in findings if finding.evidence["aspect"] == "compile_ids"] == [
        "1/1 forward (model.py:10): ok"
    ]


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
    assert {finding.evidence["aspect"] for finding in findings} == {"compile_ids", "caches"}


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
        assert "name says rank 3, its records say rank 0" in Client(trace).get("/ranks").text


# Launches


def distributed(rank: int, launched: Sequence[str], sizes: Sequence[int] = (4, 4), end: bool = True) -> LogBuilder:
    """A log of stepscope's with one step; sites 0 and 1 launch collectives, 2 waits."""
    kernels = [ALL_REDUCE, ALL_GATHER, WAIT]
    sites = [
        schema.LaunchSite(i, "call", 20 + i, kernel, "collective", [synthetic.argument(f"buf{i}", "inout")], [])
        for i, kernel in enumerate(kernels)
    ]
    graph = replace(synthetic.graph(), sites=sites, functions=["call"], memory=[])
    log = LogBuilder(700 + rank).record(synthetic.run(rank=rank, world_size=2, pid=700 + rank)).record(graph)
    for site, size in enumerate(sizes):
        meta = schema.TensorMeta(0, "float32", [size, 8], [8, 1], "cpu", 0, size * 32)
        log.record(schema.Tensors(0, 0, site, [meta]))
    start = synthetic.MONOTONIC_NS + 1_000
    count = len(launched)
    log.record(
        schema.Launches(
            schema.Calls([0], [0], [0], [0], [1], [None], [start], [1000], [count], ["ok"]),
            site=[kernels.index(kernel) for kernel in launched],
            start_ns=[start + 10 * i for i in range(count)],
            end_ns=[start + 10 * i + 5 for i in range(count)],
        )
    )
    log.record(schema.Steps([0], ["train"], ["user"], [start - 10], [start + 2_000]))
    return log.record(schema.End("exit", start + 5_000)) if end else log


LAUNCHED = [ALL_REDUCE, WAIT, ALL_GATHER, WAIT]


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


# Pages


@pytest.fixture
def client(tmp_path: Path) -> Any:
    change = {"operator": "<script>", "schedule": [ALL_GATHER, WAIT, "<img src=x>"], "cache": "hit", "shape": (1, 2)}
    with open_trace(write(tmp_path, with_change(3, changed=2, at=2, **change))) as trace:
        yield Client(trace)


def test_ranks_page(client: Client) -> None:
    text = client.get("/ranks").text
    assert text.count("<h1") == 1
    for words in ("ranks 0, 1", "Ranks differ first in", "ranks will wait for each other"):
        assert words in text
    answer = client.get("/ranks.json").json()
    assert [row["aspect"] for row in answer["aspects"] if row["state"] == "differ"] == [
        "collectives", "graphs", "tensors", "caches",
    ]  # fmt: skip
    for row in answer["aspects"]:
        assert row["first"] is None or client.get(row["first"]["page"]).status_code == 200


@pytest.mark.parametrize("aspect", ["compile_ids", "caches", "collectives", "graphs", "tensors", "times"])
def test_difference_page(client: Client, aspect: str) -> None:
    text = client.get(f"/ranks/difference?aspect={aspect}&left=0&right=2").text
    answer = client.get(f"/ranks/difference.json?aspect={aspect}&left=0&right=2").json()["difference"]
    differs = aspect not in ("compile_ids", "times")
    assert ('id="first"' in text) is differs
    assert (answer["split"] is not None) is differs
    assert sum(row["is_first"] for row in answer["rows"]) == differs
    assert "<img" not in text
    assert "<script>" not in text.partition("<main")[2]
    if aspect == "graphs":
        changed = [line for line in answer["graph"]["lines"] if line["state"] != "equal"]
        assert [("sin()" in line["left"], "<script>()" in line["right"]) for line in changed] == [(True, True)]
    if aspect == "tensors":
        assert [(row["left"]["text"], row["right"]["text"]) for row in answer["operations"]] == [
            ("op0 → float32[4, 4] stride [4, 1]", "op0 → float32[1, 2] stride [4, 1]")
        ]
        assert [row["left"]["estimated_ns"] for row in answer["operations"]] == [17.5]
    if aspect == "collectives":
        sides = [
            (row["left"] and row["left"]["value"], row["right"] and row["right"]["value"]) for row in answer["rows"]
        ]
        assert sides[8:] == [
            ("all_reduce_", None),
            ("wait_tensor", None),
            ("all_gather_into_tensor", "all_gather_into_tensor"),
            ("wait_tensor", "wait_tensor"),
            (None, "<img src=x>"),
        ]


def test_addresses_that_name_nothing(client: Client) -> None:
    for query in ("aspect=nothing", "left=99", "aspect=graphs&right=-1", "left=x"):
        answer = client.get(f"/ranks/difference?{query}")
        assert answer.status_code == 404
        assert "Traceback" not in answer.text
    assert client.get("/ranks/difference?aspect=graphs&left=1&right=1").status_code == 200


def test_one_log_says_what_is_missing(tmp_path: Path) -> None:
    with open_trace(synthetic.recorded().write(tmp_path / "one.log")) as trace:
        text = Client(trace).get("/ranks").text
        assert "Nothing to compare" in text
        assert "torchrun" in text
        assert found_in(trace) == []


def test_long_sequences_are_cut_around_the_first_difference(tmp_path: Path) -> None:
    schedule = [ALL_REDUCE, WAIT] * 1500
    other = schedule[:]
    other[2001] = ALL_GATHER
    logs = {rank: rank_log(rank, [{"schedule": other if rank else schedule}]) for rank in range(2)}
    with open_trace(write(tmp_path, logs)) as trace:
        shown = rank_difference(trace, "collectives", 0, 1)
    assert shown.split is not None
    assert shown.split.left == 2001
    assert shown.before == 2001 - 20
    assert shown.before + len([row for row in shown.rows if row.left]) + shown.left_after == 3000
    assert [(row.left_index, row.right_index) for row in shown.rows if row.is_first] == [(None, 2001)]


# Real logs


def scanned(path: Path) -> list[tuple[dict[str, Any], bytes]]:
    """Headers and payloads of a log, read apart from the package."""
    found: list[tuple[dict[str, Any], list[bytes]]] = []
    for line in path.read_bytes().replace(b"\r\n", b"\n").split(b"\n"):
        match = re.match(rb"V\d{4} \S+ \d+ [^ ]+\] (\{.*)", line)
        if match:
            found.append((orjson.loads(match[1]), []))
        elif line.startswith(b"\t") and found:
            found[-1][1].append(line[1:])
    return [(header, b"\n".join(payload)) for header, payload in found]


def first_difference(left: Sequence[object], right: Sequence[object]) -> int | None:
    pairs = zip([*left, None], [*right, None], strict=False)
    return None if left == right else next(i for i, (a, b) in enumerate(pairs) if a != b)


@pytest.mark.skipif(sample_logs() is None, reason="no logs of PyTorch are here")
def test_collectives_of_real_ranks() -> None:
    folder = (sample_logs() or Path()) / "multi_rank_schedule"
    schedules = [
        [
            name.split(".")[-2]
            for header, payload in scanned(path)
            if header.get("artifact", {}).get("name") == "inductor_collective_schedule"
            for name in orjson.loads(payload)
        ]
        for path in sorted(folder.iterdir())
    ]
    found, findings = opened_ranks(folder)
    assert schedules[0] == schedules[2]
    place = first_difference(schedules[0], schedules[1])
    assert [(finding.severity, finding.evidence["aspect"]) for finding in findings] == [("critical", "collectives")]
    evidence = findings[0].evidence
    assert place is not None
    assert evidence["left_place"] == place + 1
    assert (evidence["left"], evidence["right"]) == (schedules[0][place], schedules[1][place])
    assert (evidence["left_items"], evidence["right_items"]) == (len(schedules[0]), len(schedules[1]))
    assert [row.collectives for row in found.rows] == [
        sum(name != "wait_tensor" for name in schedule) for schedule in schedules
    ]
    assert [group["ranks"] for group in evidence["groups"]] == ["ranks 0, 2", "rank 1"]


@pytest.mark.skipif(sample_logs() is None, reason="no logs of PyTorch are here")
def test_compiles_and_caches_of_real_ranks() -> None:
    folder = (sample_logs() or Path()) / "multi_rank_logs"
    records = [scanned(path) for path in sorted(folder.iterdir())]
    compiles = [[h["frame_compile_id"] for h, _ in log if "dynamo_start" in h] for log in records]
    caches = [
        [
            (h["frame_compile_id"], h["artifact"]["name"])
            for h, _ in log
            if re.search("_cache_(hit|miss|bypass)$", h.get("artifact", {}).get("name", ""))
        ]
        for log in records
    ]
    with open_trace(folder) as trace:
        found, findings = ranks(trace), {row.evidence["aspect"]: row for row in found_in(trace)}
        by_aspect = {str(row.aspect): row for row in found.aspects}
        shown = {aspect: rank_difference(trace, aspect, 1, 3) for aspect in ("compile_ids", "caches")}
    assert {aspect: row.severity for aspect, row in findings.items()} == dict.fromkeys(
        ["compile_ids", "graphs", "caches", "times"], "warning"
    )
    assert [row.compiles for row in found.rows] == [len(ids) for ids in compiles]
    for aspect, sequence in (("compile_ids", compiles), ("caches", caches)):
        groups = {tuple(log for log in range(4) if sequence[log] == other) for other in sequence}
        assert {tuple(group.logs) for group in by_aspect[aspect].groups} == groups
        split = shown[aspect].split
        assert split is not None
        assert split.left == first_difference(sequence[1], sequence[3])
    assert {tuple(group.logs) for group in by_aspect["graphs"].groups} == {(0, 2), (1, 3)}
