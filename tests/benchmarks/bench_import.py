"""What an installed stepscope adds to `import torch` while STEPSCOPE_TRACE is not set.

    python -m tests.benchmarks.bench_import [ROUNDS]

Each round is a Python of its own that imports torch. What is timed there is the load and the call of stepscope's entry
point, in CPU time of the thread; the search through the metadata of every distribution is torch's own. Then what
``python -X importtime`` says of the module.
"""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import sys

ROUNDS = 11
IMPORT = """
import time
from importlib.metadata import EntryPoint

load = EntryPoint.load

def timed_load(point):
    if point.name != "stepscope":
        return load(point)
    begin = time.thread_time_ns()
    function = load(point)
    taken = time.thread_time_ns() - begin

    def timed():
        begin = time.thread_time_ns()
        function()
        print("taken", taken + time.thread_time_ns() - begin)

    return timed

EntryPoint.load = timed_load
import torch
"""


def python(*words: str) -> str:
    unwanted = ("STEPSCOPE_TRACE", "PYTHONDONTWRITEBYTECODE")
    environment = {name: text for name, text in os.environ.items() if name not in unwanted}
    done = subprocess.run(
        [sys.executable, *words], env=environment, capture_output=True, text=True, check=True, timeout=300
    )
    return done.stdout + done.stderr


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    python("-c", IMPORT)  # byte code is written
    times = [int(python("-c", IMPORT).split("taken ")[1].split()[0]) / 1e6 for _ in range(rounds)]
    low, middle, high = statistics.quantiles(times)
    print(f"entry point in import torch: {middle:.3f} ms of CPU (quartiles {low:.3f} to {high:.3f}), {rounds} rounds")
    lines = python("-X", "importtime", "-c", "import _stepscope_autostart")
    (alone,) = re.findall(r"(\d+) \|\s+\d+ \|\s+_stepscope_autostart", lines)
    print(f"-X importtime: {alone} us of wall time for the module")


if __name__ == "__main__":
    main()
