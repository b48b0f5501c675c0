"""What tests on several workers (``pytest -n 2``) have in common."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import settings

from tests.variables import VECTORS

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

settings.register_profile("same", derandomize=True)
settings.register_profile("new", print_blob=True)
settings.load_profile(os.environ.get("STEPSCOPE_EXAMPLES", "same"))
"""Hypothesis tries the same examples in each run; with ``STEPSCOPE_EXAMPLES=new`` it looks for others."""

_TRY_VECTORS = """
import sys
from torch._inductor import config, cpu_vec_isa
config.cpp.vec_isa_ok = True
supposed = cpu_vec_isa.valid_vec_isa_list()
config.cpp.vec_isa_ok = None
sys.exit(not supposed or not all(map(bool, supposed)))
"""


def pytest_configure(config: pytest.Config) -> None:
    """Inductor compiles a file for each vector instruction set of the processor into every new compile cache, which
    takes longer than a small program. One such trial per machine is enough for all test processes."""
    cache = getattr(config, "cache", None)
    if VECTORS in os.environ or "PYTEST_XDIST_WORKER" in os.environ or cache is None:
        return
    tried = [importlib.metadata.version("torch"), os.environ.get("CXX", "c++"), platform.node()]
    known = cache.get("stepscope/vector_instructions", None)
    if not known or known[:-1] != tried:
        done = subprocess.run([sys.executable, "-c", _TRY_VECTORS], capture_output=True, check=False)
        known = [*tried, done.returncode == 0]
        cache.set("stepscope/vector_instructions", known)
    if known[-1]:
        os.environ[VECTORS] = "1"


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
