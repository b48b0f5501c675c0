"""Builds logs with graph breaks, recompiles, caches, CUDA graphs, draft export and vLLM, as PyTorch writes them."""

from __future__ import annotations

from typing import Any

import orjson

from tests.logs.synthetic import UNIX_NS, LogBuilder

MICROS = (UNIX_NS + 1_000_000_000) // 1000
BREAK = """Graph break in user code at /src/model.py:{line}
Graph Break Reason: Encountered graph break when attempting to trace CALL: a function call, e.g. f(x, y):

{cause}
  Explanation: Dynamo cannot trace it.
  Hint: Remove it.
  Hint: Or move it out
    of the compiled region.

  Developer debug context: builtin print

 For more details about this graph break, please visit: https://example.org/gb/gb0059.html

User code traceback:
  File "/src/train.py", line 3, in <module>
    step(x)
  File "/src/model.py", line {line}, in forward
    print("here")

Traceback (most recent call last):
  File "/site-packages/torch/_dynamo/symbolic_convert.py", line 1, in wrapper
"""
STEP = (
    "{of}: self.step == {value}                                           # if self.step % 2:  # model.py:13 in forward"
    ' (HINT: make it dynamic.)\nUser stack trace:\n  File "/src/model.py", line 13, in forward\n    if self.step % 2:'
)
SIZE = "{of}: tensor 'x' size mismatch at index 0. expected {expected}, actual {actual}"
LIMIT = "Dynamo recompile limit exceeded\n  Explanation: exceeding the recompile_limit (currently set to 8)."
CPU_SKIP = """skipping cudagraphs due to cpu device (arg0_1). Found from : 
   File "/src/model.py", line 21, in forward
    return x + y"""
OP_SKIP = """disabling cudagraphs due to incompatible op aten.nonzero.default Found from   File "/m.py", line 22, in f
    x.nonzero()
"""


def ids(frame: int, number: int, attempt: int = 0) -> dict[str, Any]:
    return {"frame_id": frame, "frame_compile_id": number, "attempt": attempt}


def span(log: LogBuilder, name: str, start: int, end: int | None, compile_id: str = "0/0", tid: int = 0) -> LogBuilder:
    """Add a span of chromium events, in microseconds after `MICROS`; it has no end if `end` is None."""
    for phase, at in (("B", start), ("E", end)):
        if at is not None:
            chromium(log, name, phase, at, compile_id, tid)
    return log


def chromium(
    log: LogBuilder, name: str, phase: str, at: int, compile_id: str = "0/0", tid: int = 0, **arguments: Any
) -> LogBuilder:
    event = {"name": name, "ph": phase, "ts": MICROS + at, "tid": tid, "args": {"compile_id": compile_id, **arguments}}
    return log.torch("chromium_event", {}, orjson.dumps(event))


def compiled(
    log: LogBuilder, frame: int, number: int, attempt: int = 0, event: str = "compilation_metrics", **metrics: Any
) -> LogBuilder:
    """Add a compile with its metrics, or only the metrics of a backward or of run time."""
    if event == "compilation_metrics":
        stack = [{"line": 10, "name": "forward", "filename": 1, "loc": ""}]
        log.torch("dynamo_start", {"stack": stack}, **ids(frame, number))
    values = {
        "co_name": "forward", "co_filename": "/src/model.py", "co_firstlineno": 10, "fail_type": None,
        "fail_reason": None, "restart_reasons": [], "duration_us": 1000, "start_time_us": MICROS,
        "cudagraph_skip_reason": None, "inductor_config": '{"triton.cudagraphs": false, "x": 1}', **metrics,
    }  # fmt: skip
    return log.torch(event, values, **ids(frame, number, attempt))


def with_breaks() -> LogBuilder:
    """Return a log with two causes: `print` at two lines in three compiles, and a call; one compile is a resume."""
    log = LogBuilder().torch("str", ["/src/train.py", 1])
    for number, (cause, line) in enumerate([("print", 20), ("print", 20), ("print", 30), ("a call", 40)]):
        log.artifact(
            "dynamo_graph_break_reason", BREAK.format(cause=cause, line=line).encode(), "string", **ids(number, 0)
        )
        compiled(log, number, 0, 1, dynamo_compile_time_before_restart_us=400)
    compiled(log, 9, 0, co_name="torch_dynamo_resume_in_forward_at_20", duration_us=250)
    return log


