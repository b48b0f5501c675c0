"""Finds the lines of graph text and generated code that belong to nodes and kernels, without reading a trace."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from stepscope.tracer.wrapper.comments import debug_handle
from stepscope.viewer.graphs.rows import SourceLine, commented_line, of_program
from stepscope.viewer.text.tracebacks import traceback_frames

_CLASS = re.compile(r"\s*class \S+\(torch\.nn\.Module\):")
_NODE = re.compile(r"\s+([A-Za-z_]\w*)(?:\s*:\s*\"[^\"]*\")?\s*=\s")
_NUMBERED = re.compile(r"(.+):\d+")
_DEFINITION = re.compile(r"(\w+) = async_compile\.\w+\(")
_CPP_FUNCTION = re.compile(r"(?:extern \"C\"|static|inline|void)\s.*?\b(\w+)\s*\(")
_IDENTIFIER = re.compile(r"(?:[A-Za-z_]\w*(?:\.|::))*[A-Za-z_]\w*")
_PARTS = re.compile(r"\.|::")
_FRAGMENT_NODE = re.compile(r"\s*#\s+%(\w+) :.*? = (\w+)\[")
_FROM_SOURCE = re.compile(r"\s*#\s{2,}(\S+) => (.+)")
_STATEMENT_LINES = 40
"""Maximum number of lines that are searched for the end of a statement."""

Names = dict[str, list[str]]


@dataclass(frozen=True)
class GraphText:
    """The lines of an FX graph's text."""

    line_of: dict[str, int]
    """Line of each node, keyed by node name."""
    source_of: dict[int, SourceLine]
    """Program line that each node came from, keyed by the node's line."""


@dataclass(frozen=True)
class CodeText:
    """The lines of generated code."""

    launches: list[tuple[str, int, int]]
    """(kernel, first line, last line); the kernel includes its debug handle, if any: ``triton_poi_fused_add_0:3``."""
    definitions: dict[str, tuple[int, int]]
    nodes: Names
    """Post-grad nodes of each kernel, from the comment above its definition."""
    sources: Names
    """Pre-grad nodes of each post-grad node, from the same comments."""


@dataclass
class NodeMappings:
    """Node mappings from a compile's provenance records, in a form that is the same for every version of PyTorch."""

    kernel_to_post: Names = field(default_factory=dict)
    post_to_pre: Names = field(default_factory=dict)


def graph_lines(text: str) -> GraphText:
    """Return the lines of a printed graph's nodes; the outer graph takes precedence over subgraphs."""
    outer: dict[str, int] = {}
    inner: dict[str, int] = {}
    sources: dict[int, SourceLine] = {}
    classes, source = 0, None
    for number, line in enumerate(text.splitlines(), 1):
        if _CLASS.match(line):
            classes += 1
            source = None
            continue
        found = commented_line(line)
        if found:
            source = of_program(found)
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
    """Find launches and definitions in a Python or C++ wrapper; without debug handles, search for `kernels` by name."""
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
    """Return the kernel's name without its debug handle."""
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
        handle = _handle(line)
        if handle is not None:
            name = base_name(handle).rsplit(".", 1)[-1]
            yield handle, number + 1, _end_of_launch(lines, number + 1, name) + 1


def _handle(line: str) -> str | None:
    return debug_handle(line) if line.lstrip().startswith(("#", "//")) else None


def _end_of_launch(lines: Sequence[str], start: int, name: str) -> int:
    """Return the index of the last line of the statement that names the kernel, else of the first statement."""
    first = None
    for number in range(start, min(start + _STATEMENT_LINES, len(lines))):
        line = lines[number].strip()
        if _handle(line) is not None:
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
    """Find calls of the `wanted` kernels outside of kernel definitions."""
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
    """Read the comments above kernels: post-grad nodes by kernel, and pre-grad nodes by post-grad node."""
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
    """Read `inductor_provenance_tracking_node_mappings`, which is empty for most backward graphs."""
    value = value if isinstance(value, dict) else {}
    return NodeMappings(names(value.get("cppCodeToPost")), names(value.get("postToPre")))


def names(value: Any) -> Names:
    """Return the lists of strings in arbitrary JSON, by key; other values are dropped."""
    if not isinstance(value, dict):
        return {}
    return {
        key: [item for item in items if isinstance(item, str)]
        for key, items in value.items()
        if isinstance(items, list)
    }


def post_to_pre(value: Any) -> Names:
    """Return the first ancestors of each post-grad node, from `inductor_post_to_pre_grad_nodes` of older versions."""
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
    """Return the innermost line of each kernel's stacks in `inductor_provenance_tracking_kernel_stack_traces`."""
    return {
        kernel: list(dict.fromkeys(line for frames in stacks for line in frames[-1:]))
        for kernel, stacks in kernel_stacks(value).items()
    }


def kernel_stacks(value: Any) -> dict[str, list[list[SourceLine]]]:
    """Return each kernel's stacks in `inductor_provenance_tracking_kernel_stack_traces`, each outermost first."""
    return {
        kernel: [traceback_frames(stack) for stack in stacks if isinstance(stack, str)]
        for kernel, stacks in (value.items() if isinstance(value, dict) else ())
        if isinstance(stacks, list)
    }
