"""Small helpers around torch's private modules; `private_names` lists every private name that is used."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from types import FrameType, ModuleType
from typing import Any

CONFIG_MODULES = ("torch._dynamo.config", "torch._inductor.config", "torch._functorch.config")

DEVICE_CYCLES_PER_NS = 1.7


def uses_cuda_graphs() -> bool:
    """Return whether Inductor compiles for CUDA graphs now."""
    from torch._inductor import config

    return bool(config.triton.cudagraphs)


def delay_device(duration_ns: int) -> None:
    """Keep the current CUDA stream busy for about `duration_ns`; the host does not wait."""
    import torch

    if duration_ns > 0:
        torch.cuda._sleep(int(duration_ns * DEVICE_CYCLES_PER_NS))  # type: ignore[no-untyped-call]


def loaded(name: str, attribute: str) -> ModuleType | None:
    """Return the module `name` if it is imported and defines `attribute`, else None; never imports it."""
    module = sys.modules.get(name)
    return module if module is not None and hasattr(module, attribute) else None


def memory_checks() -> str | None:
    """Return what Inductor's lifetime checks do about a mismatch (``log``, ``assert``), or None if they are off."""
    config = loaded("torch._inductor.config", "test_configs")
    return getattr(config.test_configs, "track_memory_lifecycle", None) if config is not None else None


def calling_frame(frame: FrameType | None) -> FrameType | None:
    """Return the first frame, from `frame` outwards, that belongs neither to torch nor to a mode: the caller.

    Returns None if there is none, or if the call is only traced with fake tensors.
    """
    import torch

    folder = os.path.dirname(torch.__file__) + os.sep
    while frame is not None:
        if str(frame.f_globals.get("__name__", "")).startswith("torch._subclasses."):
            return None
        is_mode = frame.f_code.co_name in ("__torch_dispatch__", "__torch_function__")
        if not is_mode and not frame.f_code.co_filename.startswith(folder):
            return frame
        frame = frame.f_back
    return None


@contextmanager
def debug_functions_replaced(functions: Mapping[str, Any]) -> Iterator[None]:
    """Replace `functions` of torch/_inductor/runtime/debug_utils.py; wrappers loaded meanwhile keep the replacements.

    Does nothing if torch has no such module.
    """
    try:
        from torch._inductor.runtime import debug_utils
    except ImportError:
        yield
        return
    before = {name: getattr(debug_utils, name) for name in functions if hasattr(debug_utils, name)}
    for name in before:
        setattr(debug_utils, name, functions[name])
    try:
        yield
    finally:
        for name, function in before.items():
            if getattr(debug_utils, name) is functions[name]:
                setattr(debug_utils, name, function)


@contextmanager
def tracked_allocation_imported() -> Iterator[None]:
    """Make generated wrappers import `tracked_empty_strided`, which they allocate with.

    torch omits the import when its value printer is on too (torch/_inductor/codegen/wrapper.py, `write_header`), so
    that such wrappers would fail with a NameError.
    """
    from torch._inductor import config
    from torch._inductor.codegen.wrapper import PythonWrapperCodegen

    original = PythonWrapperCodegen.write_header

    def write_header(self: Any) -> None:
        original(self)
        if memory_checks() and int(config.aot_inductor.debug_intermediate_value_printer) > 0:
            self.imports.splice("from torch._inductor.runtime.debug_utils import tracked_empty_strided")

    PythonWrapperCodegen.write_header = write_header  # type: ignore[method-assign]
    try:
        yield
    finally:
        if PythonWrapperCodegen.write_header is write_header:
            PythonWrapperCodegen.write_header = original  # type: ignore[method-assign]


@contextmanager
def without_modes() -> Iterator[None]:
    """Hide operations on tensors from the program's dispatch modes, which could count, change or fake them.

    Torch function modes, subclasses and autograd are disabled as well.
    """
    import torch
    from torch import _ops
    from torch.utils import _python_dispatch

    count: Any = _ops._len_torch_dispatch_stack_pre_dispatch
    has_modes = torch._C._len_torch_dispatch_stack() or count()
    modes = _python_dispatch._disable_current_modes() if has_modes else nullcontext()
    with torch._C.DisableTorchFunction(), torch.no_grad(), modes:
        yield


@contextmanager
def undisturbed() -> Iterator[None]:
    """Run operations as `without_modes` does, and in the dtypes that they are given, whatever autocast says."""
    import torch
    from torch import _ops

    count: Any = _ops._len_torch_dispatch_stack_pre_dispatch
    devices = [one for one in ("cpu", "cuda") if torch.is_autocast_enabled(one)]
    if not (devices or torch._C._len_torch_dispatch_stack() or count()):  # one context in place of four
        has_grad = torch.is_grad_enabled()
        torch.set_grad_enabled(False)
        try:
            with torch._C.DisableTorchFunction():
                yield
        finally:
            torch.set_grad_enabled(has_grad)
        return
    with ExitStack() as stack:
        stack.enter_context(without_modes())
        for device in devices:
            stack.enter_context(torch.autocast(device, enabled=False))
        yield


