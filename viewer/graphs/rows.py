"""Frozen rows about graphs: their launch sites, arguments and lines of model source. `rows` names them too."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class SourceLine:
    file: str
    line: int
    function: str
    code: str
    as_compiled: str | None = None
    """In words, of a line that came with a graph out of a cache and has changed since: what it was when the graph was
    compiled, or that the line itself is as compiled. None: so it reads in this run."""

    @property
    def place(self) -> str:
        """``/src/model.py:12``; it says so where the line has changed."""
        return f"{self.file}:{self.line}{f' ({self.as_compiled})' if self.as_compiled else ''}"


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
    """Host time of all its calls together."""
    not_recorded: str | None
    output_code: int | None
    subgraph_calls: int = 0
    """Calls of its subgraphs by its generated code, which are no launches of kernels."""


@dataclass(frozen=True)
class ArgumentRow:
    argument: int
    name: str
    role: str
    buffer: str | None
    parameter: str | None
    tensors: list[dict[str, Any]]
    """What it was at run time: {item, dtype, size, stride, device, offset, storage_bytes, storage, call, step};
    `storage` is an address, and like the offset and the bytes it is that of `call`. Empty when never seen."""
    storage: str | None = None
    held: str | None = None
    """What its memory holds when the launch begins: ``input``, ``written``, ``uninitialised``; None: not known."""
    unseen: str | None = None
    """Why `tensors` is empty, where it is known."""


@dataclass(frozen=True)
class ScalarRow:
    """An argument that is no tensor."""

    position: int | None
    """Among the positional arguments, from 0; None: it is given by its name, or compiled in."""
    name: str | None
    expression: str
    """In the generated code: a constant, or what it is computed from."""
    type: str | None
    value: str | None
    """As Python writes it; None: not known, or it differs from call to call."""

    @property
    def label(self) -> str:
        """``ks0``; ``argument 2`` where the kernel's own name for it is not known."""
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
    """Arguments that are no tensors; of a launch with the values that they had in its call."""


@dataclass(frozen=True)
class MemoryStatementRow:
    event: str
    buffer: str
    function: str
    line: int
    of: str | None


@dataclass(frozen=True)
class GraphDetail:
    row: GraphRow
    sites: list[SiteRow]
    memory: list[MemoryStatementRow]
    code: str | None
    """The wrapper's source; None when the log does not hold it."""