def with_recompiles() -> LogBuilder:
    """Return a log in which frame 0 recompiles per value of `self.step` up to the limit, and frame 1 for a size."""
    log = LogBuilder().torch("str", ["/src/train.py", 1])
    compiled(log, 0, 0)
    for number in range(1, 4):
        reasons = [STEP.format(of=f"0/{of}", value=of) for of in reversed(range(number))]
        payload = orjson.dumps(reasons) if len(reasons) > 1 else reasons[0].encode()
        log.artifact("recompile_reasons", payload, **ids(0, number))
        failed: dict[str, Any] = {"fail_type": "RecompileLimitExceeded", "fail_reason": LIMIT} if number == 3 else {}
        compiled(log, 0, number, **failed)
    compiled(log, 1, 0)
    log.artifact("recompile_reasons", SIZE.format(of="1/0", expected=4, actual=8).encode(), **ids(1, 1))
    log.torch(
        "create_symbol", {"symbol": "s77", "val": "8", "vr": "[2, int_oo]", "source": "L['x'].size()[0]"}, **ids(1, 1)
    )
    return compiled(log, 1, 1, duration_us=3000)


def lookup(log: LogBuilder, name: str, frame: int, number: int, **payload: Any) -> LogBuilder:
    return log.artifact(name, orjson.dumps(payload), **ids(frame, number))


def components(gm: str, size: int, **more: str) -> list[str]:
    parts = {"gm": gm, "example_inputs[0]": f"size {size}", "same": "yes", **more}
    return [f"[{value}-hash] {name}: {value}" for name, value in parts.items()]


def with_caches() -> LogBuilder:
    log = LogBuilder()
    lookup(log, "fx_graph_cache_miss", 0, 0, key="fa", components=components("g0", 4))
    lookup(log, "fx_graph_cache_miss", 1, 0, key="fb", components=components("g1", 64, extra="only here"))
    lookup(log, "fx_graph_cache_miss", 0, 1, key="fc", components=components("g0", 8))
    lookup(log, "fx_graph_cache_hit", 0, 2, key="fc", components=components("g0", 8), time_saved_ns=7_000)
    lookup(log, "aotautograd_cache_hit", 0, 2, key="ac", components=[], time_saved_ms=3)
    lookup(log, "aotautograd_cache_bypass", 1, 0, key=None, cache_bypass_reason="Unsupported call_function target f")
    lookup(log, "aotautograd_cache_saved", 0, 1, key="ab")
    log.artifact("put_local_code_state", b"/src/model.py:10:forward:\n", "string", **ids(0, 1))
    return compiled(log, 0, 0, inductor_fx_remote_cache_hit_count=5, inductor_fx_remote_cache_miss_count=0)


def with_cuda_graphs() -> LogBuilder:
    log = LogBuilder()
    on = '{"triton.cudagraphs": true}'
    compiled(log, 0, 0, cudagraph_skip_reason=CPU_SKIP, inductor_config=on)
    compiled(log, 0, 0, event="bwd_compilation_metrics", cudagraph_skip_reason=CPU_SKIP, inductor_config=on)
    compiled(log, 1, 0, cudagraph_skip_reason=OP_SKIP, inductor_config=on)
    for start in (0, 100, 200):
        span(log, "CUDAGraphNode.record", start, start + 10, "2/0")
    return compiled(log, 2, 0, event="compilation_metrics_runtime", runtime_cudagraphify_time_us=30, is_runtime=True)


def user_stack(line: int) -> list[dict[str, Any]]:
    return [{"line": line, "name": "forward", "filename": 1, "loc": f"line {line}"}]


