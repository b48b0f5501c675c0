"""What compute-sanitizer found, and what a process died of under it."""

from __future__ import annotations

from stepscope.viewer.crash.queries.process_ends import ExceptionRow, ProcessEndRow, symptom
from stepscope.viewer.overview.rows import ToolErrorRow

WRITE = ToolErrorRow("Invalid __global__ write of size 4 bytes", "add_one", "kernel.py", 22, "thread (0,0,0)", [], 2)
ILLEGAL = ExceptionRow(0, None, "torch.AcceleratorError", "CUDA error: an illegal memory access was encountered\nx", [])
STOPPED = ExceptionRow(0, None, "torch.AcceleratorError", "CUDA error: unspecified launch failure\nx", [])


def end(*errors: ToolErrorRow, signal: int | None = None) -> ProcessEndRow:
    tool = ["compute-sanitizer"] if errors else []
    return ProcessEndRow(0, 7, None, signal, False, 1, None, 1, "as it is", {}, "launches", [], tool, list(errors))


def test_an_access_that_the_tool_stopped_is_the_same_symptom() -> None:
    assert symptom(end(WRITE), STOPPED) == symptom(end(), ILLEGAL)
    assert symptom(end(), STOPPED) != symptom(end(), ILLEGAL)
    value_error = ExceptionRow(0, None, "ValueError", "x", [])
    assert symptom(end(WRITE), value_error) == symptom(end(), value_error)


def test_an_abort_behind_an_exception_is_of_the_shutdown() -> None:
    assert symptom(end(signal=6), ILLEGAL) == symptom(end(), ILLEGAL)
    assert symptom(end(signal=6), None) == "SIGABRT"


def test_an_error_in_one_line() -> None:
    assert WRITE.title == "Invalid __global__ write of size 4 bytes in add_one (kernel.py:22), thread (0,0,0), 2 times"
    assert ToolErrorRow("Unknown", None, None, None, None, [], 1).title == "Unknown"
