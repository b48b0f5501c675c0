"""Finds launch sites by the names of what they compute: operators, FX nodes, scheduler nodes, lines of model source."""

from __future__ import annotations

import json
import re

from stepscope.viewer.graphs.queries.graphs import site_rows
from stepscope.viewer.graphs.rows import SiteRow
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

_KINDS = {"operator": "aten", "scheduler node": "snodes", "FX node": "fx_nodes", "source node": "source_nodes"}
"""Kinds of names, and the columns of `sites` with their JSON lists."""
PLACE = re.compile(r"(.*\.\w+):(\d{1,9})")
"""A line of model source."""
_STRINGS = r"""'"((?:[^"\\]|\\.)*)"'"""
_NAMED = " OR ".join(f"contains(coalesce({column}, ''), $1)" for column in _KINDS.values())
_PLACED = """regexp_matches(coalesce(stacks, ''), '["/\\\\]' || regexp_escape($2))"""
"""Whether a line is in the stacks of a site; its file is given as a whole or by its last parts."""
_SITES = f"SELECT site FROM sites WHERE {_NAMED} OR ($2 <> '' AND {_PLACED}) ORDER BY site"
_NAMES = " UNION ALL ".join(
    f"SELECT '{kind}' AS kind, {place} AS place, site, unnest(regexp_extract_all({column}, {_STRINGS}, 1)) AS name"
    f" FROM sites WHERE contains(lower({column}), lower($1))"
    for place, (kind, column) in enumerate(_KINDS.items())
)
_LIKE = f"""
    SELECT kind, name, count(DISTINCT site) AS sites FROM ({_NAMES}) WHERE contains(lower(name), lower($1))
    GROUP BY kind, place, name
    QUALIFY row_number() OVER (PARTITION BY kind ORDER BY lower(name) <> lower($1), length(name), name) <= $2
    ORDER BY bool_or(lower(name) = lower($1)) DESC, place, lower(name) <> lower($1), length(name), name
"""


def named_sites(trace: Trace, name: str, most: int = 1000) -> list[SiteRow]:
    """Return the launch sites that compute an operator, a node or a line such as ``model.py:12``, in their order."""
    quoted, line = json.dumps(name, ensure_ascii=False), ""
    if place := PLACE.fullmatch(name):
        file = json.dumps(place[1], ensure_ascii=False)[1:-1]
        line = f'{file}","line":{int(place[2])},'
    ids = [site for (site,) in sql.rows(trace, _SITES, [quoted, line])]
    return site_rows(trace, ids[:most])


def names_like(trace: Trace, text: str, most: int) -> list[tuple[str, str, int]]:
    """Return (kind, name, number of launch sites) of names that contain `text`, at most `most` of each kind."""
    return [(kind, name, sites) for kind, name, sites in sql.rows(trace, _LIKE, [text, most])]
