"""For how long a thread kept Python's lock from another one."""

from __future__ import annotations

import sys
import threading
import time

import pytest

from stepscope.tracer.runtime.lock_holds import LockWait, computed_ns, held_ns


@pytest.mark.parametrize(
    ("late_ms", "computed_ms", "expected_ms"),
    [
        (3, 5, 3),  # until it called something that gives the lock away
        (12, 14, 12),
        (0.1, 2.1, 0),  # nothing held the lock
        (3, 0.1, 0),  # another thread held it
        (5.2, 7.2, 0),  # it was asked to give the lock away, and did so where it was
    ],
)
def test_a_thread_that_computes_is_seen_only_where_it_lets_others_run(
    late_ms: float, computed_ms: float, expected_ms: float
) -> None:
    assert sys.getswitchinterval() == 0.005
    assert held_ns(round(late_ms * 1e6), round(computed_ms * 1e6)) == expected_ms * 1e6


def test_a_thread_that_has_ended_holds_nothing() -> None:
    clocks: list[int] = []
    thread = threading.Thread(target=lambda: clocks.append(time.pthread_getcpuclockid(threading.get_ident())))
    thread.start()
    thread.join()
    for _ in range(500):  # Python's thread ends before the system's
        if computed_ns(clocks[0]) == 0:
            break
        time.sleep(0.01)
    assert computed_ns(clocks[0]) == computed_ns(None) == 0
    with LockWait() as lock:
        lock.begin(clocks[0], 0)
        time.sleep(0.01)
        assert lock.end() == 0
