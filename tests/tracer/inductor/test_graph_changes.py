"""What passes changed in a graph, and the lines of the program that it comes from."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.fx import Graph, GraphModule, Node

from stepscope.tracer.inductor.captured_graph import copied
from stepscope.tracer.inductor.graph_changes import change_of, changed_lines

aten = torch.ops.aten


def graph() -> GraphModule:
    made = Graph()
    x = made.placeholder("x")
    kept = node(made, aten.clone.default, (x,), 1)
    root = node(made, aten.sqrt.default, (kept,), 2)
    less = node(made, aten.sub.Tensor, (root, x), 3)
    made.output((node(made, aten.tanh.default, (less,), 4),))
    return GraphModule(torch.nn.Module(), made)


def node(made: Graph, target: Callable[..., object], args: tuple[Node, ...], line: int) -> Node:
    created = made.call_function(target, args)
    created.meta["stack_trace"] = f'  File "model.py", line {line}, in forward\n    line {line}\n'
    return created


def named(module: GraphModule, name: str) -> Node:
    found: Node = next(one for one in module.graph.nodes if one.name == name)
    return found


def lines(before: GraphModule, after: GraphModule) -> list[int]:
    return [frame.line for frame in change_of(before, after).frames]


def test_a_node_that_computes_something_else_comes_first() -> None:
    before = graph()
    after = copied(before)
    clone, sub = named(after, "clone_default"), named(after, "sub_tensor")
    clone.replace_all_uses_with(clone.all_input_nodes[0])
    after.graph.erase_node(clone)
    sub.args = sub.args[::-1]
    assert lines(before, after) == [3, 1]
    assert [line[:5] for line in change_of(before, after).nodes] == ["-%sub", "+%sub"]
    assert [line[:2] for line in changed_lines(before, after) if line[:2] in ("-%", "+%")].count("-%") == 3


def test_a_clone_that_is_gone_is_no_change_of_what_reads_it() -> None:
    before = graph()
    after = copied(before)
    clone = named(after, "clone_default")
    clone.replace_all_uses_with(clone.all_input_nodes[0])
    after.graph.erase_node(clone)
    assert lines(before, after) == [1]


def test_how_often_a_node_is_used_is_no_change() -> None:
    before = graph()
    after = copied(before)
    with after.graph.inserting_before(named(after, "tanh_default")):
        after.graph.call_function(aten.abs.default, (named(after, "sqrt_default"),))
    changed = [line for line in changed_lines(before, after) if line[:2] in ("-%", "+%")]
    assert [line.partition(" = ")[0] for line in changed] == ["+%abs_default"]
    assert lines(before, after) == []


def test_a_graph_that_no_pass_changed_is_shown_itself() -> None:
    before = graph()
    assert changed_lines(before, copied(before))[0] == "%x = placeholder[target=x]"
    assert changed_lines(None, before)[0] == "%x = placeholder[target=x]"


def test_what_only_reads_another_value_comes_behind_what_is_gone() -> None:
    before = graph()
    after = copied(before)
    root = named(after, "sqrt_default")
    with after.graph.inserting_before(root):
        other = after.graph.call_function(aten.rsqrt.default, root.args)
    root.replace_all_uses_with(other)
    after.graph.erase_node(root)
    assert lines(before, after) == [2, 3]
    signs = [line.partition(" = ")[0] for line in change_of(before, after).nodes]
    assert signs == ["-%sqrt_default", "+%rsqrt_default"]
