"""Reads the index of each read and write out of the source of a generated kernel.

For Inductor's own kernels, `cpp_accesses` reads C++; the text of `tl.load` and `tl.store` is read for Triton.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from stepscope.viewer.kernel_source.arithmetic import number, parsed
from stepscope.viewer.kernel_source.cpp_accesses import CppUse, cpp_accesses
from stepscope.viewer.kernel_source.cpp_syntax import Expression, Loop, Name, Node, Number
from stepscope.viewer.kernel_source.cpp_tokens import NotUnderstoodError
from stepscope.viewer.kernel_source.index_overlaps import Axis, ElementAccess, axis_of
from stepscope.viewer.kernel_source.index_values import names_in, of_python

_POINTER = re.compile(r"\b(?:in_out_ptr|in_ptr|out_ptr)\d+\b")
_CAST = re.compile(r"static_cast<\w+>")
_NUMBER = r"[0-9]{1,18}"
_TRITON_SIZE = re.compile(rf"^[ \t]*(\w*numel) = ({_NUMBER})[ \t]*$", re.MULTILINE)
_TRITON_INDEX = re.compile(
    rf"^[ \t]*(\w+) = \(?(\w*)index(?: *// *({_NUMBER})\)?)?(?: *% *({_NUMBER}))?\)?[ \t]*$", re.MULTILINE
)
_LANE = re.compile(r"(?:\w+\*)?\w+_inner(?:\*\w+)?")
_TAIL = re.compile(r"\b(\w+?)_tail\b")
_LITERAL = re.compile(r"\b(\d+)[lL]+\b")
_WRITES = re.compile(r"tl\.(?:store|atomic_\w+)\s*\(\s*$")
_READS = re.compile(r"tl\.load\s*\(\s*$")
_READ_MASK = re.compile(r"\s*,[^,()\n]*\btmp\d+")
"""Behind the index of a load: beside the ends of the loops, which its other masks are."""
_WRITE_MASK = re.compile(r"\s*,[^,()\n]*" + _READ_MASK.pattern)
_PARALLEL_AXES = ("x", "y", "z")


@dataclass
class Nest:
    """A loop nest of a kernel, or all of a Triton kernel."""

    bounds: dict[str, str] = field(default_factory=dict)
    """Variable -> where it ends: every one begins at 0."""
    reads: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """pointer -> index expressions."""
    writes: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    sure: set[tuple[str, str]] = field(default_factory=set)
    """Pointer and index of what every iteration does; the rest is done where a condition holds."""
    places: list[ElementAccess] = field(default_factory=list)
    """The same, with their loops."""

    def add(self, place: ElementAccess) -> None:
        (self.writes if place.is_write else self.reads)[place.pointer].add(place.text)
        self.sure |= {(place.pointer, place.text)} if place.is_sure else set()
        self.places.append(place)


@dataclass
class Accesses:
    nests: list[Nest]
    unread: set[str]
    """Pointers with a use that could not be read."""


def accesses(code: str) -> Accesses:
    """Of the definition of a kernel."""
    if _is_triton(code):
        return _triton(code)
    try:
        found = cpp_accesses(code)
    except NotUnderstoodError:
        return Accesses([], set(_POINTER.findall(code)))
    nests: dict[Loop, Nest] = {}
    for outermost, variable, end in found.ends:
        _bound(nests.setdefault(outermost, Nest()).bounds, variable, end)
    axes = {loop: axis_of(loop) for use in found.uses for loop in use.loops}
    outside = Nest()
    for use in found.uses:
        nest = nests[use.loops[0]] if use.loops else outside
        nest.add(_place(use, axes))
    return Accesses([*nests.values(), *([outside] if outside.places else [])], found.unread)


def with_numbers(code: str, numbers: Mapping[str, int]) -> str:
    """The definition of a kernel as it is for a launch that gives its parameters these numbers."""
    start = re.search(r"^def \w+\(.*?\):[ \t]*$" if _is_triton(code) else r"\)\s*\{", code, re.MULTILINE | re.DOTALL)
    if start is None or not numbers:
        return code
    body = code[start.end() :]
    free = {name: number for name, number in numbers.items() if not re.search(rf"\b{re.escape(name)}\s*=[^=]", body)}
    if not free:
        return code
    sizes = ""
    if _is_triton(code):
        sizes = "".join(f"\n    {name} = {number}" for name, number in free.items() if name.endswith("numel"))
    names = re.compile(rf"\b({'|'.join(map(re.escape, free))})\b")
    return code[: start.end()] + sizes + names.sub(lambda found: _written(free[found[1]]), body)


def _written(number: int) -> str:
    return str(number) if number >= 0 else f"({number})"


def _is_triton(code: str) -> bool:
    return "tl.load" in code or "tl.store" in code


def _folded(text: str) -> str:
    """The number that the end of a loop comes to, where it is made of numbers alone."""
    node = None if is_number(text) else parsed(text.replace("c10::", "").replace("/", "//").replace("////", "//"))
    found = None if node is None else number(node, lambda name: None)
    return str(found) if type(found) is int and found >= 0 else text


def _place(use: CppUse, axes: Mapping[Loop, Axis]) -> ElementAccess:
    text = normal(use.text) if use.index is not None else use.text
    return ElementAccess(
        use.pointer, use.is_write, use.index, text, tuple(axes[loop] for loop in use.loops), use.is_sure
    )


def _bound(bounds: dict[str, str], name: str, end: str) -> None:
    """The farthest end of each variable; one whose loops end at different places that are no numbers has none."""
    variable, text = _TAIL.sub(r"\1", name), _folded(normal(end))
    known = bounds.get(variable)
    if known is None or known == text:
        bounds[variable] = text
    elif is_number(known) and is_number(text):
        bounds[variable] = str(max(int(known), int(text)))
    else:
        bounds[variable] = f"{known} or {text}"


def _triton(code: str) -> Accesses:
    body = _triton_body(code)
    sizes = {name.removesuffix("numel"): int(size) for name, size in _TRITON_SIZE.findall(body)}
    nest = Nest(_triton_bounds(body, sizes))
    defined = {name: _derived(axis, divisor, modulus) for name, axis, divisor, modulus in _TRITON_INDEX.findall(body)}
    shared = {name: _axis(name, sizes) for name in _PARALLEL_AXES}
    unread: set[str] = set()
    for use in _POINTER.finditer(body):
        found = _triton_use(body, use.start(), use.end())
        if found is None:
            unread.add(use[0])
            continue
        is_write, text, is_sure = found
        try:
            index: Expression | None = of_python(text)
        except NotUnderstoodError:
            index = None
        axes = _axes_of(index, defined, shared, sizes)
        nest.add(ElementAccess(use[0], is_write, index, text, axes, is_sure, defined))
    return Accesses([nest], unread)


def _axes_of(
    index: Expression | None, defined: Mapping[str, Expression], shared: Mapping[str, Axis], sizes: Mapping[str, int]
) -> tuple[Axis, ...]:
    """All that its programs run in parallel over, and what it reduces over in a loop of its own."""
    made_of = {axis for name, value in defined.items() for axis in names_in(value)}
    names = {axis.removesuffix("index") for axis in made_of}
    reduced = sorted(names - shared.keys()) if index is not None else []
    return (
        *(axis for name, axis in shared.items() if name in names),
        *(_axis(name, sizes) for name in reduced),
    )


def _axis(name: str, sizes: Mapping[str, int]) -> Axis:
    size = sizes.get(name)
    end: Expression = Number(str(size)) if size is not None else Name(f"{name}numel", 0)
    return Axis(f"{name}index", Number("0"), end, Number("1"), name in _PARALLEL_AXES)


def _derived(axis: str, divisor: str, modulus: str) -> Expression:
    found: Expression = Name(f"{axis}index", 0)
    if divisor:
        found = Node("//", (found, Number(divisor)), 0, 0)
    return Node("%", (found, Number(modulus)), 0, 0) if modulus else found


def _triton_bounds(code: str, sizes: Mapping[str, int]) -> dict[str, str]:
    bounds = {}
    for name, axis, divisor, modulus in _TRITON_INDEX.findall(code):
        size = sizes.get(axis.removesuffix("_") if axis not in sizes else axis)
        if modulus:
            bounds[name] = modulus
        elif size is None or (divisor and not int(divisor)):
            bounds[name] = f"{axis}numel // {divisor or 1}"
        else:
            bounds[name] = str(-(-size // int(divisor or 1)))
    return bounds


def is_number(text: str) -> bool:
    """A plain one, of 18 digits at most."""
    return re.fullmatch(_NUMBER, text) is not None


def _triton_use(body: str, start: int, end: int) -> tuple[bool, str, bool] | None:
    """Whether a use of a pointer writes, its index, and whether it is without a mask of its own; None: it cannot be
    read."""
    before, behind = body[max(0, start - 60) : start], body[end : end + 2000].lstrip()
    is_write, is_read = bool(_WRITES.search(before)), bool(_READS.search(before))
    if is_write == is_read or not behind.startswith("+"):
        return None
    index, rest = _bracketed(behind[1:].lstrip(), "(", ")")
    if index is None:
        return None
    return is_write, normal(index), not (_WRITE_MASK if is_write else _READ_MASK).match(rest)


def normal(index: str) -> str:
    """An index expression in a form in which equal ones are equal texts."""
    index = _TAIL.sub(r"\1", _LITERAL.sub(r"\1", _CAST.sub("", index)))
    index = re.sub(r"\s+", "", index)
    while index.startswith("(") and _bracketed(index, "(", ")") == (index[1:-1], ""):
        index = index[1:-1]
    return "+".join(sorted(_terms(index)))


def _terms(index: str) -> list[str]:
    """The summands; the lane of a vector, which goes with its loop, is left out."""
    terms, depth, start = [], 0, 0
    for at, sign in enumerate(index):
        depth += (sign in "([{") - (sign in ")]}")
        if depth == 0 and sign == "+":
            terms.append(index[start:at])
            start = at + 1
    terms.append(index[start:])
    terms = [_unwrapped(term) for term in terms]
    return [term for term in terms if not _LANE.fullmatch(term)] or ["0"]


def _unwrapped(term: str) -> str:
    while term.startswith("(") and _bracketed(term, "(", ")") == (term[1:-1], ""):
        term = term[1:-1]
    return term


def _bracketed(text: str, opening: str, closing: str) -> tuple[str | None, str]:
    """What stands in the brackets that `text` begins with, and the rest."""
    if not text.startswith(opening):
        return None, text
    depth = 0
    for at, sign in enumerate(text):
        depth += (sign == opening) - (sign == closing)
        if depth == 0:
            return text[1:at], text[at + 1 :]
    return None, text


def _triton_body(code: str) -> str:
    start = re.search(r"^def \w+\(.*?\):\s*$", code, re.MULTILINE | re.DOTALL)
    return code[start.end() :] if start else code
