"""Exceptions from generated C++ code, which names no more than the call that failed."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepscope.tracer.schema.constants import CALL_RAISED
from stepscope.tracer.schema.process_ends import End, Frame, UncaughtException
from stepscope.viewer.crash.queries.process_ends import one_symptom
from stepscope.viewer.findings import all_findings
from stepscope.viewer.store.open import open_trace
from tests.logs.synthetic import MONOTONIC_NS, recorded

CALL = 'aoti_torch_call_dispatcher("planted::positive", "", values) API call failed at /cache/c7.main.cpp, line 12'
WHAT = "an element is negative\nException raised from check at /src/planted.cpp:9 (most recent call first):\n#5 check()"


@pytest.mark.parametrize(
    ("text", "said", "place"),
    [
        (f"{CALL}\n{CALL_RAISED}{WHAT}", "an element is negative, raised in aoti_torch_call_dispatcher", "check"),
        (f"{CALL}\n{CALL_RAISED}", CALL, None),
        (CALL, CALL, None),
        (f"bad\n{CALL_RAISED}x", "bad", None),
    ],
)
def test_what_a_failed_call_of_generated_code_raised(tmp_path: Path, text: str, said: str, place: str | None) -> None:
    """It comes first, and is what runs of --crash are compared by."""
    error = UncaughtException("RuntimeError", text, [Frame("/src/train.py", 7, "forward", "y = model(x)")])
    log = recorded(end=False).record(error).record(End("exit", MONOTONIC_NS))
    with open_trace(log.write(tmp_path / "x.log")) as trace:
        (finding,) = all_findings(trace)
    assert finding.title.startswith(f"The program ended after step 2 with RuntimeError: {said}")
    assert (finding.evidence["cpp_raised"] or "").partition(" ")[0] == (place or "")
    assert one_symptom("RuntimeError", text) == f"RuntimeError: {said}"
