"""How long comparing two long runs takes: ``python -m tests.benchmarks.bench_compare``.

Two logs of 400,000 launches and 2,000,000 value rows each, with digests, of which one row in the middle differs. The
indexes are made first; the comparison is that of `stepscope compare`. Then calls of one log that read the same bits are
looked for.
"""

from __future__ import annotations

import base64
import os
import random
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from stepscope.tracer.schema.process_ends import End, Overhead
from stepscope.tracer.schema.statistics import Values
from stepscope.viewer.compare.compare import compare
from stepscope.viewer.compare.queries.same_inputs import other_bits
from stepscope.viewer.compare.rows import Wanted
from stepscope.viewer.store.open import open_trace
from tests.benchmarks.bench_index import CALLS, LAUNCHES, batch, program
from tests.logs.synthetic import MONOTONIC_NS, LogBuilder, run
from tests.logs.value_logs import FINE, layout_of

VALUE_ROWS = 2_000_000


def write_log(path: Path, changed_call: int | None) -> None:
    graph, chance = program(), random.Random(0)
    rows = len(graph.layout)
    head = LogBuilder().record(run(level="values")).record(graph.graph()).record(graph.provenance())
    with path.open("wb") as file:
        file.write(head.record(layout_of(graph, [FINE] * rows)).data)
        for first in range(0, VALUE_ROWS // rows, CALLS):
            log = LogBuilder()
            for record in batch(list(range(first, first + CALLS)), rows, chance):
                if isinstance(record, Values):
                    digests = np.arange(first * rows, (first + CALLS) * rows, dtype="<u8") + 1
                    if changed_call is not None and first <= changed_call < first + CALLS:
                        digests[(changed_call - first) * rows + rows - 1] = 0xFFFFFFFFFFFF
                    log.record(replace(record, digest=base64.b64encode(digests.tobytes()).decode()))
                else:
                    log.record(record)
            file.write(log.data)
        last = LogBuilder().record(Overhead(1, 1, 1, LAUNCHES, 0)).record(End("exit", MONOTONIC_NS + 10**15))
        file.write(last.data)


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder
        logs = [Path(folder, name, "long.log") for name in ("left", "right")]
        for log, changed in zip(logs, (None, VALUE_ROWS // len(program().layout) // 2), strict=True):
            log.parent.mkdir()
            write_log(log, changed)
            start = time.perf_counter()
            open_trace(str(log)).close()
            print(f"index of {log.stat().st_size / 1e6:.0f} MB: {time.perf_counter() - start:.1f} s", flush=True)
        wall, cpu = time.perf_counter(), time.process_time()
        found = compare(Wanted([str(logs[0])]), Wanted([str(logs[1])]))
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        with open_trace(str(logs[0])) as trace:
            start, cpu_start = time.perf_counter(), time.process_time()
            other_bits(trace)
            took = time.perf_counter() - start, time.process_time() - cpu_start
        print(f"calls of one log with the same inputs: {took[0]:.1f} s, {took[1]:.1f} s of CPU")
    done = found.compared
    print(
        f"{done.value_rows:,} value rows a side, {done.different_value_rows} differ: {wall:.1f} s, {cpu:.1f} s of CPU"
    )
    print(f"{found.verdict}; load {os.getloadavg()[0]:.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
