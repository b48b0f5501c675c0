"""A run with a secret in every place that a program, its files or its machine can name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson

from stepscope.tracer.schema.judging import JudgedBuffer, JudgedCall
from stepscope.tracer.schema.layer_checks import LayerCheck, LayerStep, SettingTrial, TensorDifference
from stepscope.tracer.schema.machine import Machine
from stepscope.tracer.schema.process_ends import Frame, UncaughtException
from stepscope.tracer.schema.raised_calls import FailedNode, RaisedCall
from tests.logs import compile_summary_logs, memory_records, synthetic
from tests.logs.synthetic import LogBuilder

__all__ = ["PLACES", "machine", "planted", "secret"]

PLACES = (
    "constant", "guard", "path", "comment", "exception", "print", "variable", "buffer", "environment", "host", "user",
    "argument", "script", "module", "class", "attribute", "function", "kernel", "operator", "break", "note",
    "key", "setting", "device", "file", "folder", "git", "payload", "event", "process", "thread", "patch", "parent",
    "parameter", "holder", "metric", "package", "cache", "fragment", "reason", "value", "difference", "node",
)  # fmt: skip


def secret(place: str) -> str:
    """Return a secret that names its place, in a form that every kind of name may have."""
    return f"Zq9{place}x7"


def machine(**changes: Any) -> Machine:
    """Return what a recorder says of a usual machine."""
    return replace(
        Machine(
            os="Debian GNU/Linux 12 (bookworm)", kernel="Linux 6.1.0", libc="glibc 2.36", architecture="x86_64",
            cpu="Intel(R) Xeon(R) Processor", cpu_capability="AVX2", memory_bytes=16 * 10**9, cpp_compiler="g++-12",
            python_build="3.11.7 (main)", gpu_driver=None, gpu_capabilities=[], cudnn_version=None, hip_version=None,
            torch_git="cf30153c4c131c8164ee7798e5022d810682e2cb", torch_is_debug=False, torch_build=["GCC 13.3"],
            packages={"torch": "2.13.0+cpu", "numpy": "2.4.6"}, variables={"OMP_NUM_THREADS": "2"},
        ),
        **changes,
    )  # fmt: skip


def _verdicts(log: LogBuilder) -> None:
    """Add what the judge and the check against eager mode say."""
    reason, node = f"{secret('reason')} draws random numbers", secret("node")
    log.record(
        JudgedCall(
            graph=0, call=0, step=0, launches=2, judged=1, not_judged={reason: 1}, launch=[0, 1], site=[0, 1],
            buffer=["buf0", "buf1"], node=[node, None], verdict=["wrong", "unjudged"], how=["float64", None],
            of_limit=[250.0, None], reason=[None, 0], reasons=[reason], duration_ns=2_000_000,
        )
    )  # fmt: skip
    frame = Frame(f"/srv/{secret('module')}/{secret('script')}.py", 3, secret("function"), _line())
    log.record(
        JudgedBuffer(
            graph=0, call=0, step=0, launch=0, site=0, buffer="buf0", node=node, verdict="wrong", rules=["element"],
            how="float64", dtype="float32", size=[4, 8], index=[2, 5], compiled=1.4142135, eager=0.5, float64=0.5,
            allowed=0.004, of_limit=250.0, bad=3, fragment=[f"{node} = {secret('fragment')}.default(arg0_1)"],
            inputs=[f"{secret('value')} in arg0_1"], source=frame,
        )
    )  # fmt: skip
    log.record(_layer_check(frame))


def _raised(log: LogBuilder, frame: Frame) -> None:
    """Add an exception that the program caught, and the node at which a compile failed."""
    text, kind = f"cannot {secret('exception')}", f"{secret('module')}.{secret('class')}"
    log.record(RaisedCall(0, 0, 0, 0, False, 9, f"{secret('operator')}(arg0_1)", kind, text, [frame]))
    log.record(FailedNode("0/0", secret("class"), text, secret("node"), f"{secret('operator')}.default", frame))


def _layer_check(frame: Frame) -> LayerCheck:
    name = f"gradient of self.{secret('attribute')}"
    difference = TensorDifference(name, "values", f"{secret('difference')} differs", "float32", [4], 2, 4, [1], "1.0",
                                  "2.0", "1.0", 0.001, 0.0, 0.5, frame)  # fmt: skip
    step = LayerStep("aot", "joint", "differs", f"{secret('difference')} differs")
    trial = SettingTrial("pattern_matcher", "False", "removes", f"raised {secret('exception')}")
    return LayerCheck("0/0", 0, "forward", "eager", "compiled", "differs", secret("reason"), 2, 1, frame, [difference],
                      [step], [f"+{secret('node')} = {secret('fragment')}.default()"], [trial], [frame],
                      [f"+{secret('node')} = {secret('fragment')}.default()"])  # fmt: skip


def planted(folder: Path) -> Path:
    """Write the logs, and return their folder, whose name and whose parent's name are secret, too."""
    target = folder / secret("parent") / "home" / secret("user") / secret("folder")
    log = LogBuilder().record(_run())
    synthetic.compile_records(
        log, co_name=secret("function"), co_filename=f"/home/{secret('user')}/{secret('path')}.py"
    )
    log.record(_graph()).record(_provenance()).record(synthetic.tensors())
    for step in range(3):
        start_ns = synthetic.MONOTONIC_NS + 1_000_000 + step * 10_000
        log.record(synthetic.calls(10 * step, step, start_ns + 500))
    _torch_records(log)
    _verdicts(log)
    log.record(memory_records.growth([(0, 4), (2, 4)], [f"list of 3 in {secret('holder')} of __main__"]))
    frame = Frame(f"/srv/{secret('module')}/{secret('script')}.py", 3, secret("function"), _line())
    log.record(UncaughtException(f"{secret('module')}.{secret('class')}", f"cannot {secret('exception')}", [frame]))
    _raised(log, frame)
    log.write(target / f"stepscope_trace_rank_0_4711_{secret('file')}.log")
    for number, other in enumerate((compile_summary_logs.with_breaks(), compile_summary_logs.with_recompiles())):
        text = other.data.replace(b"x @ w", secret("comment").encode())
        (target / f"stepscope_trace_rank_{number + 1}_1_x.log").write_bytes(text)
    return target


