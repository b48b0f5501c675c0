"""Puts hooks into the functions of a loaded wrapper module, and takes them out again.

The functions keep their identity: only `__code__` changes, so everything that refers to one of them (compiled
graphs, partitions, CUDA graph wrappers) runs the new code. Line numbers stay those of the file on disk.
"""

from __future__ import annotations

import ast
import copy
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

from stepscope.tracer.judge.plan import FunctionPlan
from stepscope.tracer.log.launch_ring import FunctionShape, is_blocking
from stepscope.tracer.wrapper.parsed import LaunchStatement, WrapperSource, wrapper_functions
from stepscope.tracer.wrapper.read_points import ReadPoint
from stepscope.tracer.wrapper.storage_points import find_storage_points

HOOKS = "stepscope hooks"
"""Placeholder in the code, which the hooks object replaces among the code's constants. No name of the module changes,
and a call that is running when the hooks are taken out still has them."""

# Source text of the hooks, which is compiled with the wrapper; the names cannot clash with Inductor's.
FRAME = """
_ss_call = "stepscope hooks".begin({function}, {plan})
try:
    {names}
    _ss_look = _ss_call.look
    _ss_read = _ss_call.read
    _ss_mark = _ss_call.mark
    _ss_see = _ss_call.see_storages
    _ss_flag = _ss_call.flag
    _ss_due = _ss_call.due
except BaseException as _ss_error:
    "stepscope hooks".raised(_ss_call, _ss_error)
    raise
finally:
    "stepscope hooks".end(_ss_call)
"""
BEFORE = """
if _ss_look is not None and _ss_look[{site}]:
    "stepscope hooks".before(_ss_call, {site}, _ss_values)
"""
FLAG = """
if _ss_at > _ss_due[0]:
    _ss_flag(_ss_call)
"""
AFTER_OUTPUTS = """
if _ss_look is not None and _ss_look[{site}]:
    "stepscope hooks".after(_ss_call, {site}, _ss_values)
"""
FLAG_EVERY = 16
"""Number of launches of a function from one FLAG to the next; FLAG follows every launch if launches block."""
MARK = """
if _ss_mark is not None:
    _ss_mark()
"""
SEE_STORAGES = """
if _ss_see is not None:
    _ss_see(_ss_call, {point}, _ss_values)
"""
JUDGE = """
if _ss_judge is not None:
    _ss_judge.{method}({site}_ss_values)
"""
"""Hook of a judged call, which is in the code only while some step is to be judged."""
AROUND = '{name} = "stepscope hooks".red_zones.around(_ss_call, "{name}", {name})'
LOOK = '"stepscope hooks".red_zones.look(_ss_call, {site})'
"""Hooks of red zones, which are in the code only while these are wanted."""
SYMBOLS = '"stepscope hooks".symbols(_ss_call, {numbers}, _ss_values)'
READ = """
if _ss_read is not None:
    _ss_read(_ss_call, {point}, _ss_values)
"""


class TickStatements(NamedTuple):
    """The statements that record when a launch begins and when it returns, and the assignments they need."""

    names: str
    begun: str
    returned: str


COMPILED_TICKS = TickStatements(
    "_ss_tick = _ss_call.tick", "_ss_at = _ss_tick({cell}, {site})", "_ss_at = _ss_tick({cell})"
)
PYTHON_TICKS = TickStatements(
    "_ss_rows, _ss_now, _ss_cells = _ss_call.rows, _ss_call.now, _ss_call.cells",
    "_ss_rows.append({site}); _ss_at = _ss_now(); _ss_cells[{cell}] = _ss_at; _ss_rows.append(_ss_at)",
    "_ss_at = _ss_now(); _ss_cells[{cell}] = _ss_at; _ss_rows.append(_ss_at)",
)


class SwapError(Exception):
    """Raised when the functions of a module do not match its source."""


@dataclass
class Swap:
    """The instrumented functions of one module with their original code; references to the functions are weak."""

    originals: list[tuple[weakref.ref[FunctionType], CodeType]]

    def restore(self) -> None:
        for reference, code in self.originals:
            function = reference()
            if function is not None:
                function.__code__ = code


def swap(
    module: ModuleType | type,
    source: WrapperSource,
    path: str,
    hooks: Any,
    points: Sequence[ReadPoint] = (),
    plan: int = 0,
    judge: Sequence[FunctionPlan] = (),
) -> Swap:
    """Put `hooks` into the functions of `module` (a module or a class), whose analysed source is `source`.

    The syntax tree of `source` is modified. The hooks get `plan` when a call begins, and the index into `points` at
    each reading; `judge` has the plan of each function if some step is judged. Raises SwapError, with nothing changed,
    if a function of the source does not match the module's.

    If the functions have hooks already, these are replaced, running calls finish with the hooks that they began with,
    and the first `Swap` restores the original code.
    """
    ticks = PYTHON_TICKS if hooks.tick_type is None else COMPILED_TICKS
    tree = instrumented(source, points, plan, ticks, judge, has_red_zones=hooks.red_zones is not None)
    pairs = _pairs(module, source, hooks, compile(tree, path, "exec", dont_inherit=True))
    result = Swap([(weakref.ref(function), function.__code__) for function, _ in pairs])
    for function, replacement in pairs:
        function.__code__ = replacement
    return result


