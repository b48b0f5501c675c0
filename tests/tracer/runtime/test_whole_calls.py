"""A whole call of `generate` is told once, whatever it calls, also where it had begun before it was wrapped."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from stepscope.tracer.runtime.whole_calls import FUNCTIONS, WholeCalls


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> type:
    """Of a class that has a `generate` of its own, as Whisper has."""

    class GenerationMixin:
        def generate(self, token: Callable[[], Any] = list) -> Any:
            return token()

    class WhisperGenerationMixin(GenerationMixin):
        def generate(self, token: Callable[[], Any] = list) -> Any:
            return [super(WhisperGenerationMixin, self).generate(token) for _ in range(3)]

    for (module, name, _), owner in zip(FUNCTIONS, (WhisperGenerationMixin, GenerationMixin), strict=True):
        made = ModuleType(module)
        setattr(made, name, owner)
        monkeypatch.setitem(sys.modules, module, made)
    return WhisperGenerationMixin


def test_a_call_for_each_segment(model: type) -> None:
    begun: list[bool] = []
    calls = WholeCalls(begun.append)
    calls.attach()
    for _ in range(2):
        model().generate()
    assert begun == [True, False, True, False]
    calls.detach()
    model().generate()
    assert len(begun) == 4


def test_wrapped_while_it_runs(model: type) -> None:
    begun: list[bool] = []
    calls = WholeCalls(begun.append)
    model().generate(calls.attach)
    assert begun == [True]
    model().generate()
    assert begun == [True, False, True, False]
    calls.detach()
