"""Template filters for the memory pages: groups of alive storages, points of small curves, and data of the plots."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from stepscope.viewer.graphs.rows import SourceLine
from stepscope.viewer.memory.queries.peak_rows import PEAK_MEANINGS
from stepscope.viewer.text.formats import basename, plural

if TYPE_CHECKING:
    from stepscope.viewer.memory.queries.leak_rows import Leak
    from stepscope.viewer.memory.rows import Alive, AliveGroup, GraphMemory, LifetimeMismatchRow

KIND_NAMES = {
    "parameter": "parameter",
    "buffer": "buffer of a module",
    "input": "input",
    "unknown": "input or parameter",
    "gradient": "gradient",
    "saved": "saved for backward",
    "temporary": "temporary",
    "output": "output",
}
MISMATCH_NAMES = {
    "missing_death": "not freed",
    "unexpected_death": "freed too early",
    "missing_allocation": "never allocated",
    "unexpected_allocation": "not expected",
}
MOST_CELLS = 240
MOST_REPORTED = 1500
"""Maximum number of nodes of a curve in a report; longer columns are cut."""
_SHOWN_NAMES = 8
_LEAK_COLUMNS = ("log", "steps", "live_bytes", "held_bytes", "left_bytes")
_MAY_BE_UNKNOWN = ("allocated_bytes", "reserved_bytes", "mismatches")


@dataclass(frozen=True)
class AliveLines:
    """The alive storages from one line of the model."""

    source: SourceLine | None
    storages: int
    storage_bytes: int
    kinds: list[tuple[str, int]]
    names: list[str]


@dataclass(frozen=True)
class KindGroup:
    kind: str
    storages: int
    storage_bytes: int
    lines: list[AliveGroup]


def by_line(alive: Alive) -> list[AliveLines]:
    groups: dict[SourceLine | None, list[AliveGroup]] = {}
    for group in alive.groups:
        groups.setdefault(group.source, []).append(group)
    result = [
        AliveLines(
            source,
            sum(group.storages for group in of),
            sum(group.storage_bytes for group in of),
            [(group.kind, group.storage_bytes) for group in sorted(of, key=_order)],
            [name for group in of for name in group.names][:_SHOWN_NAMES],
        )
        for source, of in groups.items()
    ]
    return sorted(result, key=lambda group: -group.storage_bytes)


def _order(group: AliveGroup) -> int:
    return [*KIND_NAMES].index(group.kind)


def by_kind(alive: Alive) -> list[KindGroup]:
    groups: dict[str, list[AliveGroup]] = {}
    for group in alive.groups:
        groups.setdefault(group.kind, []).append(group)
    found = (
        KindGroup(kind, sum(row.storages for row in of), sum(row.storage_bytes for row in of), of)
        for kind, of in groups.items()
    )
    return sorted(found, key=lambda group: -group.storage_bytes)


def treemap_cells(alive: Alive) -> list[dict[str, Any]]:
    """Return the cells of the treemap: the largest storages, and one cell for the rest of each kind."""
    cells: list[dict[str, Any]] = [
        {
            "kind": row.kind,
            "name": row.name,
            "program": row.program or "",
            "bytes": row.storage_bytes,
            "graph": row.graph,
            "text": f"{basename(row.source.file)}:{row.source.line}" if row.source else "",
        }
        for row in alive.rows[:MOST_CELLS]
        if row.storage_bytes
    ]
    for kind, size in alive.by_kind.items():
        mine = [group for group in alive.groups if group.kind == kind]
        shown = [cell for cell in cells if cell["kind"] == kind]
        rest = size - sum(cell["bytes"] for cell in shown)
        if rest > 0:
            name = plural(sum(group.storages for group in mine) - len(shown), "smaller storage")
            cells.append({"kind": kind, "name": name, "program": "", "bytes": rest, "graph": None, "text": ""})
    return cells


def bar_parts(pairs: Iterable[tuple[str, int]], total: int, width: int = 96) -> list[tuple[str, float, float]]:
    """Return (kind, x, width) for each part of a stacked bar; each part is at least 1 wide so that it shows."""
    found, x = [], 0.0
    for kind, size in pairs:
        wide = round(max(width * size / total, 1.0), 1) if total and size else 0.0
        found.append((kind, round(x, 1), wide))
        x += wide
    return found


def mini_points(shares: Sequence[float], width: float, height: float) -> str:
    """Return the points of a stepped line through `shares` of the maximum, as an SVG `points` attribute."""
    if not shares:
        return ""
    pitch = width / len(shares)
    found = []
    for index, share in enumerate(shares):
        y = round(height - share * height + 1, 1)
        found += [f"{round(index * pitch, 1)},{y}", f"{round((index + 1) * pitch, 1)},{y}"]
    return " ".join(found)


def plot_memory(memory: GraphMemory) -> GraphMemory:
    """Return the data that a plot needs: nodes or else positions, without unknown columns or kernels."""
    nodes = memory.nodes
    if nodes is not None:
        unknown: dict[str, Any] = {name: [] for name in _MAY_BE_UNKNOWN if not any(getattr(nodes, name))}
        nodes = replace(nodes, kind=[], alloc_bytes=[], free_bytes=[], position=[], launched=[], **unknown)
    return replace(memory, kernels={}, nodes=nodes, positions=None if nodes is not None else memory.positions)


def plot_leaks(leaks: Iterable[Leak]) -> list[dict[str, Any]]:
    """Return the columns that the plots of leaks need."""
    return [{name: getattr(leak, name) for name in _LEAK_COLUMNS} for leak in leaks]


def plot_places(sources: Mapping[int, SourceLine], *memories: GraphMemory | None) -> dict[str, Any]:
    """Return the kernels and lines of launch sites; sites refer to them by index because many sites share them."""
    kernels: dict[str, int] = {}
    lines: dict[str, int] = {}
    sites: dict[int, tuple[int, int | None]] = {}
    for memory in memories:
        for site, kernel in memory.kernels.items() if memory else ():
            line = sources.get(site)
            text = f"{basename(line.file)}{line.place.removeprefix(line.file)}  {line.code}" if line else None
            place = None if text is None else lines.setdefault(text, len(lines))
            sites[site] = (kernels.setdefault(kernel, len(kernels)), place)
    return {"kernels": list(kernels), "lines": list(lines), "sites": sites}


def shortened(memory: GraphMemory, most: int = MOST_REPORTED) -> GraphMemory:
    """Cut the columns to the first `most` nodes or positions."""
    nodes = memory.nodes
    if nodes is not None and len(nodes.snode) > most:
        columns = {name: column[:most] for name, column in vars(nodes).items()}
        memory = replace(memory, nodes=type(nodes)(**columns))
    positions = memory.positions
    if positions is not None and len(positions.live_bytes) > most:
        columns = {name: column[:most] for name, column in vars(positions).items()}
        memory = replace(memory, positions=type(positions)(**columns))
    return memory


def mismatch_place(row: LifetimeMismatchRow, side: str) -> str:
    """Return the place, such as ``op3 · kernel (position 4)``, or a phrase for a place that does not exist."""
    position = row.expected if side == "expected" else row.actual
    snode = row.expected_snode if side == "expected" else row.actual_snode
    kernel = row.expected_kernel if side == "expected" else row.actual_kernel
    if position is None:
        if row.kind.endswith("death"):
            return "alive after the call" if side == "expected" else "still alive after the call"
        return "not allocated" if side == "expected" else "never allocated"
    names = " · ".join(name for name in (snode, kernel) if name)
    return f"{names or 'the end'} (position {position})"


def runs_of(numbers: Sequence[int], most: int = 8) -> str:
    """Describe ascending numbers as at most `most` ranges, such as ``0 to 5, 9``."""
    if not numbers:
        return ""
    breaks = [i + 1 for i, (a, b) in enumerate(pairwise(numbers)) if b != a + 1]
    parts = [numbers[a:b] for a, b in pairwise([0, *breaks, len(numbers)])]
    texts = [f"{part[0]} to {part[-1]}" if len(part) > 1 else str(part[0]) for part in parts]
    return ", ".join(texts[:most]) + (f", +{len(texts) - most}" if len(texts) > most else "")


FILTERS = {
    "by_line": by_line,
    "by_kind": by_kind,
    "treemap_cells": treemap_cells,
    "bar_parts": bar_parts,
    "mini_points": mini_points,
    "plot_memory": plot_memory,
    "plot_leaks": plot_leaks,
    "plot_places": plot_places,
    "mismatch_place": mismatch_place,
    "runs_of": runs_of,
}
GLOBALS = {"alive_kinds": KIND_NAMES, "mismatch_names": MISMATCH_NAMES, "peak_meanings": PEAK_MEANINGS}