def _line() -> str:
    return f'{secret("variable")} = self.{secret("attribute")}(x, "{secret("constant")}")  # {secret("comment")}'


def _run() -> Any:
    variables = {"TORCH_LOGS": secret("environment"), "TORCH_HOST_NAME": secret("host")}
    return synthetic.run(
        argv=[f"/home/{secret('user')}/{secret('script')}.py", f"--{secret('argument')}", f"-m {secret('module')}"],
        config={
            "_inductor.config.post_grad": secret("patch"),
            f"_inductor.config.{secret('setting')}": [secret("key")],
        },
        devices=["cpu", f"NVIDIA {secret('device')}"],
        torch_version=f"2.13.0+git{secret('git')}",
        machine=machine(variables=variables, packages={"torch": "2.13.0", secret("package"): f"1+{secret('git')}"}),
    )


def _graph() -> Any:
    graph = synthetic.graph()
    first, second, *rest = graph.sites
    named = replace(first.arguments[0], name=secret("variable"), buffer=secret("buffer"), parameter=secret("parameter"))
    first = replace(first, kernel=f"torch.ops.{secret('operator')}.default", arguments=[named, *first.arguments[1:]])
    second = replace(second, kernel=f"triton_{secret('kernel')}_0", aten=[secret("operator")])
    return replace(graph, sites=[first, second, *rest])


def _provenance() -> Any:
    found = synthetic.provenance()
    frame = Frame(f"/home/{secret('user')}/{secret('path')}.py", 12, secret("function"), _line())
    return replace(found, frames=[frame, *found.frames[1:]])


def _torch_records(log: LogBuilder) -> None:
    ids: dict[str, Any] = {"frame_id": 0, "frame_compile_id": 0, "attempt": 0}
    log.torch("dynamo_guards", {}, f"L['{secret('guard')}'] == '{secret('key')}'".encode(), **ids)
    log.artifact("dynamo_graph_break_reason", f"call of {secret('break')}".encode(), "string", **ids)
    log.artifact("recompile_reasons", orjson.dumps([f"L['{secret('guard')}'] == 4711"]), **ids)
    log.artifact(secret("payload"), f"printed {secret('print')}".encode(), "string", **ids)
    log.artifact("fx_graph_cache_hit", orjson.dumps({"key": secret("cache")}), **ids)
    span = {
        "name": secret("event"), "ph": "X", "ts": synthetic.UNIX_NS // 1000, "dur": 5, "tid": 0,
        "args": {"process": secret("process"), "thread": secret("thread"), "compile_id": "0/0"},
    }  # fmt: skip
    log.torch("chromium_event", {}, orjson.dumps(span), **ids)
    log.torch(
        "chromium_event", {}, orjson.dumps({"ph": "M", "name": "process_name", "args": {"name": secret("process")}})
    )
    metrics: dict[str, Any] = {secret("metric"): 1}
    synthetic.compile_records(log, 1, 0, fail_type=secret("class"), fail_reason=secret("exception"), **metrics)
