"""Returns the tables of the index as files."""

from __future__ import annotations

from stepscope.viewer.exports.queries.tables import table_file, tables
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.web.addresses import Download, File, NotThere, Request

CONTENT_TYPES = {"csv": "text/csv", "parquet": "application/vnd.apache.parquet"}


def table(trace: Trace, request: Request) -> File:
    name, form = request.path["table"], request.path["form"]
    if name not in tables(trace) or form not in CONTENT_TYPES:
        raise NotThere("This trace contains no such table; /tables lists them.")
    content, _ = table_file(trace, name, "csv" if form == "csv" else "parquet")
    return File(content, CONTENT_TYPES[form], f"{name}.{form}")


ROUTES = (Download("/tables/{table}/{form}", table),)
