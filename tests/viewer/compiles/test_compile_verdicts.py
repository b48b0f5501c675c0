"""What is said of compiles that end oddly or lie in torch's own code, and of stacks of forked processes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import orjson
import pytest

from stepscope.tracer.schema.gaps import CompileError
from stepscope.tracer.schema.process_ends import End, Frame, UncaughtException
from stepscope.viewer.compiles.queries.compiles import compile_detail, list_compiles
from stepscope.viewer.compiles.queries.events import resumed_name
from stepscope.viewer.findings import all_findings
from stepscope.viewer.overview.summary import findings_text
from stepscope.viewer.store.distributed_ingest.parent_strings import StringsBeside
from stepscope.viewer.store.open import open_trace
from stepscope.viewer.store.trace import Trace
from tests.logs import compile_logs
from tests.logs.synthetic import LogBuilder, run
from tests.viewer.client import Client

MAIN = ("/src/train.py", 40, "main", "loss = model(x)")
INNER = ("/env/torch/_dynamo/external_utils.py", 67, "inner", "return fn(*args)")


class Opened:
    def __init__(self, folder: Path, traces: ExitStack) -> None:
        self.folder, self._traces = folder, traces

    def __call__(self, *logs: LogBuilder) -> Trace:
        for number, log in enumerate(logs):
            log.write(self.folder / f"{number}.log")
        return self._traces.enter_context(open_trace(self.folder))


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opened]:
    with ExitStack() as traces:
        yield Opened(tmp_path, traces)


def span(log: LogBuilder, name: str, phase: str, micros: int, frame: int = 0) -> LogBuilder:
    event = {"name": name, "ph": phase, "ts": micros, "tid": 0, "args": {"compile_id": f"{frame}/0"}}
    return log.torch("chromium_event", {}, orjson.dumps(event), **compile_logs.ids(frame, 0))


def begun(log: LogBuilder, *stack: tuple[str, int, str, str], frame: int = 0, number: int = 0) -> LogBuilder:
    return log.torch("dynamo_start", compile_logs.stack(*stack), **compile_logs.ids(frame, number))


@pytest.mark.parametrize(
    ("ends", "status"),
    [(False, "unfinished"), (True, "ok")],
)
def test_a_log_that_ends_within_a_compile(opened: Opened, ends: bool, status: str) -> None:
    log = begun(span(LogBuilder(), "dynamo", "B", 1_000), MAIN, compile_logs.FORWARD)
    span(log, "inductor_compile", "B", 2_000)
    if ends:
        span(span(log, "inductor_compile", "E", 3_000), "dynamo", "E", 4_000)
    trace = opened(log)
    assert [row.status for row in list_compiles(trace)] == [status]
    findings = [(found.kind, found.severity, found.title) for found in all_findings(trace)]
    title = "forward (model.py:10) was not compiled completely: the log ends within it, in inductor_compile"
    assert findings == ([] if ends else [("compile_failure", "warning", title)])


def test_a_process_that_died_within_a_compile_says_which(opened: Opened) -> None:
    log = LogBuilder().record(run(pid=4194309))
    begun(span(log, "dynamo", "B", 1_000), MAIN, compile_logs.FORWARD)
    (finding,) = all_findings(opened(span(log, "inductor_compile", "B", 2_000)))
    said = "The log has no end record: process 4194309 ended, while it was compiling forward (model.py:10)"
    assert (finding.kind, finding.title) == ("crash", said)
    assert finding.evidence["compile_id"] == "0/0"


LIBRARY = ("/env/site-packages/transformers/utils/generic.py", 937, "wrapper", "")


@pytest.mark.parametrize(
    ("stack", "named"),
    [
        ([MAIN, INNER], "inner (external_utils.py:67), called at train.py:40"),
        ([MAIN, LIBRARY], "wrapper (generic.py:937), called at train.py:40"),
        ([MAIN, LIBRARY, INNER], "inner (external_utils.py:67), called at train.py:40"),
        ([LIBRARY], "wrapper (generic.py:937)"),
        ([LIBRARY, compile_logs.FORWARD], "forward (model.py:10)"),
    ],
)
def test_a_frame_of_a_library_says_which_line_of_the_program_called_it(
    opened: Opened, stack: list[tuple[str, int, str, str]], named: str
) -> None:
    log = begun(span(LogBuilder(), "dynamo", "B", 1_000), *stack)
    (finding,) = all_findings(opened(log))
    assert finding.title == f"{named} was not compiled completely: the log ends within it, in dynamo"


def test_the_limit_raises_with_fullgraph(opened: Opened) -> None:
    log = compile_logs.metrics(begun(LogBuilder(), compile_logs.FORWARD), 0, 0)
    reason = {"fail_type": "FailOnRecompileLimitHit", "fail_reason": "Hard failure due to fullgraph=True"}
    trace = opened(compile_logs.metrics(log, 0, 1, co_name=None, has_guarded_code=None, **reason))
    assert [row.status for row in list_compiles(trace)] == ["ok", "failed"]
    (finding,) = all_findings(trace)
    assert finding.kind == "recompile_limit"
    assert (
        finding.title
        == "forward (model.py:10) reached the recompile limit in compile 0/1, and the call raised an exception"
    )
    page = Client(trace).get("/recompiles").text
    assert "The call raised at" in page
    assert "Uncompiled since" not in page


def test_what_a_fake_tensor_raised_is_in_the_title(opened: Opened) -> None:
    reason = (
        "RuntimeError when making fake tensor call\n  Explanation: Dynamo failed to run FX node with fake tensors: "
        "call_function <built-in method matmul>(*(FakeTensor(..., size=(4,)),), **{}): got RuntimeError('4 X 7')\n"
        "  Hint: Your code may result in an error when running in eager.\n\n  Developer debug context: \n"
    )
    log = begun(LogBuilder(), MAIN, compile_logs.FORWARD)
    trace = opened(compile_logs.metrics(log, 0, 0, fail_type="TorchRuntimeError", fail_reason=reason))
    cause = "TorchRuntimeError: RuntimeError when making fake tensor call: RuntimeError('4 X 7')"
    assert [found.title for found in all_findings(trace)] == [f"Compiling forward (model.py:10) failed: {cause}"]


@pytest.mark.parametrize("is_caught", [False, True])
def test_an_error_of_a_compile_that_ended_the_program_is_told_once(opened: Opened, is_caught: bool) -> None:
    log = begun(LogBuilder().record(run()), MAIN, compile_logs.FORWARD)
    log = compile_logs.metrics(log, 0, 0, fail_type="TorchRuntimeError", fail_reason="the shapes do not match")
    said = "another cause" if is_caught else "the shapes do not match"
    frame = Frame("/env/site-packages/torch/_dynamo/exc.py", 723, "unimplemented", "raise Unsupported(")
    log.record(UncaughtException("torch._dynamo.exc.TorchRuntimeError", said, [frame])).record(End("exit", 9_000))
    findings = {found.kind: (found.severity, found.title) for found in all_findings(opened(log))}
    failed = "Compiling forward (model.py:10) failed: TorchRuntimeError: the shapes do not match"
    if is_caught:
        assert findings.pop("exception")[1].startswith(
            "The program ended before any recorded launch with torch._dynamo"
        )
        assert findings == {"compile_failure": ("info", f"{failed}; the program went on")}
    else:
        assert findings == {"compile_failure": ("critical", f"{failed}; the program ended")}


@pytest.mark.parametrize(
    ("fail_type", "compiles", "severity"),
    [("TorchRuntimeError", 2, "warning"), ("TorchRuntimeError", 1, "info"), ("BackendCompilerFailed", 2, "info")],
)
def test_an_exception_that_the_program_caught_is_told_with_the_call(
    opened: Opened, fail_type: str, compiles: int, severity: str
) -> None:
    log = LogBuilder().record(run())
    for number in range(compiles):
        begun(log, MAIN, compile_logs.FORWARD, number=number)
        compile_logs.metrics(log, 0, number, fail_type=fail_type, fail_reason="the shapes do not match")
    (finding,) = all_findings(opened(log.record(End("exit", 9_000))))
    assert (finding.kind, finding.severity) == ("compile_failure", severity)
    assert finding.proof[0].startswith("It was called at train.py:40: ")
    refused = "The program caught the exception. An operator refused its inputs, as it probably does in eager mode."
    assert (refused in finding.proof) == (fail_type == "TorchRuntimeError")


def test_a_function_that_runs_uncompiled_raised_nothing(opened: Opened) -> None:
    log = begun(LogBuilder().record(run()), MAIN, compile_logs.FORWARD)
    failed = {"fail_type": "TorchRuntimeError", "fail_reason": "no", "config_suppress_errors": True}
    (finding,) = all_findings(opened(compile_logs.metrics(log, 0, 0, **failed).record(End("exit", 9_000))))
    assert finding.severity == "info"


def test_a_recompile_for_inputs_that_an_operator_refuses_is_no_other_finding(opened: Opened) -> None:
    log = compile_logs.metrics(begun(LogBuilder().record(run()), compile_logs.FORWARD), 0, 0)
    log.artifact("recompile_reasons", orjson.dumps(["0/0: n == 1"]), **compile_logs.ids(0, 1))
    failed = {"fail_type": "TorchRuntimeError", "fail_reason": "the shapes do not match"}
    compile_logs.metrics(begun(log, compile_logs.FORWARD, number=1), 0, 1, **failed)
    (finding,) = all_findings(opened(log.record(End("exit", 9_000))))
    assert finding.kind == "compile_failure"


def test_the_reason_in_a_title_and_the_line_below_it_are_of_one_recompile(opened: Opened) -> None:
    log = compile_logs.metrics(begun(LogBuilder(), compile_logs.FORWARD), 0, 0)
    first = '0/0: n == 1\nUser stack trace:\n  File "/src/model.py", line 33, in forward\n    y = x + n'
    for number, reason in ((1, first), (2, "0/1: GLOBAL_STATE changed: grad_mode ")):
        log.artifact("recompile_reasons", orjson.dumps([reason]), **compile_logs.ids(0, number))
        compile_logs.metrics(begun(log, compile_logs.FORWARD, number=number), 0, number)
    (finding,) = all_findings(opened(log))
    assert finding.title == "forward (model.py:10) was recompiled 2 times: grad mode changed, and 1 other guard failed"
    assert not any("once" in said for said in finding.proof)
    assert finding.source is not None
    assert finding.source.line == 10


def in_torch(log: LogBuilder, kind: str) -> LogBuilder:
    """A compile of torch's own wrapper of a module, and something that happened to it in torch's own code."""
    begun(log, MAIN, INNER)
    compile_logs.metrics(log, 0, 0, co_name="inner", co_filename=INNER[0], co_firstlineno=67)
    if kind == "recompile":
        log.artifact("recompile_reasons", b"[\"0/0: tensor 'args[0]' rank mismatch\"]", **compile_logs.ids(0, 1))
        begun(log, MAIN, INNER, number=1)
        return compile_logs.metrics(log, 0, 1, co_name="inner", co_filename=INNER[0], co_firstlineno=67)
    text = (
        "Graph break in user code at /env/torch/nn/parallel/distributed.py:7\nGraph Break Reason: no\n"
        f'User code traceback:\n  File "{INNER[0]}", line 69, in inner\n    return fn(*args)\n'
        '  File "/env/torch/nn/parallel/distributed.py", line 7, in pre\n    self.logger.set()\n'
    )
    return log.artifact("dynamo_graph_break_reason", text.encode(), "string", **compile_logs.ids(0, 0))


@pytest.mark.parametrize("kind", ["recompile", "graph_break"])
def test_what_happens_in_torch_is_shown_where_the_program_called_it(opened: Opened, kind: str) -> None:
    log = in_torch(LogBuilder().torch("artifact", {"name": "torch_version", "encoding": "json"}, b"{}"), kind)
    (finding,) = all_findings(opened(log))
    assert finding.kind == kind
    assert finding.source is not None
    assert (finding.source.file, finding.source.line, finding.source.code) == ("/src/train.py", 40, "loss = model(x)")


GUARDS = b"""TREE_GUARD_MANAGER:
+- RootGuardManager
| +- GuardManager: source=L['fn'], accessed_by=FrameLocalsGuardAccessor(key='fn'), type=<class '%s'>, tag_safe=(False,)
| | +- TYPE_MATCH: ___check_type_id(L['fn'], 94747052632016), type=<class '%s'>
"""
LINEAR, SEQUENTIAL = b"torch.nn.modules.linear.Linear", b"torch.nn.modules.container.Sequential"
TYPE_OF_FN = "0/0: ___check_type_id(fn, 94747052632016), type=<class 'torch.nn.modules.linear.Linear'>"


def wrapped(log: LogBuilder, number: int, of: bytes, *reasons: str) -> LogBuilder:
    """A compile of one of torch's own modules, with the reasons for which it is a recompile."""
    if reasons:
        log.artifact("recompile_reasons", orjson.dumps(reasons), **compile_logs.ids(0, number))
    begun(log, MAIN, INNER, number=number)
    log.torch("dynamo_cpp_guards_str", {}, GUARDS % (of, of), **compile_logs.ids(0, number))
    return compile_logs.metrics(log, 0, number, co_name="inner", co_filename=INNER[0], co_firstlineno=67)