def with_draft_export() -> LogBuilder:
    """Return a log with a repeated data-dependent error, a guard on a size, and a missing and a wrong fake kernel."""
    log = LogBuilder().torch("str", ["/src/export.py", 1])
    log.torch("create_unbacked_symbol", {"symbol": "u0", "vr": "[0, 9]", "node_id": 70, "user_stack": user_stack(5)})
    for result, number, arguments, argument_ids in (
        ("u0 + 1", 71, ["u0", "1"], [70]),
        ("u0 + 1 > 3", 72, ["u0 + 1", "3"], [71]),
    ):
        log.torch(
            "expression_created",
            {
                "method": "op",
                "result": result,
                "result_id": number,
                "arguments": arguments,
                "argument_ids": argument_ids,
                "user_stack": user_stack(6),
            },
        )
    frame = {"loc": "if n > 3:", "locals": {"n": ["u0"]}, "symbols": {"s0": "L['x'].size()[0]", "s1": None}}
    error = {
        "expr": "u0 + 1 > 3",
        "result": "True",
        "expr_node_id": 72,
        "user_stack": user_stack(7),
        "frame_locals": frame,
    }
    for _ in range(2):
        log.torch("propagate_real_tensors_provenance", {**error, "symbol_to_sources": {}})
    log.torch("propagate_real_tensors", {"expr": "u0 + 1 > 3", "result": "True", "stack": []})
    log.torch("missing_fake_kernel", {"op": "my.foo.default"})
    log.torch("mismatched_fake_kernel", {"op": "my.bad.default", "reason": "fake 1, real 2"})
    guard = {"expr": "s0 > 3", "prefix": "eval", "expr_node_id": 99, "user_stack": user_stack(9)}
    log.torch("guard_added", {**guard, "symbol_to_sources": {"s0": "L['z'].size()[0]"}})
    log.torch("guard_added", {**guard, "prefix": "runtime_assert"})
    return log.torch("exported_program", {}, b"ExportedProgram:\n    class GraphModule")


def piece(log: LogBuilder, index: int, start: int, end: int) -> LogBuilder:
    payload = {
        "piecewise_index": index, "submod_name": f"submod_{2 * index}", "total_piecewise_compiles": 2,
        "compile_range_start": start, "compile_range_end": end, "is_single_size": start == end,
        "is_cudagraph_capture_size": start == end,
    }  # fmt: skip
    return log.artifact("vllm_piecewise_compile_start", orjson.dumps(payload), **ids(0, 0))


def with_vllm() -> LogBuilder:
    """Return a log of one model in two pieces, each for a range and a single size; the first piece has two passes."""
    log = LogBuilder()
    log.artifact("vllm_compile_event", b'{"type": "fresh_compile"}', **ids(0, 0))
    settings = {
        "model": "my/model",
        "prefix": "",
        "backend": "inductor",
        "compile_sizes": "8",
        "use_inductor_graph_partition": False,
    }
    log.artifact("vllm_compilation_config", orjson.dumps(settings), **ids(0, 0))
    log.torch("graph_dump", {"name": "vllm_piecewise_split_graph"}, b"split", **ids(0, 0))
    log.torch("graph_dump", {"name": "vllm_patterns.fusion"}, b"patterns", **ids(0, 0))
    for start, end in ((1, 8192), (8, 8)):
        for index in range(2):
            piece(log, index, start, end)
            if (index, start) == (0, 1):
                log.torch("graph_dump", {"name": "vllm_submod_0"}, b"graph", **ids(0, 0))
                lines = [f"op{number} = call{number}()" for number in range(30)]
                log.artifact("before_post_grad_graph", "\n".join(lines).encode(), "string", **ids(0, 0))
                log.torch("graph_dump", {"name": "vllm_post_grad.0.NoOp"}, "\n".join(lines).encode(), **ids(0, 0))
                lines[12] = "op12 = fused()"
                lines.append("op30 = added()")
                log.torch("graph_dump", {"name": "vllm_post_grad.1.Fusion"}, "\n".join(lines).encode(), **ids(0, 0))
            log.artifact("fx_graph_runnable", b"code", "string", **ids(0, 0))
    return log
