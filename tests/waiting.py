"""Waiting for what another process or thread does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

PATIENCE_S = 120.0
"""Longer than a busy machine needs."""

Found = TypeVar("Found")


def wait_for(found: Callable[[], Found]) -> Found:
    """What `found` returns as soon as that is true; it is an error when that does not come."""
    end = time.monotonic() + PATIENCE_S
    while not (answer := found()):
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.05)
    return answer