def test_a_module_of_torch_that_is_compiled_by_itself_has_its_own_name(opened: Opened) -> None:
    log = wrapped(wrapped(LogBuilder(), 0, LINEAR), 1, SEQUENTIAL, TYPE_OF_FN)
    size = "tensor 'args[0]' size mismatch at index 0. expected 8, actual 9"
    trace = opened(wrapped(log, 2, SEQUENTIAL, TYPE_OF_FN, f"0/1: {size}"))
    names = ["Linear (torch.nn.modules.linear)", *["Sequential (torch.nn.modules.container)"] * 2]
    assert [row.frame for row in list_compiles(trace)] == names
    (finding,) = all_findings(trace)
    assert finding.title == f"{names[1]}, called at train.py:40, was recompiled: args[0].size()[0] changed from 8 to 9"


def test_the_limit_of_recompiles_is_one_for_all_modules_of_torch(opened: Opened) -> None:
    log = wrapped(LogBuilder(), 0, LINEAR)
    log.artifact("recompile_reasons", orjson.dumps([TYPE_OF_FN]), **compile_logs.ids(0, 1))
    begun(log, MAIN, INNER, number=1)
    reason = {"fail_type": "RecompileLimitExceeded", "fail_reason": "recompile_limit reached"}
    trace = opened(compile_logs.metrics(log, 0, 1, co_name=None, has_guarded_code=None, **reason))
    (finding,) = all_findings(trace)
    assert finding.title.endswith(": another of torch's own modules or functions was compiled")
    assert "compile the module or function of the program that calls them instead" in finding.proof[-1]


