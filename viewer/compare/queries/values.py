"""Joins the launches and value rows of two sides, and finds where their statistics first differ."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import duckdb

from stepscope.viewer.compare.queries.pairs import SitePair
from stepscope.viewer.compare.rows import (
    Compared,
    Growth,
    InputDifference,
    LaunchDifference,
    Numbers,
    Place,
    TensorDifference,
    WithoutPartner,
)
from stepscope.viewer.graphs.queries.program_names import name_in_program
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.store.two_traces import Names

AMPLIFIED = 100
"""How much larger than the differences of its inputs, which are below the tolerance, a launch must make a difference
to be the cause."""
MOST_LAUNCHES, MOST_INPUTS, MOST_BUFFERS = 100, 100, 1000
_COUNTS = ("nan", "positive_infinity", "negative_infinity", "zero", "near_overflow", "subnormal")
_NUMBERS = ("min", "max", "mean", "std")
_KEPT = ("dtype", "numel", "nan", "positive_infinity", "negative_infinity", "zero", *_NUMBERS)
# A mean near zero is a sum that cancels, so its scale is the standard deviation.
_SCALE = {
    name: f"greatest(abs(a.{name}), abs(b.{name}){', a.std, b.std' if name == 'mean' else ''})" for name in _NUMBERS
}
_FAR = {name: f"abs(a.{name} - b.{name}) / nullif({scale}, 0)" for name, scale in _SCALE.items()}
_COUNTS_DIFFER = " OR ".join(f"a.{name} <> b.{name}" for name in _COUNTS)
_EXACT_DIFFER = "a.dtype LIKE '%int%' AND (a.exact_min <> b.exact_min OR a.exact_max <> b.exact_max)"
_LONE = " OR ".join(f"(a.{name} IS NULL) <> (b.{name} IS NULL)" for name in ("min", "max"))
_STATE = f"""
    CASE WHEN a.skipped IS NOT NULL OR b.skipped IS NOT NULL OR a.nan IS NULL OR b.nan IS NULL THEN 'unknown'
         WHEN a.numel <> b.numel OR a.dtype <> b.dtype THEN 'differs'
         WHEN a.looked_at <> b.looked_at THEN 'unknown'
         WHEN a.digest = b.digest THEN 'equal'
         WHEN $by_bits AND a.digest <> b.digest THEN 'differs'
         WHEN coalesce({_COUNTS_DIFFER}, false) OR coalesce({_EXACT_DIFFER}, false) OR ({_LONE})
              OR greatest({", ".join(_FAR.values())}) > $tolerance THEN 'differs'
         ELSE 'equal' END
"""
_CALLS = """
    SELECT c.call, g.pair, c.function,
           row_number() OVER (PARTITION BY g.pair, c.function ORDER BY c.start_ns, c.call) AS n,
           CASE WHEN p.graph = c.graph THEN p.call ELSE c.call END AS root
    FROM {index}.calls c JOIN graph_pairs g ON g."{side}" = c.graph LEFT JOIN {index}.calls p ON p.call = c.parent
    WHERE ${side}_step IS NULL OR c.step = ${side}_step
"""
_LAUNCHES = """
    SELECT l.launch, c.pair, s.pair AS site, row_number() OVER (PARTITION BY l.call, l.site ORDER BY l.launch) AS n
    FROM {index}.launches l JOIN call_pairs c ON c."{side}" = l.call JOIN site_pairs s ON s."{side}" = l.site
"""
_LAUNCH_PAIRS = """
    CREATE TEMP TABLE launch_pairs AS
    SELECT a.launch AS "left", b.launch AS "right", a.pair AS call, a.site
    FROM left_launches a JOIN right_launches b ON a.pair = b.pair AND a.site = b.site AND a.n = b.n
