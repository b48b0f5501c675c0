"""For how long threads wait for a core of the machine."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from stepscope.tracer.runtime.core_waits import CoreWaits, DelayedShare

COUNTED = Path("/proc/self/schedstat")
pytestmark = pytest.mark.skipif(
    not COUNTED.exists() or COUNTED.read_text().startswith("0 "),
    reason="this system does not count the waits of threads",
)
COMPUTE = "import os, time; os.sched_setaffinity(0, {%d}); end = time.monotonic() + 20\nwhile time.monotonic() < end: 0"


@pytest.fixture
def shared_core() -> Iterator[int]:
    """A core on which another process computes."""
    core = min(os.sched_getaffinity(0))
    other = subprocess.Popen([sys.executable, "-c", COMPUTE % core])
    yield core
    other.kill()
    other.wait()


def test_a_thread_that_shares_its_core_is_delayed(shared_core: int) -> None:
    threads: list[int] = []
    begun, end = threading.Event(), threading.Event()

    def compute() -> None:
        threads.append(threading.get_native_id())
        os.sched_setaffinity(threads[0], {shared_core})
        begun.set()
        while not end.is_set():
            pass

    thread = threading.Thread(target=compute, daemon=True)
    thread.start()
    begun.wait(10)
    with closing(DelayedShare()) as delayed, closing(CoreWaits(threads[0])) as waits:
        before = waits.ns()
        for _ in range(100):
            delayed.begin(threads[0])
            time.sleep(0.2)
            if (percent := delayed.percent()) > 10:
                break
        assert percent > 10
        assert waits.ns() > before
        end.set()
        thread.join()


def test_a_thread_that_has_ended_is_not_delayed() -> None:
    with closing(DelayedShare()) as delayed:
        assert delayed.percent() == 0
        delayed.begin(2**22)  # more than the largest id
        assert delayed.percent() == 0


def test_a_thread_that_ends_before_the_second_look_was_not_delayed(shared_core: int) -> None:
    threads: list[int] = []
    begun, end = threading.Event(), threading.Event()

    def compute() -> None:
        os.sched_setaffinity(threading.get_native_id(), {shared_core})
        deadline = time.monotonic() + 0.5
        while time.monotonic() < deadline:
            pass
        threads.append(threading.get_native_id())
        begun.set()
        end.wait(10)

    thread = threading.Thread(target=compute, daemon=True)
    thread.start()
    begun.wait(10)
    with closing(DelayedShare()) as delayed:
        delayed.begin(threads[0])
        end.set()
        thread.join()
        while Path(f"/proc/self/task/{threads[0]}").exists():
            time.sleep(0.01)
        assert delayed.percent() == 0
