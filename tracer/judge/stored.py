"""Finds which buffer holds which value of the FX graph, in which state.

A value is a node and the number of mutations of its memory that have happened: ``Value("arg0_1", 0)`` is an input as it
was given, ``Value("arg0_1", 1)`` after the first operator that writes to it (`copy_`, `index_put_`). Views belong to
the node that made their memory, their root.
"""

from __future__ import annotations

from collections import defaultdict
from functools import cached_property
from typing import NamedTuple

from stepscope.tracer.judge.arguments import Read, reader_of, rounded
from stepscope.tracer.judge.record import Buffer, GraphRecord, Json, Node, Place, members_of, node_of, nodes_in
from stepscope.tracer.judge.targets import chooses, leaves_open, schema_of, viewed_argument, written_arguments

LOW = ("bfloat16", "float16")
GETITEM = "function:operator.getitem"
REPLACED = ("Fallback", "MutationOutput")


class Value(NamedTuple):
    node: str
    mutations: int


class StoredValues:
    """The values of one graph, and the buffers that hold them."""

    def __init__(self, record: GraphRecord) -> None:
        self.record = record
        self.nodes = {node.name: node for node in record.nodes}
        self.index = {node.name: number for number, node in enumerate(record.nodes)}
        self.buffers = {buffer.name: buffer for buffer in record.buffers}
        self.parent = {node.name: parent for node in record.nodes if (parent := self._viewed(node)) is not None}
        """The node whose memory a view shares."""
        self.mutators: dict[str, list[str]] = defaultdict(list)
        """Nodes that write to the memory of a root, in order."""
        self._readers: dict[tuple[str, bool, bool], tuple[Read, Read]] = {}
        for node in record.nodes:
            for argument in written_nodes(node):
                found = self.mutators[self.root(argument)]
                if node.name not in found:
                    found.append(node.name)

    def _viewed(self, node: Node) -> str | None:
        """Return the node whose memory `node` shares, or None."""
        if node.kind != "call":
            return None
        arguments = members_of(node.args) or []
        if node.target == GETITEM:
            return self._member(arguments)
        position = viewed_argument(node.target)
        return node_of(arguments[position]) if position is not None and position < len(arguments) else None

    def _member(self, arguments: list[Json]) -> str | None:
        """Return the tensor that is a member of what an operator on lists, which returns nothing, has mutated."""
        source = self.nodes.get(node_of(arguments[0]) or "") if arguments else None
        if source is None or not isinstance(arguments[1], int):
            return None
        written = written_nodes(source)
        is_list = source.target.startswith("op:aten._foreach") and source.target.rpartition(".")[0].endswith("_")
        returns_nothing = bool(written) and ("_foreach" in source.target or is_list)
        return written[arguments[1]] if returns_nothing and arguments[1] < len(written) else None

    def arguments(self, name: str, double: bool, rounds: bool = False) -> tuple[Read, Read]:
        """Return what reads the positional and the keyword arguments of a node. Raises CannotJudge.

        With `rounds`, numbers that tensors are compared with, or that are chosen instead of theirs, are rounded to the
        dtype of the tensors, as in eager code.
        """
        found = self._readers.get((name, double, rounds))
        if found is None:
            node = self.nodes[name]
            args, kwargs = self._rounded_numbers(node) if rounds else (node.args, node.kwargs)
            found = self._readers[name, double, rounds] = reader_of(args, double), reader_of(kwargs, double)
        return found

    def _rounded_numbers(self, node: Node) -> tuple[Json, Json]:
        """Return the arguments of a node with those numbers rounded that its operator takes as such, or as a tensor."""
        dtypes = [self.nodes[one].dtype for one in nodes_in(node.args) if one in self.nodes]
        dtype = next((one for one in [*dtypes, node.dtype] if one in LOW), None)
        schema = schema_of(node.target)
        members = members_of(node.args)
        if dtype is None or schema is None or members is None or not chooses(node.target):
            return node.args, node.kwargs
        numbers = [str(one.type) in ("number", "Optional[number]", "Tensor") for one in schema.arguments]
        names = {one.name for one, is_number in zip(schema.arguments, numbers, strict=True) if is_number}
        args = [rounded(one, dtype) if is_number else one for one, is_number in zip(members, numbers, strict=False)]
        given = (node.kwargs or {}).get("dict", {})
        kwargs = {name: rounded(one, dtype) if name in names else one for name, one in given.items()}
        return {"tuple": args}, {"dict": kwargs}

    def root(self, name: str) -> str:
        while name in self.parent:
            name = self.parent[name]
        return name

    def state_at(self, name: str, user: str | None) -> int:
        """Return how many mutations of a node's memory come before `user`, or in all if it is None."""
        mutators = self.mutators.get(self.root(name), ())
        return len(mutators) if user is None else sum(self.index[one] < self.index[user] for one in mutators)

    def value(self, name: str) -> Value:
        """Return the value of a node when it is made."""
        written = written_nodes(self.nodes[name])
        return Value(name, self.state_at(name, name) + (1 if written and self.parent.get(name) else 0))

    def _is_new(self, name: str, buffer: str) -> bool:
        """Return whether a buffer is new memory that an operator returned; since torch 2.15 it may be no item."""
        kind = self.buffers[buffer].kind if buffer in self.buffers else None
        return kind == "MultiOutput" or (kind == "FallbackKernel" and name not in self.parent)

    @cached_property
    def held(self) -> dict[str, list[tuple[Value, Place]]]:
        """Return the values that each buffer holds."""
        found: dict[str, list[tuple[Value, Place]]] = defaultdict(list)
        mutations = self._mutations()
        for name, place in self.record.places.items():
            node = self.nodes[name]
            if node.kind == "output" or (written_nodes(node) and not self._is_new(name, place.buffer)):
                continue
            value = self.value(name)
            if value.mutations and mutations.get(place.buffer):
                continue  # the IR names the memory, and not its state: a mutated buffer holds the value
            owner = self.nodes[self.root(name)]
            later = self._later(owner, mutations.get(place.buffer, []), place.buffer)
            found[later or place.buffer].append((value if later else self._replaced(value, place.buffer), place))
        for name, place in self.record.also:
            value = self.value(name)
            if value.mutations and mutations.get(place.buffer):
                continue
            # the IR of an operand names the memory, too: what a later content of it holds is not what it held before
            contents = [place.buffer, *(one.name for one in mutations.get(place.buffer, []))]
            is_known = any(value == one for buffer in contents for one, _ in found.get(buffer, []))
            if not written_nodes(self.nodes[name]) and not is_known:
                found[place.buffer].append((value, place))
        for buffer in self.record.buffers:
            mutated = self._mutated(buffer)
            if mutated is not None:
                found[buffer.name] = [mutated]
        for name, values in found.items():
            origin = self.buffers[name].origin if name in self.buffers else None
            values.sort(key=lambda one: (one[0].node != origin, self.index[one[0].node]))
        return dict(found)

    def _mutations(self) -> dict[str, list[Buffer]]:
        """Return the buffers that are later contents of each one."""
        found: dict[str, list[Buffer]] = defaultdict(list)
        for buffer in self.record.buffers:
            for name in {*buffer.mutates, buffer.real} - {buffer.name}:
                found[name].append(buffer)
        return found

    def _later(self, node: Node, mutations: list[Buffer], buffer: str) -> str | None:
        """Return the mutation of `buffer` that makes the value of a node whose IR names the buffer, or None."""
        if not mutations or node.kind != "call":
            return None
        arguments = members_of(node.args) or []
        source = node_of(arguments[0]) if node.target == GETITEM and arguments else None
        own = {node.name, source} - {None}
        found = [one for one in mutations if own & set(one.origins)]
        before = self.buffers[buffer].origins if buffer in self.buffers else []
        if node.name in before:
            found = [one for one in found if any(kind in one.kind for kind in REPLACED) or self._finishes(one, node)]
        ends = [one for one in found if max(one.origins, key=self._order) in own]
        return (ends or found)[-1].name if ends else found[0].name if found else None

    def _replaced(self, value: Value, buffer: str) -> Value:
        """Return the state of a value that a buffer holds; a mutation of what is not in memory replaces its IR."""
        origins = self.buffers[buffer].origins if buffer in self.buffers else []
        mutators = self.mutators.get(self.root(value.node), ())
        states = [number for number, one in enumerate(mutators, 1) if one in origins]
        return Value(value.node, max(value.mutations, *states)) if states else value

    def _finishes(self, mutation: Buffer, node: Node) -> bool:
        """Return whether a mutation by a kernel makes the value of `node`, which is lowered to a copy and a scatter."""
        return mutation.layout.startswith("Mutation") and max(mutation.origins, key=self._order) == node.name

    def _order(self, name: str) -> int:
        return self.index.get(name, -1)

    def _mutated(self, buffer: Buffer) -> tuple[Value, Place] | None:
        """Return the value of a buffer that the last mutating node among its origins makes, or None."""
        if not (buffer.mutates or buffer.layout.startswith("Mutation") or buffer.real != buffer.name):
            return None
        mutating = [name for name in buffer.origins if name in self.nodes and written_nodes(self.nodes[name])]
        if not mutating:
            return None
        last = max(mutating, key=self._order)
        for name in written_nodes(self.nodes[last]):
            root = self.root(name)
            place = self.record.places.get(root)
            named = {buffer.real, *buffer.mutates}
            if place is not None and (place.buffer in named or root in named):
                return Value(root, self.mutators[root].index(last) + 1), Place(
                    buffer.name, place.size, place.stride, place.offset
                )
        return None

    def may_be_unwritten(self, buffer: str) -> bool:
        """Return whether the program itself leaves the contents of a buffer open, as with `torch.empty`."""
        held = self.held.get(buffer, [])
        return any(leaves_open(self.nodes[value.node].target) for value, _ in held)


def written_nodes(node: Node) -> list[str]:
    """Return the nodes whose memory an operator writes to, in the order of its arguments."""
    if node.kind != "call":
        return []
    arguments = members_of(node.args) or []
    found: list[str] = []
    for position in written_arguments(node.target):
        argument = arguments[position] if position < len(arguments) else None
        members = members_of(argument)
        names = [node_of(one) for one in (members if members is not None else [argument])]
        found += [name for name in names if name is not None]
    return found
