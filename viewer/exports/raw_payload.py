"""Writes the payload of a record as it was logged, or a range of its bytes."""

from __future__ import annotations

from stepscope.viewer.errors import StepscopeError
from stepscope.viewer.exports.formats import Wanted, opened
from stepscope.viewer.exports.queries.tables import payload_size
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.text.byte_range import byte_range


def export(trace: Trace, wanted: Wanted) -> int:
    record = wanted.record
    if record is None:
        raise StepscopeError("--to raw needs --record ID; `--to csv --table records` lists them.")
    size, most = payload_size(trace, record)
    if size is None:
        problem = "is not there" if most is None or not 0 <= record <= most else "has no payload"
        raise StepscopeError(f"--record {record} {problem}; `--to csv --table records` lists them.")
    payload = trace.whole_payload(record)
    if wanted.part is not None:
        payload = payload[_range(wanted.part, len(payload))]
    with opened(wanted.path) as out:
        out.write(payload)
    return len(payload)


def _range(part: str, size: int) -> slice:
    try:
        found = byte_range(part, size)
    except ValueError:
        raise StepscopeError(f"--bytes {part} lies outside of the payload, which has {size:,} bytes.") from None
    if found is None:
        raise StepscopeError(
            f"--bytes {part} is not a range: 0-99 is the first 100 bytes, 100- the rest, -50 the last 50."
        )
    return found
