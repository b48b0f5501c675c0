"""Collects the rows of `records`, the largest table of an index, in one array per column."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from stepscope.viewer.ingest.rows import IndexRows

if TYPE_CHECKING:
    from stepscope.viewer.ingest.columns import Ints

FRACTION_END = 21
"""Offset in a header line after level, stamp, point and microseconds, as PyTorch writes them."""
DIGEST_BYTES = 32
TAIL_BYTES = DIGEST_BYTES + 2
"""Length of the end of a header line with a payload: its md5, and the characters that close the JSON."""
UNKNOWN = -(2**63)
_NUMBERS = ("line", "byte", "header_bytes", "payload_byte", "payload_bytes", "time_unix_ns", "crlf", "kind")


class SharedColumns(NamedTuple):
    """Columns whose values many records share."""

    pid: int | None
    source: str
    event: str
    name: str | None
    encoding: str | None
    compile_id: str | None
    attempt: int | None


class RecordColumns:
    def __init__(self) -> None:
        self._kinds: dict[SharedColumns, int] = {}
        self._columns = {name: array("q") for name in _NUMBERS}

    def __len__(self) -> int:
        return len(self._columns["kind"])

    def kind(self, kind: SharedColumns) -> int:
        """Return the number of a combination of shared columns."""
        return self._kinds.setdefault(kind, len(self._kinds))

    def add(
        self, kind: int, line: int, byte: int, header_bytes: int, payload_byte: int | None, payload_bytes: int | None,
        time_ns: int | None, crlf: bool,
    ) -> None:  # fmt: skip
        row = (line, byte, header_bytes, payload_byte, payload_bytes, time_ns, crlf, kind)
        for column, value in zip(self._columns.values(), row, strict=True):
            column.append(UNKNOWN if value is None else value)

    def extend(self, columns: Mapping[str, Ints], kinds: Sequence[int]) -> None:
        """Add rows whose columns are all in `columns` and `kinds`."""
        for name, column in columns.items():
            self._columns[name].frombytes(column.astype("int64", copy=False).tobytes())
        self._columns["kind"].extend(kinds)

    def rename(self, first: int, since: Sequence[tuple[int, int | None, str]]) -> None:
        """Add prefixes to compile ids. Each entry of `since` is (record, process, prefix): ids of the process have the
        prefix from that record on. The first row is record `first`."""
        if not since:
            return
        kinds, prefixes = list(self._kinds), dict[int | None, str]()
        column, left = self._columns["kind"], list(reversed(since))
        for row in range(since[0][0] - first, len(column)):
            while left and left[-1][0] <= first + row:
                _, pid, prefix = left.pop()
                prefixes[pid] = prefix
            kind = kinds[column[row]]
            if kind.compile_id is not None and kind.pid in prefixes:
                column[row] = self.kind(kind._replace(compile_id=prefixes[kind.pid] + kind.compile_id))

    def assign(self, first: int, compile_ids: Mapping[int, str]) -> None:
        """Set the compile ids of records, given by record id. The first row is record `first`."""
        kinds, column = list(self._kinds), self._columns["kind"]
        for record, compile_id in compile_ids.items():
            column[record - first] = self.kind(kinds[column[record - first]]._replace(compile_id=compile_id))

    def finish(self, rows: IndexRows, log: int, with_numpy: bool) -> None:
        """Add the rows to `rows`. For few rows the import of numpy takes longer than it saves."""
        first = rows.new_id("records", len(self))
        if with_numpy and len(self):
            rows.add_columns("records", self._as_arrays(first, log))
        else:
            rows.extend("records", self._as_lists(first, log))

    def _as_lists(self, first: int, log: int) -> dict[str, Collection[Any]]:
        numbers = {
            name: [None if number == UNKNOWN else number for number in column]
            for name, column in self._columns.items()
            if name not in ("kind", "crlf")
        }
        kinds, numbers_of_kinds = list(self._kinds), self._columns["kind"]
        return {
            "record": range(first, first + len(self)),
            "log": [log] * len(self),
            **numbers,
            **{name: [kinds[kind][i] for kind in numbers_of_kinds] for i, name in enumerate(SharedColumns._fields)},
            "crlf": [bool(crlf) for crlf in self._columns["crlf"]],
        }

    def _as_arrays(self, first: int, log: int) -> dict[str, Any]:
        import numpy as np

        from stepscope.viewer.ingest.columns import as_column

        numbers = {name: np.frombuffer(column, np.int64) for name, column in self._columns.items()}
        kind, crlf = numbers.pop("kind"), numbers.pop("crlf")
        kinds = zip(SharedColumns._fields, zip(*self._kinds, strict=True), strict=True)
        return {
            "record": first + np.arange(len(kind)),
            "log": np.full(len(kind), log),
            **{name: np.ma.array(column, mask=column == UNKNOWN) for name, column in numbers.items()},
            **{name: as_column(values)[kind] for name, values in kinds},
            "crlf": crlf.astype(bool),
        }
