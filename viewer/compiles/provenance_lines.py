"""Which lines of a graph's text and of generated code belong to which nodes and kernels. Pure: texts in, lines out."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from stepscope.viewer.graphs.rows import SourceLine

_CLASS = re.compile(r"\s*class \S+\(torch\.nn\.Module\):")
_NODE = re.compile(r"\s+([A-Za-z_]\w*)(?:\s*:\s*\"[^\"]*\")?\s*=\s")
_SOURCE = re.compile(r"\s*# File: (.+?):(\d{1,9}) in (.*?), code: ?(.*)")
_HANDLE = re.compile(r"\s*(?:#|//) \[Provenance debug handles\] (.+?)\s*")
_NUMBERED = re.compile(r"(.+):\d+")
_DEFINITION = re.compile(r"(\w+) = async_compile\.\w+\(")
_CPP_FUNCTION = re.compile(r"(?:extern \"C\"|static|inline|void)\s.*?\b(\w+)\s*\(")
_IDENTIFIER = re.compile(r"(?:[A-Za-z_]\w*(?:\.|::))*[A-Za-z_]\w*")
_PARTS = re.compile(r"\.|::")
_FRAGMENT_NODE = re.compile(r"\s*#\s+%(\w+) :.*? = (\w+)\[")
_FROM_SOURCE = re.compile(r"\s*#\s{2,}(\S+) => (.+)")
_FRAME = re.compile(r'^ *File "([^"\n]+)", line (\d{1,9}), in ([^\n]+)(?:\n +([^\n]+))?', re.MULTILINE)
_STATEMENT_LINES = 40
"""A statement that does not end within so many lines is taken to end there."""

Names = dict[str, list[str]]


@dataclass(frozen=True)
class GraphText:
    """The text of an FX graph, line by line."""

    line_of: dict[str, int]
    """Node -> its line."""
    source_of: dict[int, SourceLine]
    """Line of a node -> the line of the program that it came from."""


@dataclass(frozen=True)
class CodeText:
    """Generated code, line by line."""

    launches: list[tuple[str, int, int]]
    """Kernel, with its handle where the code has one (``triton_poi_fused_add_0:3``); first and last line."""
    definitions: dict[str, tuple[int, int]]
    nodes: Names
    """Kernel -> post-grad nodes, as the comment above its definition names them."""
    sources: Names
    """Post-grad node -> nodes of the graph before, by the same comments."""


@dataclass
class NodeMappings:
    """What one compile's provenance records say, whatever their age."""

    kernel_to_post: Names = field(default_factory=dict)
    post_to_pre: Names = field(default_factory=dict)


def graph_lines(text: str) -> GraphText:
    """Lines of the nodes of a printed graph; those of a subgraph count only where the graph has no such node."""
    outer: dict[str, int] = {}
    inner: dict[str, int] = {}
    sources: dict[int, SourceLine] = {}
    classes, source = 0, None
    for number, line in enumerate(text.splitlines(), 1):
        if _CLASS.match(line):
            classes += 1
            source = None
            continue
        found = _SOURCE.fullmatch(line)
        if found:
            source = SourceLine(found[1], int(found[2]), found[3], found[4])
        elif line.lstrip().startswith("#"):
            source = None
        else:
            node = _NODE.match(line)
            if node:
                (outer if classes <= 1 else inner).setdefault(node[1], number)
                if source is not None:
                    sources[number] = source
    return GraphText({**inner, **outer}, sources)


def code_lines(text: str, kernels: Iterable[str] = ()) -> CodeText:
    """Launches and definitions in a Python or C++ wrapper. `kernels`: names to look for where it has no handles."""
    lines = text.splitlines()
    definitions = dict(_definitions(lines))
    inside = {number for first, last in definitions.values() for number in range(first, last + 1)}
    launches = list(_with_handles(lines))
    if not launches:
        wanted = {base_name(name) for name in kernels} | set(definitions)
        launches = list(_by_name(lines, wanted, inside))
    nodes, sources = _comments(lines, definitions)
    return CodeText(launches, definitions, nodes, sources)


def base_name(kernel: str) -> str:
    """Without its handle."""
    found = _NUMBERED.fullmatch(kernel)
    return found[1] if found else kernel


def _definitions(lines: Sequence[str]) -> Iterator[tuple[str, tuple[int, int]]]:
    number = 0
    while number < len(lines):
        line, first = lines[number], number + 1
        python = _DEFINITION.match(line)
        if python:
            opened = line.count("'''") % 2 == 1
            while opened and number + 1 < len(lines):
                number += 1
                opened = "'''" not in lines[number]
            yield python[1], (first, number + 1)
        else:
            cpp = _CPP_FUNCTION.match(line)
            if cpp and not line.rstrip().endswith(";"):
                end = next((n for n in range(number, len(lines)) if lines[n].startswith("}") or lines[n] == ""), None)
                if end is not None and lines[end].startswith("}"):
                    yield cpp[1], (first, end + 1)
                    number = end
        number += 1