"""
_ROWS = """
    CREATE TEMP TABLE compared AS
    SELECT a.value AS "left", b.value AS "right", a.launch, p."right" AS right_launch, a.call, p.site, a.argument,
           a.item, a.part, a.moment, {state} AS state, {far} AS relative,
           (a.digest IS NOT NULL AND b.digest IS NOT NULL) AS has_digests
    FROM {left}.value_rows a JOIN launch_pairs p ON p."left" = a.launch
    JOIN {right}.value_rows b
      ON b.launch = p."right" AND b.argument = a.argument AND b.moment = a.moment
         AND b.item IS NOT DISTINCT FROM a.item AND b.part IS NOT DISTINCT FROM a.part
"""
_UNNAMED_INPUTS = """
    CREATE TEMP TABLE compared_inputs AS
    SELECT a.value AS "left", b.value AS "right", a.launch, b.launch AS right_launch, a.call, s.pair AS site,
           a.name, a.item, a.part, {state} AS state, {far} AS relative,
           (a.digest IS NOT NULL AND b.digest IS NOT NULL) AS has_digests
    FROM {left}.input_rows a JOIN call_pairs c ON c."left" = a.call
    JOIN {right}.input_rows b
      ON b.call = c."right" AND b.name = a.name AND b.item IS NOT DISTINCT FROM a.item
         AND b.part IS NOT DISTINCT FROM a.part
    JOIN site_pairs s ON s."left" = a.site
"""
# What a launch reads is in the row of the version, or in a row of its own if it was read again.
_INPUT_STATES = """
    CREATE TEMP TABLE suspects AS
    WITH wrote AS (
        SELECT launch, call, site, max(relative) AS relative
        FROM compared WHERE state = 'differs' AND moment = 'after' GROUP BY ALL
    ), read AS (
        SELECT w.launch, w.call, t.root, a.argument, a.version_site, a.version_argument, a.version_moment,
               a.version_item, a.held
        FROM wrote w JOIN site_pairs s ON s.pair = w.site JOIN {left}.arguments a ON a.site = s."left"
        JOIN call_pairs t ON t."left" = w.call
        WHERE a.buffer IS NOT NULL AND a.role <> 'out'
          AND NOT (a.role = 'inout' AND a.held IS NOT DISTINCT FROM 'uninitialised')
    ), rows AS (
        SELECT x.*, t.root, s."left" AS left_site FROM compared x JOIN call_pairs t ON t."left" = x.call
        JOIN site_pairs s ON s.pair = x.site
    ), version AS (
        SELECT r.launch, r.argument, x.state, x.relative
        FROM read r LEFT JOIN rows x
          ON x.root = r.root AND x.left_site = r.version_site AND x.argument = r.version_argument
             AND x.moment = r.version_moment AND (r.version_item IS NULL OR x.item = r.version_item)
             AND (x.launch < r.launch OR (x.launch = r.launch AND x.moment = 'before'))
        QUALIFY x.launch IS NOT DISTINCT FROM max(x.launch) OVER (PARTITION BY r.launch, r.argument)
    ), again AS (
        SELECT launch, argument, state, relative FROM compared
        WHERE moment = 'before' AND launch IN (SELECT launch FROM wrote)
    ), inputs AS (
        FROM again UNION ALL
        SELECT * FROM version v WHERE NOT EXISTS (FROM again g WHERE g.launch = v.launch AND g.argument = v.argument)
    ), states AS (
        SELECT launch, bool_or(state = 'differs') AS differ, bool_and(coalesce(state, 'unknown') = 'equal') AS agree,
               coalesce(max(relative), 0) AS relative
        FROM inputs GROUP BY launch
    )
    SELECT w.launch, w.site,
           CASE WHEN i.differ THEN 'differ'
                WHEN NOT coalesce(i.agree, true) OR g.operands_left_out IS NOT NULL THEN 'unknown'
                WHEN coalesce(i.relative, 0) = 0 OR w.relative >= {amplified} * i.relative THEN 'agree'
                ELSE 'near' END AS inputs
    FROM wrote w LEFT JOIN states i ON i.launch = w.launch JOIN site_pairs s ON s.pair = w.site
    JOIN {left}.sites l ON l.site = s."left" JOIN {left}.graphs g ON g.graph = l.graph
