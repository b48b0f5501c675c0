"""Where the dashboard listens."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from stepscope.viewer.errors import StepscopeError
from stepscope.viewer.web import server


@pytest.fixture
def kept() -> Iterator[int]:
    """A port that one who asks for it can have, and that nobody gets who asks for any."""
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        yield int(holder.getsockname()[1])


def test_a_taken_default_port_gives_way_to_a_free_one(kept: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "DEFAULT_PORT", kept)
    with server.listen(kept) as first, server.listen(kept) as second:
        assert first.getsockname()[1] == kept
        assert second.getsockname()[1] not in {0, kept}


def test_a_port_that_was_asked_for_is_not_changed(kept: int) -> None:
    with (
        server.listen(kept),
        pytest.raises(StepscopeError, match=f"The port 127.0.0.1:{kept} cannot be opened"),
    ):
        server.listen(kept)
