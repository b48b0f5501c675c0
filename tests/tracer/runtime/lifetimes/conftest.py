"""Objects that the collector of garbage does not see have no holders."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def objects_are_seen() -> Iterator[None]:
    """The session has frozen what it collected (`tests.conftest`)."""
    gc.unfreeze()
    yield
    gc.freeze()
