"""What the judge needs to know of a compiled graph, as plain data: FX nodes, and the buffers that hold their values.

`stepscope.tracer.inductor.judge_record` makes it at compile time and keeps it as JSON; nothing here names torch.

Arguments of nodes are JSON values; a dict with one key stands for everything else: ``{"node": "add_1"}``,
``{"list": [...]}``, ``{"tuple": [...]}``, ``{"dict": {...}}``, ``{"slice": [start, stop, step]}``,
``{"dtype": "float32"}``, ``{"device": "cuda:0"}``, ``{"layout": "strided"}``, ``{"memory_format": "channels_last"}``,
``{"float": "0x1.8p+0"}``, ``{"complex": ["0x0p+0", "0x1p+0"]}``, ``{"symbol": "s77*2"}``, and ``{"unknown": text}``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from stepscope.tracer.schema.process_ends import Frame

RECORD_VERSION = 2
"""Version of what a record says of a graph; graphs are kept in caches under keys of their own for each version."""

Json = Any
"""A value that JSON can express."""
Size = list[int | str]
"""Sizes, strides or offsets: integers, or expressions with symbols."""


@dataclass(frozen=True)
class Node:
    """A node of the graph that Inductor lowered, after the post-grad passes."""

    name: str
    kind: str
    """``input``, ``constant``, ``call`` or ``output``."""
    target: str
    """``op:aten.add.Tensor``, ``function:operator.getitem``, ``higher_order:cond``, or a constant's name."""
    args: Json
    kwargs: Json
    dtype: str | None = None
    """None unless the value is a tensor."""
    size: Size = field(default_factory=list)
    stride: Size | None = None
    source: Frame | None = None
    """Line of the model; None if it is unknown."""


@dataclass(frozen=True)
class Place:
    """A part of a buffer, in elements."""

    buffer: str
    size: Size
    stride: Size
    offset: int | str


@dataclass(frozen=True)
class Buffer:
    """A buffer of Inductor's IR; its name occurs in the wrapper unless it is another buffer after a mutation."""

    name: str
    real: str
    """Name of the memory in the wrapper: that of the buffer that this one mutates, or its own name."""
    kind: str
    """Class of the IR node, such as ``ComputedBuffer``."""
    layout: str
    """Class of the layout, such as ``FixedLayout``."""
    origin: str | None
    """Node whose value the buffer holds according to Inductor; None if it does not say."""
    origins: list[str]
    """Nodes that contributed to the value."""
    mutates: list[str]


@dataclass(frozen=True)
class Constant:
    """A small constant of the graph, with its bytes in base 64."""

    dtype: str
    size: list[int]
    data: str


@dataclass(frozen=True)
class GraphRecord:
    function: str | None
    """Name of the subgraph; None for the whole graph."""
    nodes: list[Node]
    places: dict[str, Place]
    """Where the value of a node is in memory; a node that is missing was inlined into kernels."""
    symbols: dict[str, str]
    """Symbol of each node whose value is a number."""
    also: list[tuple[str, Place]]
    """Further places of values: parts of concatenations, and copies with another layout."""
    buffers: list[Buffer]
    parts: dict[str, list[str]]
    """Buffers that are written one by one as parts of another one, which a concatenation makes."""
    outputs: dict[str, list[str]]
    """Buffers that each operation of the schedule (``op3``) writes."""
    constants: dict[str, Constant]


def nodes_in(value: Json) -> Iterator[str]:
    """Yield the names of the nodes in the arguments of a node, in their order."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if key == "node":
                yield inner
            elif key == "dict":
                for one in inner.values():
                    yield from nodes_in(one)
            elif key in ("list", "tuple", "slice"):
                for one in inner:
                    yield from nodes_in(one)


def members_of(value: Json) -> list[Json] | None:
    """Return the members of an argument that is a list or a tuple, else None."""
    if isinstance(value, Mapping):
        for key in ("list", "tuple"):
            if key in value:
                return list(value[key])
    return None


def node_of(value: Json) -> str | None:
    """Return the name of the node that an argument is, or None."""
    found = value.get("node") if isinstance(value, Mapping) else None
    return found if isinstance(found, str) else None


def to_json(records: list[GraphRecord]) -> dict[str, Json]:
    """Return the content of a file with `records`."""
    from dataclasses import asdict

    return {"version": RECORD_VERSION, "graphs": [asdict(record) for record in records]}


def from_json(content: Json) -> list[GraphRecord]:
    """Return the records in the content of a file. Raises ValueError if it is of another version or damaged."""
    if not isinstance(content, dict) or content.get("version") != RECORD_VERSION:
        raise ValueError("it is of another version")
    try:
        return [_graph(entry) for entry in content["graphs"]]
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"it is damaged: {error}") from None


def _graph(entry: dict[str, Json]) -> GraphRecord:
    return GraphRecord(
        entry["function"],
        [_node(one) for one in entry["nodes"]],
        {name: Place(**one) for name, one in entry["places"].items()},
        entry["symbols"],
        [(name, Place(**one)) for name, one in entry["also"]],
        [Buffer(**one) for one in entry["buffers"]],
        entry["parts"],
        entry["outputs"],
        {name: Constant(**one) for name, one in entry["constants"].items()},
    )


def _node(entry: dict[str, Json]) -> Node:
    known = {one.name for one in fields(Node)}
    values = {name: value for name, value in entry.items() if name in known}
    if values.get("source") is not None:
        values["source"] = Frame(**values["source"])
    return Node(**values)
