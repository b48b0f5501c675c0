"""Which lines of this run a graph out of a cache is of."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

from stepscope.tracer.inductor.sources.current_lines import TodaysLines
from stepscope.tracer.inductor.sources.dynamo_graphs import (
    Captured,
    CompiledLines,
    DynamoGraphs,
    Stack,
    captured,
    parse_stack,
)
from stepscope.tracer.schema.process_ends import Frame


def at(line: int, code: str, file: str = "/src/model.py", function: str = "forward") -> Stack:
    return (Frame(file, line, function, code),)


SIN, COS, OUT = "x = x.sin()", "x = x.cos()", "return x"


def graph(*stacks: Stack, shape: str = "sin cos") -> Captured:
    return Captured(shape, list(stacks), frozenset())


def kept(*stacks: Stack, shape: str = "sin cos") -> CompiledLines:
    return graph(*stacks, shape=shape).to_keep()


OLD = at(1, SIN), at(2, COS)


def test_a_line_that_has_moved_is_found_where_it_stands() -> None:
    new = at(6, SIN), at(7, COS)
    for compiled in (kept(*OLD), None, kept(*OLD, shape="another graph")):
        lines = TodaysLines(graph(*new), compiled, OLD)
        assert [lines.now(stack) for stack in OLD] == list(new)


def test_lines_of_another_program_are_those_of_this_one() -> None:
    new = at(6, SIN, "/src/b.py", "other"), at(7, COS, "/src/b.py", "other")
    for compiled in (kept(*OLD), None):
        assert [TodaysLines(graph(*new), compiled, OLD).now(stack) for stack in OLD] == list(new)


def test_a_line_that_reads_otherwise_is_found_by_its_nodes_only() -> None:
    new = at(6, "x = torch.sin(x)"), at(7, COS)
    assert TodaysLines(graph(*new), kept(*OLD), OLD).now(OLD[0]) == new[0]
    lines = TodaysLines(graph(*new), None, OLD)
    assert lines.now(OLD[0]) is None
    assert lines.now(OLD[1]) == new[1]
    assert not lines.stands(OLD[0][0])
    assert lines.stands(new[1][0])


def test_lines_that_have_changed_places_are_told_apart_by_their_nodes() -> None:
    """As of two products with weights that the graph has as inputs: it is the same graph."""
    old = at(1, "q = x @ a"), at(2, "k = x @ b")
    new = at(1, "k = x @ b"), at(2, "q = x @ a")
    lines = TodaysLines(graph(*new), kept(*old), old)
    assert [lines.now(stack) for stack in old] == list(new)


def test_lines_that_read_alike_are_taken_in_their_order_or_not_at_all() -> None:
    old = at(5, SIN), at(6, SIN), at(7, SIN)
    new = at(6, SIN), at(7, SIN), at(8, SIN)
    assert [TodaysLines(graph(*new), None, old).now(stack) for stack in old] == list(new)
    assert TodaysLines(graph(*new), None, old[:2]).now(old[1]) is None
    assert TodaysLines(graph(*new), kept(*old), old[:2]).now(old[1]) == new[1]


def test_a_line_that_has_become_two_is_not_guessed() -> None:
    old = at(1, "x = x.sin().cos()")
    new = at(1, SIN), at(2, COS)
    assert TodaysLines(graph(*new), kept(old, old), [old]).now(old) is None


def test_what_was_kept_of_another_compile_of_the_same_code_is_not_asked() -> None:
    """Its lines are others than those that the cache has."""
    new = at(6, "x = torch.sin(x)"), at(7, COS)
    lines = TodaysLines(graph(*new), kept(*new), OLD)
    assert lines.now(OLD[0]) is None
    assert lines.now(OLD[1]) == new[1]


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of this process."""
    path = tmp_path / "loaded_model.py"
    path.write_text(f"import torch\n\n{SIN}\n{COS}\n{OUT}\n{OUT}\n")
    loaded = ModuleType("loaded_model")
    loaded.__file__ = str(path)
    monkeypatch.setitem(sys.modules, "loaded_model", loaded)
    return path


def test_without_a_graph_of_dynamos_the_files_of_this_process_are_read(module: Path, tmp_path: Path) -> None:
    other = tmp_path / "other_program.py"
    other.write_text(module.read_text())
    file = str(module)
    stacks = [
        at(3, SIN, file), at(1, COS, file), at(9, OUT, file), at(3, "x = gone(x)", file), at(3, SIN, str(other)),
        at(3, SIN, str(tmp_path / "no_file.py")),
    ]  # fmt: skip
    lines = TodaysLines(None, None, stacks)
    assert [lines.now(stack) for stack in stacks] == [stacks[0], at(4, COS, file), None, None, None, None]
    assert [lines.stands(stack[0]) for stack in stacks] == [True, False, False, False, False, False]


def test_a_stack_of_no_node_is_looked_up_in_the_files(module: Path) -> None:
    """As AOTAutograd makes them; a line of another program is not taken over."""
    made_later = at(1, COS, str(module))
    lines = TodaysLines(graph(*OLD), kept(*OLD), [*OLD, made_later])
    assert lines.now(made_later) == at(4, COS, str(module))


def test_graphs_with_the_same_wiring_have_the_same_shape() -> None:
    def shape(function: object) -> str:
        return captured(torch.fx.symbolic_trace(function)).shape  # type: ignore[arg-type]

    assert shape(lambda x: torch.sin(x) + x) == shape(lambda other: torch.sin(other) + other)
    assert shape(lambda x: torch.sin(x) + x) == shape(lambda x: x.sin() + x)
    assert shape(lambda x: torch.sin(x) + x) != shape(lambda x: x.sin() + x.sin())
    assert shape(lambda x: torch.sin(x)) != shape(lambda x: torch.cos(x))


def test_a_prefix_of_a_stack_trace_is_no_frame() -> None:
    text = '  File "/a.py", line 3, in f\n    y = x.sin()\n'
    assert parse_stack(f"Gradient addition node due to multiple use of tensor around:, {text}".replace(", ", "\n", 1))
    assert parse_stack(text) == at(3, "y = x.sin()", "/a.py", "f")


def test_lines_through_which_operators_pass_with_a_default_device_are_no_frames() -> None:
    text = '  File "/a.py", line 3, in f\n    y = x.sin()\n'
    passed = '  File "/env/torch/utils/_device.py", line 122, in __torch_function__\n    return func(*args, **kwargs)\n'
    assert parse_stack(text + passed) == at(3, "y = x.sin()", "/a.py", "f")


def test_of_many_graphs_the_last_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stepscope.tracer.inductor.sources.dynamo_graphs.MOST_KEPT", 2)
    graphs, traced = DynamoGraphs(), torch.fx.symbolic_trace(torch.nn.ReLU())
    for compile_id in ("0/0", "1/0", "0/0", "2/0"):
        graphs.take(compile_id, traced)
    assert graphs.of("1/0") is None
    assert graphs.of(None) is None
    assert graphs.of("0/0") is not None
