"""Tells which storages of different calls are the same."""

from __future__ import annotations

FIRST_CALL = """CASE WHEN s.met_as IS NULL THEN m.local_call WHEN s.calls_back IS NOT NULL
                    THEN m.local_call - s.calls_back ELSE s.met_in END"""
"""The number of the call that first used storage `s` of the measured call `m`; ``coalesce(s.met_as, s.storage)`` is its
number in that call. Storages of two calls are the same if both agree."""
