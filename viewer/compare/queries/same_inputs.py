"""Finds launches of one site that read the same bits and wrote other bits."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

MOST_ROWS = 4_000_000
"""Number of value rows, from the first one on, that are looked at."""
KINDS = ("cpp", "triton", "user_triton", "extern", "fallback")
"""Kinds of launches that compute what they write from what they read; a collective also gets data of other ranks."""
_WHOLE = "v.skipped IS NULL AND v.digest IS NOT NULL AND v.looked_at = v.numel"
_READ = """a.role <> 'out' AND NOT (a.role = 'inout' AND a.held IS NOT DISTINCT FROM 'uninitialised'
                                   AND s.kind IN ('cpp', 'triton'))"""
# A site is of interest if each of its inputs had the same bits twice, and one of its outputs had different bits.
_SITES = f"""
    WITH kinds AS (
        SELECT site, argument, moment, count(*) > count(DISTINCT (item, part, digest)) AS is_repeated,
               count(DISTINCT digest) > 1 AS is_varied
        FROM value_rows v WHERE v.value <= $1 AND {_WHOLE} GROUP BY ALL
    ), fit AS (
        SELECT s.* FROM sites s JOIN graphs g ON g.graph = s.graph
        WHERE list_contains($2, s.kind) AND g.dynamic IS FALSE AND g.operands_left_out IS NULL
          AND s.site NOT IN (SELECT site FROM scalars WHERE value IS NULL)
          AND s.site IN (SELECT site FROM kinds WHERE moment = 'after' AND is_varied)
    ), read AS (
        SELECT s.site, a.buffer IS NOT NULL AND a.held IS DISTINCT FROM 'uninitialised' AND coalesce(
                   (SELECT bool_or(is_repeated) FROM kinds k
                    WHERE (k.site = a.version_site AND k.argument = a.version_argument AND k.moment = a.version_moment)
                       OR (k.site = a.site AND k.argument = a.argument AND k.moment = 'before')), false) AS is_repeated
        FROM fit s JOIN arguments a ON a.site = s.site WHERE {_READ}
    )
    SELECT site FROM read GROUP BY site HAVING bool_and(is_repeated)
"""
# What a launch reads is in a row of its own or, if it was not read again, in the last row of the version.
_DIFFERENT = f"""
    WITH read AS (
        SELECT a.* FROM arguments a JOIN sites s ON s.site = a.site WHERE list_contains($2, a.site) AND {_READ}
    ), roots AS (
        SELECT c.call, CASE WHEN p.graph = c.graph THEN p.call ELSE c.call END AS root
        FROM calls c LEFT JOIN calls p ON p.call = c.parent WHERE c.state = 'ok'
    ), ran AS (
        SELECT l.launch, l.site, r.root FROM launches l JOIN roots r ON r.call = l.call WHERE list_contains($2, l.site)
    ), slots AS (
        SELECT site, argument, 'before' AS moment FROM read
        UNION SELECT version_site, version_argument, version_moment FROM read WHERE version_site IS NOT NULL
    ), rows AS (
        SELECT v.launch, v.site, v.argument, v.item, v.part, v.moment, r.root, {_WHOLE} AS is_whole,
               hash(v.dtype, v.numel, v.item, v.part, v.digest) AS bits
        FROM value_rows v JOIN slots t ON t.site = v.site AND t.argument = v.argument AND t.moment = v.moment
        JOIN roots r ON r.call = v.call WHERE v.value <= $1
    ), own AS (
        SELECT n.launch, n.site, a.argument, x.is_whole, x.bits FROM ran n JOIN read a ON a.site = n.site
        JOIN rows x ON x.launch = n.launch AND x.argument = a.argument AND x.moment = 'before'
    ), version AS (
        SELECT n.launch, n.site, a.argument, x.is_whole, x.bits FROM ran n JOIN read a ON a.site = n.site
        JOIN rows x ON x.root = n.root AND x.site = a.version_site AND x.argument = a.version_argument
         AND x.moment = a.version_moment AND (a.version_item IS NULL OR x.item = a.version_item)
         AND (x.launch < n.launch OR (x.launch = n.launch AND x.moment = 'before'))
        WHERE NOT EXISTS (FROM own o WHERE o.launch = n.launch AND o.argument = a.argument)
        QUALIFY x.launch = max(x.launch) OVER (PARTITION BY n.launch, a.argument)
    ), inputs AS (
        SELECT launch, site, hash(list((argument, bits) ORDER BY argument, bits)) AS bits
        FROM (FROM own UNION ALL FROM version) i GROUP BY launch, site
        HAVING bool_and(is_whole) AND count(DISTINCT argument) = (SELECT count(*) FROM read a WHERE a.site = i.site)
    ), wrote AS (
        SELECT i.launch, i.site, i.bits, v.value, v.log, v.step, v.argument, v.item, v.part, v.digest,
               first_value((v.launch, v.value, v.digest)) OVER (
                   PARTITION BY i.site, i.bits, v.argument, v.item, v.part, v.dtype, v.numel ORDER BY v.launch
               ) AS before
        FROM inputs i JOIN value_rows v ON v.launch = i.launch AND v.moment = 'after'
        JOIN arguments a ON a.site = v.site AND a.argument = v.argument JOIN sites s ON s.site = v.site
        WHERE v.value <= $1 AND {_WHOLE}
          AND NOT (s.kind = 'user_triton' AND a.held IS NOT DISTINCT FROM 'uninitialised')
    )
    SELECT site, log, step, launch, before[1] AS earlier, argument, value, before[2] AS earlier_value,
           count(*) OVER (PARTITION BY site, argument, item, part) AS times
    FROM wrote WHERE digest <> before[3]
    QUALIFY launch = min(launch) OVER (PARTITION BY site) ORDER BY launch, value
"""


@dataclass(frozen=True)
class OtherBits:
    """An output of a launch that differs from that of an earlier launch of the site, which read the same bits."""

    site: int
    log: int
    step: int
    launch: int
    earlier: int
    argument: int
    value: int
    """The row of what the launch wrote."""
    earlier_value: int
    times: int
    """Launches of the site whose output differs from that of the first launch with the same inputs."""


def other_bits(trace: Trace, most_rows: int = MOST_ROWS) -> dict[int, list[OtherBits]]:
    """Return for each site the outputs of the first launch that wrote other bits than an earlier one which read the
    same bits, in the order of these launches. All elements of all tensors were read."""
    sites = [site for (site,) in sql.rows(trace, _SITES, [most_rows, list(KINDS)])]
    found: defaultdict[int, list[OtherBits]] = defaultdict(list)
    if sites:
        for one in sql.records(OtherBits, trace, _DIFFERENT, [most_rows, sites]):
            found[one.site].append(one)
    return dict(found)
