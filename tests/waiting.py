"""Waits for another process or thread."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

PATIENCE_S = 300.0
"""Seconds to wait, which are enough on a busy machine."""

Found = TypeVar("Found")


def wait_for(found: Callable[[], Found]) -> Found:
    """Return the first true result of `found`, and fail if there is none within `PATIENCE_S`."""
    end = time.monotonic() + PATIENCE_S
    while not (answer := found()):
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.05)
    return answer