"""
_SUSPECTS = """
    SELECT site, inputs, min(launch) AS launch, count(*) AS launches FROM suspects
    WHERE inputs IN ('agree', 'unknown') OR launch = $first
    GROUP BY site, inputs ORDER BY min(launch) LIMIT $most
"""
_PLACES = """
    SELECT p."left" AS left_launch, p."right" AS right_launch, p.site, l.step AS left_step, r.step AS right_step
    FROM launch_pairs p JOIN {left}.launches l ON l.launch = p."left" JOIN {right}.launches r ON r.launch = p."right"
    WHERE p."left" IN (SELECT unnest(?))
"""
_SHOWN = ", ".join(f"{side}.{name} AS {side}_{name}" for side in "ab" for name in _KEPT)
_DIFFERENT_ROWS = f"""
    SELECT x.launch, x.right_launch, x.site, x.moment, x.item, x.part, x.relative, s.graph, n.name, n.buffer, {_SHOWN}
    FROM compared x JOIN {{left}}.value_rows a ON a.value = x."left" JOIN {{right}}.value_rows b ON b.value = x."right"
    JOIN site_pairs p ON p.pair = x.site JOIN {{left}}.sites s ON s.site = p."left"
    LEFT JOIN {{left}}.arguments n ON n.site = s.site AND n.argument = x.argument
    WHERE x.state = 'differs' AND {{where}} AND x.{{of}} IN (SELECT unnest($these)) ORDER BY x."left" LIMIT $most
"""
_WRITTEN = "x.moment = 'after'"
_GIVEN = "x.moment = 'before' AND n.held IS DISTINCT FROM 'written'"  # not a view of what the call itself wrote
_DIFFERENT_UNNAMED = f"""
    SELECT x.launch, x.right_launch, x.site, 'before' AS moment, x.item, x.part, x.relative, s.graph, x.name,
           x.name AS buffer, {_SHOWN}
    FROM compared_inputs x JOIN {{left}}.input_rows a ON a.value = x."left"
    JOIN {{right}}.input_rows b ON b.value = x."right"
    JOIN site_pairs p ON p.pair = x.site JOIN {{left}}.sites s ON s.site = p."left"
    WHERE x.state = 'differs' AND x.call = ? ORDER BY x."left" LIMIT {MOST_INPUTS}
"""
_FIRST = """
    SELECT call, launch, moment FROM (
        SELECT call, launch, moment FROM compared WHERE state = 'differs'
        UNION ALL SELECT call, launch, 'before' FROM compared_inputs WHERE state = 'differs'
    ) ORDER BY launch, moment = 'after' LIMIT 1
"""
_GROWTH = f"""
    SELECT x.site, any_value(n.name) AS buffer, count(DISTINCT x.launch) AS launches,
           count(DISTINCT x.launch) FILTER (x.state = 'differs') AS different,
           min(x.launch) FILTER (x.state = 'differs') AS first_launch,
           arg_min(x.relative, x.launch) FILTER (x.state = 'differs') AS first_relative,
           arg_max(x.relative, x.launch) FILTER (x.state <> 'unknown') AS last_relative,
           max(x.relative) FILTER (x.state <> 'unknown') AS largest_relative
    FROM compared x JOIN site_pairs p ON p.pair = x.site
    LEFT JOIN {{left}}.arguments n ON n.site = p."left" AND n.argument = x.argument
    WHERE x.moment = 'after' GROUP BY x.site, x.argument, x.item, x.part
    HAVING bool_or(x.state = 'differs') ORDER BY first_launch, buffer LIMIT {MOST_BUFFERS}
"""
_COUNTED = """
    SELECT (SELECT count(*) FROM call_pairs), (SELECT count(*) FROM launch_pairs),
           count(*) FILTER (state <> 'unknown'), count(*) FILTER (state = 'differs'),
           count(*) FILTER (state = 'unknown'), count(*) FILTER (state <> 'unknown' AND has_digests)
    FROM (SELECT state, has_digests FROM compared UNION ALL SELECT state, has_digests FROM compared_inputs)