STACK = (
    '  File "/src/train.py", line 40, in main\n    y = model(x)\n'
    '  File "/src/model.py", line 14, in forward\n    h(x)\n'
)
RAISED = (
    'Traceback (most recent call last):\n  File "/env/torch/_dynamo/exc.py", line 99, in unimplemented\n    raise\n'
    "torch._dynamo.exc.Unsupported: call_function h in skip_files /src/h.py\n\nfrom user code:\n"
    '   File "/src/model.py", line 14, in forward\n    h(x)\n'
)


@pytest.mark.parametrize(
    "text",
    [
        f"Graph break: skip: from user code at:\n{STACK}\n{RAISED}",
        "Graph break: torch.compile cannot properly resume from this graph break, which results in a skip.\n"
        "torch.compile will skip tracing the frame forward (/src/model.py line 10) and fall back to eager.\n"
        f"The graph break occurred in the following user code:\n{STACK}\n{RAISED}",
        "Graph break in user code at /src/model.py:14\nReason: Unsupported: call_function h in skip_files /src/h.py\n"
        f"User code traceback:\n{STACK}\n{RAISED}",
        f"WON'T CONVERT forward /src/model.py line 10 \ndue to: \n{RAISED}",
    ],
    ids=["skip of 2.6", "skip of 2.8", "break of 2.6", "error of a backend"],
)
def test_breaks_of_older_versions_name_their_reason_and_line(opened: Opened, text: str) -> None:
    log = begun(LogBuilder(), MAIN, compile_logs.FORWARD)
    log.artifact("dynamo_graph_break_reason", text.encode(), "string", **compile_logs.ids(0, 0))
    (finding,) = all_findings(opened(compile_logs.metrics(log, 0, 0)))
    reason = finding.title.partition(": ")[2].removeprefix("Unsupported: ")
    assert reason == "call_function h in skip_files /src/h.py"
    assert finding.source is not None
    assert (finding.source.file, finding.source.line, finding.source.code) == ("/src/model.py", 14, "h(x)")


