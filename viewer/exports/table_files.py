"""Writes a table of the index as CSV or Parquet."""

from __future__ import annotations

import shutil
from typing import Literal

from stepscope.viewer.errors import StepscopeError
from stepscope.viewer.exports.formats import STDOUT, Wanted, opened
from stepscope.viewer.exports.queries import tables as queries
from stepscope.viewer.store.trace import Trace


def export(trace: Trace, wanted: Wanted) -> int:
    names = queries.tables(trace)
    if wanted.table not in names:
        raise StepscopeError(f"--table {wanted.table} is not known; there are: {', '.join(names)}")
    form: Literal["csv", "parquet"] = "parquet" if wanted.format == "parquet" else "csv"
    if wanted.path != STDOUT:
        return queries.write_table(trace, wanted.table, wanted.path, form)
    file, count = queries.table_file(trace, wanted.table, form)
    with file, opened(wanted.path) as out:
        shutil.copyfileobj(file, out)
    return count
