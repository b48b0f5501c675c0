"""Finds strings that a log does not define itself, because its process was forked from one whose log is beside it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from stepscope.viewer.ingest.lenient_json import loads
from stepscope.viewer.ingest.log_files import logs_beside, plain_source
from stepscope.viewer.ingest.sources import Source

MOST_LOGS = 8
"""Maximum number of logs beside a log that are searched for a string."""
_STRING_LINE = re.compile(rb'[^{\n]{0,400}(\{"str": ?\[.*)')
_RANK = re.compile(r"rank_(\d+)_")


class StringsBeside:
    """String tables of the logs in the folder of the log at `address`, each of which is read only when it is needed."""

    def __init__(self, address: str) -> None:
        self._address = address

    def tables(self, parent_pid: int | None) -> list[dict[int, str]]:
        """Return the tables, likeliest first; only the parent's if the name of its log identifies it."""
        return [_LazyStrings(address) for address in _likely_first(self._address, parent_pid)]


class _LazyStrings(dict[int, str]):
    def __init__(self, address: str) -> None:
        super().__init__()
        self._address: str | None = address

    def __contains__(self, number: object) -> bool:
        """Read the log at the first call."""
        if self._address is not None:
            with plain_source(self._address) as source:
                self.update(_strings(source))
            self._address = None
        return super().__contains__(number)


def _likely_first(address: str, parent_pid: int | None) -> Iterator[str]:
    try:
        others = logs_beside(address)
    except OSError:
        return
    if parent_pid is not None:
        of_parent = [other for other in others if f"_{parent_pid}_" in other.rpartition("/")[2]]
        others = of_parent or others
    rank = _rank(address)
    yield from sorted(others, key=lambda other: _rank(other) != rank)[:MOST_LOGS]


def _rank(address: str) -> str | None:
    found = _RANK.search(address.rpartition("/")[2])
    return found[1] if found else None


def _strings(source: Source) -> Iterator[tuple[int, str]]:
    if source.size == 0:
        return
    with source.data_path.open("rb") as file:
        for line in file:
            found = _STRING_LINE.match(line)
            if found is None:
                continue
            try:
                value = loads(found[1])
            except ValueError:
                continue
            entry = value.get("str") if isinstance(value, dict) else None
            if isinstance(entry, list) and len(entry) == 2 and isinstance(entry[0], str) and type(entry[1]) is int:
                yield entry[1], entry[0]
