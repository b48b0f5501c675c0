"""Parses PyTorch's printed tree of guards, and single lines of guard code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

_NODE = re.compile(r"((?:\|[ ])*)\+- (.*)")
_MANAGER = re.compile(r"(?:(KeyManager|ValueManager): )?(\w*GuardManager)(?:: source=(.*))?")
_PAIR = re.compile(r"KeyValueManager pair at index=(\d+)")
_LEAF = re.compile(r"(\w+)(?:: (.*))?")
MOST_LEVELS = 60
"""Maximum depth; deeper nodes are shown at this level."""
_PLACE = re.compile(r"(?P<file>\S.*?):(?P<line>\d{1,9}) in (?P<function>.*)")

NodeKind = Literal["root", "manager", "key", "value", "pair", "guard"]


@dataclass(frozen=True)
class GuardNode:
    """A manager, which represents a value of the program, or a guard, which checks one."""

    kind: NodeKind
    name: str
    """Class, such as ``TENSOR_MATCH`` or ``DictGuardManager``."""
    line: int
    """Line in the text of the tree, from 1."""
    source: str = ""
    """Expression of a manager, such as ``L['x']``."""
    accessed_by: str = ""
    type: str = ""
    code: str = ""
    """Condition of a guard."""
    user_code: str = ""
    """Line of the program that caused the guard."""
    place: str = ""
    """Position of that line as PyTorch shortens it: ``model.py:12 in forward``."""
    children: list[GuardNode] = field(default_factory=list)


@dataclass(frozen=True)
class GuardTree:
    roots: list[GuardNode]
    guards: int
    latency: str | None = None
    """Time that one check of all guards takes, as PyTorch measured it."""
    loose: list[str] = field(default_factory=list)
    """Lines that do not belong to the tree."""

    def walk(self) -> Iterator[GuardNode]:
        """Yield all nodes, each before its children."""
        waiting = self.roots[::-1]
        while waiting:
            node = waiting.pop()
            yield node
            waiting += node.children[::-1]


def guard_tree(text: str) -> GuardTree:
    """Parse a `dynamo_cpp_guards_str`. Lines that do not belong to a tree are kept in `loose`; nothing is raised."""
    roots: list[GuardNode] = []
    above: list[list[GuardNode]] = [roots]
    guards, latency, loose = 0, None, []
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), 1):
        match = _NODE.fullmatch(line)
        if match is None:
            if line.startswith("Guard latency = "):
                latency = line.removeprefix("Guard latency = ")
            elif line.strip() and line != "TREE_GUARD_MANAGER:":
                loose.append(line)
            continue
        node = _node(match[2], number)
        guards += node.kind == "guard"
        depth = min(len(match[1]) // 2, len(above) - 1, MOST_LEVELS - 1)
        del above[depth + 1 :]
        above[depth].append(node)
        above.append(node.children)
    return GuardTree(roots, guards, latency, loose)


def _node(text: str, line: int) -> GuardNode:
    pair = _PAIR.fullmatch(text)
    if pair:
        return GuardNode("pair", "KeyValueManager", line, source=f"item {pair[1]}")
    manager = _MANAGER.fullmatch(text)
    if manager:
        prefix, name, rest = manager.groups()
        kind: NodeKind = "key" if prefix == "KeyManager" else "value" if prefix else "manager"
        if name == "RootGuardManager":
            kind = "root"
        return GuardNode(kind, name, line, *_manager(rest or ""))
    leaf = _LEAF.fullmatch(text)
    name, rest = (leaf[1], leaf[2] or "") if leaf else ("", text)
    guard = split_guard(rest)
    return GuardNode("guard", name, line, code=guard.code, user_code=guard.user_code, place=guard.place)


def _manager(text: str) -> tuple[str, str, str]:
    """Return source, way of access and type of a manager, without a pattern, which hostile lines could make slow."""
    text = text.rpartition(", tag_safe=(")[0] or text
    before, mark, kind = text.rpartition(", type=<")
    if mark:
        text = before
    source, _, accessed_by = text.partition(", accessed_by=")
    return source, accessed_by, f"<{kind}" if mark else ""


@dataclass(frozen=True)
class GuardCode:
    """The parts of a line of verbose guard code."""

    code: str
    user_code: str
    place: str


def split_guard(text: str) -> GuardCode:
    """Split ``L['n'] == 2   # y = x * n  # model.py:6 in f`` into check, line of the program and its position."""
    code, *comments = text.split("  # ")
    comments = [comment.strip() for comment in comments]
    place = next((comment for comment in comments[::-1] if _PLACE.fullmatch(comment)), "")
    user_code = next((comment for comment in comments if comment != place), "")
    return GuardCode(code.rstrip(), user_code, place)
