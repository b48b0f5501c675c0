"""Whether the process of a log still runs on this machine."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path

import pytest

from stepscope.viewer.findings import all_findings
from stepscope.viewer.store.open import open_trace
from tests.logs.synthetic import recorded

OWN_NAME = "stepscope_trace_rank_0_{}_00ff.log"


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="only Linux tells what a process has open")
def test_a_process_that_runs_is_the_one_that_has_the_log_open(tmp_path: Path) -> None:
    """Not an older one of the same number, as of a log that a container left, nor one that has died and was not asked
    how."""

    def died(pid: int) -> bool:
        log = recorded(end=False, pid=pid, unix_ns=time.time_ns()).write(tmp_path / OWN_NAME.format(pid))
        with log.open("ab") if pid == os.getpid() else nullcontext(), open_trace(log) as trace:
            return bool(all_findings(trace))

    assert not died(os.getpid())
    printed = recorded(end=False, pid=os.getppid(), parent_pid=os.getpid(), torch_version=None, unix_ns=time.time_ns())
    log = printed.write(tmp_path / OWN_NAME.format(1))
    with log.open("ab"), open_trace(log) as trace:  # by us, who read what the other process prints
        assert not all_findings(trace)
    asleep = [sys.executable, "-c", "import time; print(flush=True); time.sleep(600)"]
    with subprocess.Popen(asleep, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        assert died(other.pid)
        other.kill()
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        os.waitid(os.P_PID, gone.pid, os.WEXITED | os.WNOWAIT)
        assert died(gone.pid)
