"""The lines from which the program calls its graphs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from stepscope.tracer.runtime.call_sites import MOST_BETWEEN, MOST_CALLS, CallSites
from stepscope.tracer.schema.steps import CallSite

INSTALLED = "/env/lib/python3.11/site-packages/torch/_dynamo/eval_frame.py"
GENERATED = "/tmp/torchinductor_me/ab/cab.py"


def function(file: str, body: str, **names: Any) -> Callable[[], None]:
    scope: dict[str, Any] = dict(names)
    exec(compile(f"def run():\n    {body}\n", file, "exec"), scope)
    run: Callable[[], None] = scope["run"]
    return run


def program(file: str, call: Callable[[], None]) -> Callable[[], None]:
    """Return a function of `file`, whose line 2 calls the compiled code of another function of the program."""
    compiled = function("/src/model.py", "__compiled_fn_3()", __compiled_fn_3=call)
    wrapper = function(INSTALLED, "inner()", inner=compiled)
    return function(file, "wrapper()", wrapper=wrapper)


def generated(sites: CallSites, graph: int) -> Callable[[], None]:
    """Return a graph of two functions in one file."""
    inner = function(GENERATED, "look(graph, frame())", look=sites.look, graph=graph, frame=lambda: sys._getframe(1))
    return function(GENERATED, "inner()", inner=inner)


def test_a_call_is_at_the_line_of_the_program_that_makes_it_and_is_told_once() -> None:
    found: list[CallSite] = []
    call = generated(CallSites(found.append), 7)
    for file in ("/src/train.py", "/src/evaluate.py", "/src/train.py"):
        program(file, call)()
    assert [(one.graph, one.file, one.line, one.function) for one in found] == [
        (7, "/src/train.py", 2, "run"),
        (7, "/src/evaluate.py", 2, "run"),
    ]


@pytest.mark.parametrize(("lines", "between"), [(2, ["    x.data.fill_(0)", ""]), (0, []), (MOST_BETWEEN + 1, [])])
def test_the_lines_between_two_calls_of_a_function(tmp_path: Path, lines: int, between: list[str]) -> None:
    found: list[CallSite] = []
    sites = CallSites(found.append)
    file = tmp_path / "train.py"
    body = ["    x.data.fill_(0)", *[""] * (lines - 1)][:lines]
    file.write_text("\n".join(["def run():", "    forward()", *body, "    backward()"]) + "\n")
    scope: dict[str, Any] = {"forward": generated(sites, 0), "backward": generated(sites, 1), "x": torch.ones(1)}
    exec(compile(file.read_text(), str(file), "exec"), scope)
    scope["run"]()
    forward, backward = found
    assert (forward.line, forward.lines_between, backward.line) == (2, [], 3 + lines)
    assert (backward.after_line, backward.lines_between) == (2 if between else None, between)


def test_only_the_first_calls_of_a_graph_are_looked_up() -> None:
    found: list[CallSite] = []
    call = generated(CallSites(found.append), 7)
    for _ in range(MOST_CALLS):
        program("/src/train.py", call)()
    program("/src/evaluate.py", call)()
    assert [one.file for one in found] == ["/src/train.py"]
