"""What stands in for the functions by which a program leaves does for the program what they do."""

from __future__ import annotations

import os
import pickle
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from stepscope.tracer.leaving import Leaving


@pytest.fixture(autouse=True)
def attached() -> Iterator[None]:
    leaving = Leaving(lambda reason: None, lambda reason: None, lambda: None)
    leaving.attach()
    yield
    leaving.detach()


@pytest.mark.parametrize("function", [lambda: os._exit, lambda: os.execv, lambda: signal.signal])
def test_a_function_can_be_sent_to_another_process(function: Callable[[], Callable[..., Any]]) -> None:
    assert pickle.loads(pickle.dumps(function())) is function()
