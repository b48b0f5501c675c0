"""The part of the run record that describes the machine and the installed software, as bug reports ask for it."""

from __future__ import annotations

from dataclasses import dataclass, field

CPU = "cpu"
MEMORY = "memory"
"""Keys of `Machine.limits` and of its figures."""


@dataclass(frozen=True)
class Machine:
    """The machine, torch's build and the variables that change what torch does. Nothing here names a user or a host."""

    os: str | None
    """Name of the distribution, or of the system if it has none."""
    kernel: str | None
    libc: str | None
    architecture: str | None
    cpu: str | None
    cpu_capability: str | None
    """Instruction set that torch chooses kernels for, such as ``AVX2``."""
    memory_bytes: int | None
    cpp_compiler: str | None
    """File name of the C++ compiler that is found first; on Linux it usually ends in the version."""
    python_build: str | None
    gpu_driver: str | None
    gpu_capabilities: list[str]
    """Compute capability of each GPU; empty if CUDA was not initialised when the recording began."""
    cudnn_version: str | None
    hip_version: str | None
    torch_git: str | None
    torch_is_debug: bool | None
    torch_build: list[str]
    """What torch says of its compiler and libraries."""
    packages: dict[str, str]
    """Versions of installed packages that torch, Triton and their users bring."""
    variables: dict[str, str]
    """Environment variables that change what torch, Triton, CUDA and OpenMP do."""
    limits: dict[str, dict[str, float]] = field(default_factory=dict)
    """What `stepscope measure` found: for ``cpu``, and for each kind of GPU by its name, ``memory``, the bytes per
    second that a copy of large buffers reads and writes, and for dtypes such as ``float32`` the operations per second
    of a product of large matrices. Empty if it was never run on such a machine."""
