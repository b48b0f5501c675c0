"""What stands in for the functions by which a program leaves does for the program what they do."""

from __future__ import annotations

import os
import pickle
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stepscope.tracer.leaving import Leaving


@pytest.fixture(autouse=True)
def ended() -> Iterator[list[str]]:
    """Why the log was ended, each time."""
    reasons: list[str] = []
    leaving = Leaving(reasons.append, lambda reason: None, lambda: None)
    leaving.attach()
    yield reasons
    leaving.detach()


@pytest.mark.parametrize("function", [lambda: os._exit, lambda: os.execv, lambda: signal.signal])
def test_a_function_can_be_sent_to_another_process(function: Callable[[], Callable[..., Any]]) -> None:
    assert pickle.loads(pickle.dumps(function())) is function()


@pytest.mark.parametrize("has_names", [False, True])
def test_what_is_about_to_be_another_program_ends_its_log(ended: list[str], tmp_path: Path, has_names: bool) -> None:
    program = tmp_path / "nothing"
    program.write_bytes(b"\x00")
    program.chmod(0o755)
    with pytest.raises(OSError, match="format"):
        os.execve(path=program, argv=["x"], env={}) if has_names else os.execve(program, ["x"], {})
    assert ended == ["exec"]
