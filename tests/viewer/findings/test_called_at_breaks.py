"""What Dynamo does in functions of libraries because of a graph break is told with that break, and not once more."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stepscope.viewer.compiles.queries.events import is_own
from stepscope.viewer.findings import all_findings
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.store.open import open_trace
from stepscope.viewer.store.trace import Trace
from tests.logs.rank_logs import write
from tests.logs.synthetic import LogBuilder

Open = Callable[[LogBuilder | bytes], Trace]
LIBRARY = "/usr/lib/python3.11/logging/__init__.py"
TORCH = "/env/lib/python3.11/site-packages/torch/_dynamo/external_utils.py"
FILES = {"/src/train.py": 7, "/src/model.py": 8, LIBRARY: 9}
Line = tuple[str, int, str]
TRAIN, MODEL, CALL = ("/src/train.py", 20, "main"), ("/src/model.py", 10, "forward"), ("/src/model.py", 12, "forward")


STEP_OF_OPTIMIZER = (
    "Attempted to call function marked as skipped\n  Explanation: Dynamo developers have intentionally marked that the "
    "function `Adam.step` in file `/env/lib/python3.11/site-packages/torch/optim/lr_scheduler.py` should not be traced."
)


def broken(
    log: LogBuilder,
    frame: int,
    number: int,
    stack: list[Line],
    line: Line,
    again: str | None = None,
    ms: int = 1,
    why: str | None = None,
) -> None:
    """Add a compile of the last function of a stack, in which the graph breaks at a line, after a guard failed."""
    ids: Any = {"frame_id": frame, "frame_compile_id": number, "attempt": 0}
    frames = [{"line": at, "name": name, "filename": {**FILES, TORCH: 10}[file], "loc": ""} for file, at, name in stack]
    log.torch("dynamo_start", {"stack": frames}, **ids)
    file, at, name = line
    reason = (
        f'{why or f"Call of {name}"}\n\nUser code traceback:\n  File "{file}", line {at}, in {name}\n    call()\n\n'
    )
    log.artifact("dynamo_graph_break_reason", reason.encode(), "string", **ids)
    if again:
        log.artifact("recompile_reasons", f"{frame}/{number - 1}: {again}".encode(), **ids)
    metrics = {
        "co_name": stack[-1][2], "co_filename": stack[-1][0], "co_firstlineno": stack[-1][1], "fail_type": None,
        "fail_reason": None, "restart_reasons": [], "has_guarded_code": True, "duration_us": 1000 * ms,
    }  # fmt: skip
    log.torch("compilation_metrics", metrics, **ids)


def program(*called: tuple[list[Line], Line]) -> LogBuilder:
    """A model that breaks at its line 12, and then functions of a library, each with its stack and the break in it."""
    log = LogBuilder()
    for file, number in FILES.items():
        log.torch("str", [file, number])
    broken(log, 0, 0, [TRAIN, MODEL], CALL)
    for frame, (stack, line) in enumerate(called, 1):
        broken(log, frame, 0, stack, line)
    return log


def found(trace: Trace) -> list[Finding]:
    return [one for one in all_findings(trace) if one.kind in ("graph_break", "recompile", "recompile_limit")]


INFO, EMIT = (LIBRARY, 100, "info"), (LIBRARY, 200, "emit")


def test_functions_that_are_called_at_the_line_of_a_break_are_told_with_it(opened: Open) -> None:
    """The stack of the first lacks its caller, as PyTorch's do."""
    log = program(([TRAIN, INFO], (LIBRARY, 101, "info")), ([TRAIN, CALL, EMIT], (LIBRARY, 201, "emit")))
    broken(log, 2, 1, [TRAIN, CALL, EMIT], (LIBRARY, 201, "emit"), "now == 1.5")
    (finding,) = found(opened(log))
    assert finding.title == "Graph break in forward (model.py:10): Call of forward"
    assert finding.proof[0].endswith(
        " libraries that run during this call: info (__init__.py:100) and emit (__init__.py:200)."
    )


@pytest.mark.parametrize(("again", "count"), [(None, 0), ("now == 1.5", 1)])
def test_the_break_before_the_step_of_an_optimizer_is_usual(opened: Open, again: str | None, count: int) -> None:
    log = program()
    broken(log, 1, 0, [TRAIN], TRAIN, why=STEP_OF_OPTIMIZER)
    broken(log, 2, 0, [TRAIN, INFO], (LIBRARY, 101, "info"), again)
    assert len([one for one in found(opened(log)) if "skipped" in one.title]) == count


@pytest.mark.parametrize(("name", "count"), [("Adam", 0), ("LBFGS", 1), ("SparseAdam", 1)])
def test_the_step_of_an_optimizer_that_is_never_compiled_is_told(opened: Open, name: str, count: int) -> None:
    log = program()
    broken(log, 1, 0, [TRAIN], TRAIN, why=STEP_OF_OPTIMIZER.replace("Adam", name))
    assert len([one for one in found(opened(log)) if "skipped" in one.title]) == count


