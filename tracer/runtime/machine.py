"""Describes the machine for the run record: by short reads of files only, without a subprocess or a heavy import.

Whatever cannot be found out is None, because a recording must never fail the program for it."""

from __future__ import annotations

import os
import platform
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from stepscope.tracer.runtime.machine_limits import known_limits
from stepscope.tracer.schema.machine import Machine

T = TypeVar("T")
HIDDEN = "(not recorded)"
MOST_PACKAGES, MOST_VARIABLES, MOST_TEXT, MOST_DEVICES = 200, 200, 500, 32
_HEAD_BYTES = 8192
_PACKAGE = re.compile(
    r"(torch\w*|pytorch\w*|functorch|triton\w*|numpy|sympy|networkx|nvidia_\w+|cuda_\w+|cupy\w*|mkl\w*|intel_\w+|onnx\w*|"
    r"optree|flash_attn\w*|xformers|transformers|accelerate|diffusers|peft|datasets|deepspeed|lightning|bitsandbytes|"
    r"vllm|sglang|liger_kernel|apex|jax|tensorflow|stepscope)-([^-]+)\.dist-info",
    re.IGNORECASE,
)
_VARIABLE = re.compile(
    r"(?:TORCH|PYTORCH|INDUCTOR|AOT_INDUCTOR|AOTI|TRITON|CUDA|CUBLAS|CUDNN|NVIDIA_TF32|NCCL|HIP_|HSA_|ROCR_|OMP_|KMP_|MKL_|GOMP_|"
    r"STEPSCOPE_)\w*|CXX|CC"
)
_CONFIDENTIAL = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|AUTH|(?:^|_)KEY(?:$|_)|COOKIE")
_LOGIN = re.compile(r"://[^/@\s]*@")
_DRIVER = re.compile(r"Kernel Module\D*(\d+(?:\.\d+)+)")
_CPU = re.compile(r"^(?:model name|Model|cpu model)\s*:\s*(.+)$", re.MULTILINE)


def machine(torch: Any) -> Machine:
    """Return the facts of this process and its machine; `torch` is imported already."""
    return Machine(
        os=_asked(_system),
        kernel=_asked(lambda: f"{platform.system()} {platform.release()}"),
        libc=_asked(lambda: os.confstr("CS_GNU_LIBC_VERSION")),
        architecture=_asked(platform.machine),
        cpu=cpu_model(),
        cpu_capability=_asked(torch.backends.cpu.get_cpu_capability),
        memory_bytes=_asked(lambda: os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")),
        cpp_compiler=_asked(_compiler),
        python_build=_asked(lambda: sys.version.replace("\n", "")[:MOST_TEXT]),
        gpu_driver=_asked(lambda: _found(_DRIVER, _head("/proc/driver/nvidia/version"))),
        gpu_capabilities=_asked(lambda: _capabilities(torch)) or [],
        cudnn_version=_asked(lambda: _cudnn(torch)),
        hip_version=_asked(lambda: torch.version.hip),
        torch_git=_asked(lambda: torch.version.git_version),
        torch_is_debug=_asked(lambda: bool(torch.version.debug)),
        torch_build=_asked(lambda: _build(torch)) or [],
        packages=_asked(_packages) or {},
        variables=_asked(lambda: variables(os.environ)) or {},
        limits=_asked(lambda: dict([*known_limits(cpu_model()).items()][:MOST_DEVICES])) or {},
    )


def cpu_model() -> str | None:
    """Return the name of the processor; None if the system does not tell it."""
    return _asked(lambda: _found(_CPU, _head("/proc/cpuinfo")))


def variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that change what torch does; what looks confidential has no value."""
    names = sorted(name for name in environment if _VARIABLE.fullmatch(name))
    return {name: _value(name, environment[name]) for name in names[:MOST_VARIABLES]}


def _value(name: str, text: str) -> str:
    return HIDDEN if _CONFIDENTIAL.search(name) else _LOGIN.sub("://", text)[:MOST_TEXT]


def _asked(question: Callable[[], T]) -> T | None:
    try:
        return question()
    except Exception:  # a system without the file, or a torch that answers otherwise
        return None


def _system() -> str:
    if platform.system() == "Linux":
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    return f"{platform.system()} {platform.mac_ver()[0] or platform.version()}"


def _head(path: str) -> str:
    with Path(path).open("rb") as file:
        return file.read(_HEAD_BYTES).decode("utf-8", "replace")


def _found(pattern: re.Pattern[str], text: str) -> str | None:
    found = pattern.search(text)
    return found[1].strip()[:MOST_TEXT] if found else None


def _compiler() -> str | None:
    """Return a name such as ``x86_64-linux-gnu-g++-12``, to which ``g++`` is usually a link."""
    for name in (os.environ.get("CXX", ""), "g++", "clang++", "c++"):
        path = shutil.which(shlex.split(name)[0]) if name else None
        if path:
            return os.path.basename(os.path.realpath(path))
    return None


def _capabilities(torch: Any) -> list[str]:
    if not torch.cuda.is_initialized():  # the question would initialise CUDA
        return []
    return [".".join(map(str, torch.cuda.get_device_capability(n))) for n in range(torch.cuda.device_count())]


def _cudnn(torch: Any) -> str | None:
    number = torch.backends.cudnn.version() if torch.cuda.is_initialized() else None
    return None if number is None else str(number)


def _build(torch: Any) -> list[str]:
    lines = [line.strip().removeprefix("- ") for line in torch.__config__.show().splitlines()[1:]]
    return [line[:MOST_TEXT] for line in lines if line and not line.startswith("Build settings")]


def _packages() -> dict[str, str]:
    """Return the versions in the names of the folders that installers leave beside packages; the first one is used."""
    found: dict[str, str] = {}
    for folder in dict.fromkeys(sys.path):
        try:
            names = os.listdir(folder or ".")
        except OSError:  # a zip file, or a folder that is gone
            continue
        for package in filter(None, map(_PACKAGE.fullmatch, names)):
            found.setdefault(package[1].replace("_", "-").lower(), package[2])
    return dict(sorted(found.items())[:MOST_PACKAGES])
