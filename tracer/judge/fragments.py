"""Finds the part of the FX graph that a launch computes: from the values it writes back to the buffers it read.

The search stops at every value that is available, so a kernel that computes something again from good inputs is
compared with exactly that. The steps are in order of execution, and are the same for each call of the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from stepscope.tracer.judge.record import nodes_in
from stepscope.tracer.judge.stored import StoredValues, Value, written_nodes
from stepscope.tracer.judge.targets import (
    DRAWS,
    CannotJudge,
    calls_with_what_shares,
    draws_random_numbers,
    function_of,
)

StepKind = Literal["leaf", "number", "constant", "call", "same", "view", "mutation"]
MOST_STEPS = 400


@dataclass(frozen=True)
class Step:
    """The computation of one value from others."""

    value: Value
    kind: StepKind
    needs: dict[str, Value] = field(default_factory=dict)
    """The values that it uses, by the node's name in the arguments."""


@dataclass
class Fragment:
    steps: list[Step] = field(default_factory=list)
    targets: tuple[Value, ...] = ()
    last_use: dict[Value, int] = field(default_factory=dict)
    """Position of the last step that uses a value; targets are not in it."""

    def nodes(self) -> list[str]:
        """Return the names of the nodes that the fragment computes."""
        return [step.value.node for step in self.steps if step.kind not in ("leaf", "number", "constant")]

    def leaves(self) -> list[Value]:
        return [step.value for step in self.steps if step.kind == "leaf"]


def fragment_of(stored: StoredValues, targets: Iterable[Value], is_available: Callable[[Value], bool]) -> Fragment:
    """Return the steps that compute `targets`. Raises CannotJudge if a value is needed that cannot be had."""
    result = Fragment(targets=tuple(targets))
    done: set[Value] = set()
    for target in result.targets:
        for step in _steps(stored, target, is_available, done):
            result.steps.append(step)
            if len(result.steps) > MOST_STEPS:
                raise CannotJudge(f"it follows from more than {MOST_STEPS} operations on what is known")
    for position, step in enumerate(result.steps):
        for value in step.needs.values():
            result.last_use[value] = position
    for target in result.targets:
        result.last_use.pop(target, None)
    return result


def _steps(
    stored: StoredValues, target: Value, is_available: Callable[[Value], bool], done: set[Value]
) -> Iterator[Step]:
    """Yield the steps of one value in order, without those that are done. An explicit stack allows any depth."""
    waiting: list[tuple[Value, Step | None]] = [(target, None)]
    while waiting:
        value, step = waiting.pop()
        if value in done:
            continue
        if step is None:
            step = _step(stored, value, is_available)
            waiting.append((value, step))
            waiting += [(one, None) for one in step.needs.values() if one not in done]
        else:
            done.add(value)
            yield step


def _step(stored: StoredValues, value: Value, is_available: Callable[[Value], bool]) -> Step:
    node = stored.nodes[value.node]
    if is_available(value):
        return Step(value, "leaf")
    if node.name in stored.record.symbols:
        return Step(value, "number")
    if node.kind == "constant" and node.target in stored.record.constants:
        return Step(value, "constant")
    if node.name not in stored.parent and value.mutations > 0:
        return _mutation(stored, value)
    if node.kind != "call":
        raise CannotJudge(f"the launch did not read {node.name}, which it follows from")
    parent = stored.parent.get(node.name)
    if parent is not None and (written_nodes(node) or node.target.startswith("function:")):
        return Step(value, "same", {parent: Value(parent, value.mutations)})
    if draws_random_numbers(node.target, node.args, node.kwargs) or node.target.startswith("op:prims.inductor_seed"):
        raise CannotJudge(f"{node.target.removeprefix('op:')} {DRAWS}")
    function_of(node.target)
    needs = _needs(stored, node.name)
    if parent is not None:
        needs[parent] = Value(parent, value.mutations)
    return Step(value, "view" if parent is not None else "call", needs)


def _mutation(stored: StoredValues, value: Value) -> Step:
    """Return the step that applies a mutating operator to a copy of what it mutates."""
    mutator = stored.mutators[value.node][value.mutations - 1]
    node = stored.nodes[mutator]
    if draws_random_numbers(node.target, node.args, node.kwargs):
        raise CannotJudge(f"{node.target.removeprefix('op:')} {DRAWS}")
    function_of(node.target)
    needs = _needs(stored, mutator)
    remade = list(written_nodes(node))
    if calls_with_what_shares(node.target):
        roots = {stored.root(name) for name in remade}
        remade += [name for name in needs if name not in remade and stored.root(name) in roots]
    for name in remade:
        root = stored.root(name)
        needs[root] = Value(root, stored.state_at(root, mutator))
        while name != root:  # the arguments of the views are used to make them anew
            needs |= {n: v for n, v in _needs(stored, name).items() if n != stored.parent[name]}
            name = stored.parent[name]
    return Step(value, "mutation", needs)


def _needs(stored: StoredValues, user: str) -> dict[str, Value]:
    node = stored.nodes[user]
    names = (*nodes_in(node.args), *nodes_in(node.kwargs))
    return {name: Value(name, stored.state_at(name, user)) for name in names}


def text_of(stored: StoredValues, fragment: Fragment) -> list[str]:
    """Return the fragment as lines, one per node: ``add_1 = aten.add.Tensor(mul, arg0_1)``."""
    lines = []
    for step in fragment.steps:
        node = stored.nodes[step.value.node]
        if step.kind == "mutation":
            node = stored.nodes[stored.mutators[node.name][step.value.mutations - 1]]
        elif step.kind in ("leaf", "number", "constant"):
            continue
        lines.append(f"{node.name} = {node.target.partition(':')[2]}({', '.join(_shown(node.args, node.kwargs))})")
    return lines


def _shown(args: object, kwargs: object) -> Iterator[str]:
    found = _text(args)
    if found not in ("()", "[]"):
        yield found[1:-1]
    if isinstance(kwargs, dict):
        for name, value in kwargs.get("dict", {}).items():
            yield f"{name}={_text(value)}"


def _text(value: object) -> str:
    if isinstance(value, dict):
        ((kind, inner),) = value.items()
        if kind in ("list", "tuple"):
            members = ", ".join(map(_text, inner))
            return f"[{members}]" if kind == "list" else f"({members})"
        if kind == "dict":
            return "{" + ", ".join(f"{name}: {_text(one)}" for name, one in inner.items()) + "}"
        if kind == "float":
            return repr(float.fromhex(inner))
        return str(inner)
    return repr(value)