def test_a_forked_process_has_the_names_of_its_own_parent(opened: Opened) -> None:
    """Its log holds no names that were known before the fork, and another process has others at the same numbers."""

    def compiled(pid: int, strings: dict[int, str], frame: dict[str, Any]) -> LogBuilder:
        log = LogBuilder(pid=pid)
        for number, name in strings.items():
            log.torch("str", [name, number])
        log.torch("dynamo_start", {"stack": [frame]}, **compile_logs.ids(0, 0))
        return compile_logs.metrics(log, 0, 0, co_filename="/src/model.py")

    def frame(number: int) -> dict[str, Any]:
        return {"filename": number, "line": 10, "name": "forward", "loc": ""}

    spawned = compiled(1, {0: "/env/torch/x.py", 1: "<string>", 2: "/src/model.py"}, frame(2))
    forked = compiled(3, {}, frame(1))
    parent = compiled(2, {0: "/env/torch/x.py", 1: "/src/model.py"}, frame(1))
    trace = opened(spawned, forked, parent)
    for log in range(3):
        detail = compile_detail(trace, log, "0/0")
        assert detail is not None
        assert [line.file for line in detail.stack] == ["/src/model.py"]


def test_what_is_the_same_on_each_rank_is_one_finding(opened: Opened) -> None:
    """The last rank found another guard failing; addresses of objects are each process's own."""
    logs = []
    for rank in range(3):
        log = compile_logs.metrics(begun(LogBuilder(pid=rank + 1), compile_logs.FORWARD), 0, 0)
        reason = f"0/0: ___check_type_id(x, 14043151423{rank}176)" if rank < 2 else "0/0: n == 1"
        log.artifact("recompile_reasons", orjson.dumps([reason]), **compile_logs.ids(0, 1))
        failed = {"fail_type": "X", "fail_reason": "broken"}
        logs.append(compile_logs.metrics(begun(log, compile_logs.FORWARD, number=1), 0, 1, **failed))
    trace = opened(*logs)
    assert "\n▲ Compiling forward (model.py:10) failed in 3 logs" in f"\n{findings_text(trace)}"
    titles = {found.title: found.evidence.get("logs") for found in all_findings(trace)}
    assert titles == {
        "Compiling forward (model.py:10) failed in 3 logs: X: broken": 3,
        "forward (model.py:10) was recompiled in 2 logs: the type of x changed": 2,
        "forward (model.py:10) was recompiled: the guard n == 1 failed": None,
    }


