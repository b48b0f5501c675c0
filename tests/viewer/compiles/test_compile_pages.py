"""The pages of compiles: the stack trie, one compile with its attempts and stages, provenance of lines."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from stepscope.viewer.compiles.queries.compiles import list_compiles
from stepscope.viewer.compiles.queries.stack_trie import DEEPEST, MOST_CHIPS, stack_trie
from stepscope.viewer.store.open import open_trace
from stepscope.viewer.store.trace import Trace
from tests.logs import compile_logs, synthetic
from tests.logs.synthetic import LogBuilder
from tests.viewer.client import Client
from tests.viewer.conftest import sample_logs

Opened = Callable[[LogBuilder | bytes], Trace]
FOLDER = sample_logs()


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trace]:
    with open_trace(compile_logs.run().write(tmp_path_factory.mktemp("trace") / "run.log")) as opened:
        yield opened


@pytest.fixture(scope="module")
def client(trace: Trace) -> Client:
    return Client(trace)


def answer(client: Client, path: str) -> dict[str, Any]:
    got = client.get(path)
    assert got.status_code == 200, got.text
    value: dict[str, Any] = got.json()
    return value


def line_of(text: str, start: str, nth: int = 0) -> int:
    """The number of the line that begins so, counted independently of the viewer."""
    found = [number for number, line in enumerate(text.split("\n"), 1) if line.strip().startswith(start)]
    return found[nth]


def test_trie_joins_common_frames_and_keeps_unknown_stacks_apart(trace: Trace) -> None:
    trie = stack_trie(trace, list_compiles(trace))
    assert [(node.depth, [frame.function for frame in node.frames]) for node in trie.nodes] == [
        (0, ["main"]),
        (1, ["_fn", "forward"]),
        (1, ["empty"]),
        (1, ["cached"]),
        (1, ["bad"]),
    ]
    assert [[row.compile_id for row in node.compiles] for node in trie.nodes] == [
        [], ["0/0", "0/1", "0/2"], ["1/0"], ["2/0"], ["3/0"],
    ]  # fmt: skip
    assert [node.below for node in trie.nodes] == [6, 3, 1, 1, 1]
    assert [row.compile_id for row in trie.unknown] == ["4/0"]


def test_statuses_are_told_apart(trace: Trace) -> None:
    assert {row.compile_id: row.shown_status for row in list_compiles(trace)} == {
        "0/0": "graph break", "0/1": "recompiled", "0/2": "recompiled", "1/0": "empty", "2/0": "ok", "3/0": "failed",
        "4/0": "ok",
    }  # fmt: skip


@pytest.mark.slow
def test_thousands_of_compiles_and_deep_stacks_stay_small(opened: Opened) -> None:
    log = LogBuilder()
    for frame in range(300):
        deep = [("/src/deep.py", line, "recurse", "") for line in range(2 * frame % 500)]
        log.torch(
            "dynamo_start",
            compile_logs.stack(*deep, ("/src/model.py", frame, f"f{frame}", "")),
            **compile_logs.ids(frame, 0),
        )
    for number in range(1, 100):
        log.torch("dynamo_start", compile_logs.stack(("/src/model.py", 0, "f0", "")), **compile_logs.ids(0, number))
    trace = opened(log)
    rows = list_compiles(trace)
    trie = stack_trie(trace, rows, limit=500)
    assert max(node.depth for node in trie.nodes) == DEEPEST
    shown = Counter(len(node.compiles) + node.more for node in trie.nodes)
    assert sum(size * times for size, times in shown.items()) == len(rows) == 399
    assert max(len(node.compiles) for node in trie.nodes) == MOST_CHIPS
    page = Client(trace).get("/compile")
    assert page.status_code == 200
    assert page.text.count('#artifacts"') == 100
    assert "later stacks" in page.text
    second = answer(Client(trace), "/compile.json?stacks=200&offset=200")
    assert (len(second["compiles"]), second["trie"]["offset"]) == (100, 200)


def test_compiles_are_filtered_and_sorted(client: Client) -> None:
    def shown(query: str) -> list[str]:
        return [row["compile_id"] for row in answer(client, f"/compile.json?{query}")["compiles"]]

    assert shown("status=recompiled") == ["0/1", "0/2"]
    assert shown("text=OTHER.py") == []
    assert shown("text=no+such+backend") == ["3/0"]
    assert shown("sort=frame&order=down")[0] == "4/0"
    assert shown("status=nothing") == []
    page = client.get("/compile?status=failed").text
    assert "3/0" in page
    assert "/compile/2_0" not in page
    assert client.get("/compile?sort=price").status_code == 404


def test_attempts_say_why_they_ended_and_own_their_records(client: Client) -> None:
    page = answer(client, "/compile/0_0.json")
    assert [(one["attempt"], one["reason"]) for one in page["attempts"]] == [(0, "print is not traced"), (1, None)]
    assert [one["records"] for one in page["attempts"]] == [2, len(page["detail"]["records"]) - 2]
    assert Counter(page["attempt_of"].values()) == {0: 2, 1: len(page["detail"]["records"]) - 2}
    first = answer(client, "/compile/0_0.json?attempt=0")
    assert not any(stage["graphs"] for stage in first["stages"])
    assert client.get("/compile/0_0?attempt=2").status_code == 404


def test_an_id_that_is_compiled_again_after_a_reset_is_a_compile_of_its_own(opened: Opened) -> None:
    log = LogBuilder()
    for name in ("first", "second"):
        log.torch("dynamo_start", compile_logs.stack(("/src/model.py", 10, name, "")), **compile_logs.ids(0, 0))
        compile_logs.compiled(log, 0, 0)
        compile_logs.metrics(log, 0, 0, co_name=name)
    client = Client(opened(log))
    for slug, name in (("0_0", "first"), ("r1:0_0", "second")):
        page = answer(client, f"/compile/{slug}.json")
        assert (page["detail"]["row"]["function"], page["detail"]["row"]["attempts"]) == (name, 1)
        assert [graph["attempt"] for graph in page["provenance"]] == [0, 0]
        assert len(page["detail"]["records"]) == len(log.data.split(b"\nV")) // 2
    assert "torch._dynamo.reset()" in client.get("/compile/r1:0_0").text
    assert "torch._dynamo.reset()" not in client.get("/compile/0_0").text


def test_stages_keep_forward_and_backward_apart(client: Client) -> None:
    stages = {stage["name"]: stage for stage in answer(client, "/compile/0_0.json")["stages"]}
    assert list(stages) == ["dynamo", "pre_grad", "joint", "forward", "backward", "post_grad", "code"]
    assert [graph["label"] for graph in stages["post_grad"]["graphs"]] == [
        "forward, before the passes", "forward, after the passes",
        "backward, before the passes", "backward, after the passes",
    ]  # fmt: skip
    assert [graph["label"] for graph in stages["code"]["graphs"]] == ["forward", "backward"]
    record = stages["code"]["graphs"][1]["record"]
    shown = client.get(f"/compile/0_0?stage=code&record={record}").text
    assert "0_backward" in shown
    assert f"/records/{record}/raw" in shown
    assert client.get("/compile/0_0?stage=joint&record=0").status_code == 404
    assert client.get("/compile/0_0?stage=nothing").status_code == 404


@pytest.mark.parametrize(
    ("compile_id", "stage", "said"),
    [
        ("2_0", "post_grad", "FX graph cache had the code"),
        ("2_0", "backward", "inference graph"),
        ("2_0", "pre_grad", "older versions"),
        ("1_0", "dynamo", "nothing to compile"),
        ("1_0", "code", "never reached"),
        ("3_0", "dynamo", "no such backend"),
    ],
)
def test_a_stage_without_graph_says_why(client: Client, compile_id: str, stage: str, said: str) -> None:
    assert said in client.get(f"/compile/{compile_id}?stage={stage}").text


def test_a_graph_out_of_the_cache_says_so(opened: Opened) -> None:
    log = synthetic.LogBuilder()
    log.torch("dynamo_start", compile_logs.stack(compile_logs.FORWARD), **compile_logs.ids(0, 0))
    log.torch("inductor_post_grad_graph", {}, b"class A(torch.nn.Module):\n    pass\n", **compile_logs.ids(0, 0))
    data = log.data.replace(
        b'torch/_logging/_internal.py:100] {"inductor_post', b'torch/_inductor/codecache.py:100] {"inductor_post'
    )
    assert data != log.data
    assert "from the cache" in Client(opened(data)).get("/compile/0_0?stage=post_grad").text


def test_a_failed_guard_and_the_recompile_lead_to_each_other(client: Client) -> None:
    page = answer(client, "/compile/0_0.json")
    failed = {line["code"]: [one["by"] for one in line["failed"]] for line in page["guards"]["lines"] if line["failed"]}
    assert failed == {
        "check_tensor(L['x'], Tensor, torch.float32, size=[4, 16])": ["0/1"],
        "L['step'] == 0": ["0/2"],
    }
    assert (page["guards"]["guards"], page["guards"]["latency"]) == (3, "3.21 us")
    text = client.get("/compile/0_0").text
    assert '<a href="/compile/0_1?log=0#recompiled">0/1</a>' in text
    later = client.get("/compile/0_2").text
    assert re.search(
        r'a guard of <a href="/compile/0_1\?log=0#failed">0/1</a>, <a href="/compile/0_0\?log=0#failed">', later
    )
    assert 'id="recompiled"' in later


def test_shapes_and_caches_of_a_compile(client: Client) -> None:
    page = answer(client, "/compile/0_1.json")
    assert [(one["kind"], one["subject"], one["source"], one["value"]) for one in page["shapes"]] == [
        ("symbol", "s0", "L['x'].size()[0]", "6"),
        ("specialised", "s0", "L['x'].size()[0]", "6"),
    ]
    assert page["shapes"][0]["where"]["line"] == 12
    assert page["shapes"][1]["reason"] == "it is compared with 6"
    assert [(one["cache"], one["state"], one["components"]) for one in page["lookups"]] == [("fx_graph", "miss", 2)] * 2
    (hit,) = answer(client, "/compile/2_0.json")["lookups"]
    assert (hit["state"], hit["time_saved_ns"]) == ("hit", 2_000_000)


def test_provenance_joins_the_lines_that_its_records_name(client: Client) -> None:
    page = answer(client, "/compile/0_0/provenance.json")
    panes, found = page["panes"], page["panes"]["map"]
    assert [pane["record"] is not None for pane in panes["panes"]] == [True] * 3
    relu = found["groups"][found["post"][str(line_of(compile_logs.POST_GRAD, "relu:"))]]
    launch = line_of(compile_logs.CODE, "triton_poi_fused_add_relu_0.run")
    assert relu["pre"] == [line_of(compile_logs.PRE_GRAD, "relu:")]
    assert launch in relu["code"]
    assert line_of(compile_logs.CODE, "def triton_poi") in relu["code"]
    assert line_of(compile_logs.CODE, "extern_kernels.mm(") not in relu["code"]
    at_launch = found["groups"][found["code"][str(launch)]]
    assert at_launch["post"] == [line_of(compile_logs.POST_GRAD, name) for name in ("relu:", "add:")]
    assert at_launch["pre"] == [line_of(compile_logs.PRE_GRAD, name) for name in ("relu:", "add:")]
    mm = found["groups"][found["pre"][str(line_of(compile_logs.PRE_GRAD, "y:"))]]
    start = line_of(compile_logs.CODE, "extern_kernels.mm(")
    assert mm["code"] == [start - 1, start, start + 1]
    assert [place["sources"][0]["line"] for place in panes["kernels"]] == [12, 13]


def test_provenance_of_a_backward_goes_by_lines_of_the_program(client: Client) -> None:
    panes = answer(client, "/compile/0_0/provenance.json?graph=1")["panes"]
    assert panes["code_to_post"].endswith("else the line of the program that both came from")
    found = panes["map"]
    launch = str(line_of(compile_logs.CODE, "extern_kernels.mm("))
    assert found["groups"][found["code"][launch]]["post"] == [line_of(compile_logs.POST_GRAD, "mm:")]


def test_without_records_the_comments_of_the_code_are_read(client: Client) -> None:
    panes = answer(client, "/compile/0_1/provenance.json")["panes"]
    assert panes["code_to_post"].startswith("the graph fragments in the generated code")
    found = panes["map"]
    add = found["groups"][found["post"][str(line_of(compile_logs.POST_GRAD, "add:"))]]
    assert line_of(compile_logs.CODE, "triton_poi_fused_add_relu_0.run") in add["code"]


def test_provenance_leads_to_recorded_launches(opened: Opened) -> None:
    client = Client(opened(synthetic.recorded()))
    kernels = answer(client, "/compile/0_0/provenance.json")["panes"]["kernels"]
    found = {kernel["kernel"]: (kernel["line"], kernel["local_site"], kernel["launches"]) for kernel in kernels}
    assert found["extern_kernels.mm"] == (20, 0, 4)
    assert found["cpp_fused_relu_0"][1] is not None


def test_provenance_says_what_is_missing(client: Client) -> None:
    page = client.get("/compile/2_0/provenance").text
    assert "older versions of PyTorch" in page
    assert "INDUCTOR_PROVENANCE=1" not in client.get("/compile/0_0/provenance").text
    assert "Inductor compiled no graph here" in client.get("/compile/3_0/provenance").text
    for query in ("graph=9", "line=x", "line=else-3", "attempt=7"):
        assert client.get(f"/compile/0_0/provenance?{query}").status_code == 404


@pytest.mark.parametrize("damage", [b"[1, 2]", b"{", b'{"cppCodeToPost": {"a": 3}, "postToPre": [1]}', b"\xff\xfe"])
def test_damaged_provenance_is_no_provenance(opened: Opened, damage: bytes) -> None:
    log = LogBuilder()
    log.torch("dynamo_start", compile_logs.stack(compile_logs.FORWARD), **compile_logs.ids(0, 0))
    log.artifact("inductor_post_grad_graph", compile_logs.POST_GRAD.encode(), "string", **compile_logs.ids(0, 0))
    log.torch("inductor_output_code", {"filename": "/x/c.py"}, compile_logs.CODE.encode(), **compile_logs.ids(0, 0))
    log.artifact("inductor_provenance_tracking_node_mappings", damage, **compile_logs.ids(0, 0))
    client = Client(opened(log))
    assert client.get("/compile/0_0").status_code == 200
    page = answer(client, "/compile/0_0/provenance.json")
    assert "fragments" in page["panes"]["code_to_post"]


def test_damaged_symbols_and_stacks_are_shown_as_far_as_they_go(opened: Opened) -> None:
    log = LogBuilder()
    log.torch("dynamo_start", {"stack": 7}, **compile_logs.ids(0, 0))
    for value in ({"symbol": 3, "user_stack": [1, {"filename": -3, "line": "x"}]}, [1], {"vr": None}):
        log.torch("create_symbol", value, **compile_logs.ids(0, 0))
    page = answer(Client(opened(log)), "/compile/0_0.json")
    assert [one["subject"] for one in page["shapes"]] == ["3", ""]
    assert page["shapes_total"] == 3


HOSTILE = "</script><img src=x onerror=alert(1)>{{7*7}}"


def test_compiles_lead_to_their_neighbours(client: Client) -> None:
    page = answer(client, "/compile/0_0.json")
    assert (page["previous"], page["next"]) == (None, ["0/1", "forward"])
    page = answer(client, "/compile/4_0.json")
    assert (page["previous"], page["next"]) == (["3/0", "bad"], None)
    assert client.get("/compile/1_0").text.count('rel="next" href="/compile/2_0?log=0"') == 1


def test_text_of_a_log_stays_text(opened: Opened) -> None:
    log = LogBuilder()
    log.torch("dynamo_start", compile_logs.stack(("/src/" + HOSTILE, 1, HOSTILE, HOSTILE)), **compile_logs.ids(0, 0))
    graph = f"class A(torch.nn.Module):\n    # File: {HOSTILE}:3 in {HOSTILE}, code: {HOSTILE}\n    mm = {HOSTILE}\n"
    log.artifact("before_pre_grad_graph", graph.encode(), "string", **compile_logs.ids(0, 0))
    log.artifact("inductor_post_grad_graph", graph.encode(), "string", **compile_logs.ids(0, 0))
    log.torch(
        "inductor_output_code",
        {"filename": HOSTILE},
        f"# [Provenance debug handles] {HOSTILE}:1\n{HOSTILE}()\n".encode(),
        **compile_logs.ids(0, 0),
    )
    log.artifact(
        "inductor_provenance_tracking_kernel_stack_traces",
        orjson.dumps({f"{HOSTILE}:1": [f'File "{HOSTILE}", line 3, in x']}),
        **compile_logs.ids(0, 0),
    )
    log.torch(
        "dynamo_cpp_guards_str",
        {},
        f"+- RootGuardManager\n| +- {HOSTILE}: {HOSTILE}\n".encode(),
        **compile_logs.ids(0, 0),
    )
    log.torch("symbolic_shape_specialization", {"symbol": HOSTILE, "reason": HOSTILE}, **compile_logs.ids(0, 0))
    log.artifact("recompile_reasons", f"0/0: {HOSTILE}".encode(), **compile_logs.ids(0, 1))
    client = Client(opened(log))
    for path in ("/compile", "/compile/0_0", "/compile/0_0?stage=post_grad", "/compile/0_1", "/compile/0_0/provenance"):
        text = client.get(path)
        assert text.status_code == 200
        assert "<img" not in text.text


@pytest.mark.skipif(FOLDER is None, reason="no sample logs: set STEPSCOPE_SAMPLES to a folder of TORCH_TRACE logs")
def test_provenance_of_a_real_log(tmp_path: Path) -> None:
    assert FOLDER is not None
    log = FOLDER / "inductor_provenance_jit_cuda_log.txt"
    with open_trace(log, index_dir=tmp_path) as trace:
        panes = answer(Client(trace), "/compile/0_0/provenance.json")["panes"]
    texts = {pane["name"]: pane["text"] for pane in panes["panes"]}
    # The map that PyTorch logged, read here without the viewer.
    payload = next(
        line[1:]
        for before, line in zip(log.read_text().split("\n"), log.read_text().split("\n")[1:], strict=False)
        if "inductor_provenance_tracking_node_mappings" in before
    )
    said = orjson.loads(payload)
    found = panes["map"]
    for post, pres in said["postToPre"].items():
        group = found["groups"][found["post"][str(line_of(texts["post"], f"{post}:"))]]
        assert group["pre"] == sorted(line_of(texts["pre"], f"{pre}:") for pre in pres)
    for kernel, posts in said["cppCodeToPost"].items():
        call = line_of(texts["code"], f"{kernel}.run(" if kernel.startswith("triton") else f"{kernel}(")
        group = found["groups"][found["code"][str(call)]]
        assert group["post"] == sorted(line_of(texts["post"], f"{post}:") for post in posts)
    assert len(said["cppCodeToPost"]) == 4


@pytest.mark.slow
@pytest.mark.skipif(FOLDER is None, reason="no sample logs: set STEPSCOPE_SAMPLES to a folder of TORCH_TRACE logs")
@pytest.mark.parametrize(
    "name", ["cache_hit_miss.log", "comp_metrics.log", "simple.log", "multi_rank_logs", "export.log"]
)
def test_every_compile_of_a_real_log_has_its_pages(name: str, tmp_path: Path) -> None:
    assert FOLDER is not None
    with open_trace(FOLDER / name, index_dir=tmp_path) as trace:
        client = Client(trace)
        rows = list_compiles(trace)
        trie = stack_trie(trace, rows)
        shown = sum(len(node.compiles) + node.more for node in trie.nodes) + len(trie.unknown) + trie.unknown_more
        assert shown == len(rows)
        for row in rows:
            slug = row.compile_id.replace("/", "_")
            page = answer(client, f"/compile/{slug}.json?log={row.log}")
            assert sum(one["records"] for one in page["attempts"]) == len(page["detail"]["records"])
            for stage in page["stages"]:
                assert bool(stage["graphs"]) != bool(stage["missing"])
            assert client.get(f"/compile/{slug}?log={row.log}").status_code == 200
            assert client.get(f"/compile/{slug}/provenance?log={row.log}").status_code == 200
