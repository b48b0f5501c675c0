"""Where the dashboard listens."""

from __future__ import annotations

import socket

import pytest

from stepscope.viewer.errors import StepscopeError
from stepscope.viewer.web import server


@pytest.fixture
def taken() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_a_taken_default_port_gives_way_to_a_free_one(taken: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "DEFAULT_PORT", taken)
    with server.listen("127.0.0.1", taken) as first, server.listen("127.0.0.1", taken) as second:
        assert first.getsockname()[1] == taken
        assert second.getsockname()[1] not in {0, taken}


def test_a_port_that_was_asked_for_is_not_changed(taken: int) -> None:
    with server.listen("127.0.0.1", taken), pytest.raises(StepscopeError, match=f"cannot listen on 127.0.0.1:{taken}"):
        server.listen("127.0.0.1", taken)
