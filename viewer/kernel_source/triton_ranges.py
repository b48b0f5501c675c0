"""The ranges that a user's own Triton kernel accesses behind its pointers, from its source and the numbers of one
launch.

Each expression has an interval, in which either bound may be open. An expression that is loaded from memory or computed
in an unknown way has a reason instead. A mask bounds the expressions that it compares. For a loop, only its own
variable is followed.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, isfinite
from typing import Literal

from stepscope.viewer.kernel_source.intervals import LANES, Interval, binary, clipped, one, plus, times, unknown

Does = Literal["reads", "writes"]
Ends = tuple[tuple[int, int], bool, frozenset[str]] | str
"""First and last element, whether it comes to both, and the pointers whose elements say so; or why it is not known."""
_MOST_STATEMENTS = 4000
_SHOWN = 60
_SAME = ("multiple_of", "max_contiguous", "max_constancy", "to", "broadcast_to", "expand_dims", "ravel")


@dataclass(frozen=True)
class TritonUse:
    parameter: str
    does: Does
    ends: Ends | None
    """None: masked throughout."""


def uses(
    function: ast.FunctionDef, numbers: Mapping[str, Interval], pointers: Sequence[str], grid: Sequence[float]
) -> list[TritonUse]:
    """Of a kernel: `numbers` are those of its parameters, and under ``*NAME`` the elements that are known behind a
    pointer; `grid`: how many programs there are along each axis."""
    reader = _Reader({**numbers, **{name: replace(one(0), base=name) for name in pointers}}, grid)
    try:
        reader.block(function.body)
    except RecursionError:
        return [TritonUse(name, "reads", "the kernel's source is nested too deeply") for name in pointers]
    except OverflowError:
        return [TritonUse(name, "reads", "a number in the kernel's source is too large") for name in pointers]
    followed = {use.parameter for use in reader.found}
    lost = reader.lost | (set(pointers) - followed if reader.loses_pointers else set())
    return reader.found + [
        TritonUse(name, "reads", "its use in the kernel's source could not be read") for name in lost
    ]


class _Reader:
    """Walks the statements. Each assignment makes a new name, so that an expression means what it meant where it
    stood."""

    def __init__(self, parameters: Mapping[str, Interval], grid: Sequence[float]) -> None:
        self.found: list[TritonUse] = []
        self.lost: set[str] = set()
        """Pointers that are handed on to where they are not followed."""
        self.loses_pointers = False
        self._grid = grid
        self._defined: dict[str, ast.expr | Interval] = dict(parameters)
        self._now = {name: name for name in parameters}
        self._is_sure = True
        """What is read now runs in each program."""
        self._left = _MOST_STATEMENTS

    def block(self, body: Sequence[ast.stmt]) -> None:
        for statement in body:
            self._left -= 1
            if self._left < 0:
                self.loses_pointers = True
                return
            self._statement(statement)

    def _statement(self, statement: ast.stmt) -> None:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                self._assign(name, value)
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                self._assign(name, value)
            case ast.AugAssign(target=ast.Name(id=name), op=op, value=value):
                self._assign(name, ast.BinOp(ast.Name(name, ast.Load()), op, value))
            case ast.If():
                self._branch(statement)
            case ast.For(target=ast.Name(id=name), iter=ast.Call() as call):
                self._uses(call)
                turns = self._turns(call)
                self._loop(statement.body, name, turns)
            case ast.For() | ast.While():
                self._loop(statement.body, None, unknown("a loop that is not followed"))
            case ast.Return():
                self._is_sure = False
            case _:
                for node in ast.walk(statement):
                    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                        self._define(node.id, unknown(f"{node.id} is not followed"))
                for expression in ast.iter_child_nodes(statement):
                    if isinstance(expression, ast.expr):
                        self._uses(expression)

    def _assign(self, name: str, value: ast.expr) -> None:
        self._uses(value)
        self._define(name, self._renamed(value))

    def _define(self, name: str, meaning: ast.expr | Interval) -> None:
        version = f"{name}@{len(self._defined)}"
        self._defined[version] = meaning
        self._now[name] = version

    def _branch(self, statement: ast.If) -> None:
        self._uses(statement.test)
        test = self.value(self._renamed(statement.test))
        if test.is_one and not test.varies_with:
            self.block(statement.body if test.low else statement.orelse)
            return
        was_sure, before = self._is_sure, dict(self._now)
        self._is_sure = False
        self.block(statement.body)
        after = self._now
        self._now = dict(before)
        self.block(statement.orelse)
        for name in after.keys() | self._now.keys():
            if after.get(name) != self._now.get(name):
                self._define(name, unknown(f"{name} is not the same in both branches"))
        leaves = any(isinstance(node, ast.Return) for node in ast.walk(statement))
        self._is_sure = was_sure and not leaves

    def _turns(self, call: ast.Call) -> Interval:
        """The variable of a loop over ``range``, ``tl.range`` or ``tl.static_range``."""
        bounds = [self.value(self._renamed(bound)) for bound in call.args]
        if _last(call.func) not in ("range", "static_range") or not 1 <= len(bounds) <= 3:
            return unknown("a loop that is not followed")
        first, end = (one(0), bounds[0]) if len(bounds) == 1 else (bounds[0], bounds[1])
        step = bounds[2] if len(bounds) == 3 else one(1)
        why = first.why or end.why or step.why
        if why is not None or not step.is_one or step.low <= 0:
            return unknown(why or "a loop that is not followed")
        names = first.varies_with | end.varies_with | {f"loop@{len(self._defined)}"}
        if first.is_one and end.is_one and first.low < end.low:
            last = first.low + (end.low - 1 - first.low) // step.low * step.low
            return Interval(first.low, last, first.exact and end.exact, step.low, names)
        return Interval(first.low, end.high - 1, False, 0, names)

    def _loop(self, body: Sequence[ast.stmt], variable: str | None, turns: Interval) -> None:
        nodes = [node for statement in body for node in ast.walk(statement)]
        names = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        bases = {name: self._read(name).base for name in names}
        for name in names:
            self._define(name, unknown(f"{name} changes from turn to turn of a loop", bases[name]))
        if variable is not None:
            self._define(variable, turns)
        was_sure = self._is_sure
        self._is_sure = was_sure and turns.exact
        self.block(body)
        self._is_sure = was_sure
        for name in names:
            self._define(name, unknown(f"{name} changes from turn to turn of a loop", bases[name]))

    # Loads and stores.

    def _uses(self, expression: ast.expr) -> None:
        for node in ast.walk(expression):
            if isinstance(node, ast.Call):
                self._call(node)

    def _call(self, call: ast.Call) -> None:
        name = _last(call.func)
        is_atomic = name.startswith("atomic_")
        if not call.args or not (name in ("load", "store") or is_atomic):
            self._hand_on(call, name)
            return
        position = 1 if name == "load" else 3 if name == "atomic_cas" else 2
        named = {keyword.arg: keyword.value for keyword in call.keywords}
        mask = named.get("mask", call.args[position] if len(call.args) > position and name != "atomic_cas" else None)
        clips, is_whole = self._clips(self._renamed(mask)) if mask is not None else ({}, True)
        place = self.value(self._renamed(call.args[0]), clips)
        if place.base is None:
            self.loses_pointers = True
            return
        ends = self._ends(place, call.args[0], is_whole)
        kinds: tuple[Does, ...] = ("reads",) if name == "load" else ("reads", "writes") if is_atomic else ("writes",)
        self.found += [TritonUse(place.base, does, ends) for does in kinds]

    def _hand_on(self, call: ast.Call, name: str) -> None:
        if name in _SAME:
            return
        for argument in [*call.args, *(keyword.value for keyword in call.keywords)]:
            base = self.value(self._renamed(argument)).base
            if base is not None:
                self.lost.add(base)

    def _ends(self, place: Interval, written: ast.expr, is_whole: bool) -> Ends | None:
        text = ast.unparse(written)
        shown = text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
        if place.why is not None:
            return f"{place.why}: {shown}"
        if place.low > place.high:
            return f"its index is read from memory: {shown}" if place.read_from else None
        if not isfinite(place.low) or not isfinite(place.high):
            return f"nothing bounds its index: {shown}"
        return (int(place.low), int(place.high)), place.exact and is_whole and self._is_sure, place.read_from

    def _clips(self, mask: ast.expr) -> tuple[dict[str, tuple[float, float]], bool]:
        """What a mask leaves of the expressions that it compares, and whether that is all that it does."""
        clips: dict[str, tuple[float, float]] = {}
        is_whole = True
        for part in self._conjuncts(mask):
            found = self._clip(part)
            is_whole = is_whole and found is not None and found[3]
            if found is not None:
                key, low, high, _ = found
                known = clips.get(key, (-inf, inf))
                clips[key] = max(low, known[0]), min(high, known[1])
        return clips, is_whole

    def _conjuncts(self, mask: ast.expr, depth: int = 0) -> Iterator[ast.expr]:
        mask = _plain(mask)
        meaning = self._defined.get(mask.id) if isinstance(mask, ast.Name) else None
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
            yield mask

    def _clip(self, part: ast.expr) -> tuple[str, float, float, bool] | None:
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
            return ast.unparse(left), -inf, more.high - closed, more.is_one
        if less.why is None and not less.varies_with:
            return ast.unparse(right), less.low + closed, inf, less.is_one
        return None

    # Expressions.

    def _renamed(self, node: ast.expr) -> ast.expr:
        """With each name as what it stands for now."""
        copy = ast.parse(ast.unparse(node), mode="eval").body
        for name in ast.walk(copy):
            if isinstance(name, ast.Name) and name.id in self._now:
                name.id = self._now[name.id]
        return copy

    def _read(self, name: str) -> Interval:
        return self.value(ast.Name(self._now.get(name, name), ast.Load()))

    def value(self, node: ast.expr, clips: Mapping[str, tuple[float, float]] | None = None) -> Interval:
        """Of a renamed expression."""
        return _Evaluation(self._defined, self._grid, clips or {}).value(node)


class _Evaluation:
    """Of one expression; each name in it once."""

    def __init__(
        self,
        defined: Mapping[str, ast.expr | Interval],
        grid: Sequence[float],
        clips: Mapping[str, tuple[float, float]],
    ) -> None:
        self._defined, self._grid, self._clips = defined, grid, clips
        self._known: dict[str, Interval] = {}

    def value(self, node: ast.expr) -> Interval:
        node = _plain(node)
        found = self._value(node)
        clip = self._clips.get(ast.unparse(node)) if self._clips else None
        return found if clip is None else clipped(found, *clip)

    def _value(self, node: ast.expr) -> Interval:
        match node:
            case ast.Constant(value=bool() | int() as number):
                return one(int(number))
            case ast.Name(id=name):
                if name not in self._known:
                    meaning = self._defined.get(name)
                    known = self.value(meaning) if isinstance(meaning, ast.expr) else meaning
                    self._known[name] = known or unknown(f"{name} is not known")
                return self._known[name]
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return times(self.value(operand), one(-1))
            case ast.BinOp(left=left, op=op, right=right):
                return binary(op, self.value(left), self.value(right))
            case ast.Call():
                return self._call(node)
        return unknown("it is computed by what is not followed")

    def _call(self, call: ast.Call) -> Interval:
        name = _last(call.func)
        if name == "load":
            return self._loaded(call)
        if name == "to" and isinstance(call.func, ast.Attribute):
            return self.value(call.func.value)
        if name in _SAME and call.args:
            return self.value(call.args[0])
        found = [self.value(argument) for argument in [*call.args, *(keyword.value for keyword in call.keywords)]]
        why = next((value.why for value in found if value.why), None)
        if why is not None:
            return unknown(why)
        if name in ("program_id", "num_programs"):
            axis = int(found[0].low) if found and found[0].is_one else 0
            many = self._grid[axis] if 0 <= axis < len(self._grid) else inf
            if name == "num_programs":
                return one(many) if isfinite(many) else unknown("how many programs there are is not known")
            return Interval(0, many - 1, isfinite(many), 1, frozenset({f"program {axis}"}))
        if name == "arange" and len(found) == 2 and found[0].is_one:
            last = found[1].high - 1
            return Interval(found[0].low, last, found[1].is_one, 1, frozenset({f"{LANES} {id(call)}"}))
        if name == "cdiv" and len(found) == 2:
            return binary(ast.FloorDiv(), plus(found[0], plus(found[1], one(-1))), found[1])
        if name in ("minimum", "min", "maximum", "max") and len(found) == 2:
            pick: Callable[[float, float], float] = min if name.startswith("min") else max
            low, high = pick(found[0].low, found[1].low), pick(found[0].high, found[1].high)
            exact = all(value.is_one for value in found)
            return Interval(low, high, exact, 1 if exact else 0, found[0].varies_with | found[1].varies_with)
        return unknown(f"it is computed by {name or 'what is not followed'}")

    def _loaded(self, call: ast.Call) -> Interval:
        base = self.value(call.args[0]).base if call.args else None
        held = self._defined.get(f"*{base}")
        named = {keyword.arg: self.value(keyword.value) for keyword in call.keywords if keyword.arg == "other"}
        other = named.get("other", one(0))
        if not isinstance(held, Interval) or other.why is not None or len(call.args) > 2:
            return unknown("its index is read from memory")
        is_masked = len(call.args) > 1 or bool(call.keywords)
        low, high = (min(held.low, other.low), max(held.high, other.high)) if is_masked else (held.low, held.high)
        return replace(held, low=low, high=high)


def _plain(node: ast.expr) -> ast.expr:
    """Without ``[:, None]``."""
    while isinstance(node, ast.Subscript):
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if not all(isinstance(part, ast.Slice) or getattr(part, "value", 0) is None for part in parts):
            break
        node = node.value
    return node


def _last(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
