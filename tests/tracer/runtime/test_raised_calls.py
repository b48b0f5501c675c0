"""Exceptions that leave nested calls of generated code are recorded once, and none is taken for another one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch  # noqa: F401  # its frames are left out

from stepscope.tracer.inductor import code_swap
from stepscope.tracer.runtime.raised_calls import CALL, RaisedCalls
from stepscope.tracer.schema.raised_calls import RaisedCall


def function(name: str, body: str, number: int, told: RaisedCalls, **names: Any) -> Any:
    """Return a function as the recorder changes them, whose hooks only tell what it raises."""
    call = SimpleNamespace(graph=number, number=number, step=0, rows=[], look=None, read=None, mark=None,
                           see_storages=None, flag=None, due=None)  # fmt: skip
    text = code_swap.FRAME.format(function=0, plan=0, names="").strip()
    text = text.replace('"stepscope hooks"', "hooks").replace("    _ss_due = _ss_call.due", f"    {body}")
    hooks = SimpleNamespace(begin=lambda *_: call, raised=told.add, end=lambda _: None)
    scope = {"hooks": hooks, **names}
    exec(f"def {name}(catches=False):\n" + "\n".join(f"    {line}" for line in text.splitlines()), scope)
    return scope[name]


def raised(catches: bool) -> list[RaisedCall]:
    found: list[Any] = []
    told = RaisedCalls(found.append)
    inner = function("inner", "raise KeyError('first')", 1, told)

    def custom_operator(catches: bool) -> None:
        try:
            inner()
        except KeyError:
            if not catches:
                raise
        raise ValueError("second")

    outer = function("outer", "custom_operator(catches)", 0, told, custom_operator=custom_operator)
    with pytest.raises(ValueError if catches else KeyError, match="second" if catches else "first"):
        outer(catches)
    return found


def test_an_exception_that_leaves_two_calls_is_recorded_once() -> None:
    assert CALL in code_swap.FRAME
    assert [(one.call, one.type) for one in raised(catches=False)] == [(1, "KeyError")]


def test_another_exception_of_the_caller_is_recorded_too() -> None:
    assert [(one.call, one.type) for one in raised(catches=True)] == [(1, "KeyError"), (0, "ValueError")]
