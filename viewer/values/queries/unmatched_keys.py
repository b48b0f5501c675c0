"""Queries the calls of `load_state_dict` that do not load tensors because of a prefix."""

from __future__ import annotations

from typing import NamedTuple

from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

_UNMATCHED = """
    SELECT min(log) AS log, arg_min(time_unix_ns, log) AS time_unix_ns, module, tensors, missing, explained,
           given_prefix, own_prefix, arg_min(given_key, log) AS given_key, file, line
    FROM unmatched_keys WHERE explained > 0 AND given_prefix || own_prefix <> ''
    GROUP BY module, tensors, missing, explained, given_prefix, own_prefix, file, line
    ORDER BY log, time_unix_ns, line
"""


class Unmatched(NamedTuple):
    """A call of `load_state_dict` at a line of the program, in the first log that has it."""

    log: int
    time_unix_ns: int
    module: str
    """The class of the module."""
    tensors: int
    missing: int
    """The number of tensors that were not loaded."""
    explained: int
    """The number of those that would have been loaded without the prefix."""
    given_prefix: str
    """What the keys of the `state_dict` have and those of the module lack."""
    own_prefix: str
    """What the keys of the module have and those of the `state_dict` lack."""
    given_key: str
    file: str | None
    line: int | None


def unmatched_keys(trace: Trace) -> list[Unmatched]:
    """Return the calls that did not load tensors because of a prefix."""
    return sql.records(Unmatched, trace, _UNMATCHED)
