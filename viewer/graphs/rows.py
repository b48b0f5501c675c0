"""Frozen rows about graphs: their launch sites, arguments and lines of model source. `rows` names them too."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from stepscope.tracer.schema.constants import DEFAULT_DEVICE

_COMMENT = re.compile(r"\s*# File: (.+?):(\d{1,9}) in ")


@dataclass(frozen=True)
class SourceLine:
    file: str
    line: int
    function: str
    code: str
    as_compiled: str | None = None
    """A remark on the line of a graph from a cache whose file has changed: its text when the graph was compiled, or
    that this is that text. None if the line reads the same in this run."""

    @property
    def place(self) -> str:
        """Return ``/src/model.py:12``, with a remark if the line has changed."""
        return f"{self.file}:{self.line}{f' ({self.as_compiled})' if self.as_compiled else ''}"


def line_at(file: str | None, line: int | None) -> SourceLine | None:
    """Return the line at a place of which nothing else is known, or None if the place is unknown."""
    return SourceLine(file, line, "", "") if file and line is not None else None


def commented_line(text: str) -> SourceLine | None:
    """Return the line of the program that a comment of a graph's text names, as in ``# File: train.py:3 in f, code: y =
    x + 1``; None for other text."""
    place = _COMMENT.match(text)
    function, named, code = text[place.end() :].partition(", code:") if place else ("", "", "")
    return SourceLine(place[1], int(place[2]), function, code.removeprefix(" ")) if place and named else None


def commented_lines(text: str) -> Iterator[tuple[str, SourceLine | None]]:
    """Yield the lines of a graph's text without those comments, each with the line of the program that the last one
    names; None before the first one."""
    source = None
    for line in text.splitlines():
        found = commented_line(line)
        if found is None:
            yield line, source
        source = found or source


def of_program(line: SourceLine | None) -> SourceLine | None:
    """Return a line, or None for that of torch through which all operators pass if there is a default device."""
    return None if line is not None and line.file.endswith(DEFAULT_DEVICE) else line


InputKind = Literal["parameter", "buffer", "input", "size", "gradient", "saved", "output", "random state"]
"""``buffer``: a buffer of a module; ``gradient``: of an output, which a backward graph gets, or of an input, which it
returns; ``saved``: kept by a forward graph for its backward graph."""


@dataclass(frozen=True)
class ProgramName:
    """What an input or output of a graph is in the user's program."""

    name: str | None
    """Expression or words such as ``self.layers.3.weight`` or ``gradient of output 0``; None if it is unknown."""
    kind: InputKind | None
    """None if the log does not tell."""


@dataclass(frozen=True)
class GraphRow:
    graph: int
    log: int
    local_graph: int | None
    wrapper_key: str | None
    compile_id: str | None
    aot_id: str | None
    phase: str | None
    cached: bool | None
    dynamic: bool | None
    launch_sites: int | None
    calls: int | None
    launches: int | None
    duration_ns: int | None
    """Host time of all its calls together, in nanoseconds."""
    not_recorded: str | None
    output_code: int | None
    subgraph_calls: int = 0
    """Calls of its subgraphs by its generated code; they are not counted in `launches`."""


@dataclass(frozen=True)
class ArgumentRow:
    argument: int
    name: str
    role: str
    buffer: str | None
    parameter: str | None
    tensors: list[dict[str, Any]]
    """Tensors at run time: {item, dtype, size, stride, device, offset, storage_bytes, storage, call, step}. `storage`
    is an address; it, the offset and the bytes are those of `call`. Empty if the argument was never seen."""
    storage: str | None = None
    held: str | None = None
    """Contents of its memory when the launch begins: ``input``, ``written``, ``uninitialised``; None if unknown."""
    unseen: str | None = None
    """The reason why `tensors` is empty, if it is known."""
    program_name: str | None = None
    """What the program calls an input or output of the graph, such as ``self.head.weight``; None if unknown."""


@dataclass(frozen=True)
class ScalarRow:
    """An argument that is not a tensor."""

    position: int | None
    """Position among the positional arguments, from 0; None for a keyword argument or a compiled-in constant."""
    name: str | None
    expression: str
    """Its text in the generated code: a constant, or the expression that computes it."""
    type: str | None
    value: str | None
    """The value as Python writes it; None if it is not known or differs from call to call."""

    @property
    def label(self) -> str:
        """Return ``ks0``, or ``argument 2`` if the kernel's name for it is not known."""
        if self.name is not None:
            return self.name
        return "an argument" if self.position is None else f"argument {self.position}"


@dataclass(frozen=True)
class SiteRow:
    site: int
    graph: int
    local_site: int
    function: str
    line: int
    kernel: str
    kind: str
    operator: str | None
    handle: str | None
    snodes: list[str] | None
    outputs: list[str]
    source_nodes: list[str]
    aten: list[str]
    fx_nodes: list[str]
    stacks: list[list[SourceLine]]
    """Outermost frame first; the last frame of a stack is the line of model source."""
    arguments: list[ArgumentRow]
    launches: int | None
    duration_ns: int | None
    scalars: list[ScalarRow] = field(default_factory=list)
    """Arguments that are not tensors. Those of a launch have the values of its call."""


@dataclass(frozen=True)
class MemoryStatementRow:
    event: str
    buffer: str
    function: str
    line: int
    of: str | None
    program_name: str | None = None
    """What the program calls the buffer if it is an input or output of the graph; None if unknown."""


@dataclass(frozen=True)
class GraphDetail:
    row: GraphRow
    sites: list[SiteRow]
    memory: list[MemoryStatementRow]
    code: str | None
    """The wrapper's source; None if the log does not hold it."""
