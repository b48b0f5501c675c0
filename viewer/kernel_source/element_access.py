"""The reads and writes of a kernel, with the loops around them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from stepscope.viewer.kernel_source.intervals import Interval

Ends = tuple[tuple[int, int], bool, frozenset[str]] | str
"""First and last element, whether both are accessed, and the pointers whose contents bound the index; or the reason
why the elements are not known."""
Meanings = Mapping[str, ast.expr | Interval]
"""Names of a kernel, each with the expression that it was assigned or the integers that it takes."""
_LANE = re.compile(r"(?:\w+\*)?\w+_inner(?:\*\w+)?")
_TAIL = re.compile(r"\b(\w+?)_tail\b")


@dataclass(frozen=True, eq=False)
class Axis:
    """A loop, or an index over which the programs of a kernel run."""

    variable: str
    begin: ast.expr
    end: ast.expr
    step: ast.expr
    """Iterations that one vector does at once: it reads before it writes."""
    is_parallel: bool
    """Its iterations may run in any order."""


@dataclass(frozen=True)
class ElementAccess:
    """What is read or written behind a pointer in all iterations of some loops."""

    pointer: str
    is_write: bool
    index: ast.expr | None
    """The index behind the pointer; None if it is not known."""
    text: str
    """Text of the index; equal texts are equal elements."""
    axes: tuple[Axis, ...]
    is_sure: bool
    """Every iteration makes the access. If not, it is under a condition that `index_overlaps` does not evaluate."""
    ends: Ends | None
    """None if a mask excludes all elements."""
    meanings: Meanings = field(default_factory=dict, repr=False, compare=False)
    """Meanings of the names in the index and in the axes."""


@dataclass
class Accesses:
    nests: list[list[ElementAccess]]
    """The accesses of each outermost loop, or of a whole Triton kernel."""
    unread: set[str]
    """Pointers with a use that could not be read."""


def normal(index: ast.expr) -> str:
    """Return the text of an index, which is the same for sums of the same terms. The lane of a vector is left out."""
    terms = ["".join(_TAIL.sub(r"\1", ast.unparse(term)).split()) for term in _terms(index)]
    return "+".join(sorted(term for term in terms if not _LANE.fullmatch(term))) or "0"


def _terms(node: ast.expr) -> Iterator[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        yield from _terms(node.left)
        yield from _terms(node.right)
    else:
        yield node
