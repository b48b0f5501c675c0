"""Kept results stay below their limit, and threads that ask for the same one share one computation."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import duckdb
import pytest

from stepscope.viewer.store.kept import Kept
from stepscope.viewer.store.trace import IN_MEMORY, Trace
from tests.waiting import PATIENCE_S


def texts(most_bytes: int) -> Kept[str]:
    return Kept(most_bytes, lambda key, text: len(text) + len(str(key)) - 1)


def test_the_result_that_was_asked_for_longest_ago_is_dropped_first() -> None:
    kept = texts(40)
    for name in "abcd":
        assert kept.get(name, lambda name=name: name * 10) == name * 10  # type: ignore[misc]
    assert kept.find("a") == "a" * 10
    kept.get("e", lambda: "e" * 10)
    assert [name for name in "abcde" if kept.find(name) is not None] == ["a", "c", "d", "e"]


def test_a_long_key_counts() -> None:
    kept = texts(40)
    kept.get("a", lambda: "x" * 10)
    kept.get("b" * 19, lambda: "y")
    assert kept.find("a") is not None
    kept.get("c" * 15, lambda: "z")
    assert kept.find("a") is not None
    assert kept.find("b" * 19) is None
    kept.get("d" * 22, lambda: "")
    assert kept.find("d" * 22) is None


def test_a_result_too_large_or_not_lasting_is_computed_again() -> None:
    kept = texts(40)
    assert [kept.get("a", lambda text=text: text) for text in ("x" * 21, "y" * 21)] == ["x" * 21, "y" * 21]  # type: ignore[misc]
    assert kept.get("b", lambda: "once", lambda text: False) == "once"
    assert kept.get("b", lambda: "again") == "again"
    assert kept.get("b", lambda: "never") == "again"


@pytest.mark.parametrize("fails", [False, True])
def test_threads_share_a_computation_and_its_error(fails: bool) -> None:
    kept, begun, goes_on, calls = texts(100), threading.Event(), threading.Event(), list[int]()

    def make() -> str:
        calls.append(1)
        begun.set()
        assert goes_on.wait(PATIENCE_S)
        if fails:
            raise ValueError("it fails")
        return "made"

    with ThreadPoolExecutor(4) as threads:
        asked = [threads.submit(kept.get, "a", make)]
        assert begun.wait(PATIENCE_S)
        asked += [threads.submit(kept.get, "a", make) for _ in range(3)]
        goes_on.set()
        found = [repr(one.exception() or one.result()) for one in asked]
    assert set(found) == {"ValueError('it fails')" if fails else "'made'"}
    assert fails or len(calls) == 1
    assert kept.find("a") == (None if fails else "made")


def test_threads_share_what_a_trace_computes_once() -> None:
    begun, goes_on, calls = threading.Event(), threading.Event(), list[int]()

    def count(trace: Trace, of: int) -> int | None:
        calls.append(of)
        begun.set()
        assert goes_on.wait(PATIENCE_S)
        return None if of == 7 else of

    with duckdb.connect() as index, ThreadPoolExecutor(4) as threads:
        trace = Trace([], index, IN_MEMORY)
        asked = [threads.submit(trace.once, count, 7)]
        assert begun.wait(PATIENCE_S)
        asked += [threads.submit(trace.once, count, 7) for _ in range(3)]
        goes_on.set()
        assert [one.result() for one in asked] == [None] * 4
        assert [trace.once(count, of, most=2) for of in (7, 8, 9)] == [None, 8, 9]
    assert calls == [7, 8, 9], "the result None is kept, too"
