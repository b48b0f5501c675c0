"""Pages about compilation over a whole run: what they count, what they link to, and what they cannot know."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from dataclasses import fields
from html import unescape
from typing import Any

import orjson
import pytest

from stepscope.viewer.compiles import summary_page
from stepscope.viewer.compiles.queries.guard_text import failed_guards
from stepscope.viewer.store.open import open_trace
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.text.text_diff import side_by_side
from tests.logs import compile_summary_logs as logs
from tests.logs.synthetic import LogBuilder
from tests.viewer.client import Client
from tests.viewer.conftest import sample_logs

Opened = Callable[[LogBuilder | bytes], Trace]
HOSTILE = "<script>alert(1)</script>"
PATHS = {
    "/graph-breaks": summary_page.GraphBreaksPage,
    "/recompiles": summary_page.RecompilesPage,
    "/caches": summary_page.CachesPage,
    "/cuda-graphs": summary_page.CudaGraphsPage,
    "/metrics?sort=duration_us&direction=desc": summary_page.MetricsPage,
    "/compile-time": summary_page.CompileTimePage,
    "/draft-export": summary_page.DraftExportPage,
    "/vllm": summary_page.VllmPage,
}
EMPTY = {
    "/graph-breaks": "No graph breaks",
    "/recompiles": "No recompiles",
    "/caches": "No cache lookups",
    "/cuda-graphs": "No CUDA graph was skipped or recorded",
    "/metrics": "No compilation metrics",
    "/compile-time": "No compile spans",
    "/draft-export": "No draft exports",
    "/vllm": "No vLLM records",
}


def text_of(html: str) -> str:
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", html.split("<main", 1)[1])))


def asked(opened: Opened, log: LogBuilder, path: str) -> Any:
    """The twin at `path`, after its page was there too."""
    client = Client(opened(log))
    assert client.get(path).status_code == 200
    address, _, query = path.partition("?")
    return client.get(f"{address}.json?{query}").json()


def test_what_is_not_there_is_said(opened: Opened) -> None:
    client = Client(opened(LogBuilder().torch("str", ["/a.py", 1])))
    for path, title in EMPTY.items():
        assert title in text_of(client.get(path).text)
        assert client.get(f"{path}.json").status_code == 200


def test_pages_take_everything_at_once(opened: Opened) -> None:
    log = LogBuilder()
    for name, make in vars(logs).items():
        if name.startswith("with_"):
            log.raw(make().data)
    client = Client(opened(log))
    for path, context in PATHS.items():
        answer = client.get(path)
        assert answer.status_code == 200, (path, answer.text)
        assert not any(title in text_of(answer.text) for title in EMPTY.values()), path
        found = client.get(path.split("?", 1)[0] + ".json").json()
        assert list(found) == [field.name for field in fields(context)]


def test_graph_breaks_stand_by_cause_with_what_they_cost(opened: Opened) -> None:
    found = asked(opened, logs.with_breaks(), "/graph-breaks")["breaks"]
    assert (found["total_causes"], found["total_breaks"], found["total_compiles"]) == (2, 4, 4)
    first, second = found["causes"]
    assert (first["cause"], first["breaks"], first["frames"]) == ("print", 3, 3)
    assert first["explanation"] == "Dynamo cannot trace it."
    assert first["hints"] == ["Remove it.", "Or move it out\n    of the compiled region."]
    assert first["context"] == "builtin print"
    assert first["url"] == "https://example.org/gb/gb0059.html"
    assert [(place["breaks"], place["source"]["line"]) for place in first["places"]] == [(2, 20), (1, 30)]
    assert first["places"][0]["source"]["code"] == 'print("here")'
    assert [(one["line"], one["function"]) for one in first["places"][1]["stack"]] == [(3, "<module>"), (30, "forward")]
    assert [one["compile_id"] for one in first["places"][0]["compiles"]] == ["0/0", "1/0"]
    cost = first["cost"]
    assert (cost["restarts"], cost["before_restart_ns"], cost["compile_ns"]) == (3, 1_200_000, 3_000_000)
    assert (cost["resume_functions"], cost["resume_ns"]) == (1, 250_000)
    assert second["cost"]["resume_functions"] == 0


def test_graph_breaks_link_to_compiles_and_records(opened: Opened) -> None:
    client = Client(opened(logs.with_breaks()))
    html = client.get("/graph-breaks").text
    assert 'href="/compile/1_0?log=0"' in html
    record = orjson.loads(client.get("/graph-breaks.json").content)["breaks"]["causes"][0]["first_record"]
    assert f'href="/records/{record}"' in html
    assert b"Graph break in user code" in client.get(f"/records/{record}/raw").content


def test_only_web_addresses_of_a_log_are_links(opened: Opened) -> None:
    text = logs.BREAK.format(cause="c", line=1).replace("https://example.org/gb/gb0059.html", "javascript:alert(1)")
    log = LogBuilder().artifact("dynamo_graph_break_reason", text.encode(), "string", **logs.ids(0, 0))
    html = Client(opened(log)).get("/graph-breaks").text
    assert "javascript:" not in html


def test_recompiles_show_the_values_in_order_and_what_gave_up(opened: Opened) -> None:
    found = asked(opened, logs.with_recompiles(), "/recompiles")["recompiles"]
    assert (found["total_frames"], found["total_recompiles"], found["fell_back"]) == (2, 3, 1)
    assert found["total_ns"] == 2 * 1_000_000 + 3_000_000
    step, size = found["frames"]
    (guard,) = step["guards"]
    assert guard["source"] == "self.step"
    assert guard["values"] == [["0/0", "0"], ["0/1", "1"], ["0/2", "2"]]
    assert (guard["failures"], guard["is_dynamic"], guard["dynamic_since"]) == (3, False, None)
    assert (guard["code"], guard["hint"]) == ("if self.step % 2:", "make it dynamic.")
    assert [row["came"] for row in step["rows"]] == ["1", "2", None]
    assert [row["guards"][0]["against"] for row in step["rows"]] == ["0/0", "0/1", "0/2"]
    assert len(step["rows"][2]["guards"]) == 3
    assert step["fell_back"]["compile_id"] == "0/3"
    (guard,) = size["guards"]
    assert (guard["source"], guard["values"]) == ("x.size()[0]", [["1/0", "4"], ["1/1", "8"]])
    assert (guard["dynamic_since"], size["rows"][0]["made_dynamic"]) == ("1/1", ["x.size()[0]"])
    assert (size["recompile_ns"], size["first_ns"]) == (3_000_000, 1_000_000)


def test_a_frame_that_was_not_recompiled_is_not_there(opened: Opened) -> None:
    client = Client(opened(logs.with_recompiles()))
    only = text_of(client.get("/recompiles?frame=1").text)
    assert "Only frame 1 is shown." in only
    answer = client.get("/recompiles?frame=9")
    assert answer.status_code == 404
    assert "No frame “9” was recompiled in this trace." in unescape(answer.text)
    assert "No guard of a compiled frame failed" not in answer.text


def test_whether_a_size_became_dynamic_is_not_known_without_symbols(opened: Opened) -> None:
    log = logs.compiled(LogBuilder(), 0, 0)
    log.artifact("recompile_reasons", logs.SIZE.format(of="0/0", expected=4, actual=8).encode(), **logs.ids(0, 1))
    found = asked(opened, log, "/recompiles")["recompiles"]
    assert found["frames"][0]["guards"][0]["is_dynamic"] is None


@pytest.mark.parametrize(
    ("text", "source", "expected", "actual"),
    [
        ("0/0: tensor 'L['x']' size mismatch at index 1. expected 2, actual 3", "x.size()[1]", "2", "3"),
        ("0/0: tensor 'x' dtype mismatch. expected Float, actual Half", "dtype of x", "Float", "Half"),
        ("0/0: tensor 'x' rank mismatch. expected 2, actual 3", "rank of x", "2", "3"),
        ("0/0: L['n'] == 4", "n", "4", None),
        ("1/2: ___check_obj_id(L['f'], 140)", "identity of f", None, None),
        ("1/2: Cache line invalidated because L['self'] got deallocated", "lifetime of self", None, None),
        ("1/2: ___check_type_id(L['self'].steps[0], 140), type=<class 'int'>", "type of self.steps[0]", None, None),
        ("no compile is named", "no compile is named", None, None),
        ("", "", None, None),
    ],
)
def test_guards_are_read(text: str, source: str, expected: str | None, actual: str | None) -> None:
    (guard,) = failed_guards(text)
    assert (guard.source, guard.expected, guard.actual) == (source, expected, actual)


def test_caches_are_counted_with_reasons_and_time(opened: Opened) -> None:
    found = asked(opened, logs.with_caches(), "/caches")["caches"]
    totals = {one["cache"]: one for one in found["totals"]}
    assert totals["fx_graph"]["states"] == {"miss": 3, "hit": 1}
    assert totals["fx_graph"]["time_saved_ns"] == 7_000
    assert totals["aotautograd"]["states"] == {"bypass": 1, "hit": 1, "saved": 1}
    assert totals["aotautograd"]["time_saved_ns"] == 3_000_000
    assert totals["profile"]["states"] == {"saved": 1}
    (bypass,) = found["bypasses"]
    assert (bypass["reason"], bypass["compile_id"]) == ("Unsupported call_function target f", "1/0")
    assert found["counters"]["inductor_fx_remote_cache_hit_count"] == 5


def test_a_miss_is_compared_with_the_nearest_key_before(opened: Opened) -> None:
    rows = asked(opened, logs.with_caches(), "/caches?cache=fx_graph&state=miss")["caches"]["rows"]
    assert [row["key"] for row in rows] == ["fa", "fb", "fc"]
    assert rows[0]["nearest"] is None
    first, other = rows[1]["nearest"], rows[2]["nearest"]
    assert (first["same"], first["different"], first["compile_id"]) == (1, 3, "0/0")
    assert {"name": "extra", "before": None, "now": "only here"} in first["differences"]
    assert (other["record"], other["compile_id"]) == (rows[0]["record"], "0/0")
    assert other["differences"] == [{"name": "example_inputs[0]", "before": "size 4", "now": "size 8"}]


def test_cuda_graph_skips_name_the_node_and_the_line(opened: Opened) -> None:
    found = asked(opened, logs.with_cuda_graphs(), "/cuda-graphs")["cuda_graphs"]
    cpu, operator = found["skips"]
    assert (cpu["count"], cpu["node"], cpu["source"]["line"]) == (2, "arg0_1", 21)
    assert [one["phase"] for one in cpu["compiles"]] == ["forward", "backward"]
    assert (operator["node"], operator["source"]["line"]) == ("aten.nonzero.default", 22)
    assert operator["reason"] == "disabling cudagraphs due to incompatible op aten.nonzero.default"
    (recorded,) = found["recordings"]
    assert (recorded["compile_id"], recorded["recordings"], recorded["duration_ns"]) == ("2/0", 3, 30_000)
    assert (found["asked_for"], found["metrics"], found["cudagraphify_ns"]) == (3, 4, 30_000)


@pytest.mark.parametrize(
    ("event", "phase"),
    [
        ("compilation_metrics", "forward"),
        ("compilation_metrics_runtime", "forward"),
        ("bwd_compilation_metrics", "backward"),
        ("bwd_compilation_metrics_runtime", "backward"),
        ("aot_autograd_backward_compilation_metrics", "backward"),
    ],
)
def test_a_skip_belongs_to_the_forward_or_the_backward(opened: Opened, event: str, phase: str) -> None:
    log = logs.compiled(LogBuilder(), 0, 0, event=event, cudagraph_skip_reason=logs.CPU_SKIP)
    (skip,) = asked(opened, log, "/cuda-graphs")["cuda_graphs"]["skips"]
    assert [one["phase"] for one in skip["compiles"]] == [phase]
    (row,) = asked(opened, log, "/metrics")["metrics"]["rows"]
    assert row["kind"] == ("runtime" if event.endswith("_runtime") else phase)


def test_a_log_that_cannot_tell_of_cuda_graphs_says_so(opened: Opened) -> None:
    log = LogBuilder().torch("compilation_metrics", {"co_name": "f", "fail_type": None}, **logs.ids(0, 0))
    said = asked(opened, log, "/cuda-graphs")["cuda_graphs"]["cannot_say"]
    assert any("no field cudagraph_skip_reason" in text for text in said)
    assert any("triton.cudagraphs" in text for text in said)


def metrics_log() -> LogBuilder:
    log = logs.compiled(LogBuilder(), 0, 0, duration_us=5, guard_count=7, fail_type="=cmd()")
    logs.compiled(log, 1, 0, duration_us=50, guard_count=1)
    logs.compiled(log, 2, 0, duration_us=20)
    return logs.compiled(log, 2, 0, event="bwd_compilation_metrics", duration_us=9)


def test_metrics_sort_and_add_up(opened: Opened) -> None:
    path = "/metrics?columns=guard_count,duration_us&sort=guard_count&direction=desc"
    found = asked(opened, metrics_log(), path)["metrics"]
    assert [row["compile_id"] for row in found["rows"]] == ["0/0", "1/0", "2/0", "2/0"]
    assert [row["numbers"].get("guard_count") for row in found["rows"]] == [7, 1, None, None]
    assert [column["name"] for column in found["columns"]] == ["guard_count", "duration_us"]
    assert found["totals"] == {"guard_count": 8, "duration_us": 84_000}
    assert found["highest"] == {"guard_count": 7, "duration_us": 50_000}
    rows = asked(opened, metrics_log(), "/metrics?sort=duration_us&kind=forward")["metrics"]["rows"]
    assert [row["numbers"]["duration_us"] for row in rows] == [5_000, 20_000, 50_000]


def test_metrics_come_as_csv(opened: Opened) -> None:
    answer = Client(opened(metrics_log())).get(
        "/metrics.csv?columns=duration_us,fail_type&sort=duration_us&direction=desc"
    )
    assert answer.headers["content-type"].startswith("text/csv")
    rows = list(csv.DictReader(answer.text.splitlines()))
    assert [row["duration_us (ns)"] for row in rows] == ["50000", "20000", "9000", "5000"]
    assert rows[-1]["fail_type"] == "'=cmd()", "no formula for a spreadsheet"


def test_an_unknown_kind_or_order_is_refused_in_a_sentence(opened: Opened) -> None:
    client = Client(opened(metrics_log()))
    for path in ("/metrics?kind=x", "/compile-time?sort=x", "/caches?log=x"):
        assert client.get(path).status_code == 404
    assert client.get("/metrics?sort=nothing&columns=nothing").status_code == 200


def test_draft_export_tells_each_failure_once(opened: Opened) -> None:
    found = asked(opened, logs.with_draft_export(), "/draft-export")["export"]
    assert found["counts"] == {
        "data-dependent error": 1, "missing fake kernel": 1, "mismatched fake kernel": 1, "guard added": 1,
    }  # fmt: skip
    error, missing, wrong, guard = found["rows"]
    assert (error["subject"], error["result"], error["occurrences"]) == ("u0 + 1 > 3", "True", 2)
    (line,) = error["stack"]
    assert (line["file"], line["line"], line["function"]) == ("/src/export.py", 7, "forward")
    assert (line["code"], line["as_compiled"]) == ("line 7", None)
    assert error["locals"] == {"n": "u0"}
    assert error["symbols"] == {"s0": "L['x'].size()[0]"}
    tree = error["tree"]
    assert (tree["text"], [one["text"] for one in tree["arguments"]]) == ("u0 + 1 > 3", ["u0 + 1", "3"])
    assert tree["arguments"][0]["arguments"][0]["source"]["line"] == 5, "where the value came from"
    assert (missing["subject"], wrong["reason"]) == ("my.foo.default", "fake 1, real 2")
    assert guard["symbols"] == {"s0": "L['z'].size()[0]"}
    assert guard["tree"] is None
    assert [one["payload_bytes"] > 0 for one in found["programs"]] == [True]
    only = asked(opened, logs.with_draft_export(), "/draft-export?kind=guard%20added")["export"]
    assert (len(only["rows"]), only["total"]) == (1, 1)


def test_an_added_guard_of_a_draft_export_is_no_failure(opened: Opened) -> None:
    client = Client(opened(logs.with_draft_export()))
    page = client.get("/draft-export").text
    assert "3 failures, 1 added guard" in page
    assert page.count("warning-sign") == 1, "that of the data-dependent error"
    assert "warning-sign" not in client.get("/draft-export?kind=guard%20added").text


def test_a_trace_without_compiles_has_no_frame_that_is_one_graph(opened: Opened) -> None:
    without = Client(opened(LogBuilder().torch("str", ["/a.py", 1]))).get("/graph-breaks").text
    assert "This trace contains no compiles." in without
    compiled = Client(opened(logs.with_recompiles())).get("/graph-breaks").text
    assert "Every compiled frame in this trace is one graph." in compiled


def test_what_draft_export_met_is_found(opened: Opened) -> None:
    client = Client(opened(logs.with_draft_export()))
    found = client.get("/index.json").json()["overview"]["findings"]
    assert [(one["severity"], one["evidence"]["failures"]) for one in found] == [("warning", 1)] * 3 + [("info", 1)]
    assert found[0]["title"] == "Draft export found 1 data-dependent error: u0 + 1 > 3, assumed to be True"
    assert (found[3]["title"], found[3]["severity"]) == ("Draft export found 1 added guard: s0 > 3", "info")
    assert "guards that tracing added are information only" in found[3]["rule"].lower()
    assert found[0]["source"]["line"] == 7
    assert found[0]["proof"] == ["u0 is a value of the data, read at export.py:5: line 5"]
    assert "u0 + 1 &gt; 3" in client.get(found[0]["page"]).text


def test_vllm_pieces_hold_their_artifacts_and_passes(opened: Opened) -> None:
    found = asked(opened, logs.with_vllm(), "/vllm")["vllm"]
    (call,) = found["calls"]
    assert (call["settings"]["model"], call["outcome"]) == ("my/model", "fresh_compile")
    ranges = [((one["start"], one["end"]), [piece["name"] for piece in one["submodules"]]) for one in call["ranges"]]
    assert ranges == [((1, 8192), ["submod_0", "submod_2"]), ((8, 8), ["submod_0", "submod_2"])]
    pieces = [piece for one in call["ranges"] for piece in one["submodules"]]
    assert [(piece["artifacts"], piece["passes"]) for piece in pieces] == [(3, 2), (1, 0), (1, 0), (1, 0)]
    assert [one["name"] for one in call["patterns"]] == ["vllm_patterns.fusion"]
    chosen = found["chosen"]
    assert [(one["name"], one["changed"]) for one in chosen["passes"]] == [("NoOp", False), ("Fusion", True)]
    assert chosen["shown"]["name"] == "Fusion"
    assert (chosen["diff"]["added"], chosen["diff"]["removed"]) == (2, 1)
    assert [one["name"] for one in chosen["artifacts"]] == [
        "vllm_submod_0",
        "before_post_grad_graph",
        "fx_graph_runnable",
    ]


def test_vllm_records_without_settings_are_shown_too(opened: Opened) -> None:
    found = asked(opened, logs.piece(LogBuilder(), 0, 4, 4), "/vllm")["vllm"]
    assert found["calls"][0]["settings"] == {}
    assert found["calls"][0]["ranges"][0]["is_single_size"]


def test_texts_stand_side_by_side() -> None:
    diff = side_by_side("\n".join("abcdefghij"), "\n".join("abXdefghijk"))
    assert [(row.change, row.left, row.right) for row in diff.rows if row.change not in ("same", "gap")] == [
        ("changed", "c", "X"),
        ("added", "", "k"),
    ]
    assert (diff.added, diff.removed) == (2, 1)
    assert side_by_side("a", "a").rows == []


def hostile(value: Any) -> Any:
    if isinstance(value, str):
        return HOSTILE
    if isinstance(value, list):
        return [hostile(one) for one in value]
    return {name: hostile(one) for name, one in value.items()} if isinstance(value, dict) else value


def test_names_of_a_log_are_text(opened: Opened) -> None:
    log = LogBuilder().torch("str", [HOSTILE, 1])
    text = logs.BREAK.format(cause=HOSTILE, line=1).replace("Remove it", HOSTILE).replace("print(", HOSTILE)
    log.artifact("dynamo_graph_break_reason", text.encode(), "string", **logs.ids(0, 0))
    log.artifact("recompile_reasons", f"0/0: {HOSTILE} == {HOSTILE}".encode(), **logs.ids(0, 1))
    logs.lookup(log, "fx_graph_cache_bypass", 0, 0, key=HOSTILE, cache_bypass_reason=HOSTILE)
    logs.lookup(log, "fx_graph_cache_miss", 0, 0, key=HOSTILE, components=[f"[a] {HOSTILE}: {HOSTILE}"])
    logs.lookup(log, "fx_graph_cache_miss", 0, 0, key=HOSTILE, components=[f"[b] {HOSTILE}: {HOSTILE}"])
    more: dict[str, Any] = {HOSTILE: HOSTILE}
    logs.compiled(log, 0, 0, co_name=HOSTILE, fail_type=HOSTILE, cudagraph_skip_reason=HOSTILE, **more)
    logs.span(log, HOSTILE, 0, 5)
    logs.span(log, HOSTILE, 7, None)
    for event, value in (
        ("propagate_real_tensors_provenance", {"expr": "", "result": "", "frame_locals": {"locals": {HOSTILE: ""}}}),
        ("missing_fake_kernel", {"op": ""}),
        ("mismatched_fake_kernel", {"op": "", "reason": ""}),
        ("create_unbacked_symbol", {"symbol": "", "vr": "", "user_stack": logs.user_stack(1)}),
    ):
        log.torch(event, hostile(value))
    log.artifact("vllm_compilation_config", orjson.dumps({"model": HOSTILE, HOSTILE: HOSTILE}), **logs.ids(0, 0))
    start = orjson.dumps({"submod_name": HOSTILE, "compile_range_start": HOSTILE, "piecewise_index": "x"})
    log.artifact("vllm_piecewise_compile_start", start, **logs.ids(0, 0))
    log.torch("graph_dump", {"name": f"vllm_post_grad.0.{HOSTILE}"}, HOSTILE.encode(), **logs.ids(0, 0))
    log.torch("graph_dump", {"name": f"vllm_post_grad.1.{HOSTILE}"}, b"other", **logs.ids(0, 0))
    client = Client(opened(log))
    for path in PATHS:
        answer = client.get(path)
        assert answer.status_code == 200, path
        assert "<script>alert" not in answer.text
        assert HOSTILE in unescape(answer.text) or "flame-data" in answer.text, path


def test_wrong_shapes_stop_no_page(opened: Opened) -> None:
    log = LogBuilder()
    value: Any
    for value in (None, [], "x", 5, {"user_stack": "x", "frame_locals": 3, "arguments": 1}, {"expr": [1], "key": 2}):
        wrong_shapes(log, value)
    client = Client(opened(log))
    for path in PATHS:
        assert client.get(path).status_code == 200, path


def wrong_shapes(log: LogBuilder, value: Any) -> None:
    for event in (
        "compilation_metrics", "create_symbol", "guard_added", "expression_created", "create_unbacked_symbol",
        "propagate_real_tensors_provenance", "missing_fake_kernel", "mismatched_fake_kernel", "exported_program",
    ):  # fmt: skip
        log.torch(event, value, **logs.ids(0, 0))
    for name in (
        "fx_graph_cache_miss", "aotautograd_cache_hit", "recompile_reasons", "dynamo_graph_break_reason",
        "vllm_compilation_config", "vllm_piecewise_compile_start", "vllm_compile_event", "dynamo_cache_bypass",
    ):  # fmt: skip
        log.artifact(name, orjson.dumps(value), **logs.ids(0, 0))
        log.artifact(name, b"{broken", **logs.ids(0, 0))


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("cache_hit_miss.log", {"fx_graph": {"miss": 2, "hit": 1}, "aotautograd": {"bypass": 3}}),
        (
            "multi_rank_logs/dedicated_log_torch_trace_rank_1.log",
            {"fx_graph": {"hit": 10, "miss": 5}, "aotautograd": {"hit": 10, "miss": 5}},
        ),
    ],
)
def test_real_logs_are_counted_whole(name: str, counts: dict[str, dict[str, int]], tmp_path: Any) -> None:
    folder = sample_logs()
    if folder is None:
        pytest.skip("no sample logs")
    data = (folder / name).read_bytes()
    with open_trace(folder / name, index_dir=tmp_path) as trace:
        client = Client(trace)
        totals = client.get("/caches.json").json()["caches"]["totals"]
        assert {one["cache"]: one["states"] for one in totals} == counts
        assert client.get("/metrics.json").json()["metrics"]["total"] == data.count(b'] {"compilation_metrics"')
        assert client.get("/recompiles.json").json()["recompiles"]["total_recompiles"] == data.count(
            b'"recompile_reasons"'
        )
        spans = sum(one["count"] for one in client.get("/compile-time.json").json()["totals"])
        unfinished = [
            mark for mark in client.get("/compile-time.json").json()["flame"]["marks"] if mark["kind"] == "unfinished"
        ]
        assert spans + len(unfinished) == data.count(b'"ph": "B"')
