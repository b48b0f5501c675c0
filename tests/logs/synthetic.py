"""Builds logs with stepscope's records, through its schema, and with torch's records as PyTorch writes them."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import orjson

from stepscope.tracer.schema.constants import FORMAT_VERSION
from stepscope.tracer.schema.graphs import (
    Argument,
    Graph,
    LaunchSite,
    MemoryStatement,
    Provenance,
    Role,
    SiteProvenance,
)
from stepscope.tracer.schema.launches import Calls, Launches, TensorMeta, Tensors
from stepscope.tracer.schema.log_format import encode_artifact, encode_prefix, encode_record, payload_digest
from stepscope.tracer.schema.process_ends import End, Frame, Overhead
from stepscope.tracer.schema.record import Record, artifact_name, to_payload
from stepscope.tracer.schema.records import Run
from stepscope.tracer.schema.steps import Steps

START = datetime(2026, 3, 14, 9, 26, 53)
MONOTONIC_NS = 5_000_000_000
UNIX_NS = 1_773_480_413_000_000_000
"""Unix time of START in UTC."""

WRAPPER = """# AOT ID: ['0_forward']
import torch

cpp_fused_relu_0 = async_compile.cpp_pybinding(['const float*', 'float*'], r'''
extern "C" void kernel(const float* in_ptr0, float* out_ptr0) { }
''')


async_compile.wait(globals())

def true_graph_0(args):
    true_graph_0_arg0_1, = args
    true_graph_0_buf0 = empty_strided_cpu((4, 8), (8, 1), torch.float32)
    cpp_fused_relu_0(true_graph_0_arg0_1, true_graph_0_buf0)
    return (true_graph_0_buf0, )

def call(args):
    arg0_1, arg1_1 = args
    buf0 = empty_strided_cpu((4, 8), (8, 1), torch.float32)
    extern_kernels.mm(arg0_1, arg1_1, out=buf0)
    buf1 = buf0; del buf0  # reuse
    cpp_fused_relu_0(buf1)
    buf2 = true_graph_0([buf1])
    return (buf2, )
"""


class LogBuilder:
    """A builder of one log, whose records are a millisecond apart."""

    def __init__(self, pid: int = 4711) -> None:
        self.pid = pid
        self.data = b""
        self._time = START

    def torch(self, event: str, value: Any, payload: bytes | None = None, **envelope: Any) -> LogBuilder:
        """Add a record as PyTorch writes it."""
        header = {event: value, **envelope}
        if payload is not None:
            header["has_payload"] = payload_digest(payload)
        return self.raw(encode_record(self._prefix("torch/_logging/_internal.py"), orjson.dumps(header), payload))

    def artifact(self, name: str, payload: bytes, encoding: str = "json", **envelope: Any) -> LogBuilder:
        prefix = self._prefix("torch/_dynamo/utils.py")
        return self.raw(encode_artifact(prefix, name, encoding, payload, envelope))

    def record(self, record: Record) -> LogBuilder:
        """Add one of stepscope's records."""
        return self.artifact(artifact_name(record), orjson.dumps(to_payload(record)))

    def raw(self, data: bytes) -> LogBuilder:
        self.data += data
        return self

    def write(self, path: Path) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self.data)
        return path

    def _prefix(self, source: str) -> bytes:
        self._time += timedelta(milliseconds=1)
        return encode_prefix(self._time, self.pid, source, 100)


def run(**changes: Any) -> Run:
    """Return a run record; `changes` replace fields."""
    return replace(
        Run(
            format_version=FORMAT_VERSION,
            stepscope_version="0.1.0",
            python_version="3.11.7",
            torch_version="2.13.0",
            triton_version=None,
            cuda_version=None,
            devices=["cpu"],
            rank=None,
            world_size=None,
            pid=4711,
            parent_pid=1,
            argv=["train.py", "--lr", "0.1"],
            config={},
            level="launches",
            monotonic_ns=MONOTONIC_NS,
            unix_ns=UNIX_NS,
            utc_offset_s=0,
        ),
        **changes,
    )


def argument(name: str, role: Role, buffer: str | None = None) -> Argument:
    return Argument(name, role, buffer or name)


