"""Reads out of a generated kernel's source at which index it reads and writes each pointer.

Only as far as Inductor's own kernels go: C++ (`loadu`, `store`, subscripts) and Triton (`tl.load`, `tl.store`).
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field

_POINTER = re.compile(r"\b(?:in_out_ptr|in_ptr|out_ptr)\d+\b")
_ALIAS = re.compile(r"\bauto\s*\*?\s*(\w+_ptr\d+)\s*=\s*(\w+_ptr\d+)\s*;")
_CAST = re.compile(r"static_cast<\w+>")
_LOOP = re.compile(r"\bfor\s*\(")
_BOUND = re.compile(r"for\s*\(\s*\w+\s+(\w+)\s*=[^;]*;\s*\w+\s*<\s*([^;]*);")
_NUMBER = r"[0-9]{1,18}"
_TRITON_SIZE = re.compile(rf"^[ \t]*(\w*numel) = ({_NUMBER})[ \t]*$", re.MULTILINE)
_TRITON_INDEX = re.compile(
    rf"^[ \t]*(\w+) = \(?(\w*)index(?: *// *({_NUMBER})\)?)?(?: *% *({_NUMBER}))?\)?[ \t]*$", re.MULTILINE
)
_VARIABLE = re.compile(r"\b[a-z]+\d+(?:_\d+)?\b")
_LANE = re.compile(r"(?:\w+\*)?\w+_inner(?:\*\w+)?")
_TAIL = re.compile(r"\b(\w+?)_tail\b")
_LITERAL = re.compile(r"\b(\d+)[lL]+\b")
_WRITES = re.compile(r"(?:tl\.(?:store|atomic_\w+)|\bstore|atomic_\w+)\s*\(\s*&?\s*$")
_READ_MASK = re.compile(r"\s*,[^,()\n]*\btmp\d+")
"""Behind the index of a Triton load: beside the ends of the loops, which its other masks are."""
_WRITE_MASK = re.compile(r"\s*,[^,()\n]*" + _READ_MASK.pattern)
_LONGEST_LAMBDA = 1 << 14
_LAMBDA = re.compile(r"\[&\]\s*\{")
_READS = re.compile(r"(?:tl\.load|\bloadu?)\s*\(\s*$")


@dataclass
class Nest:
    """A loop nest of a kernel, or all of a Triton kernel: its iterations may run in any order."""

    reads: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """pointer -> index expressions."""
    writes: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    sure: set[tuple[str, str]] = field(default_factory=set)
    """Pointer and index of what every iteration does; the rest is done where a condition holds."""
    bounds: dict[str, str] = field(default_factory=dict)
    """Variable -> where it ends: every one begins at 0."""


@dataclass
class Accesses:
    nests: list[Nest]
    unread: set[str]
    """Pointers with a use that could not be read."""


def accesses(code: str) -> Accesses:
    """Of the definition of a kernel."""
    is_triton = "tl.load" in code or "tl.store" in code
    body = _triton_body(code) if is_triton else _cpp_body(code)
    names = dict(_ALIAS.findall(body))
    nests = [(0, len(body))] if is_triton else _nests(body)
    outside = Nest()
    found = [Nest(bounds=_bounds(body[first:last], is_triton)) for first, last in nests]
    unread: set[str] = set()
    conditional = [] if is_triton else _conditional(body)
    for use in _POINTER.finditer(_without_aliases(body)):
        at = next((i for i, (first, last) in enumerate(nests) if first <= use.start() < last), None)
        nest = outside if at is None else found[at]
        is_sure = not any(first <= use.start() < last for first, last in conditional)
        if not _take(nest, names.get(use[0], use[0]), body, use.start(), use.end(), is_sure):
            unread.add(names.get(use[0], use[0]))
    return Accesses(found, unread)


def _bounds(code: str, is_triton: bool) -> dict[str, str]:
    if not is_triton:
        return _cpp_bounds(code)
    sizes = {name.removesuffix("numel"): int(size) for name, size in _TRITON_SIZE.findall(code)}
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


def _cpp_bounds(code: str) -> dict[str, str]:
    """The farthest end of each variable; one whose loops end at different places that are no numbers has none."""
    bounds: dict[str, str] = {}
    for name, end in _BOUND.findall(code):
        variable, text = _TAIL.sub(r"\1", name), normal(end)
        known = bounds.get(variable)
        if known is None or known == text:
            bounds[variable] = text
        elif is_number(known) and is_number(text):
            bounds[variable] = str(max(int(known), int(text)))
        else:
            bounds[variable] = f"{known} or {text}"
    return bounds


def is_number(text: str) -> bool:
    """A plain one, of 18 digits at most."""
    return re.fullmatch(_NUMBER, text) is not None


def _take(nest: Nest, pointer: str, body: str, start: int, end: int, is_sure: bool) -> bool:
    """Note one use of a pointer; False when it cannot be read."""
    before, after = body[max(0, start - 60) : start], body[end : end + 2000]
    stripped = after.lstrip()
    if stripped.startswith("["):
        index, rest = _bracketed(stripped, "[", "]")
        if index is None:
            return False
        rest = rest.lstrip()
        is_write = (rest.startswith("=") and not rest.startswith("==")) or bool(_WRITES.search(before))
        is_both = rest[:2] in ("+=", "-=", "*=", "|=", "&=")
        if is_write or is_both:
            nest.writes[pointer].add(normal(index))
        if not is_write or is_both:
            nest.reads[pointer].add(normal(index))
        nest.sure |= {(pointer, normal(index))} if is_sure else set()
        return True
    is_write, is_read = bool(_WRITES.search(before)), bool(_READS.search(before))
    if is_write == is_read or not stripped.startswith("+"):
        return False
    rest = (
        _CAST.sub("", stripped[1:].lstrip(), count=1) if _CAST.match(stripped[1:].lstrip()) else stripped[1:].lstrip()
    )
    index, rest = _bracketed(rest, "(", ")")
    if index is None:
        return False
    is_sure = is_sure and not (_WRITE_MASK if is_write else _READ_MASK).match(rest)
    nest.sure |= {(pointer, normal(index))} if is_sure else set()
    (nest.writes if is_write else nest.reads)[pointer].add(normal(index))
    return True


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


def same_place(read: str, write: str, bounds: dict[str, str]) -> bool:
    """Two expressions that mean the same element: equal, or equal but for one variable that runs as far."""
    if read == write:
        return True
    ours, theirs = (set(_VARIABLE.findall(text)) for text in (read, write))
    (only_read, only_write) = (ours - theirs, theirs - ours)
    if len(only_read) != 1 or len(only_write) != 1:
        return False
    (a,), (b,) = only_read, only_write
    if bounds.get(a) is None or bounds.get(a) != bounds.get(b):
        return False
    return normal(re.sub(rf"\b{re.escape(a)}\b", b, read)) == write


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


def _cpp_body(code: str) -> str:
    """From the brace behind the parameters on."""
    start = re.search(r"\bkernel\w*\s*\(", code)
    at = code.find("{", start.end() if start else 0)
    return code[at:] if at >= 0 else ""


def _triton_body(code: str) -> str:
    start = re.search(r"^def \w+\(.*?\):\s*$", code, re.MULTILINE | re.DOTALL)
    return code[start.end() :] if start else code


def _without_aliases(body: str) -> str:
    return _ALIAS.sub(lambda found: " " * len(found[0]), body)


def _conditional(body: str) -> list[tuple[int, int]]:
    """The lambdas in which C++ kernels put what they do under a mask only."""
    found = []
    for start in _LAMBDA.finditer(body):
        inner, _ = _bracketed(body[start.end() - 1 : start.end() + _LONGEST_LAMBDA], "{", "}")
        found.append((start.start(), start.end() + (_LONGEST_LAMBDA if inner is None else len(inner))))
    return found


def _nests(body: str) -> list[tuple[int, int]]:
    """The outermost loops."""
    nests, at = [], 0
    while loop := _LOOP.search(body, at):
        head, _ = _bracketed(body[loop.end() - 1 :], "(", ")")
        opening = body.find("{", loop.end() + len(head or ""))
        if opening < 0:
            break
        inner, _ = _bracketed(body[opening:], "{", "}")
        at = opening + (len(inner) + 2 if inner is not None else len(body) - opening)
        nests.append((loop.start(), at))
    return nests