def test_code_that_went_with_its_object(opened: Opened) -> None:
    log = compile_logs.metrics(begun(LogBuilder(), compile_logs.FORWARD), 0, 0)
    reason = "0/0: Cache line invalidated because L['self'] got deallocated"
    log.artifact("recompile_reasons", orjson.dumps([reason]), **compile_logs.ids(0, 1))
    (found,) = all_findings(opened(compile_logs.metrics(begun(log, compile_logs.FORWARD, number=1), 0, 1)))
    assert found.title == "forward (model.py:10) was recompiled: self, for which the code was compiled, was freed"
    assert any("create self once" in line for line in found.proof)


def test_a_refused_compile_is_no_recompile_and_a_guard_names_its_line(opened: Opened) -> None:
    log = compile_logs.metrics(begun(LogBuilder(), compile_logs.FORWARD), 0, 0)
    for number in (1, 2):
        reason = (
            f"0/{number - 1}: {number} <= x.size()[0]  # if x.shape[0] > {number}:  # rc/model.py:3{number} in forward"
        )
        log.artifact("recompile_reasons", orjson.dumps([reason]), **compile_logs.ids(0, number))
    compile_logs.metrics(begun(log, compile_logs.FORWARD, number=1), 0, 1)
    limit = {"fail_type": "Unsupported", "fail_reason": "Dynamo recompile limit exceeded", "co_name": None}
    trace = opened(compile_logs.metrics(log, 0, 2, **limit))
    (reached,) = all_findings(trace)
    assert reached.kind == "recompile_limit"
    assert reached.title.endswith(
        " and has run uncompiled since then: the guard 2 <= x.size()[0] failed, and 1 other guard failed"
    )
    assert (reached.evidence["recompiles"], reached.evidence["reasons"]) == (1, ["1 <= x.size()[0]"])
    assert reached.source is not None
    assert (reached.source.file, reached.source.line) == ("/src/model.py", 31)
    assert reached.source.code == "if x.shape[0] > 1:"
    page = Client(trace).get("/recompiles.json").json()["recompiles"]
    assert (page["total_recompiles"], page["frames"][0]["recompiles"], len(page["frames"][0]["rows"])) == (1, 1, 2)


