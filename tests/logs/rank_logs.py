"""Builds logs of ranks as PyTorch writes them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson

from stepscope.viewer.findings import all_findings
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.ranks.queries.ranks import Ranks, ranks
from stepscope.viewer.store.open import open_trace
from stepscope.viewer.store.trace import Trace
from tests.logs.synthetic import LogBuilder

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
    """Return the log of compiles on one rank, each given as keywords of `add_compile`."""
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
    """Return `count` ranks with three compiles, of which compile `at` differs on rank `changed`."""
    return {
        rank: rank_log(rank, [{**(change if rank == changed and i == at else {})} for i in range(3)])
        for rank in range(count)
    }


def opened_ranks(folder: Path) -> tuple[Ranks, list[Finding]]:
    with open_trace(folder) as trace:
        return ranks(trace), found_in(trace)


def found_in(trace: Trace) -> list[Finding]:
    return [finding for finding in all_findings(trace) if finding.kind == "rank_divergence"]