def inductor_is_loaded() -> bool:
    return loaded("torch._inductor.codecache", "PyCodeCache") is not None


def current_compile_id() -> str | None:
    from torch._guards import CompileContext

    compile_id = CompileContext.current_compile_id()
    return str(compile_id) if compile_id is not None else None


def objects_of_compile() -> list[Any]:
    """Return the objects of the program that the compile which captures a graph in this thread knows."""
    from torch._dynamo.symbolic_convert import InstructionTranslator

    return list(InstructionTranslator.current_tx().output.side_effects.keepalive)


def backward_check() -> Callable[[], int] | None:
    """Return a function that returns the number of the backward pass that runs in this thread, or -1 if none does; None
    if this torch has no such function."""
    import torch

    return getattr(torch._C, "_current_graph_task_id", None)


def matmul_precision() -> str | None:
    """Return the precision of products of float32, or None where the program mixes torch's ways to set it."""
    import torch

    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:
        return None


def profiler_is_on() -> bool:
    """Return whether PyTorch's profiler runs; also True if this torch does not tell."""
    from torch.autograd import profiler

    return bool(getattr(profiler, "_is_profiler_enabled", True))


def interned_strings() -> dict[str, int]:
    """Return a copy of the string table of torch's structured log."""
    from torch._logging import structured

    return dict(structured.INTERN_TABLE)


def changed_settings() -> dict[str, Any]:
    """Return the settings of Dynamo, Inductor and AOTAutograd that differ from their defaults, by dotted name."""
    changed: dict[str, Any] = {}
    for name in CONFIG_MODULES:
        module = sys.modules.get(name)
        for key, entry in getattr(module, "_config", {}).items():
            if getattr(entry, "alias", None) or getattr(entry, "deprecated", False):
                continue
            # PyTorch's own patches of settings leave overrides behind that are equal to the defaults.
            if not module._is_default(key) and getattr(module, key) != entry.default:  # type: ignore[union-attr]
                changed[f"{name.removeprefix('torch.')}.{key}"] = _plain(getattr(module, key))
    return changed


@contextmanager
def default_setting(module: str, key: str, raise_to: int) -> Iterator[None]:
    """Raise the default of an integer setting in every thread; a value that the program sets still takes precedence.

    An assignment would affect the current thread only (torch/utils/_config_module.py keeps overrides in ContextVars).
    """
    entry = sys.modules[module]._config[key]
    before = entry.default
    entry.default = max(before, raise_to)
    try:
        yield
    finally:
        entry.default = before


@contextmanager
def tagged_cache_key(tag: str) -> Iterator[None]:
    """Look compiled graphs up, and keep them, under keys that others do not use, in every thread.

    A tag that comes from the environment stays a part of the key; one that the program sets takes precedence.
    """
    entry: Any = sys.modules["torch.compiler.config"]._config["cache_key_tag"]
    before = {name: getattr(entry, name) for name in ("default", "env_value_default")}
    for name, value in before.items():
        if isinstance(value, str):
            setattr(entry, name, value + tag)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(entry, name, value)


def _plain(value: Any) -> Any:
    try:
        text = json.dumps(value)
    except (TypeError, ValueError):
        text = json.dumps(repr(value))
    return json.loads(text) if len(text) <= 400 else text[:400] + "…"


def hidden(tell: Callable[..., None]) -> Callable[..., None]:
    """Return a function that calls `tell` with its arguments, unless Dynamo traces it, and hides `tell` from Dynamo.

    Dynamo traces through the hooks of a compiled optimizer. After a graph break it may run them, and trace
    what they call.
    """
    import torch

    disabled: list[Callable[..., None]] = []

    def tell_hidden(*arguments: Any) -> None:
        if not torch.compiler.is_compiling():
            if not disabled and "torch._dynamo" in sys.modules:
                disabled.append(torch.compiler.disable(tell))  # type: ignore[no-untyped-call]
            (disabled[0] if disabled else tell)(*arguments)

    return tell_hidden


def left_to_python(wrapper: Any, original: Any) -> Any:
    """Let Dynamo treat the wrapper of a function of PyTorch as it treats the function, by whose file it decides."""
    like = original.__code__
    wrapper.__code__ = wrapper.__code__.replace(
        co_filename=like.co_filename, co_name=like.co_name, co_firstlineno=like.co_firstlineno
    )
    return wrapper