def _pairs(
    module: ModuleType | type, source: WrapperSource, hooks: Any, code: CodeType
) -> list[tuple[FunctionType, CodeType]]:
    """Return the functions of a module, each with its instrumented code."""
    pairs = []
    for name in source.functions:
        function = _resolve(module, name)
        replacement = _find_code(code, name.split("."))
        if function is None or replacement is None:
            raise SwapError(f"{name} is not a function of the loaded module")
        if function.__code__.co_freevars or replacement.co_freevars:
            raise SwapError(f"{name} is a closure")
        constants = tuple(hooks if constant == HOOKS else constant for constant in replacement.co_consts)
        pairs.append((function, replacement.replace(co_consts=constants)))
    return pairs


def instrumented(
    source: WrapperSource,
    points: Sequence[ReadPoint],
    plan: int,
    ticks: TickStatements,
    judge: Sequence[FunctionPlan] = (),
    *,
    has_red_zones: bool = False,
) -> ast.Module:
    """Insert the hooks into the syntax tree of `source`, and return the tree."""
    hooks = _Hooks(source, points, ticks, judge, has_red_zones=has_red_zones)
    names = f"{ticks.names}; _ss_judge = _ss_call.judge" if judge else ticks.names
    for number, (_, function) in enumerate(wrapper_functions(source.tree)):
        hooks.first = min(_sites(hooks.launches, function), default=0)
        hooks.insert(function)
        frame = ast.parse(FRAME.format(function=number, plan=plan, names=names)).body
        attempt = frame[1]
        assert isinstance(attempt, ast.Try)
        for node in frame:
            _place(node, function.body[0])
        attempt.body += function.body
        function.body = frame
    return source.tree


def shapes(source: WrapperSource) -> list[FunctionShape]:
    """Return the launch sites of each function as the ring needs them; `source` must not be instrumented yet."""
    launches = {launch.statement: launch for launch in source.launches}
    found = []
    for _, function in wrapper_functions(source.tree):
        sites = _sites(launches, function)
        first = min(sites, default=0)
        loops = (node for node in ast.walk(function) if isinstance(node, (ast.For, ast.While)))
        has_loops = any(_sites(launches, loop) for loop in loops)
        found.append(FunctionShape(first, max(sites, default=-1) - first + 1 if sites else 0, has_loops))
    return found


def _sites(launches: Mapping[ast.stmt, LaunchStatement], parent: ast.AST) -> list[int]:
    nodes = (node for node in ast.walk(parent) if isinstance(node, ast.stmt))
    return [launches[node].site.site for node in nodes if node in launches]


class _Hooks:
    """The statements that are inserted before and after those of a wrapper."""

    def __init__(
        self,
        source: WrapperSource,
        points: Sequence[ReadPoint],
        ticks: TickStatements,
        judge: Sequence[FunctionPlan] = (),
        *,
        has_red_zones: bool = False,
    ) -> None:
        self.ticks = ticks
        self.launches = {launch.statement: launch for launch in source.launches}
        self.is_cuda = source.is_cuda
        self.first = 0
        """First site of the function that is being instrumented."""
        self.reads: dict[tuple[ast.stmt, str], list[ast.stmt]] = {}
        for number, point in enumerate(points):
            expressions = [read.expression for read in point.reads]
            hook = _hook(READ.format(point=number), expressions, point.statement)
            self.reads.setdefault((point.statement, point.place), []).extend(hook)
        self.symbols: dict[ast.stmt, list[ast.stmt]] = {}
        self.storages: dict[tuple[ast.stmt, str], list[ast.stmt]] = {}
        for number, storage_point in enumerate(find_storage_points(source)):
            hook = _hook(SEE_STORAGES.format(point=number), storage_point.expressions, storage_point.statement)
            self.storages.setdefault((storage_point.statement, storage_point.moment), []).extend(hook)

        self.zones = dict(_zones(source)) if has_red_zones else {}
        """Hooks of red zones after a statement."""
        self.judged: dict[ast.stmt, tuple[list[ast.stmt], list[ast.stmt]]] = {}
        """Hooks of the judge before and after a statement."""
        for one in judge:
            self._judge(one)
        for statement, names in source.bindings:
            numbers = tuple(source.symbols.index(name) for name in names)
            values = [ast.Name(name, ast.Load()) for name in names]
            self.symbols[statement] = _hook(SYMBOLS.format(numbers=numbers), values, statement)
            if judge:
                self.symbols[statement] += _judge_hook("bind", f"{tuple(names)!r}, ", names, statement)

    def _judge(self, plan: FunctionPlan) -> None:
        if plan.entry is not None:
            self.judged[plan.entry] = [], _judge_hook("enter", "", plan.inputs, plan.entry)
        if plan.leave is not None:
            results = [operand.variable for operand in plan.results]
            self.judged[plan.leave] = _judge_hook("leave", "", results, plan.leave), []
        for number, launch in plan.launches.items():
            statement = plan.statements[number]
            given = [operand.variable for operand in launch.operands]
            before = _judge_hook("before", f"{number}, ", given, statement)
            self.judged[statement] = before, _judge_hook("after", f"{number}, ", launch.after, statement)

    def insert(self, parent: ast.AST) -> None:
        """Surround each launch and each read point below `parent` with its hooks."""
        for field in ("body", "orelse", "finalbody"):
            block = getattr(parent, field, None)
            if not isinstance(block, list):
                continue
            result: list[ast.stmt] = []
            for statement in block:
                self.insert(statement)
                result += self._surrounded(statement)
            setattr(parent, field, result)

    def _surrounded(self, statement: ast.stmt) -> list[ast.stmt]:
        launch = self.launches.get(statement)
        reads = [*self.storages.get((statement, "before"), []), *self.reads.get((statement, "before"), [])]
        then = [*self.symbols.get(statement, []), *self.storages.get((statement, "after"), [])]
        then += self.reads.get((statement, "after"), [])
        judge, verdict = self.judged.get(statement, ([], []))
        reads, then = [*reads, *judge], [*self.zones.get(statement, []), *verdict, *then]
        if launch is None:
            return [*reads, statement, *then]
        before, core, after = _with_hooks(statement, launch, launch.site.site - self.first, self.ticks)
        if self.is_cuda:
            before = [*_hook(MARK, [], statement), *before]
            last = len(after) - isinstance(statement, ast.Return)
            after[last:last] = _hook(MARK, [], statement)
            if is_blocking() or (launch.site.site - self.first) % FLAG_EVERY == FLAG_EVERY - 1:
                after[last:last] = _hook(FLAG, [], statement)
        if isinstance(statement, ast.Return):
            return [*reads, *before, core, *after[:-1], *then, after[-1]]
        return [*reads, *before, core, *after, *then]


