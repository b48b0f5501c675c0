"""What tests on several workers (``pytest -n 2``) have in common."""

from __future__ import annotations

import functools
import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
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

TESTS = Path(__file__).parent
COMPILER = TESTS / "compiler" / "g++"
COMPILES = {"capture", "ecosystem", "gpu", "pytorch_helpers"}
"""Folders of tests whose programs are compiled."""
_COMPILING = re.compile(r"\btorch\.compile\(|^from tests\.(capture|ecosystem|programs|pytorch_helpers)\b", re.MULTILINE)
KEPT_S = 7 * 24 * 3600
"""How long what was compiled is kept after it was last used."""

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
    """The controller decides for all test processes which compiler they use and what is known of the processor."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        return
    _remember_compiled(config)
    cache = getattr(config, "cache", None)
    if cache is not None and VECTORS not in os.environ and not _is_quick(config):
        _try_vectors(cache)


def _remember_compiled(config: pytest.Config) -> None:
    """Inductor's kernels are compiled by ``tests/compiler/g++``, which keeps what the real compiler makes of them, and
    which refuses where the tests that compile are left out."""
    compiler = shutil.which("g++")
    if sys.platform != "linux" or "CXX" in os.environ or compiler is None:
        return
    version = subprocess.run([compiler, "-v"], capture_output=True, text=True, check=False).stderr
    lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    processor = {line for line in lines if line.startswith(("model", "flags", "Features", "CPU part"))}
    os.environ["COMPILED_BY"], os.environ["CXX"] = compiler, str(COMPILER)
    os.environ["COMPILED_KEY"] = f"{importlib.metadata.version('torch')} {version} {sorted(processor)}"
    if _is_quick(config):
        os.environ.pop("COMPILED", None)
        return
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "stepscope-tests")
    folder.mkdir(parents=True, exist_ok=True)
    for kept in folder.iterdir():
        if kept.stat().st_mtime < time.time() - KEPT_S:
            kept.unlink(missing_ok=True)
    os.environ["COMPILED"] = str(folder)


def _try_vectors(cache: pytest.Cache) -> None:
    """Inductor compiles a file for each vector instruction set of the processor into every new compile cache, which
    takes longer than a small program. One such trial per machine is enough for all test processes."""
    tried = [importlib.metadata.version("torch"), os.environ.get("CXX", "c++"), platform.node()]
    known = cache.get("stepscope/vector_instructions", None)
    if not known or known[:-1] != tried:
        done = subprocess.run([sys.executable, "-c", _TRY_VECTORS], capture_output=True, check=False)
        known = [*tried, done.returncode == 0]
        cache.set("stepscope/vector_instructions", known)
    if known[-1]:
        os.environ[VECTORS] = "1"


def _is_quick(config: pytest.Config) -> bool:
    return "not compiles" in config.option.markexpr


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A module whose tests are all left out is not imported either."""
    is_left_out = _is_quick(config) and collection_path.suffix == ".py" and _compiles(collection_path)
    return True if is_left_out else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A module that compiles is marked so; one that only starts what compiles may say it by a mark of its own."""
    for item in items:
        if _compiles(item.path):
            item.add_marker(pytest.mark.compiles)


@functools.cache
def _compiles(module: Path) -> bool:
    in_folder = bool(set(module.relative_to(TESTS).parts) & COMPILES)
    return in_folder or _COMPILING.search(module.read_text("utf-8")) is not None


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
