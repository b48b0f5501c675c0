"""Converts the time stamps of a log to unix nanoseconds. A log writes local time without its year and time zone."""

from __future__ import annotations

import calendar
import re
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any

from stepscope.tracer.schema.log_format import HEADER, decode_payload, scan
from stepscope.viewer.ingest.bounds import time_ns, whole_number
from stepscope.viewer.ingest.lenient_json import loads
from stepscope.viewer.ingest.log_bytes import LogBytes

YEAR_S = 366 * 86_400
DAY_S = 86_400
_QUARTER_HOUR_S = 900
_LARGEST_OFFSET_S = 15 * 3600
_SEARCHED_BYTES = 1 << 22
_STAMP = re.compile(rb"(\d\d)(\d\d) (\d\d):(\d\d):(\d\d)")
STAMP_BYTES = 13
_LATEST_US = 2**53


class LogClock:
    """Converts the time stamps of one log, given the latest possible time of its first one.

    If `utc_offset_s` is None, the time zone is unknown, and local times are taken as UTC.
    """

    def __init__(self, latest_unix_ns: int, utc_offset_s: int | None) -> None:
        self.utc_offset_s = utc_offset_s
        self._latest_s = latest_unix_ns // 10**9 + (utc_offset_s or 0)
        self._days: dict[bytes, int | None] = {}
        self._last_second: tuple[bytes, int | None] = (b"", None)

    def time_ns(self, parts: Sequence[bytes]) -> int | None:
        """Return the unix ns of (month, day, hour, minute, second, fraction), or None if no year has that date."""
        month, day, hour, minute, second, fraction = parts
        date = month + day
        if date not in self._days:
            self._days[date] = self._start_of_day(int(month), int(day))
        day_s = self._days[date]
        if day_s is None:
            return None
        seconds = day_s + int(hour) * 3600 + int(minute) * 60 + int(second)
        return (seconds - (self.utc_offset_s or 0)) * 10**9 + int(fraction.ljust(9, b"0"))

    def second_ns(self, stamp: bytes) -> int | None:
        """Return the unix ns of a stamp like ``0718 15:30:01``, or None if it is not one."""
        if stamp != self._last_second[0]:
            match = _STAMP.fullmatch(stamp)
            self._last_second = stamp, self.time_ns((*match.groups(), b"0")) if match else None
        return self._last_second[1]

    def _start_of_day(self, month: int, day: int) -> int | None:
        """Return the start of a day in unix seconds: the latest possible one for the first date of the log, and the one
        nearest to the previous date for each later date, because a log may continue over New Year."""
        found = _latest_date(month, day, self._latest_s)
        if found is not None:
            self._latest_s = found + YEAR_S // 2
        return found


def clock_of(data: bytes | LogBytes, mtime_ns: int) -> LogClock:
    """Return the clock of a log: by its run record, else by torch's spans, which have unix times, else by its mtime."""
    run = _first_payload(data, b'"stepscope_run"')
    if run is not None:
        unix_ns, offset_s = time_ns(run[1].get("unix_ns")), whole_number(run[1].get("utc_offset_s"))
        if unix_ns is not None and offset_s is not None and abs(offset_s) <= _LARGEST_OFFSET_S:
            return LogClock(unix_ns + DAY_S * 10**9, offset_s)
    span = _first_payload(data, b'{"chromium_event"')
    unix_ns = unix_ns_of(span[1].get("ts")) if span is not None else None
    if span is not None and unix_ns:
        shown_ns = LogClock(unix_ns + DAY_S * 10**9, None).time_ns(span[0])
        if shown_ns is not None:
            return LogClock(unix_ns + DAY_S * 10**9, _utc_offset(shown_ns, unix_ns))
    return LogClock(mtime_ns + DAY_S * 10**9, None)


def unix_ns_of(stamp_us: Any) -> int | None:
    """Return the ns of a chromium event's time stamp in microseconds, or None if it is not one.

    Microseconds and their fraction are converted apart: the product of a float and 1000 is off by up to 128 ns.
    """
    if type(stamp_us) is int:
        return stamp_us * 1000 if 0 <= stamp_us < _LATEST_US else None
    if type(stamp_us) is not float or not 0 <= stamp_us < _LATEST_US:
        return None
    whole_us = int(stamp_us)
    if whole_us == stamp_us:
        return whole_us * 1000
    return whole_us * 1000 + round((stamp_us - whole_us) * 1000)


def _first_payload(data: bytes | LogBytes, marker: bytes) -> tuple[tuple[bytes, ...], dict[str, Any]] | None:
    """Return the time stamp and payload of the first record whose header contains `marker`, or None."""
    begin = data[:_SEARCHED_BYTES]
    found = begin.find(marker)
    if found < 0:
        return None
    piece = begin[begin.rfind(b"\n", 0, found) + 1 :]
    place = next(scan(piece))
    match = HEADER.match(piece, place.start, place.header_end)
    try:
        payload = loads(decode_payload(piece[place.payload_start : place.end]))
    except ValueError:
        return None
    return (match.groups()[1:7], payload) if match and isinstance(payload, dict) else None


def _latest_date(month: int, day: int, latest_s: int) -> int | None:
    last_year = datetime.fromtimestamp(max(latest_s, 0), timezone.utc).year
    for year in range(last_year, last_year - 9, -1):
        if 1 <= month <= 12 and 1 <= day <= calendar.monthrange(year, month)[1]:
            seconds = calendar.timegm((year, month, day, 0, 0, 0))
            if seconds <= latest_s:
                return seconds
    return None


def _utc_offset(local_as_utc_ns: int, unix_ns: int) -> int | None:
    """Return the UTC offset in seconds of a log that shows `local_as_utc_ns` at `unix_ns`, or None if it is invalid."""
    difference_s = (local_as_utc_ns - unix_ns) / 10**9
    offset_s = round(difference_s / _QUARTER_HOUR_S) * _QUARTER_HOUR_S
    if abs(offset_s) > _LARGEST_OFFSET_S or abs(difference_s - offset_s) > _QUARTER_HOUR_S / 3:
        return None
    return offset_s