def _with_handles(lines: Sequence[str]) -> Iterator[tuple[str, int, int]]:
    for number, line in enumerate(lines):
        found = _HANDLE.fullmatch(line)
        if found:
            name = base_name(found[1]).rsplit(".", 1)[-1]
            yield found[1], number + 1, _end_of_launch(lines, number + 1, name) + 1


def _end_of_launch(lines: Sequence[str], start: int, name: str) -> int:
    """Index of the last line of the statement that names the kernel, else of the first statement."""
    first = None
    for number in range(start, min(start + _STATEMENT_LINES, len(lines))):
        line = lines[number].strip()
        if _HANDLE.fullmatch(line):
            break
        if not line or line.startswith(("#", "//")):
            continue
        first = number if first is None else first
        if name in line and any({name, f"call_{name}"} & set(_PARTS.split(one)) for one in _IDENTIFIER.findall(line)):
            return _end_of_statement(lines, number)
    return start - 1 if first is None else _end_of_statement(lines, first)


def _end_of_statement(lines: Sequence[str], start: int) -> int:
    open_brackets = 0
    for number in range(start, min(start + _STATEMENT_LINES, len(lines))):
        open_brackets += sum(lines[number].count(one) for one in "([{") - sum(lines[number].count(one) for one in ")]}")
        if open_brackets <= 0:
            return number
    return start


def _by_name(lines: Sequence[str], wanted: set[str], inside: set[int]) -> Iterator[tuple[str, int, int]]:
    """Calls of exactly these names, outside of kernels' own text."""
    called = {**{f"{name}.run": name for name in wanted}, **{f"call_{name}": name for name in wanted}}
    called.update({name: name for name in wanted})
    for index, line in enumerate(lines):
        if index + 1 in inside or "(" not in line or line.lstrip().startswith(("#", "//")):
            continue
        for token in _IDENTIFIER.finditer(line):
            name = called.get(token[0]) or called.get(token[0].rsplit("::", 1)[-1])
            if name is not None and line[token.end() :].lstrip().startswith(("(", "<<<", ",")):
                yield name, index + 1, _end_of_statement(lines, index) + 1
                break


def _comments(lines: Sequence[str], definitions: Mapping[str, tuple[int, int]]) -> tuple[Names, Names]:
    """What Inductor writes above a kernel: its graph fragment, and which nodes came from which."""
    nodes: Names = {}
    sources: defaultdict[str, list[str]] = defaultdict(list)
    for kernel, (first, _) in definitions.items():
        above = first - 2
        while above >= 0 and lines[above].startswith("#"):
            node, arrow = _FRAGMENT_NODE.match(lines[above]), _FROM_SOURCE.fullmatch(lines[above])
            if node and node[2] != "PlaceHolder" and node[2] != "placeholder":
                nodes.setdefault(kernel, []).append(node[1])
            elif arrow:
                for post in arrow[2].split(", "):
                    sources[post].append(arrow[1])
            above -= 1
    return {kernel: found[::-1] for kernel, found in nodes.items()}, {
        k: list(dict.fromkeys(v)) for k, v in sources.items()
    }


def node_mappings(value: Any) -> NodeMappings:
    """`inductor_provenance_tracking_node_mappings`; empty where it says nothing, as for most backward graphs."""
    value = value if isinstance(value, dict) else {}
    return NodeMappings(names(value.get("cppCodeToPost")), names(value.get("postToPre")))


def names(value: Any) -> Names:
    """Name -> names, of JSON that may hold anything."""
    if not isinstance(value, dict):
        return {}
    return {
        key: [item for item in items if isinstance(item, str)]
        for key, items in value.items()
        if isinstance(items, list)
    }


def post_to_pre(value: Any) -> Names:
    """`inductor_post_to_pre_grad_nodes` of older versions: of each node the nodes where its history begins."""
    out: Names = {}
    for node, origins in value.items() if isinstance(value, dict) else ():
        found: dict[str, None] = {}
        waiting = [origins]
        while waiting:
            here = waiting.pop()
            for origin in here if isinstance(here, list) else ():
                if isinstance(origin, dict):
                    before = origin.get("from_node")
                    if before:
                        waiting.append(before)
                    elif isinstance(origin.get("name"), str) and origin["name"]:
                        found[origin["name"]] = None
        out[node] = list(found)
    return out


def kernel_sources(value: Any) -> dict[str, list[SourceLine]]:
    """`inductor_provenance_tracking_kernel_stack_traces`: kernel -> the innermost line of each of its stacks."""
    out: dict[str, list[SourceLine]] = {}
    for kernel, stacks in value.items() if isinstance(value, dict) else ():
        found: dict[SourceLine, None] = {}
        for stack in stacks if isinstance(stacks, list) else ():
            frames = _FRAME.findall(stack) if isinstance(stack, str) else []
            if frames:
                file, line, function, code = frames[-1]
                found[SourceLine(file, int(line), function, code)] = None
        out[kernel] = list(found)
    return out
