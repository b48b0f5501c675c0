"""Finds the folder of the program, to which the addresses of its lines in a repository are relative."""

from __future__ import annotations

from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.text.source_links import common_folder

_FILES = """
    SELECT DISTINCT file FROM compiles WHERE file IS NOT NULL
    UNION SELECT DISTINCT unnest(regexp_extract_all(stacks, '"file": ?"((?:[^"\\\\]|\\\\.)*)"', 1)) FROM sites
"""


def source_folder(trace: Trace) -> str | None:
    """Return the common folder of the program's files that compiles and launch sites name."""
    return trace.once(_source_folder)


def _source_folder(trace: Trace) -> str | None:
    return common_folder(file for (file,) in sql.rows(trace, _FILES))