def _zones(source: WrapperSource) -> Iterator[tuple[ast.stmt, list[ast.stmt]]]:
    """Yield the statements that allocate buffers or launch kernels, each with its hooks of red zones."""
    for statement, events in source.events.items():
        hooks: list[ast.stmt] = []
        for event in events:
            if isinstance(event, LaunchStatement):
                hooks += _hook(LOOK.format(site=event.site.site), [], statement)
            elif event.event in ("allocate", "pool"):
                hooks += _hook(AROUND.format(name=event.buffer), [], statement)
        yield statement, hooks


def _with_hooks(
    statement: ast.stmt, launch: LaunchStatement, slot: int, ticks: TickStatements
) -> tuple[list[ast.stmt], ast.stmt, list[ast.stmt]]:
    """Return the statements before a launch, the launch, and the statements after it."""
    site = launch.site.site
    before = _hook(BEFORE.format(site=site), launch.expressions, statement)
    before += _hook(ticks.begun.format(cell=2 * slot, site=site), [], statement)
    after = _hook(ticks.returned.format(cell=2 * slot + 1), [], statement)
    if isinstance(statement, ast.Return):
        result, leave = ast.parse("_ss_result = None\nreturn _ss_result").body
        assert isinstance(result, ast.Assign)
        assert statement.value is not None
        _place(result, statement)
        _place(leave, statement)
        result.value = statement.value
        return before, result, [*after, leave]
    if launch.bound:
        outputs = [ast.parse(name, mode="eval").body for name in launch.bound]
        after += _hook(AFTER_OUTPUTS.format(site=site), outputs, statement)
    return before, statement, after


def _hook(text: str, expressions: Sequence[ast.expr], at: ast.stmt) -> list[ast.stmt]:
    statements = ast.parse(text).body
    values = ast.Tuple([copy.deepcopy(expression) for expression in expressions], ast.Load())
    for statement in statements:
        _Values(values).visit(statement)
        _place(statement, at)
    return statements


def _judge_hook(method: str, site: str, names: Sequence[str], at: ast.stmt) -> list[ast.stmt]:
    values = [ast.Name(name, ast.Load()) for name in names]
    return _hook(JUDGE.format(method=method, site=site), values, at)


class _Values(ast.NodeTransformer):
    def __init__(self, values: ast.Tuple) -> None:
        self.values = values

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self.values if node.id == "_ss_values" else node


def _place(node: ast.AST, at: ast.stmt) -> None:
    """Give every node of a hook the position of the statement that it belongs to."""
    for part in ast.walk(node):
        if isinstance(part, (ast.stmt, ast.expr, ast.excepthandler)):
            part.lineno = at.lineno
            part.end_lineno = at.lineno
            part.col_offset = part.end_col_offset = at.col_offset


def _resolve(module: ModuleType | type, qualified_name: str) -> FunctionType | None:
    found: Any = module
    for part in qualified_name.split("."):
        found = vars(found).get(part)
        if found is None:
            return None
    return found if isinstance(found, FunctionType) else None


def _find_code(code: CodeType, path: list[str]) -> CodeType | None:
    for part in path:
        found = [c for c in code.co_consts if isinstance(c, CodeType) and c.co_name == part]
        if len(found) != 1:
            return None
        code = found[0]
    return code
