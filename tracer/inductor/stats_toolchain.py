"""Compiles C++ with Inductor's toolchain, and hides the reading of tensors from modes and subclasses of the program."""

from __future__ import annotations

import hashlib
import os
import shlex
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import torch

# Inductor turns off loop vectorisation (its own code is vectorised explicitly) and contraction; -O2 compiles in half
# the time of -O3. Unsafe mathematics, which a program may have switched on, would lose NaNs.
FLAGS = (
    "-O2",
    "-ftree-vectorize",
    "-ffp-contract=fast",
    "-fno-trapping-math",
    "-fno-finite-math-only",
    "-fno-unsafe-math-optimizations",
)
MOST_SECONDS = 120


def build_library(source: str) -> Path:
    """Return the path of the shared library of C++ `source`; compile it if it is not cached.

    The cache is a folder that only the user can write to, or else Inductor's cache directory. Processes and threads
    may build at the same time: each compiles in its own folder, and a file's name contains the digest of its contents.
    Raises OSError, RuntimeError, subprocess.TimeoutExpired or an error of Inductor's search for a compiler.
    """
    folder = own_folder() or _cache_folder()
    key = hashlib.sha256(f"{source}\0{_command('i', 'o', '.')[0]}\0{_processor()}".encode()).hexdigest()[:32]
    for library in sorted(folder.glob(f"{key}-*.so")):
        if library.name == _library_name(key, library):
            return library
        library.unlink(missing_ok=True)  # damaged: a complete file is renamed to its digest
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        path = Path(scratch, "stats.cpp")
        path.write_text(source, "utf-8")
        command, built = _command(str(path), "stats", scratch)
        done = subprocess.run(
            shlex.split(command), cwd=scratch, capture_output=True, text=True, timeout=MOST_SECONDS, check=False
        )
        if done.returncode:
            raise RuntimeError(f"the C++ compiler failed: {done.stderr.strip()[-400:]}")
        library = folder / _library_name(key, Path(built))
        os.replace(built, library)
    return library


def _library_name(key: str, file: Path) -> str:
    return f"{key}-{hashlib.sha256(file.read_bytes()).hexdigest()[:16]}.so"


def own_folder() -> Path | None:
    """Return a folder for libraries that only this user can write to, or None if it cannot be created."""
    try:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        folder = Path(base, "stepscope", "libraries")
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.stat()
        is_own = found.st_uid == os.getuid() and not found.st_mode & 0o022
        return folder if is_own and os.access(folder, os.W_OK) else None
    except (OSError, RuntimeError, AttributeError):  # no home; no users
        return None


def _command(source: str, name: str, folder: str) -> tuple[str, str]:
    """Return the command line that compiles `source`, and the file that it writes.

    `CppBuilder.build` would count the time as the program's compilation.
    """
    from torch._inductor.cpp_builder import CppBuilder, CppTorchOptions

    options = CppTorchOptions(include_pytorch=False, warning_all=False, extra_flags=FLAGS)
    builder = CppBuilder(name=name, sources=source, BuildOption=options, output_dir=folder)
    return builder.get_command_line(), builder.get_target_file_path()


def _cache_folder() -> Path:
    from torch._inductor.runtime.cache_dir_utils import cache_dir

    variable = "TORCHINDUCTOR_CACHE_DIR"
    before = os.environ.get(variable)
    folder = Path(cache_dir(), "stepscope")
    if before is None:  # cache_dir sets it, and the program's children would inherit it
        os.environ.pop(variable, None)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _processor() -> str:
    """Return the instruction sets of this machine's processor; machines that share a cache may differ in them."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return ""
    return next((line for line in lines if line.lower().startswith(("flags", "features"))), "")


function_mode_active: Callable[[], bool] = torch._C._is_torch_function_mode_enabled
"""Return whether a TorchFunctionMode, such as ``with torch.device(...)``, is active; it sees each attribute access."""


def without_torch_function() -> AbstractContextManager[None]:
    """Return a context in which no ``__torch_function__`` of a subclass or mode runs."""
    guard: AbstractContextManager[None] = torch._C.DisableTorchFunction()
    return guard


@contextmanager
def plain_torch() -> Iterator[None]:
    """Hide operations from the modes and subclasses of the program, and from autograd."""
    # DisableTorchFunction comes first: a mode sees even no_grad.
    with without_torch_function(), torch._C._DisableTorchDispatch(), torch.no_grad():
        yield


def is_fake(value: torch.Tensor) -> bool:
    from torch._subclasses.fake_tensor import FakeTensor

    return isinstance(value, FakeTensor)


def stands_for_another(value: torch.Tensor) -> bool:
    """Return whether `value` is a wrapper of a trace (functionalisation) or of a transform (vmap, grad)."""
    return bool(torch._is_functional_tensor(value) or torch._C._functorch.is_functorch_wrapped_tensor(value))


def stored_values(value: torch.Tensor) -> torch.Tensor:
    """Return the stored values of a sparse COO tensor, coalesced or not."""
    return value._values()
