"""What the script of a launch that did not return says where it raises."""

from __future__ import annotations

from typing import Any

import pytest

from stepscope.viewer.repro.script import program

ILLEGAL = "an illegal memory access was encountered"


class AcceleratorError(RuntimeError): ...


@pytest.mark.parametrize(
    ("died_of", "error", "is_same"),
    [
        (None, ValueError(), True),
        (f"CUDA error: {ILLEGAL}", RuntimeError(f"Triton Error [CUDA]: {ILLEGAL}"), True),
        (f"CUDA_ERROR_ILLEGAL_ADDRESS ({ILLEGAL})", AcceleratorError(f"CUDA error: {ILLEGAL}\nmore"), True),
        (f"CUDA error: {ILLEGAL}", AcceleratorError("CUDA error: out of memory"), False),
        ("torch.AcceleratorError: x", AcceleratorError("y"), True),
        ("ValueError", ValueError(), True),
        ("RuntimeError: index out of bounds", ImportError("no compiler"), False),
        ("SIGSEGV", RuntimeError("a kernel that cannot be compiled"), False),
    ],
)
def test_it_fails_the_same_way_only_where_the_program_died_so(
    died_of: str | None, error: Exception, is_same: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")  # which the script imports
    script: dict[str, Any] = {"__name__": "repro", "SPEC": {"died_of": died_of, "did_not_return": True}}
    exec(compile(program(), "reproducer.py", "exec", dont_inherit=True), script)
    assert script["failed"](error) == (0 if is_same else 1)
    said = capsys.readouterr().out
    assert ("fails the same way" in said) == is_same
    assert is_same or str(died_of) in said
    script["SPEC"]["did_not_return"] = False
    assert script["failed"](error) == 1
