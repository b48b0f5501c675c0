"""Strings that a log does not define itself: its process was forked from one whose log lies beside it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from viewer.ingest.lenient_json import loads
from viewer.ingest.log_files import logs_beside, plain_source
from viewer.ingest.sources import Source

MOST_LOGS = 8
"""So many logs beside one are looked through for a string."""
_NOT_A_STRING = -1
_STRING_LINE = re.compile(rb'[^{\n]{0,400}(\{"str": ?\[.*)')
_RANK = re.compile(r"rank_(\d+)_")
_TABLE_BYTES = 1 << 20


class StringsBeside:
    """String tables of the logs in the folder of the log at `address`, none of which is read before it is needed."""

    def __init__(self, address: str) -> None:
        self._address = address

    def tables(self, parent_pid: int | None) -> list[dict[int, str]]:
        """One table of all that the logs beside it define; of the parent's alone where its log's name says which."""
        return [_LazyStrings(self._address, parent_pid)]


class _LazyStrings(dict[int, str]):
    def __init__(self, address: str, parent_pid: int | None) -> None:
        super().__init__()
        self._logs = _likely_first(address, parent_pid)

    def __contains__(self, number: object) -> bool:
        """Reads one log after another until the string is found."""
        while not super().__contains__(number):
            address = next(self._logs, None)
            if address is None:
                return False
            with plain_source(address) as source:
                for defined, text in _strings(source):
                    self.setdefault(defined, text)
        return True


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
