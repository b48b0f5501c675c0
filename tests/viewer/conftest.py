"""Every test has a cache folder of its own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stepscope.viewer.store.open import open_trace
from stepscope.viewer.store.trace import Trace
from tests.logs.synthetic import LogBuilder


@pytest.fixture(autouse=True)
def cache_folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    return folder


@pytest.fixture(autouse=True)
def nothing_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first page does not make ready what other pages need: that takes longer than most tests."""
    monkeypatch.setattr("stepscope.viewer.web.app.App._warm", lambda _: None)


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[[LogBuilder | bytes], Trace]]:
    """Writes a log and opens it."""
    traces: list[Trace] = []

    def open_log(log: LogBuilder | bytes) -> Trace:
        path = tmp_path / f"log{len(traces)}.log"
        path.write_bytes(log if isinstance(log, bytes) else log.data)
        traces.append(open_trace(path))
        return traces[-1]

    yield open_log
    for trace in traces:
        trace.close()


def sample_logs() -> Path | None:
    """Folder with logs that PyTorch wrote: STEPSCOPE_SAMPLES, else one beside the checkout."""
    beside = Path(__file__).resolve().parents[2].parent / "shared" / "torch_trace_logs"
    folder = Path(os.environ.get("STEPSCOPE_SAMPLES", beside))
    return folder if folder.is_dir() else None