def test_logs_beside_one_are_tables_of_their_own(tmp_path: Path) -> None:
    """What one process calls a string is no other's."""
    for name, text in (("a", "<string>"), ("b", "/src/model.py"), ("child", "/src/other.py")):
        LogBuilder().torch("str", [text, 1]).write(tmp_path / f"{name}.log")
    tables = StringsBeside(str(tmp_path / "child.log")).tables(None)
    assert [table[1] for table in tables if 1 in table] == ["<string>", "/src/model.py"]


REFUSED = CompileError("LoweringException", "NotImplementedError: planted\n  target: aten.relu.default")
BY_METRICS = {"fail_type": REFUSED.type, "fail_reason": f"{REFUSED.text}\n", "duration_us": 7}


@pytest.mark.parametrize(
    ("metrics", "failures"),
    [
        ([], 1),
        ([BY_METRICS], 1),
        ([BY_METRICS, {"duration_us": 5}], 1),
        ([BY_METRICS, {**BY_METRICS, "fail_type": "CppCompileError", "fail_reason": "no compiler"}], 2),
    ],
)
def test_a_compile_without_an_id_that_failed(opened: Opened, metrics: list[dict[str, Any]], failures: int) -> None:
    """PyTorch's metrics tell of some of them; what both they and the recorder tell of has failed once."""
    log = LogBuilder().record(run()).torch("inductor_post_grad_graph", {}, b"graph").record(REFUSED)
    for one in metrics:
        log.torch("compilation_metrics", one)
    trace = opened(log)
    (row,) = list_compiles(trace)
    assert (row.compile_id, row.status, row.failure) == (
        "-",
        "failed",
        "LoweringException: NotImplementedError: planted",
    )
    found = [finding for finding in all_findings(trace) if finding.kind == "compile_failure"]
    assert len(found) == failures
    title = "Compiling a graph without a compile id failed: LoweringException: NotImplementedError: planted"
    assert found[0].title.startswith(title)
    page = Client(trace).get("/compile").text
    assert "failed" in page
    assert "NotImplementedError: planted" in page


def test_a_compile_without_an_id_that_did_not_fail(opened: Opened) -> None:
    log = LogBuilder().record(run()).torch("inductor_post_grad_graph", {}, b"graph")
    trace = opened(log.torch("compilation_metrics", {"fail_type": None, "fail_reason": None}))
    assert [(row.compile_id, row.status) for row in list_compiles(trace)] == [("-", "ok")]


@pytest.mark.parametrize(
    ("frame", "name"),
    [
        ("torch_dynamo_resume_in_forward_at_12 (model.py:12)", "the rest of forward after line 12 (model.py:12)"),
        ("torch_dynamo_resume_in_f_at_3", "the rest of f after line 3"),
        ("forward (model.py:10)", "forward (model.py:10)"),
    ],
)
def test_the_rest_of_a_function_has_the_name_of_the_function(frame: str, name: str) -> None:
    assert resumed_name(frame) == name
