"""The tensors of arguments at run time, from which call on they hold, and in which call they were seen."""

from __future__ import annotations

from stepscope.tracer.schema.constants import UNRECORDED

IN_FORCE = f"""
    (SELECT t.*, t.local_call AS seen_call FROM tensors t
     UNION ALL
     SELECT t.* REPLACE (a.local_call AS local_call, a.place AS place), t.local_call AS seen_call
     FROM same_tensors a JOIN tensors t
       ON t.log = a.log AND t.local_call = a.of_call
          AND (t.site > a.site OR (t.site = a.site AND t.argument >= a.argument))
     WHERE NOT EXISTS (FROM tensors n WHERE n.site = t.site AND n.dtype = '{UNRECORDED}' AND n.place < a.place))
"""
"""Rows of `tensors`, also of sizes that came back. The rows with the highest (local_call, place) that is not after a
call hold in it. `seen_call` is the call that their addresses, offsets and storages are from."""