def graph(number: int = 0, **changes: Any) -> Graph:
    """Return the graph of `WRAPPER`: a matrix product, an in-place kernel on the reused buffer, and a subgraph."""
    fused = "cpp_fused_relu_0"
    sites = [
        LaunchSite(
            0, "call", 20, "extern_kernels.mm", "extern",
            [argument("arg0_1", "in"), argument("arg1_1", "in"), argument("buf0", "out")], [],
            snodes=["op0"], aten=["aten.mm"],
        ),
        LaunchSite(1, "call", 22, fused, "cpp", [argument("buf1", "inout")], [], snodes=["op1"]),
        LaunchSite(
            2, "call", 23, "true_graph_0", "subgraph", [argument("buf1", "in"), argument("buf2", "out")], ["buf2"],
            snodes=["op2"],
        ),
        LaunchSite(
            3, "true_graph_0", 14, fused, "cpp",
            [argument("true_graph_0_arg0_1", "in"), argument("true_graph_0_buf0", "out")], [],
            snodes=["true_graph_0_op0"],
        ),
    ]  # fmt: skip
    return replace(
        Graph(
            graph=number,
            wrapper_key="cwrapper",
            compile_id="0/0",
            aot_id="0_forward",
            phase="forward",
            cached=False,
            dynamic=False,
            functions=["call", "true_graph_0"],
            sites=sites,
            memory=[
                MemoryStatement("allocate", "buf0", "call", 19),
                MemoryStatement("reuse", "buf1", "call", 21, "buf0"),
            ],
        ),
        **changes,
    )


def calls(first: int, step: int, start_ns: int, thread: int = 1, graph: int = 0) -> Launches:
    """Return a call of `WRAPPER`, after the subgraph's call, which ends first."""
    return Launches(
        Calls(
            call=[first + 1, first],
            graph=[graph, graph],
            function=[1, 0],
            step=[step, step],
            thread=[thread, thread],
            parent=[first, None],
            start_ns=[start_ns + 700, start_ns],
            duration_ns=[200, 1000],
            launches=[1, 3],
            state=["ok", "ok"],
        ),
        site=[3, 0, 1, 2],
        start_ns=[start_ns + relative for relative in (750, 100, 300, 600)],
        end_ns=[start_ns + relative for relative in (850, 250, 390, 920)],
    )


def tensors(call: int = 0, size: int = 4) -> Tensors:
    meta = TensorMeta(0, "float32", [size, 8], [8, 1], "cpu", 0, size * 32)
    return Tensors(0, call, 0, [meta, replace(meta, argument=1, size=[8, 8], storage_bytes=256)])


def provenance() -> Provenance:
    frames = [
        Frame("/src/train.py", 40, "main", "loss = model(x)"),
        Frame("/src/model.py", 12, "forward", "y = (x @ w).relu()"),
    ]
    return Provenance(0, frames, [SiteProvenance(1, [[0, 1]], ["relu"])])


def recorded(steps: int = 3, end: bool = True, **run_changes: Any) -> LogBuilder:
    """Return a healthy log: one compile, one graph, `steps` steps with a call each, and a second thread in step 1."""
    log = LogBuilder(run_changes.get("pid", 4711)).record(run(**run_changes))
    compile_records(log)
    log.record(graph()).record(provenance()).record(tensors())
    for step in range(steps):
        start_ns = MONOTONIC_NS + 1_000_000 + step * 10_000
        log.record(calls(10 * step, step, start_ns + 500))
        if step == 1:
            log.record(calls(10 * step + 5, step, start_ns + 600, thread=2))
        log.record(Steps([step], ["inference"], ["user"], [start_ns], [start_ns + 5_000]))
    log.record(Overhead(1_000, 1_000_000, 20_000, 4 * steps, 0))
    if end:
        log.record(End("exit", MONOTONIC_NS + 2_000_000))
    return log


def compile_records(
    log: LogBuilder, frame: int = 0, number: int = 0, *, has_code: bool = True, **metrics: Any
) -> LogBuilder:
    """Add PyTorch's records of a compile: string table, stack, spans, cache, code and metrics."""
    ids: Any = {"frame_id": frame, "frame_compile_id": number, "attempt": 0}
    micros = (UNIX_NS + 1_000_000_000) // 1000
    log.torch("str", ["/src/model.py", 7])
    log.torch("dynamo_start", {"stack": [{"line": 12, "name": "forward", "filename": 7, "loc": "y = x @ w"}]}, **ids)
    for phase, at in (("B", micros), ("E", micros + 1500)):
        span = {"name": "dynamo", "ph": phase, "ts": at, "tid": 0, "args": {"compile_id": f"{frame}/{number}"}}
        log.torch("chromium_event", {}, orjson.dumps(span), **ids)
    log.artifact("fx_graph_cache_miss", b'{"key": "abc"}', **ids)
    if has_code:
        log.torch("inductor_output_code", {"filename": "/tmp/x/cwrapper.py"}, WRAPPER.encode(), **ids)
    values = {
        "co_name": "forward", "co_filename": "/src/model.py", "co_firstlineno": 10, "fail_type": None,
        "fail_reason": None, "restart_reasons": [], "has_guarded_code": True, "duration_us": 1500,
        "start_time_us": micros, **metrics,
    }  # fmt: skip
    return log.torch("compilation_metrics", values, **ids)
