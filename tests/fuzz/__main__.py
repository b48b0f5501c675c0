"""Runs cases of the fuzz harness: ``python -m tests.fuzz [--first N] [--count M] [--samples DIR] [--to DIR]``.

A case is one mutation of one log, determined by its number; a run goes on from `--first`. Prints the progress, and each
case that fails with its file, which is written to `--to`. Exit code 1 if a case failed.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

from tests.fuzz.cases import SEED, bases, case, samples
from tests.fuzz.check import GROUP, failing, write

REPORT_EVERY = 20


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--samples", type=Path, help="Mutate the TORCH_TRACE logs of this folder, and no others.")
    parser.add_argument("--to", type=Path, default=Path("fuzz-failures"))
    asked = parser.parse_args()
    logs = samples(asked.samples) if asked.samples else bases()
    print(f"seed {SEED}, cases {asked.first} to {asked.first + asked.count - 1}, {len(logs)} base logs", flush=True)
    start, failed = time.monotonic(), 0
    for first in range(asked.first, asked.first + asked.count, GROUP):
        numbers = range(first, min(first + GROUP, asked.first + asked.count))
        with_report = first // GROUP % REPORT_EVERY == 0
        for found, error in failing([case(number, logs) for number in numbers], with_report):
            failed += 1
            if found is None:
                print(f"cases {first} to {numbers[-1]} fail together\n{error}", flush=True)
                continue
            asked.to.mkdir(exist_ok=True)
            print(f"case {found.number} ({found.mutation}, {found.base}): {write(found, asked.to)}")
            print(error, flush=True)
        took, cpu = time.monotonic() - start, sum(os.times()[:2])
        print(f"next: --first {numbers[-1] + 1}; {failed} failed; {took:.0f} s, {cpu:.0f} s of CPU", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
