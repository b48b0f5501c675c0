"""The set-up that tests on several workers (``pytest -n 2``) share."""

from __future__ import annotations

import gc
import importlib.metadata
import os
import platform
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.variables import VECTORS

TOGETHER = {
    "tests/browser/": "browser",
    "tests/capture/test_corpus.py": "corpus",
    "tests/capture/test_tlparse.py": "corpus",
    "tests/capture/test_values.py": "corpus",
}
"""Modules that must run on the same worker because they share fixtures of the session."""

TESTS = Path(__file__).parent
MOST_WORKERS = 5
COMPILER = TESTS / "compiler" / "g++"
KEPT_S = 7 * 24 * 3600
"""Seconds for which compiled files are kept after their last use."""

os.environ.pop("CI", None)
"""With ``CI`` set, torch raises errors that a user's program does not meet: `error_on_custom_op_aliasing` for one."""

if "PYTEST_XDIST_WORKER" in os.environ:  # must precede the import of torch, as the workers share the cores
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("MKL_NUM_THREADS", "1")
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")

SLOW_MACHINE = [HealthCheck.too_slow]
"""The first example of a worker may wait for the import of torch while other workers take the processors."""
settings.register_profile("same", derandomize=True, suppress_health_check=SLOW_MACHINE)
settings.register_profile("new", print_blob=True, suppress_health_check=SLOW_MACHINE)
settings.load_profile(os.environ.get("STEPSCOPE_EXAMPLES", "same"))
"""Hypothesis tries the same examples in each run, or new ones with ``STEPSCOPE_EXAMPLES=new``."""

_TRY_VECTORS = """
import sys
from torch._inductor import config, cpu_vec_isa
config.cpp.vec_isa_ok = True
supposed = cpu_vec_isa.valid_vec_isa_list()
config.cpp.vec_isa_ok = None
sys.exit(not supposed or not all(map(bool, supposed)))
"""


def pytest_configure(config: pytest.Config) -> None:
    """Choose the compiler and detect the processor's vector instructions once for all test processes."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        return
    _remember_compiled()
    cache = getattr(config, "cache", None)
    if cache is not None and VECTORS not in os.environ:
        _try_vectors(cache)


def _remember_compiled() -> None:
    """Let Inductor compile with ``tests/compiler/g++``, which caches the results of the real compiler."""
    compiler = shutil.which("g++")
    if sys.platform != "linux" or "CXX" in os.environ or compiler is None:
        return
    version = subprocess.run([compiler, "-v"], capture_output=True, text=True, check=False).stderr
    lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    processor = {line for line in lines if line.startswith(("model", "flags", "Features", "CPU part"))}
    os.environ["COMPILED_BY"], os.environ["CXX"] = compiler, str(COMPILER)
    os.environ["COMPILED_WITHOUT"], os.environ["COMPILED_PYTHON"] = sys.prefix, os.path.realpath(sys.executable)
    os.environ["COMPILED_KEY"] = f"{importlib.metadata.version('torch')} {version} {sorted(processor)}"
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "stepscope-tests")
    folder.mkdir(parents=True, exist_ok=True)
    for kept in folder.iterdir():
        if kept.is_file() and kept.stat().st_mtime < time.time() - KEPT_S:
            kept.unlink(missing_ok=True)
    os.environ["COMPILED"] = str(folder)
    os.environ["COMPILED_STUBS"] = _stubs(compiler, folder)


def _stubs(compiler: str, folder: Path) -> str:
    """Make a shared library without symbols for each of torch's that kernels are linked with; return their folder."""
    stubs = folder / "stubs"
    stubs.mkdir(exist_ok=True)
    for name in ("libtorch.so", "libtorch_cpu.so", "libtorch_python.so"):
        if not (stubs / name).exists():
            made = ["-o", str(stubs / name), f"-Wl,-soname,{name}"]
            subprocess.run([compiler, "-shared", "-x", "c", os.devnull, *made], capture_output=True, check=False)
    return str(stubs)


def _try_vectors(cache: pytest.Cache) -> None:
    """Test the vector instruction sets once per machine; Inductor would repeat it for every new compile cache."""
    tried = [importlib.metadata.version("torch"), os.environ.get("CXX", "c++"), platform.node()]
    known = cache.get("stepscope/vector_instructions", None)
    if not known or known[:-1] != tried:
        done = subprocess.run([sys.executable, "-c", _TRY_VECTORS], capture_output=True, check=False)
        known = [*tried, done.returncode == 0]
        cache.set("stepscope/vector_instructions", known)
    if known[-1]:
        os.environ[VECTORS] = "1"


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Let each test begin with the same random numbers; nothing here imports torch for a test that does not."""
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.manual_seed(0)


def pytest_collection_finish() -> None:
    """The garbage collector need not look at thousands of tests again and again."""
    gc.freeze()


def pytest_sessionfinish() -> None:
    gc.unfreeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Start two workers more than there are processors, because many tests wait for a program or a browser.

    With one more, a quarter of two processors was idle."""
    return min((os.cpu_count() or 1) + 2, MOST_WORKERS)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Run each module on one worker, so that its fixtures are created once, with the slowest modules first."""
    from xdist.scheduler import LoadScopeScheduling

    class Scheduler(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            module = nodeid.partition("::")[0]
            return next((group for start, group in TOGETHER.items() if module.startswith(start)), module)

    config.option.loadscopereorder = False
    return Scheduler(config, log)