def test_a_library_function_that_is_told_at_the_line_where_it_is_called(opened: Open) -> None:
    """As the wrapper of an optimizer's step, of whose own lines the traceback has none."""
    (finding,) = found(opened(program(([TRAIN, EMIT], (*CALL[:2], "emit")))))
    assert finding.title == "Graph break in forward (model.py:10): Call of forward"
    assert finding.proof[0].endswith(" that run during this call: emit (__init__.py:200).")


@pytest.mark.parametrize(("ms", "severity"), [(900, "info"), (1100, "warning")])
def test_recompiles_of_functions_that_are_called_there_can_cost_much(opened: Open, ms: int, severity: str) -> None:
    log = program(([TRAIN, CALL, EMIT], (LIBRARY, 201, "emit")))
    broken(log, 1, 1, [TRAIN, CALL, EMIT], (LIBRARY, 201, "emit"), "now == 1.5", ms)
    (finding,) = found(opened(log))
    assert finding.severity == severity
    assert finding.proof[1].startswith("The recompile of emit, which the program calls there, took ")


REST = ("/src/model.py", 12, "torch_dynamo_resume_in_forward_at_12")
FREED = "Cache line invalidated because L['___stack0'] got deallocated"


def resumed(*reasons: str) -> LogBuilder:
    """The rest of the function after its break, compiled again for each reason."""
    log = program()
    for number, reason in enumerate(["", *reasons]):
        broken(log, 1, number, [TRAIN, REST], ("/src/model.py", 14, "forward"), reason)
    return log


def test_recompiles_for_an_object_that_is_held_at_a_break_are_told_with_the_break(opened: Open) -> None:
    first, second = found(opened(resumed(FREED, FREED)))
    assert {first.kind, second.kind} == {"graph_break"}
    assert first.proof[0].startswith("The 2 recompiles of the code after the break took ")
    assert first.proof[0].endswith(": this code is compiled for an object that each call makes before the break.")
    assert not second.proof


def test_recompiles_after_a_break_for_another_reason_have_a_finding_of_their_own(opened: Open) -> None:
    kinds = [one.kind for one in found(opened(resumed(FREED, "x > 0.5")))]
    assert sorted(kinds) == ["graph_break", "graph_break", "recompile"]


def test_an_object_that_is_held_at_a_break_is_told_in_words(opened: Open) -> None:
    (finding,) = [one for one in found(opened(resumed(FREED, FREED, "x > 0.5"))) if one.kind == "recompile"]
    told = "an object that is made before the graph break, and for which the code was compiled, was freed"
    assert finding.title.endswith(f": {told}, and 1 other guard failed")
    assert "Each call makes this object anew, as it does a bound method: avoid the graph break." in finding.proof


def test_library_functions_that_are_called_elsewhere_have_findings_of_their_own(opened: Open) -> None:
    other = ("/src/train.py", 30, "evaluate")
    _, finding = found(opened(program(([other, ("/src/train.py", 31, "log"), EMIT], (LIBRARY, 201, "emit")))))
    assert finding.title.startswith("Graph break in emit (__init__.py:200), called at train.py:31")


def test_a_break_in_code_of_pytorch_is_said_to_be_none_of_the_program(opened: Open) -> None:
    log = LogBuilder()
    for file, number in [*FILES.items(), (TORCH, 10)]:
        log.torch("str", [file, number])
    broken(log, 0, 0, [TRAIN, (TORCH, 40, "inner")], (*TRAIN[:2], "main"))
    broken(log, 1, 0, [TRAIN, MODEL], CALL)
    of_torch, of_program = found(opened(log))
    assert of_torch.title.startswith("Graph break in inner (external_utils.py:40), called at train.py:20: ")
    assert any(said.startswith("The break is in PyTorch's own code") for said in of_torch.proof)
    assert not any(said.startswith("The break is in PyTorch's own code") for said in of_program.proof)
    assert of_torch.severity == of_program.severity == "info"


def test_a_break_of_several_ranks_is_told_of_none_of_them(tmp_path: Path) -> None:
    with open_trace(write(tmp_path, {rank: program() for rank in (0, 1)})) as trace:
        (finding,) = found(trace)
    assert finding.title == "Graph break in forward (model.py:10) in 2 logs: Call of forward"
    assert (finding.rank, finding.log, finding.evidence["logs"]) == (None, None, 2)


def test_functions_of_the_program_have_findings_of_their_own(opened: Open) -> None:
    helper = ("/src/model.py", 50, "helper")
    assert len(found(opened(program(([TRAIN, CALL, helper], ("/src/model.py", 51, "helper")))))) == 2


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("/home/me/project/model.py", True), ("/home/me/lib/model.py", True), (LIBRARY, False),
        ("/opt/lib64/python3.14t/contextlib.py", False), ("/x/lib/python3.11/site-packages/timm/layers.py", False),
        (r"C:\Python312\Lib\contextlib.py", False), (r"C:\Users\me\Lib\model.py", True),
        ("<frozen importlib._bootstrap>", False), ("<string>", True),
    ],
)  # fmt: skip
def test_files_of_the_program(file: str, expected: bool) -> None:
    assert is_own(file) is expected
