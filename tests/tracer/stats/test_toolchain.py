"""Building the compiled reader: many at once, and without a trace in Inductor's own state."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

BUILD = """
import threading, torch
from torch._dynamo import utils
from tracer.runtime.stats.cpu import kernel
from tracer.runtime.stats.readers import reader_for
threads = [threading.Thread(target=kernel) for _ in range(4)]
[t.start() for t in threads]; [t.join() for t in threads]
tensors = [torch.ones(10)]
assert reader_for(tensors, 1 << 20)(tensors).wait()[0]["mean"] == 1.0
assert type(reader_for(tensors, 1 << 20)).__name__ == "CpuReader"
assert not utils.counters and not utils.compilation_time_metrics, (utils.counters, utils.compilation_time_metrics)
"""


def test_processes_and_threads_build_at_once(tmp_path: Path) -> None:
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}
    running = [
        subprocess.Popen([sys.executable, "-c", BUILD], env=environment, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    for process in running:
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors
    made = list((tmp_path / "stepscope").iterdir())
    assert [path.suffix for path in made] == [".so"]
