"""Finds readings that had the same bits, by their digests."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.values.rows import Reading, ValueRow

MOST_ROWS = 5_000
"""Number of rows with equal digests that are looked at."""
_SAME = f"""
    SELECT v.value, v.log, v.step, v.launch, v.site, v.argument, v.item, v.part, v.moment, v.digest, v.dtype, v.numel,
           coalesce(a.buffer, a.name, '') AS name
    FROM value_rows v LEFT JOIN arguments a ON a.site = v.site AND a.argument = v.argument
    WHERE v.digest IN (SELECT unnest($1)) AND v.value <= $2 AND v.looked_at = v.numel
    ORDER BY v.value DESC LIMIT {MOST_ROWS}
"""
_OTHERS = """
    SELECT v.site, v.argument, v.item, v.part, v.moment, v.value FROM value_rows v
    WHERE list_contains($1, v.site) AND v.value BETWEEN $2 AND $3 ORDER BY v.value
"""


class _Row(NamedTuple):
    value: int
    log: int
    step: int
    launch: int
    site: int
    argument: int
    item: int | None
    part: str | None
    moment: str
    digest: int
    dtype: str
    numel: int
    name: str

    @property
    def bits(self) -> tuple[int, int, str, int]:
        return self.log, self.digest, self.dtype, self.numel

    @property
    def place(self) -> tuple[int, int, int | None, str | None, str]:
        return self.site, self.argument, self.item, self.part, self.moment

    @property
    def reading(self) -> Reading:
        return Reading(self.log, self.step, self.launch, self.name)


def name_same_bits(trace: Trace, rows: Sequence[ValueRow]) -> None:
    """Set `unchanged_since` and `equal_to` of rows of which all elements were read."""
    wanted = {row.value: row for row in rows if row.digest is not None and row.looked_at == row.numel and row.numel}
    if not wanted:
        return
    digests = sorted({_signed(row.digest) for row in wanted.values() if row.digest is not None})
    found = sql.records(_Row, trace, _SAME, [digests, max(wanted)])
    same: defaultdict[tuple[int, int, str, int], list[_Row]] = defaultdict(list)
    for one in found:  # the latest first
        same[one.bits].append(one)
    mine = {one.value: one for one in found if one.value in wanted}
    earlier = {value: [one for one in same[row.bits] if one.value < value] for value, row in mine.items()}
    readings = _readings(trace, mine, earlier)
    for value, own in mine.items():
        row = wanted[value]
        first = None
        known = {one.value: one for one in earlier[value] if one.place == own.place}
        for before in readings.get(own.place, ()):
            if before < value:
                if before not in known:
                    break
                first = known[before]
        row.unchanged_since = first.reading if first is not None else None
        if row.min != row.max:
            other = next((one for one in earlier[value] if one.place != own.place and one.name != own.name), None)
            row.equal_to = other.reading if other is not None else None


def _readings(
    trace: Trace, mine: dict[int, _Row], earlier: dict[int, list[_Row]]
) -> dict[tuple[int, int, int | None, str | None, str], list[int]]:
    """Return all readings of the arguments that had the same bits before, the latest first."""
    places = {row.place for value, row in mine.items() if any(one.place == row.place for one in earlier[value])}
    if not places:
        return {}
    first = min(one.value for rows in earlier.values() for one in rows)
    found = sql.rows(trace, _OTHERS, [sorted({place[0] for place in places}), first, max(mine)])
    readings: dict[tuple[int, int, int | None, str | None, str], list[int]] = {place: [] for place in places}
    for *place, value in reversed(found):
        if tuple(place) in readings:
            readings[tuple(place)].append(value)
    return readings


def _signed(digest: str) -> int:
    number = int(digest, 16)
    return number - (1 << 64) if number >= 1 << 63 else number
