"""Builds the records about the process: the run record, and the exception that ended the process."""

from __future__ import annotations

import os
import platform
import sys
import time
import traceback
from typing import Any

from stepscope.tracer._version import __version__
from stepscope.tracer.config import TraceConfig
from stepscope.tracer.inductor import compat
from stepscope.tracer.inductor.cpp_wrapper import shim_errors
from stepscope.tracer.runtime.machine import machine
from stepscope.tracer.schema.constants import CALL_RAISED, FORMAT_VERSION
from stepscope.tracer.schema.process_ends import Frame, UncaughtException
from stepscope.tracer.schema.records import Run

MOST_FRAMES, MOST_TEXT, MOST_CALL = 32, 16_000, 4_000


def environment_number(name: str) -> int | None:
    """Return the environment variable `name` as a number, or None if it is not set or not a number."""
    text = os.environ.get(name, "")
    return int(text) if text.isdecimal() else None


def run_record(rank: int | None, config: TraceConfig, *, forked: bool = False) -> Run:
    """Return the first record of a log of this process; torch must be imported."""
    torch = sys.modules["torch"]
    triton = sys.modules.get("triton")
    return Run(
        format_version=FORMAT_VERSION,
        stepscope_version=__version__,
        python_version=platform.python_version(),
        torch_version=torch.__version__,
        triton_version=getattr(triton, "__version__", None),
        cuda_version=torch.version.cuda,
        devices=_devices(torch),
        rank=rank,
        world_size=environment_number("WORLD_SIZE"),
        pid=os.getpid(),
        parent_pid=os.getppid(),
        argv=_command(),
        config=compat.changed_settings(),
        level=config.level,
        monotonic_ns=time.perf_counter_ns(),
        unix_ns=time.time_ns(),
        utc_offset_s=time.localtime().tm_gmtoff,
        forked=forked,
        guesses_steps=True,
        loads_data=_loads_data(torch),
        machine=machine(torch),
    )


def _command() -> list[str]:
    """Return the command of the process; one that `multiprocessing` spawned has the arguments of its parent's script.

    Its own command names only `multiprocessing.spawn`, in whose words no two programs differ.
    """
    original = list(getattr(sys, "orig_argv", sys.argv))
    return [*original[:1], *sys.argv] if "--multiprocessing-fork" in original else original


def ending_child(error: BaseException | None) -> UncaughtException | None:
    """Return the exception that ends a child of `multiprocessing`, given the one that leaves its function; or None.

    Python sets no `sys.last_value` there, because `multiprocessing` prints the exception itself.
    `torch.multiprocessing` hands it to the parent and leaves by SystemExit.
    """
    if isinstance(error, SystemExit):
        *_, (frame, _) = traceback.walk_tb(error.__traceback__)
        is_torchs = frame.f_globals.get("__name__") == "torch.multiprocessing.spawn"
        error = error.__context__ if is_torchs else None
    return _described(error) if error is not None else None


def uncaught_exception() -> UncaughtException | None:
    """Return the exception that Python has just printed as the end of this process, or None.

    It is read from `sys.last_value`. Test runners set this too, to exceptions that did not reach the outermost frame;
    these are ignored, and so are those of an interactive session, which continues.
    """
    error = getattr(sys, "last_value", None)
    if not isinstance(error, BaseException) or hasattr(sys, "ps1"):
        return None
    if error.__traceback__ is not None and error.__traceback__.tb_frame.f_back is not None:
        return None
    return _described(error)


def _described(error: BaseException) -> UncaughtException:
    frames = [
        Frame(frame.filename, frame.lineno or 0, frame.name, frame.line or "")
        for frame in traceback.extract_tb(error.__traceback__)[-MOST_FRAMES:]
    ]
    return UncaughtException(type_name(error), exception_text(error)[:MOST_TEXT], frames)


def type_name(error: BaseException) -> str:
    """Return the name of the class of `error`, with its module unless that is `builtins`."""
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def exception_text(error: BaseException) -> str:
    """Return the text of `error`, and why a call of generated C++ code failed if that is known."""
    try:
        text = str(error)
    except Exception as broken:  # raised by the program's own class
        text = f"(its text is unavailable: {type(broken).__name__})"
    cause = shim_errors.cause_of(text)
    return text if cause is None else f"{text[:MOST_CALL]}\n{CALL_RAISED}{cause}"


def _loads_data(torch: Any) -> bool:
    """Return whether this process is a worker of a `DataLoader`."""
    return torch.utils.data.get_worker_info() is not None


def _devices(torch: Any) -> list[str]:
    devices = [f"cpu ({os.cpu_count()} cores)"]
    if torch.cuda.is_initialized():  # other queries could initialise CUDA, which a forked child could not use then
        devices += [torch.cuda.get_device_name(n) for n in range(torch.cuda.device_count())]
    return devices
