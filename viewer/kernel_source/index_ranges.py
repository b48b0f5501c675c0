"""Evaluates the index expressions of a kernel to intervals.

The expressions are Python syntax: those of Triton kernels as they are, those of C++ kernels as `cpp_expressions`
translates them. An expression that is computed in an unknown way has a reason instead of a range. A mask bounds the
expressions that it compares.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite

from stepscope.viewer.kernel_source.element_access import Ends
from stepscope.viewer.kernel_source.intervals import (
    LANES,
    Interval,
    apart,
    binary,
    clipped,
    counted,
    one,
    plus,
    times,
    union,
    unknown,
)

Clips = Mapping[str, tuple[float, float]]
"""Bounds of expressions, by their text."""
_SHOWN = 60
_MOST = 1 << 62
SAME = ("multiple_of", "max_contiguous", "max_constancy", "broadcast_to", "expand_dims", "ravel")
"""Functions of Triton that return their first argument, as far as an index is concerned."""
_SIZES_OF_AXES = {f"{axis}index": f"{axis}numel" for axis in ("x", "y", "z", "r", "r0_", "r1_")}
AXES = frozenset(_SIZES_OF_AXES)
"""Names that Inductor gives the indices over which its Triton kernels run."""
_OPPOSITE = {ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt}


@dataclass(frozen=True)
class Mask:
    clips: Clips
    compared: Mapping[str, Interval]
    """The ranges of the clipped expressions without the mask."""
    is_whole: bool
    """The mask does nothing else than these clips, and excludes not everything."""
    is_plain: bool
    """The mask only ends the axes of a generated kernel at their sizes."""


class Names:
    """The meanings of the names of a kernel.

    Each assignment makes a new version of its name, so that an expression keeps its meaning behind the next one.
    """

    def __init__(self, parameters: Mapping[str, Interval], grid: Sequence[float] = ()) -> None:
        self.meanings: dict[str, ast.expr | Interval] = dict(parameters)
        self.now = {name: name for name in parameters}
        """The current version of each name."""
        self.guards: Clips = {}
        """Bounds by the conditions around the current statement."""
        self._grid = grid

    def define(self, name: str, meaning: ast.expr | Interval) -> str:
        """Return the new version."""
        version = f"{name}@{len(self.meanings)}"
        self.meanings[version] = meaning
        self.now[name] = version
        return version

    def renamed(self, node: ast.expr) -> ast.expr:
        """Return a copy with the current version of each name."""
        copy = ast.parse(ast.unparse(node), mode="eval").body
        for name in ast.walk(copy):
            if isinstance(name, ast.Name):
                name.id = self.now.get(name.id, name.id)
        return copy

    def value(self, node: ast.expr) -> Interval:
        """Return the range of a renamed expression."""
        return self._evaluation({}).value(node)

    def place(self, node: ast.expr, mask: Mask) -> tuple[Interval, bool]:
        """Return the range of an address under a mask, and whether the mask does nothing else than bound it."""
        evaluation = self._evaluation(mask.clips)
        found = evaluation.value(node)
        others = (compared for key, compared in mask.compared.items() if key not in evaluation.used)
        return found, mask.is_whole and all(apart(found, compared) for compared in others)

    def mask(self, node: ast.expr) -> Mask:
        """Return what a renamed condition means for the expressions in it."""
        return self._evaluation({}).mask(node)

    def _evaluation(self, clips: Clips) -> _Evaluation:
        return _Evaluation(self.meanings, self._grid, both(self.guards, clips))


def both(a: Clips, b: Clips) -> Clips:
    everything = (-inf, inf)
    pairs = {key: (a.get(key, everything), b.get(key, everything)) for key in a.keys() | b.keys()}
    return {key: (max(one[0], other[0]), min(one[1], other[1])) for key, (one, other) in pairs.items()}


def ends_of(place: Interval, text: str, is_sure: bool) -> Ends | None:
    """Return the elements at an index that is written as `text`; `is_sure`: each value of it is accessed."""
    shown = text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
    if place.why is not None:
        return f"{place.why}: {shown}"
    if place.low > place.high:
        return f"its index is read from memory: {shown}" if place.read_from else None
    if not isfinite(place.low) or not isfinite(place.high):
        return f"nothing bounds its index: {shown}"
    return (int(place.low), int(place.high)), place.exact and is_sure, place.read_from


class _Evaluation:
    """Evaluates an expression, each name in it once."""

    def __init__(
        self, meanings: Mapping[str, ast.expr | Interval], grid: Sequence[float], clips: Clips, is_chosen: bool = False
    ) -> None:
        self._meanings, self._grid, self._clips, self._is_chosen = meanings, grid, clips, is_chosen
        self._known: dict[str, Interval] = {}
        self.used: set[str] = set()
        """The clips that were applied."""

    def value(self, node: ast.expr) -> Interval:
        node = _plain(node)
        found = self._value(node)
        text = ast.unparse(node) if self._clips else ""
        if text not in self._clips:
            return found
        self.used.add(text)
        return clipped(found, *self._clips[text])

    def _value(self, node: ast.expr) -> Interval:
        match node:
            case ast.Constant(value=0):  # 0.0 too
                return one(0)
            case ast.Constant(value=bool() | int() as number) if abs(number) < _MOST:
                return one(int(number))
            case ast.Name(id=name):
                if name not in self._known:
                    meaning = self._meanings.get(name)
                    known = self.value(meaning) if isinstance(meaning, ast.expr) else meaning
                    self._known[name] = known or unknown(f"{name} is not known")
                return self._known[name]
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return times(self.value(operand), one(-1))
            case ast.BinOp(left=left, op=op, right=right):
                return binary(op, self.value(left), self.value(right))
            case ast.Subscript(value=pointer):
                return self._loaded(pointer)
            case ast.IfExp(test=test, body=then, orelse=other):
                return self._choice(test, then, other)
            case ast.Call():
                return self._call(node)
        return unknown("it is computed in a way that is not followed")

    def _call(self, call: ast.Call) -> Interval:
        match last_name(call.func), call.args:
            case (("load" | "loadu"), [place, *others]):
                masks = [*others[:1], *(word.value for word in call.keywords if word.arg == "mask")]
                other = next((word.value for word in call.keywords if word.arg == "other"), ast.Constant(0))
                is_masked = any(not isinstance(mask, ast.Constant) for mask in masks)
                return self._loaded(place, others[1] if len(others) > 1 else other if is_masked else None)
            case "to", [dtype] if isinstance(call.func, ast.Attribute):
                value = self.value(call.func.value)
                is_same = last_name(dtype) in ("int64", "int32")
                return value if is_same or value.why else unknown("it is converted to another type", value.base)
            case ("full", [_, value, *_]) | ("where", [value]):
                return self.value(value)
            case "where", [test, then, other]:
                return self._choice(test, then, other)
            case name, [value, *_] if name in SAME:
                return self.value(value)
        return self._computed(call)

    def _computed(self, call: ast.Call) -> Interval:
        name = last_name(call.func)
        found = [self.value(argument) for argument in [*call.args, *(word.value for word in call.keywords)]]
        why = next((value.why for value in found if value.why), None)
        if why is not None:
            return unknown(why)
        match name, found:
            case (("program_id" | "num_programs"), _):
                axis = int(found[0].low) if found and found[0].is_one else 0
                programs = self._grid[axis] if 0 <= axis < len(self._grid) else inf
                if name == "program_id":
                    return counted(programs, f"program {axis}")
                return one(programs) if isfinite(programs) else unknown("the number of programs is not known")
            case "arange", [first, end] if first.is_one:
                lanes = counted(end.high - first.low, LANES + str(id(call)))
                return plus(first, lanes if end.is_one else Interval(0, lanes.high, False, 1, lanes.varies_with))
            case "cdiv", [number, divisor]:
                return binary(ast.FloorDiv(), plus(number, plus(divisor, one(-1))), divisor)
            case "div_floor_integer", [number, divisor]:
                return binary(ast.FloorDiv(), number, divisor)
            case (("minimum" | "min" | "maximum" | "max"), [left, right]):
                pick: Callable[[float, float], float] = min if name.startswith("min") else max
                low, high = pick(left.low, right.low), pick(left.high, right.high)
                exact = left.is_one and right.is_one
                return Interval(low, high, exact, 1 if exact else 0, left.varies_with | right.varies_with)
        how = f"by {name}, which" if name else "in a way that"
        return unknown(f"it is computed {how} is not followed")

    def _loaded(self, place: ast.expr, other: ast.expr | None = None) -> Interval:
        known = self._meanings.get(f"*{self.value(place).base}")
        outside = None if other is None else self.value(other)
        if not isinstance(known, Interval) or (outside is not None and outside.why):
            return unknown("its index is read from memory")
        return known if outside is None else union(known, outside)

    def _choice(self, test: ast.expr, then: ast.expr, other: ast.expr) -> Interval:
        if self._is_chosen:  # one within another would take exponential time
            return unknown("it is chosen in a way that is not followed")
        parts = list(self._conjuncts(test))
        sides = []
        for value, part in ((then, parts[0]), (other, opposite(parts[0]))):
            clips = self.mask(part).clips if len(parts) == 1 and part is not None else {}
            within = _Evaluation(self._meanings, self._grid, both(self._clips, clips), True)
            sides.append(within.value(value))
        return union(*sides)

    def mask(self, mask: ast.expr) -> Mask:
        clips: Clips = {}
        compared: dict[str, Interval] = {}
        is_whole = is_plain = True
        for part in self._conjuncts(mask):
            found, ends_axis = self._clip(part), _ends_axis(part)
            is_plain = is_plain and ends_axis
            is_whole = is_whole and (ends_axis if found is None else found[2])
            if found is not None:
                key, limits, _, compared[key] = found
                clips = both(clips, {key: limits})
        return Mask(clips, compared, is_whole, is_plain)

    def _conjuncts(self, mask: ast.expr, depth: int = 0) -> Iterator[ast.expr]:
        mask = _plain(mask)
        meaning = self._meanings.get(mask.id) if isinstance(mask, ast.Name) else None
        if isinstance(meaning, ast.expr) and depth < 50:
            yield from self._conjuncts(meaning, depth + 1)
        elif isinstance(mask, ast.BinOp) and isinstance(mask.op, ast.BitAnd):
            yield from self._conjuncts(mask.left, depth + 1)
            yield from self._conjuncts(mask.right, depth + 1)
        elif isinstance(mask, ast.Compare):
            sides = [mask.left, *mask.comparators]
            for left, op, right in zip(sides, mask.ops, sides[1:], strict=False):
                yield ast.Compare(left, [op], [right])
        else:
            yield mask.args[1] if isinstance(mask, ast.Call) and _is_full(mask) else mask

    def _clip(self, part: ast.expr) -> tuple[str, tuple[float, float], bool, Interval] | None:
        """Return the expression that a condition bounds, its limits, whether they are exact, and its range."""
        if not isinstance(part, ast.Compare):
            return None
        op, left, right = part.ops[0], _plain(part.left), _plain(part.comparators[0])
        if isinstance(op, (ast.Gt, ast.GtE)):
            left, right = right, left
        if not isinstance(op, (ast.Lt, ast.LtE, ast.Gt, ast.GtE)):
            return None
        closed = 0 if isinstance(op, (ast.LtE, ast.GtE)) else 1
        less, more = self.value(left), self.value(right)
        if more.why is None and (less.varies_with or less.why) and not more.varies_with:
            (key, shift), limit = self._unshifted(left), more.high - closed
            exact = more.is_one and less.exact and less.low <= limit
            return ast.unparse(key), (-inf, limit - shift), exact, less
        if less.why is None and not less.varies_with:
            (key, shift), limit = self._unshifted(right), less.low + closed
            exact = less.is_one and more.exact and limit <= more.high
            return ast.unparse(key), (limit - shift, inf), exact, more
        return None

    def _unshifted(self, node: ast.expr) -> tuple[ast.expr, float]:
        """Return the expression that `node` is another name of, or differs from by a constant, and this constant."""
        shift: float = 0
        for _ in range(50):
            meaning = self._meanings.get(node.id) if isinstance(node, ast.Name) else node
            match _plain(meaning) if isinstance(meaning, ast.expr) else None:
                case ast.Name() as name if name is not node:
                    node = name
                case ast.BinOp(left=first, op=ast.Add(), right=second):
                    values = self.value(first), self.value(second)
                    constant = next((value for value in values if value.is_one and not value.varies_with), None)
                    if constant is None or constant.base is not None:
                        break
                    node, shift = (second if constant is values[0] else first), shift + constant.low
                case _:
                    break
        return _plain(node), shift


def opposite(part: ast.expr) -> ast.expr | None:
    """Return the condition that holds where a comparison does not; None if it has none of this form."""
    if isinstance(part, ast.Compare) and len(part.ops) == 1 and type(part.ops[0]) in _OPPOSITE:
        return ast.Compare(part.left, [_OPPOSITE[type(part.ops[0])]()], part.comparators)
    return None


def _ends_axis(part: ast.expr) -> bool:
    """Return whether a condition is true, or is ``xindex < xnumel``."""
    match part:
        case ast.Constant(value=None | True):
            return True
        case ast.Compare(left=ast.Name(id=index), ops=[ast.Lt()], comparators=[ast.Name(id=size)]):
            return _SIZES_OF_AXES.get(index.partition("@")[0]) == size.partition("@")[0]
    return False


def _is_full(call: ast.Call) -> bool:
    return last_name(call.func) == "full" and len(call.args) > 1


def _plain(node: ast.expr) -> ast.expr:
    """Return the expression without ``[:, None]``."""
    while isinstance(node, ast.Subscript):
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if not all(isinstance(part, ast.Slice) or getattr(part, "value", 0) is None for part in parts):
            break
        node = node.value
    return node


def last_name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
