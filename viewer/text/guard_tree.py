"""Parses the tree that PyTorch prints of guards, and single lines of guard code."""

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
"""Deeper nodes are shown at this level."""
_PLACE = re.compile(r"(?P<file>\S.*?):(?P<line>\d{1,9}) in (?P<function>.*)")

NodeKind = Literal["root", "manager", "key", "value", "pair", "guard"]


@dataclass(frozen=True)
class GuardNode:
    """A manager, which stands for a value of the program, or a guard, which checks it."""

    kind: NodeKind
    name: str
    """``TENSOR_MATCH``, ``DictGuardManager``."""
    line: int
    """In the text of the tree, counted from 1."""
    source: str = ""
    """Of a manager: the expression, ``L['x']``."""
    accessed_by: str = ""
    type: str = ""
    code: str = ""
    """Of a guard: what must be true."""
    user_code: str = ""
    """The line of the program for which the guard was made, and where it is."""
    place: str = ""
    """``model.py:12 in forward``, as PyTorch shortens it."""
    children: list[GuardNode] = field(default_factory=list)


@dataclass(frozen=True)
class GuardTree:
    roots: list[GuardNode]
    guards: int
    latency: str | None = None
    """What one check of all guards takes, as PyTorch measured it."""
    loose: list[str] = field(default_factory=list)
    """Lines that are no part of the tree."""

    def walk(self) -> Iterator[GuardNode]:
        """All nodes, each before what is below it."""
        waiting = self.roots[::-1]
        while waiting:
            node = waiting.pop()
            yield node
            waiting += node.children[::-1]


def guard_tree(text: str) -> GuardTree:
    """The tree of a `dynamo_cpp_guards_str`. Whatever is no line of a tree is kept in `loose`; nothing is raised."""
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
    """Source, way of access and type of a manager; found without a pattern, which hostile lines would keep busy."""
    text = text.rpartition(", tag_safe=(")[0] or text
    before, mark, kind = text.rpartition(", type=<")
    if mark:
        text = before
    source, _, accessed_by = text.partition(", accessed_by=")
    return source, accessed_by, f"<{kind}" if mark else ""


@dataclass(frozen=True)
class GuardCode:
    """A line of verbose guard code, taken apart."""

    code: str
    user_code: str
    place: str


def split_guard(text: str) -> GuardCode:
    """``L['n'] == 2   # y = x * n  # model.py:6 in f``: the check, the line of the program and its place."""
    code, *comments = text.split("  # ")
    comments = [comment.strip() for comment in comments]
    place = next((comment for comment in comments[::-1] if _PLACE.fullmatch(comment)), "")
    user_code = next((comment for comment in comments if comment != place), "")
    return GuardCode(code.rstrip(), user_code, place)
