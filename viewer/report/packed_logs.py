"""Packs the logs of a trace for a report, from which `stepscope serve` unpacks them again."""

from __future__ import annotations

import base64
import lzma
from dataclasses import dataclass

from stepscope.viewer.errors import StepscopeError
from stepscope.viewer.ingest.report_logs import LOG, RING
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.text.clean import well_formed

_LARGEST_RATIO = 100
"""Logs pack to a tenth or less of their size, but hardly to less than a hundredth."""
_SMALL_BYTES = 4_000_000
"""Size of a log up to which it is packed as well as possible; that takes longer for each byte."""


@dataclass(frozen=True)
class PackedFile:
    """A log or the launch ring beside it, as an element of the report."""

    type: str
    log: str
    base64: str


def packed_logs(trace: Trace, most_bytes: int) -> list[PackedFile]:
    """Return the packed logs; nothing if they take more than `most_bytes` together or cannot be read."""
    if not trace.logs or sum(log.size for log in trace.logs) > most_bytes * _LARGEST_RATIO:
        return []
    found, room = [], most_bytes
    for number, log in enumerate(trace.logs):
        for kind, data in ((LOG, _read(trace, number)), (RING, log.ring)):
            if data is None:
                if kind == LOG:
                    return []
                continue
            text = base64.b64encode(_packed(data)).decode()
            room -= len(text)
            if room < 0:
                return []
            found.append(PackedFile(kind, well_formed(log.path.name), text))
    return found


def _read(trace: Trace, number: int) -> bytes | None:
    try:
        return trace.log_bytes(number, 0, trace.logs[number].size)
    except StepscopeError:
        return None


def _packed(data: bytes) -> bytes:
    """Compress with LZMA, because batches of a log repeat each other at distances to which gzip does not look back."""
    return lzma.compress(data, preset=6 if len(data) <= _SMALL_BYTES else 3)
