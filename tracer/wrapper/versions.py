"""Finds the versions of buffers: the contents of each argument's memory, and where each version is read.

The statements of a wrapper are followed by storage. An allocation or a graph input is a storage; aliases, views and
reuses refer to the same one; members of a pool are separate storages, since the memory planner
(torch/_inductor/codegen/memory_planning.py) never overlays two live ones. A version is read once, after its writer; an
input before its first use; a part that was not written by itself, before the launch that reads it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from stepscope.tracer.schema.graphs import Argument, Held, LaunchSite, MemoryStatement, Version
from stepscope.tracer.wrapper.expressions import buffer_of, dotted
from stepscope.tracer.wrapper.parsed import LaunchStatement, WrapperSource, wrapper_functions
from stepscope.tracer.wrapper.read_points import MOST_AT_ONCE, Read, ReadPoint, ReadQueue, Side
from stepscope.tracer.wrapper.statements import (
    WHOLE,
    Parts,
    allocation,
    checked_layouts,
    copies_later,
    extent_of,
    is_custom,
    variables,
)

RESIZES = frozenset({"resize_storage_bytes_"})
"""Operators that change the memory of a tensor although their schemas do not say so."""

Wanted = Callable[[LaunchSite, Argument], bool]


@dataclass
class Followed:
    sites: list[LaunchSite]
    """Launch sites of the wrapper, with `storage`, `held` and `version` of their arguments."""
    points: list[ReadPoint]


@dataclass(eq=False)
class _Storage:
    name: str
    held: Held | None
    rows: dict[str, Version] = field(default_factory=dict)
    """Value row of the current contents, by the part that was read."""
    is_fixed: bool = False
    is_checked: bool = False
    is_fresh: bool = False
    """Whether the storage comes from a dead buffer, so that only an in-place kernel can use its contents."""
    is_as_given: bool = True
    """Whether nothing can have changed the storage, if it is an input, since the call began."""
    parts: Parts | None = None
    """Written parts of memory that this function allocates; None for other memory."""


@dataclass
class _View:
    """The storage that a name refers to, and the part of it."""

    storage: _Storage
    extent: str = WHOLE


def follow(
    source: WrapperSource,
    wanted: Wanted = lambda site, argument: True,
    *,
    again: bool = False,
    deferred: bool = False,
) -> Followed:
    """Follow the buffers of `source`, and plan to read the arguments that are `wanted`.

    With `again` every argument is also read before each launch, and the inputs of a custom operator, which may change
    them without declaring it, also after it. With `deferred` reads wait until a statement writes,
    frees or renames what they read, so that one reading may serve several launches; this is correct only if reads and
    launches are ordered among themselves, as on a CUDA stream.
    """
    result = Followed(list(source.sites), [])
    for _, node in wrapper_functions(source.tree):
        _Follower(source, result, wanted, again, deferred).function(node.body)
    return result


class _Follower:
    def __init__(self, source: WrapperSource, result: Followed, wanted: Wanted, again: bool, deferred: bool) -> None:
        self.source, self.result, self.wanted = source, result, wanted
        self.again, self.deferred = again, deferred
        self.names: dict[str, _View] = {}
        self.lists: dict[str, list[_Storage]] = {}
        self.queue = ReadQueue(result.points, deferred)
        self.entry: ast.stmt | None = None
        self.checked: set[str] = set()
        self.given: set[str] = set()
        self.inputs: list[list[Read]] = []

    def function(self, body: list[ast.stmt]) -> None:
        self._find_entry(body)
        self._block(body)
        if self.entry is not None:
            self.result.points += [ReadPoint(self.entry, "after", tuple(reads)) for reads in self.inputs]
        if body:
            self.queue.flush(body[-1], "after")

    def _find_entry(self, body: list[ast.stmt]) -> None:
        """Find the statement after which the inputs have names and have passed the wrapper's first checks."""
        for statement in body:
            if self.entry is None:
                if isinstance(statement, ast.Assign) and ast.unparse(statement.value) == "args":
                    self.entry = statement
                    self.given = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
            elif fixed := [name for name, (_, is_fixed) in checked_layouts(statement).items() if is_fixed]:
                self.entry = statement
                self.checked.update(fixed)
            elif not (isinstance(statement, ast.Expr) and ast.unparse(statement) == "args.clear()"):
                break

    def _block(self, body: list[ast.stmt]) -> None:
        for statement in body:
            if isinstance(statement, (ast.If, ast.While, ast.For, ast.Try)):
                self._branches(statement)
            elif isinstance(statement, ast.With):
                self._with(statement)
            else:
                self._statement(statement)

    def _with(self, statement: ast.With) -> None:
        changes_stream = any("stream" in ast.unparse(item.context_expr) for item in statement.items)
        if changes_stream:
            self.queue.flush(statement, "before")
        self._block(statement.body)
        if changes_stream and statement.body:
            self.queue.flush(statement.body[-1], "after")

    def _branches(self, statement: ast.If | ast.While | ast.For | ast.Try) -> None:
        """Follow the blocks of a branch or a loop, whose effects are unknown after it."""
        self.queue.flush(statement, "before")
        self._forget_rows()
        for name in ("body", "orelse", "finalbody"):
            block = getattr(statement, name, None)
            if block:
                self._block(block)
                self.queue.flush(block[-1], "after")
                self._forget_rows()

    def _forget_rows(self) -> None:
        for view in self.names.values():
            view.storage.rows.clear()
            view.storage.is_as_given = False

    def _statement(self, statement: ast.stmt) -> None:
        self._sizes(statement)
        events = self.source.events.get(statement, [])
        for event in events:
            if isinstance(event, LaunchStatement):
                self._launch(event, statement)
            else:
                self._memory(event, statement)
        if isinstance(statement, ast.Return) and not any(isinstance(event, LaunchStatement) for event in events):
            self.queue.flush(statement, "before")

    # Names.

    def _view(self, name: str) -> _View:
        """Return the view of `name`; a name that was not bound before is an input of the function."""
        if name not in self.names:
            self.names[name] = _View(_Storage(name, "input"))
        return self.names[name]

    def _seen(self, expression: ast.expr) -> _View | None:
        """Return the storage that an argument refers to, and the part of it, or None."""
        text = ast.unparse(expression)
        if text in self.names:
            return self.names[text]
        name = buffer_of(expression)
        if name is None:
            return None
        view = self._view(name)
        if isinstance(expression, ast.Call) and dotted(expression.func) == "reinterpret_tensor":
            return _View(view.storage, extent_of(expression.args[1], expression.args[3:4]))
        return view if isinstance(expression, ast.Name) else _View(view.storage, text)

    def _sizes(self, statement: ast.stmt) -> None:
        """Use the size in ``assert_size_stride(buf, size, stride)`` for a tensor that was not allocated here."""
        for name, (size, is_fixed) in checked_layouts(statement).items():
            view = self._view(name)
            view.storage.is_checked |= is_fixed and view.storage.held == "input"
            if view.extent == WHOLE:
                view.extent = extent_of(size, [])
                if WHOLE in view.storage.rows:
                    view.storage.rows[view.extent] = view.storage.rows.pop(WHOLE)

    def _memory(self, event: MemoryStatement, statement: ast.stmt) -> None:
        name, of = event.buffer, event.of
        if event.event in ("allocate", "pool", "pool_member"):
            self._rebind(name, statement)
            if event.event == "pool_member":  # it may reuse the memory of a dead one, which no statement frees
                self.queue.flush(statement, "before")
            found = allocation(statement)
            parts = Parts(found.extent) if found.held == "uninitialised" and found.extent else None
            storage = _Storage(name, found.held, is_fixed=found.is_fixed, parts=parts)
            self.names[name] = _View(storage, found.extent or WHOLE)
        elif event.event in ("reuse", "alias") and of is not None:
            value = statement.value if isinstance(statement, ast.Assign) else None
            view = self._seen(value) if value is not None else self._view(of)
            self._rebind(name, statement)
            if view is not None:
                self.names[name] = view
                view.storage.is_fresh |= event.event == "reuse"
        elif event.event == "item" and isinstance(statement, ast.Assign):
            self._rebind(name, statement)
            self.names[name] = self._member(name, statement.value)
        elif event.event == "hold" and of is not None:
            self._hold(event, statement)
        elif event.event in ("free", "drop"):
            self._rebind(name, statement)
            self.names.pop(name, None)

    def _rebind(self, name: str, statement: ast.stmt) -> None:
        """Flush waiting reads that use `name`, which will refer to another value."""
        if self.queue.uses_name(name):
            self.queue.flush(statement, "before")

    def _member(self, name: str, value: ast.expr) -> _View:
        """Return the member of a launch's result, or of a list, as in ``buf1 = buf0[0]``."""
        text = ast.unparse(value)
        if text not in self.names:
            whole = self.names.get(buffer_of(value) or "")
            storage = _Storage(name, whole.storage.held if whole is not None else "written")
            index = value.slice if isinstance(value, ast.Subscript) else None
            if whole is not None and isinstance(index, ast.Constant) and isinstance(index.value, int):
                rows = whole.storage.rows
                storage.rows = {extent: replace(row, item=index.value) for extent, row in rows.items()}
            self.names[text] = _View(storage)
        return self.names[text]

    def _hold(self, event: MemoryStatement, statement: ast.stmt) -> None:
        view = self._view(event.of or "")
        target = statement.targets[0] if isinstance(statement, ast.Assign) else None
        if isinstance(target, ast.Subscript):
            self.names[ast.unparse(target)] = view
        self.lists.setdefault(event.buffer, []).append(view.storage)

    # Launches.

    def _launch(self, launch: LaunchStatement, statement: ast.stmt) -> None:
        site = launch.site
        if site.kind == "subgraph":
            self._subgraph(launch, statement)
            return
        if self.again and is_custom(site):
            self.queue.flush(statement, "before")
        in_flight = (site.kind == "collective" and "wait_tensor" not in site.kernel) or copies_later(launch)
        views = [self._seen(expression) for expression in launch.expressions]
        for name in launch.bound:
            self._rebind(name, statement)
        if site.kernel.split(".")[-1] in RESIZES or (site.kind == "fallback" and ".set_." in f"{site.kernel}."):
            self.queue.flush(statement, "before")
            self._unknown(views[:1])
            in_flight = True
        written = {id(v.storage) for v, a in zip(views, site.arguments, strict=False) if v and a.role != "in"}
        self._flush_if_read(written, statement)
        facts = self._before(launch, views, statement)
        self._flush_if_read(written, statement)
        facts += self._after(launch, views, statement, in_flight)
        self.result.sites[site.site] = replace(self.result.sites[site.site], arguments=facts)

    def _flush_if_read(self, written: set[int], statement: ast.stmt) -> None:
        """Flush waiting reads of storages that the launch writes."""
        if self.queue.uses_storage(written):
            self.queue.flush(statement, "before")

    def _unknown(self, views: list[_View | None]) -> None:
        for view in views:
            if view is not None:
                view.storage.rows.clear()
                view.storage.held = None

    def _subgraph(self, launch: LaunchStatement, statement: ast.stmt) -> None:
        """Follow the call of a subgraph, which may write to all its arguments; its function is followed separately."""
        self.queue.flush(statement, "before")
        facts = []
        for expression, argument in zip(launch.expressions, launch.site.arguments, strict=False):
            view = self._seen(expression)
            given = self.lists.get(argument.buffer or "", [])
            for storage in [*given, *([view.storage] if view else [])]:
                storage.rows.clear()
                storage.is_as_given = False
            facts.append(argument)
        for name, argument in zip(launch.bound, launch.site.arguments[len(launch.expressions) :], strict=True):
            self.names[name] = _View(_Storage(name, "written"))
            facts.append(replace(argument, storage=name))
        self.result.sites[launch.site.site] = replace(self.result.sites[launch.site.site], arguments=facts)

    def _before(self, launch: LaunchStatement, views: list[_View | None], statement: ast.stmt) -> list[Argument]:
        facts = []
        pairs = list(zip(views, launch.site.arguments, strict=False))
        written = {id(view.storage) for view, argument in pairs if view and argument.role == "out"}
        for number, (view, argument) in enumerate(pairs):
            if view is None:
                facts.append(argument)
                continue
            storage = view.storage
            version, held = None, storage.held
            if held == "written" and storage.parts and not storage.parts.hold(view.extent, id(storage) in written):
                held = None if argument.role == "in" else "uninitialised"
            if storage.is_fresh and not (argument.parameter or "").startswith("in_out_ptr"):
                held = None if argument.role == "in" else "uninitialised"
            if argument.role != "out" and held in ("input", "written"):
                version = storage.rows.get(view.extent)
                if (version is None or self.again) and self.wanted(launch.site, argument):
                    row = Version(launch.site.site, number, "before")
                    if version is None and storage.held == "input" and storage.is_as_given and self.deferred:
                        self._read_at_entry(row, launch.expressions[number], storage, statement)
                    else:
                        self._read(row, launch.expressions[number], storage, statement, "before")
                    version = version or row
                    storage.rows[view.extent] = version
            facts.append(replace(argument, storage=storage.name, held=held, version=version))
        return facts

    def _after(
        self, launch: LaunchStatement, views: list[_View | None], statement: ast.stmt, in_flight: bool
    ) -> list[Argument]:
        site, given = launch.site, len(launch.expressions)
        is_wait, again = site.kind == "collective" and not in_flight, self.again and is_custom(site)
        for number, (view, argument) in enumerate(zip(views, site.arguments, strict=False)):
            if view is not None and (argument.role != "in" or is_wait):
                self._written(view, Version(site.site, number, "after"), launch.expressions[number], launch,
                              statement, in_flight)  # fmt: skip
            elif view and again and view.storage.held in ("input", "written") and self.wanted(site, argument):
                row = Version(site.site, number, "after")
                self._read(row, launch.expressions[number], view.storage, statement, "after")
        facts = []
        shared = views[launch.view_of] if launch.view_of is not None and launch.view_of < given else None
        for number, name in enumerate(launch.bound, given):
            if shared is not None:
                self.names[name] = _View(shared.storage, f"{name}, a view")
                facts.append(replace(site.arguments[number], storage=shared.storage.name))
                continue
            view = self.names[name] = _View(_Storage(name, "written"))
            expression = ast.parse(name, mode="eval").body
            self._written(view, Version(site.site, number, "after"), expression, launch, statement, in_flight)
            facts.append(replace(site.arguments[number], storage=name))
        return facts

    def _written(
        self,
        view: _View,
        row: Version,
        expression: ast.expr,
        launch: LaunchStatement,
        statement: ast.stmt,
        in_flight: bool,
    ) -> None:
        storage = view.storage
        storage.rows.clear()
        if storage.parts is not None:
            storage.parts.add(view.extent, anew=storage.is_fresh)
        storage.is_fresh = False
        storage.held = None if in_flight else "written"
        if not in_flight and self.wanted(launch.site, launch.site.arguments[row.argument]):
            self._read(row, expression, storage, statement, "after")
            storage.rows[view.extent] = row

    # Reading.

    def _read(
        self,
        row: Version,
        expression: ast.expr,
        storage: _Storage,
        statement: ast.stmt,
        place: Side,
    ) -> None:
        if isinstance(expression, ast.Constant):  # an expression that must not be evaluated twice
            return
        names = variables(expression)
        has_symbols = len(names) != 1
        is_fixed, is_checked = storage.is_fixed and not has_symbols, storage.is_checked and not has_symbols
        read = Read(row.site, row.argument, row.moment, expression, is_fixed, is_checked)
        self.queue.add(read, storage, statement, place)

    def _read_at_entry(self, row: Version, expression: ast.expr, storage: _Storage, statement: ast.stmt) -> None:
        """Plan to read an unchanged input with the others at the entry, so that freeing it later causes no flush."""
        names = variables(expression)
        if self.entry is None or not names <= self.given or isinstance(expression, ast.Constant):
            self._read(row, expression, storage, statement, "before")
            return
        read = Read(row.site, row.argument, row.moment, expression, False, names <= self.checked)
        last = self.inputs[-1] if self.inputs else None
        if last is None or len(last) >= MOST_AT_ONCE:
            self.inputs.append([read])
        else:
            last.append(read)
