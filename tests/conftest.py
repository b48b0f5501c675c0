"""What tests on several workers (``pytest -n 2``) have in common."""

from __future__ import annotations

import os
from typing import Any

import pytest

TOGETHER = {
    "tests/browser/": "browser",
    "tests/capture/test_corpus.py": "corpus",
    "tests/capture/test_tlparse.py": "corpus",
    "tests/capture/test_values.py": "corpus",
}
"""Modules that share what is made once for a session."""

if "PYTEST_XDIST_WORKER" in os.environ:  # before torch is imported: the workers share the cores among them
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """A module is not divided among workers, so that its fixtures are made once; the first modules take the longest."""
    from xdist.scheduler import LoadScopeScheduling

    class Scheduler(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            module = nodeid.partition("::")[0]
            return next((group for start, group in TOGETHER.items() if module.startswith(start)), module)

    config.option.loadscopereorder = False
    return Scheduler(config, log)