"""
_LONE_CALLS = """
    SELECT g."left" AS graph, count(*) FROM {side}_calls c JOIN graph_pairs g ON g.pair = c.pair
    WHERE c.call NOT IN (SELECT "{side}" FROM call_pairs) GROUP BY ALL ORDER BY 1
"""
_LONE_LAUNCHES = """
    SELECT s.pair, count(*) FROM {side}_launches l JOIN site_pairs s ON s.pair = l.site
    WHERE l.launch NOT IN (SELECT "{side}" FROM launch_pairs) GROUP BY ALL ORDER BY 1
"""
_LONE_ROWS = """
    SELECT p.site, count(*) FROM {index}.value_rows v JOIN launch_pairs p ON p."{side}" = v.launch
    WHERE NOT EXISTS (FROM compared x WHERE x."{side}" = v.value) GROUP BY ALL ORDER BY 1
"""
_SIDES = ("left", "right")


class Values:
    """The joined launches and value rows of two sides, in temporary tables of a connection."""

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        names: Names,
        graphs: Sequence[tuple[int, int]],
        sites: Sequence[SitePair],
        steps: tuple[int | None, int | None],
        tolerance: float,
        by_bits: bool,
    ) -> None:
        """`graphs` are the pairs of ids of graphs. With `by_bits`, tensors with unequal digests differ."""
        self._connection, self._names, self._sites = connection, names, sites
        # Launches are joined first, as written: the arguments and moments of all value rows have few distinct values.
        self._run("SET disabled_optimizers = 'join_order'")
        self._pairs("graph_pairs", graphs)
        self._pairs("site_pairs", [(site.left, site.right) for site in sites])
        for side, step in zip(_SIDES, steps, strict=True):
            calls = _CALLS.format(index=names[side], side=side)
            self._run(f"CREATE TEMP TABLE {side}_calls AS {calls}", {f"{side}_step": step})
        self._run(
            'CREATE TEMP TABLE call_pairs AS SELECT a.call AS "left", b.call AS "right", a.root, a.call AS pair'
            " FROM left_calls a JOIN right_calls b ON a.pair = b.pair AND a.function = b.function AND a.n = b.n"
        )
        for side in _SIDES:
            launches = _LAUNCHES.format(index=names[side], side=side)
            self._run(f"CREATE TEMP TABLE {side}_launches AS {launches}")
        self._run(_LAUNCH_PAIRS)
        far = f"CASE WHEN a.digest = b.digest THEN 0.0 ELSE greatest({', '.join(_FAR.values())}) END"
        for statement in (_ROWS, _UNNAMED_INPUTS):
            self._run(statement.format(**names, state=_STATE, far=far), {"tolerance": tolerance, "by_bits": by_bits})
        self._run(_INPUT_STATES.format(**names, amplified=AMPLIFIED))

    def counted(self) -> Compared:
        calls, launches, rows, different, unknown, by_digest = self._rows(_COUNTED)[0]
        graphs = self._rows("SELECT count(*) FROM graph_pairs")[0][0]
        return Compared(graphs, calls, launches, rows, different, unknown, by_digest)

    def without_partner(self, labels: Mapping[int, str], has_values: bool) -> list[WithoutPartner]:
        """Return the calls, launches and, if both sides have values, value rows of one side; `labels` are those of the
        left side's graphs."""
        found = []
        for side in _SIDES:
            calls = self._rows(_LONE_CALLS.format(side=side))
            found += [WithoutPartner(side, "call", labels[graph], count) for graph, count in calls]  # type: ignore[arg-type]
            launches = self._rows(_LONE_LAUNCHES.format(side=side))
            rows = self._rows(_LONE_ROWS.format(side=side, index=self._names[side])) if has_values else []
            for what, lone in (("launch", launches), ("value row", rows)):
                found += [
                    WithoutPartner(side, what, self._site_name(site), count)  # type: ignore[arg-type]
                    for site, count in lone
                ]
        return found

    def first(self) -> tuple[int, int, str] | None:
        """Return call, launch and moment of the first differing row of the left side; None if no value differs."""
        found = self._rows(_FIRST)
        return found[0] if found else None

    def inputs(self, trace: Trace, call: int) -> list[InputDifference]:
        """Return the differing inputs of a call of the left side, in the order in which launches read them."""
        rows = self._different(_GIVEN, "call", [call], MOST_INPUTS)
        rows += self._named(_DIFFERENT_UNNAMED.format(**self._names), [call])
        rows = sorted(rows, key=lambda row: int(row["launch"]))[:MOST_INPUTS]
        places = self._places([row["launch"] for row in rows])
        return [InputDifference(places[row["launch"]], _tensor(trace, row)) for row in rows]

    def launches(self, trace: Trace, first: int) -> list[LaunchDifference]:
        """Return the sites whose inputs do not differ and whose outputs do, with their first such launch. The launch
        of the first difference, `first`, is always there."""
        found = self._rows(_SUSPECTS, {"first": first, "most": MOST_LAUNCHES})
        firsts = [launch for _, _, launch, _ in found]
        places, outputs = self._places(firsts), defaultdict(list)
        for row in self._different(_WRITTEN, "launch", firsts, MOST_BUFFERS):
            outputs[row["launch"]].append(_tensor(trace, row))
        return [LaunchDifference(places[at], inputs, outputs[at], count) for _, inputs, at, count in found]

    def growth(self) -> list[Growth]:
        found = self._named(_GROWTH.format(**self._names))
        sites = [self._sites[row.pop("site")] for row in found]
        return [
            Growth(graph=site.graph, kernel=site.kernel, left_site=site.left, **row)
            for site, row in zip(sites, found, strict=True)
        ]

    def _different(self, where: str, of: str, these: Sequence[int], most: int) -> list[dict[str, Any]]:
        statement = _DIFFERENT_ROWS.format(**self._names, of=of, where=where)
        return self._named(statement, {"these": list(these), "most": most})

    def _places(self, launches: Sequence[int]) -> dict[int, Place]:
        found = self._named(_PLACES.format(**self._names), [list(launches)])
        sites = [self._sites[row.pop("site")] for row in found]
        return {
            row["left_launch"]: Place(
                graph=site.graph, kernel=site.kernel, left_site=site.left, right_site=site.right, source=site.source,
                **row,
            )
            for site, row in zip(sites, found, strict=True)
        }  # fmt: skip

    def _site_name(self, pair: int) -> str:
        return f"{self._sites[pair].kernel} of {self._sites[pair].graph}"

    def _pairs(self, table: str, pairs: Sequence[tuple[int, int]]) -> None:
        self._run(
            f'CREATE TEMP TABLE {table} AS SELECT unnest($1) AS "left", unnest($2) AS "right", unnest($3) AS pair',
            [[a for a, _ in pairs], [b for _, b in pairs], list(range(len(pairs)))],
        )

    def _run(self, statement: str, parameters: Any = ()) -> None:
        self._connection.execute(statement, parameters)

    def _rows(self, statement: str, parameters: Any = ()) -> list[tuple[Any, ...]]:
        return self._connection.execute(statement, parameters).fetchall()

    def _named(self, statement: str, parameters: Any = ()) -> list[dict[str, Any]]:
        cursor = self._connection.execute(statement, parameters)
        columns = [column[0] for column in cursor.description or ()]
        return [dict(zip(columns, row, strict=True)) for row in cursor.fetchall()]


def _tensor(trace: Trace, row: Mapping[str, Any]) -> TensorDifference:
    left, right = (Numbers(**{name: row[f"{side}_{name}"] for name in _KEPT}) for side in "ab")
    name = row["name"] or "an argument"
    return TensorDifference(
        name, name_in_program(trace, row["graph"], row["buffer"] or name), row["moment"], row["item"], row["part"],
        row["relative"], left, right,
    )  # fmt: skip
