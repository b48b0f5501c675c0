"""Says in words what AOTAutograd notes beside the inputs and outputs of its graphs."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from stepscope.viewer.graphs.queries.signatures import Placeholder
from stepscope.viewer.graphs.rows import ProgramName

_PLAIN = re.compile(r"PlainAOTInput\(idx=(\d+)\)")
_NUMBERED = re.compile(r"arg(\d+)_1|primals_(\d+)")
_UNKNOWN = ProgramName(None, None)
_RANDOM = {
    "PhiloxForwardSeedAOTInput": "seed of the random numbers",
    "PhiloxForwardBaseOffsetAOTInput": "offset of the random numbers",
    "PhiloxBackwardSeedAOTInput": "seed of the backward's random numbers",
    "PhiloxBackwardBaseOffsetAOTInput": "offset of the backward's random numbers",
}


def position_of(one: Placeholder) -> int | None:
    """Return the place of an input among those of Dynamo's graph; None if it is not one of them or is not known."""
    if one.role:
        plain = _PLAIN.fullmatch(one.role)
        return int(plain[1]) if plain else None
    named = _NUMBERED.fullmatch(one.name)
    if named is None:
        return None
    return int(named[1]) if named[1] is not None else int(named[2]) - 1


def input_name(one: Placeholder, program: Sequence[ProgramName]) -> ProgramName:
    """Return the name of a graph's input; `program` has the names of the inputs of Dynamo's graph in order."""
    if one.role:
        return _Reader(program).read(one.role)
    place = position_of(one)
    if place is not None:
        return program[place] if place < len(program) else _UNKNOWN
    if one.annotation.startswith("Sym("):
        return ProgramName(None, "size")
    if one.name.startswith("tangents_"):
        return ProgramName(None, "gradient")
    return ProgramName(None, "saved")


def output_name(role: str, program: Sequence[ProgramName]) -> ProgramName:
    """Return the name of a graph's output."""
    return _Reader(program).read(role)


class _Reader:
    """Reads notes, which are calls of PyTorch's classes such as ``TangentAOTInput(output=PlainAOTOutput(idx=0))``."""

    def __init__(self, program: Sequence[ProgramName]) -> None:
        self._program = program

    def read(self, role: str) -> ProgramName:
        try:
            return self._name(ast.parse(role, mode="eval").body)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return _UNKNOWN

    def _name(self, node: ast.expr | None) -> ProgramName:
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
            return _UNKNOWN
        given = {one.arg: one.value for one in node.keywords}
        kind = node.func.id
        number = _constant(given.get("idx"))
        if kind == "PlainAOTInput":
            if isinstance(number, int) and 0 <= number < len(self._program):
                return self._program[number]
            return _UNKNOWN
        if kind in ("ParamAOTInput", "BufferAOTInput"):
            target = _OPTIMIZED.sub(r'param_groups[\1]["params"][\2]', str(_constant(given.get("target"))))
            return ProgramName(f"self.{target}", "parameter" if kind == "ParamAOTInput" else "buffer")
        if kind == "PlainAOTOutput":
            return ProgramName(f"output {number}", "output")
        if kind in _RANDOM:
            return ProgramName(_RANDOM[kind], "random state")
        if kind.startswith("SavedForBackwards"):
            return ProgramName(None, "saved")
        return self._derived(kind, given)

    def _derived(self, kind: str, given: dict[str | None, ast.expr]) -> ProgramName:
        base = next((given[name] for name in _BASES if name in given), None)
        of = self._name(base)
        part = _constant(given.get("attr") if "attr" in given else given.get("idx"))
        words = _DERIVED.get(kind)
        if words is None:
            return _UNKNOWN
        said, becomes = words
        return ProgramName(
            said.format(of=of.name, part=part) if of.name is not None else None,
            becomes or of.kind,  # type: ignore[arg-type]
        )


_OPTIMIZED = re.compile(r"self___param_groups_(\d+)__params___(\d+)")
"""Dynamo's names of the parameters of a compiled optimizer."""
_BASES = ("base", "base_of", "output", "grad_of", "mutated_input")
_DERIVED = {
    "SubclassGetAttrAOTInput": ("{of}.{part}", None),
    "SubclassSizeAOTInput": ("{of}.size({part})", "size"),
    "SubclassStrideAOTInput": ("{of}.stride({part})", "size"),
    "SubclassGetAttrAOTOutput": ("{of}.{part}", None),
    "ViewBaseAOTInput": ("{of}._base", None),
    "SyntheticBaseAOTInput": ("memory that {of} is a view of", None),
    "TangentAOTInput": ("gradient of {of}", "gradient"),
    "GradAOTOutput": ("gradient of {of}", "gradient"),
    "InputMutationAOTOutput": ("new content of {of}", "output"),
    "IntermediateBaseAOTOutput": ("memory that {of} is a view of", "output"),
}
"""Words for a role that refers to another one, and the kind of it; None if it is that of the other."""


def _constant(node: ast.expr | None) -> object:
    return node.value if isinstance(node, ast.Constant) else None
