"""Pages about memory: a run's, a graph's, recompute mismatches; their twins; what they say where nothing is known."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from itertools import pairwise
from pathlib import Path

import pytest

from stepscope.tracer.schema.steps import Steps
from stepscope.viewer.findings import all_findings
from stepscope.viewer.memory.graph_page import GraphMemoryPage
from stepscope.viewer.memory.page import MemoryOverviewPage, RecomputePage
from stepscope.viewer.memory.queries.alive import alive_in_call
from stepscope.viewer.store.open import open_trace
from stepscope.viewer.store.trace import Trace
from tests.logs.memory_logs import (
    BACKWARD_PEAK,
    FORWARD_PEAK,
    NEW,
    RUN_PEAK,
    calls_of,
    forward,
    forward_layout,
    forward_schedule,
    layout,
    lifetimes,
    start_of,
    training,
)
from tests.logs.memory_records import growth, mismatch, recompute, step_mismatch
from tests.logs.synthetic import LogBuilder, recorded, run
from tests.logs.value_logs import Program
from tests.viewer.client import Client
from tests.viewer.memory.test_memory_findings import leaking

Opened = Callable[[LogBuilder | bytes], Trace]
HOSTILE = "<img src=x onerror=alert(1)>\"'"

PATHS = {
    "/memory?log=0": MemoryOverviewPage,
    "/graphs/0/memory?call=2&snode=1&by=kind&against=1": GraphMemoryPage,
    "/recompute/0": RecomputePage,
}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    log = (
        training(4, keep=9, allocator=True)
        .record(recompute())
        .record(mismatch())
        .record(growth([(0, 4), (2, 4), (4, 4)]))
    )
    with open_trace(log.write(tmp_path_factory.mktemp("trace") / "memory.log")) as trace:
        yield Client(trace)


def text_of(html: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", html).split())


def twin(path: str) -> str:
    address, _, query = path.partition("?")
    return f"{address}.json?{query}"


@pytest.mark.slow
@pytest.mark.parametrize(("path", "context"), PATHS.items())
def test_page_and_twin(client: Client, path: str, context: type) -> None:
    answer = client.get(path)
    assert answer.status_code == 200, answer.text
    assert answer.text.count("<h1") == 1
    assert not re.search(r"<[^>]+\sstyle=", answer.text), "style attributes are refused by the policy"
    assert not re.search(r"<[^>]+\son\w+=", answer.text)
    told = client.get(twin(path))
    assert told.status_code == 200
    assert list(told.json()) == [field.name for field in fields(context)]


def test_the_peak_is_where_the_page_begins(client: Client) -> None:
    page = client.get("/graphs/0/memory.json").json()
    assert page["memory"]["measured_peak"]["peak_bytes"] == FORWARD_PEAK
    assert (page["at"]["snode"], page["at"]["alive"]["storage_bytes"]) == ("op1", FORWARD_PEAK + 256 + 128)
    text = text_of(client.get("/graphs/0/memory").text)
    assert "Alive at op1 : 1.9 kB in 4 storages, including 384 B of base" in text
    assert "saved for backward 1.0 kB" in text


def test_every_node_can_be_asked_for(client: Client) -> None:
    alive = [client.get(f"/graphs/0/memory.json?snode={i}").json()["at"]["alive"] for i in range(3)]
    assert [one["storage_bytes"] - one["base_bytes"] for one in alive] == [512, 1536, 1088]
    assert client.get("/graphs/0/memory?snode=3").status_code == 404
    without = client.get("/graphs/0/memory?snode=2&only=alive").text
    assert "Alive at" in without
    assert 'id="page-data"' not in without, "the curves are there already"


@pytest.mark.parametrize("graph", [0, 1])
def test_each_live_buffer_leads_to_its_page(client: Client, graph: int) -> None:
    """A backward graph has its own names for what the forward graph saved."""
    links = set(re.findall(r'href="(/graphs/\d+/buffers/[^"]+)"', client.get(f"/graphs/{graph}/memory?by=buffer").text))
    assert links
    assert {link: client.get(link).status_code for link in links} == dict.fromkeys(links, 200)


def test_a_step_stands_for_its_call(client: Client) -> None:
    assert client.get("/graphs/1/memory.json?step=2").json()["memory"]["call"]["call"] == 5
    assert client.get("/graphs/1/memory?step=77").status_code == 404
    assert client.get("/graphs/1/memory?call=4").status_code == 404, "a call of the other graph"


@pytest.mark.parametrize("by", ["line", "kind", "buffer"])
def test_groupings_have_the_same_sum(client: Client, by: str) -> None:
    text = client.get(f"/graphs/1/memory?by={by}").text
    rows = re.search(r'<table class="alive">.*?</table>', text, re.DOTALL)
    assert rows
    heads = r'<tr class="group">.*?</tr>' if by == "kind" else r"<tr>\s*<td.*?</tr>"
    sizes = [re.search(r'title="([\d,]+) bytes"', row) for row in re.findall(heads, rows[0], re.DOTALL)]
    assert sum(int(size[1].replace(",", "")) for size in sizes if size) == BACKWARD_PEAK + 256 + 64


@pytest.mark.parametrize(
    "query",
    ["by=colour", "against=x", "against=1.2.3", "against=99", "against=1.0", "subgraph=no", "snode=-1", "call=99"],
)
def test_addresses_that_name_nothing(client: Client, query: str) -> None:
    assert client.get(f"/graphs/0/memory?{query}").status_code == 404


def test_two_calls_side_by_side(client: Client) -> None:
    page = client.get("/graphs/0/memory.json?call=0&against=0.2").json()["against"]
    assert (page["same_graph"], page["peak_delta_bytes"], page["right"]["call"]["call"]) == (True, 0, 2)
    text = client.get("/graphs/0/memory?call=0&against=1").text
    assert 'data-memory="left"' in text
    assert 'data-memory="right"' in text
    assert "only model source lines can be compared" in text


def test_a_cached_graph_says_why_it_has_no_schedule(opened: Opened) -> None:
    plain = Client(opened(recorded(steps=1)))
    text = text_of(plain.get("/graphs/0/memory").text)
    assert "The memory of this graph was not recorded" in text
    assert "stepscope run -- python train.py" in text
    assert "storages were not tracked in this run" in text
    assert plain.get("/graphs/99/memory").status_code == 404
    assert "No memory was recorded in this trace" in plain.get("/memory").text


def test_estimate_without_a_measurement(opened: Opened) -> None:
    client = Client(opened(recorded(steps=1).record(forward_schedule())))
    page = client.get("/graphs/0/memory.json").json()
    assert page["memory"]["call"] is None
    assert page["at"]["snode"] == "op1", "the estimated peak"
    text = text_of(client.get("/graphs/0/memory").text)
    assert "Not recorded – measured bytes:" in text
    assert "Alive, estimated from the schedule" in text


def test_run_curve_keeps_every_high_point(client: Client) -> None:
    curve = client.get("/memory/steps.json?log=0").json()
    assert (curve["steps"], curve["all_steps"], len(curve["high_bytes"])) == ([0, 1, 2, 3], 4, 1200)
    peaks = [max(curve["high_bytes"][300 * step : 300 * (step + 1)]) for step in range(4)]
    assert peaks == [RUN_PEAK + 64 * step for step in range(4)], "a loss more with every step"
    part = client.get("/memory/steps.json?log=0&first_step=2&last_step=2").json()
    assert (part["steps"], max(part["high_bytes"])) == ([2], RUN_PEAK + 128)
    assert part["high_bytes"][0] == 256 + 128, "what was there before the window"
    assert client.get("/memory/steps.json?log=7").status_code == 404


def test_curve_below_the_timeline(client: Client) -> None:
    step = client.get("/steps/1.json?log=0").json()
    assert max(step["live"]["high_bytes"]) == RUN_PEAK + 64
    live = client.get(f"/memory/live.json?log=0&start_ns={step['timeline']['start_ns']}&width=50").json()
    assert max(live["high_bytes"]) == RUN_PEAK + 192


def test_overview_has_a_curve_of_each_graph(client: Client) -> None:
    told = client.get("/index.json").json()
    assert [row["graph"] for row in told["memory"]] == [0, 1]
    first = told["memory"][0]
    assert (first["estimated_peak_bytes"], first["measured_peak_bytes"], first["base_bytes"]) == (1536, 1536, 384)
    assert [round(share * 1536) for share in first["measured"]] == [512, 1536, 1088]
    assert client.get("/").text.count('<svg class="mini"') == 2


def test_recompute_page_gives_a_verdict(opened: Opened) -> None:
    second = recompute(swap=5, is_explained=True, reasons=["peak"], reason_snode=["op1"], allowed_peak_bytes=1200)
    client = Client(opened(training(1).record(recompute()).record(second)))
    assert "Not explained" in client.get("/recompute/0").text
    explained = text_of(client.get("/recompute/1").text)
    assert "No error: only the peak differs" in explained
    assert client.get("/recompute/2").status_code == 404
    assert client.get("/recompute/1.json").json()["previous"] == 0


def test_recompute_page_tells_of_the_swap(opened: Opened) -> None:
    text = text_of(Client(opened(training(1).record(recompute()))).get("/recompute/0").text)
    assert (
        "Moved: op1 computes aten.mm.default, calls extern_kernels.mm, reads buf0 and arg1_1 and writes buf1." in text
    )
    assert "Past: op2 computes aten.relu.default, reads buf1 and writes buf2." in text
    assert "op1 moved 500 B 600 B 500 B 500 B" in text, "what it allocates and frees, carried and recomputed"
    assert "buf0 op2 op2 op1" in text, "its last use: before, now, recomputed"


@pytest.mark.slow
def test_recompute_page_names_graph_and_compile(opened: Opened) -> None:
    log = training(1).record(recompute(graph=1, subgraph="true_graph_0", compile_id="0/0"))
    client = Client(opened(log.record(recompute())))
    row = client.get("/recompute/0.json").json()["detail"]["row"]
    assert (row["graph"], row["subgraph"], row["compile_id"]) == (1, "true_graph_0", "0/0")
    for path in ("/recompute/0", "/memory"):
        assert '<a href="/graphs/1/memory">graph 1</a>' in client.get(path).text
    assert "graph 1" not in client.get("/recompute/1").text


def test_the_curve_of_another_device_is_a_click_away(opened: Opened) -> None:
    log = LogBuilder().record(run()).record(forward().graph())
    for call, device in enumerate(("cpu", "cuda:0")):
        log.record(calls_of(call, forward(), call, start_of(call)))
        log.record(replace(forward_layout(call), device=[device] * 5)).record(lifetimes([call], [call]))
        log.record(Steps([call], ["train"], ["user"], [start_of(call)], [start_of(call) + 9_000]))
    client = Client(opened(log))
    text = client.get("/memory?device=cuda:0").text
    devices = dict(re.findall(r'<a href="(/memory\?log=0&amp;device=[^"]+)"[^>]*>([^<]+)</a>', text))
    assert sorted(devices.values()) == ["cpu", "cuda:0"]
    assert "on cuda:0; all steps" in text
    (cpu,) = (address for address, name in devices.items() if name == "cpu")
    assert "on cpu; all steps" in client.get(cpu.replace("&amp;", "&")).text


@pytest.mark.slow
def test_steps_of_each_log_are_a_click_away(tmp_path: Path) -> None:
    for rank in range(2):
        training(2 + rank, rank=rank, world_size=2, pid=100 + rank).write(tmp_path / f"trace_rank_{rank}.log")
    with open_trace(tmp_path) as trace:
        client = Client(trace)
        assert 'href="/steps?log=1"' in client.get("/steps").text
        second = client.get("/steps?log=1").text
        assert re.search(r'href="/steps\?log=1" aria-current="page">\s*rank 1', second)
        found = client.get("/steps.json?log=1").json()
        assert (found["log"], found["curve"]["log"], {step["log"] for step in found["steps"]}) == (1, 1, {1})


@pytest.mark.slow
def test_what_checks_found_stands_with_its_line(opened: Opened) -> None:
    of_no_graph = step_mismatch(graph=None, call=None, file="/home/me/own.py", line=5, holders=[[]], is_final_step=True)
    client = Client(opened(training(2).record(step_mismatch("unexpected_death", "buf1")).record(of_no_graph)))
    graph = text_of(client.get("/graphs/0/memory").text)
    assert "Failed checks in the generated code 1" in graph
    assert "✖ freed too early buf1 512 B cab.py:77 – list of 3 in keep of __main__ model.py:11" in graph
    assert client.get("/graphs/1/memory.json").json()["checks"] == []
    overview = client.get("/memory").text
    assert "Failed checks in the generated code 2" in text_of(overview)
    assert "✖ not freed – buf0 512 B own.py:5 final step – –" in text_of(overview)
    assert 'title="/home/me/own.py:5"' in overview
    assert "No lifetime mismatches" not in overview


@pytest.mark.slow
def test_what_checks_found_is_shown_where_nothing_else_is_known(opened: Opened) -> None:
    client = Client(opened(recorded(steps=1).record(step_mismatch(call=None))))
    for path in ("/memory", "/graphs/0/memory"):
        text = text_of(client.get(path).text)
        assert "cab.py:77" in text
        assert "No memory was recorded in this trace" not in text


@pytest.mark.slow
def test_names_of_a_log_are_text(opened: Opened) -> None:
    schedule = forward_schedule()
    hostile = replace(schedule, snode=[HOSTILE, *schedule.snode[1:]])
    names = replace(hostile.buffers, name=[HOSTILE, *hostile.buffers.name[1:]])
    log = recorded(steps=1).record(replace(hostile, buffers=names)).record(recompute(candidate=HOSTILE))
    log.record(step_mismatch(buffer=HOSTILE, file=HOSTILE, holders=[[HOSTILE]]))
    client = Client(opened(log))
    for path in ("/graphs/0/memory?snode=0", "/recompute/0", "/memory", "/"):
        answer = client.get(path)
        assert answer.status_code == 200
        assert "<img" not in answer.text


def test_a_leak_has_a_page_that_proves_it(opened: Opened) -> None:
    held = "list of 4 in keep of __main__"
    client = Client(opened(training(5, keep=99).record(growth([(2 * step, 4) for step in range(4)], [held]))))
    page = client.get("/memory.json?growth=0.buf2").json()
    (leak,) = page["leaks"]
    assert (leak["name"], leak["bytes_per_step"], leak["holders"]) == ("0.buf2", 64, [held])
    assert (leak["steps"], leak["left_bytes"]) == ([0, 1, 2, 3, 4], [64, 64, 64, 64, 0])
    assert leak["held_bytes"] == [64, 128, 192, 256, 256]
    assert [after - before for before, after in pairwise(leak["live_bytes"][:4])] == [64, 64, 64]
    assert [(one["left"]["step"], one["launch"]) for one in leak["storages"]] == [(0, 2), (1, 7), (2, 12), (3, 17)]
    text = text_of(client.get("/memory?growth=0.buf2").text)
    said = f"{held} holds buf2 of 0/0 forward of each of the steps 0 to 3: 64 B per step, 256 B in all."
    assert said in text
    assert text.index(said) < text.index("Live bytes over the steps")
    plain = text_of(client.get("/memory").text)
    assert plain.index(said) > plain.index("Live bytes over the steps")
    assert client.get("/memory?growth=0.buf9").status_code == 404


def test_the_page_of_a_growth_finding_is_the_staircase(opened: Opened) -> None:
    trace = opened(leaking([["list of 5 in keep of __main__"], ["dict of 5 in memo of __main__"]], 4096))
    client, pages = Client(trace), [one.page for one in all_findings(trace) if one.kind == "growth"]
    assert pages == ["/memory?growth=0.buf1", "/memory?growth=0.buf0"]
    assert [client.get(page.replace("?", ".json?")).json()["leaks"][0]["name"] for page in pages] == [
        "0.buf1",
        "0.buf0",
    ]
    assert "dict of 5 in memo of __main__ holds buf1" in text_of(client.get(pages[0]).text)


@pytest.mark.slow
def test_a_leak_without_a_known_holder_says_so(opened: Opened) -> None:
    client = Client(opened(training(6, keep=99, end=False)))
    text = text_of(client.get("/memory?growth=0.buf2").text)
    assert "are still alive, and the object" not in text
    assert (
        "buf2 of 0/0 forward of each of the steps 0 to 4 is still alive, and the object that holds it is not known"
        in text
    )


def test_a_storage_has_the_name_of_the_buffer_that_holds_it(opened: Opened) -> None:
    program = (
        Program(0).allocate("buf0").launch("a", ["x"], ["buf0"]).reuse("buf1", "buf0").launch("b", ["x"], ["buf1"])
    )
    log = LogBuilder().record(run()).record(program.graph()).record(program.provenance())
    log.record(layout(0, 0, [("buf0", "allocated", 64, 0, NEW)], []))
    log.record(calls_of(0, program, 0, start_of(0))).record(lifetimes([0], [0]))
    trace = opened(log)
    first, second = (alive_in_call(trace, 0, position) for position in (0, 1))
    assert first is not None
    assert second is not None
    assert [(row.name, row.kernel, row.other_names) for row in first.rows] == [("buf0", "a", ["buf1"])]
    assert [(row.name, row.kernel, row.other_names) for row in second.rows] == [("buf1", "b", ["buf0"])]
