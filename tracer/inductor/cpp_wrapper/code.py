"""Reads launch sites from generated C++ code that PyTorch's debug printer was compiled into.

The printed output, which names only kernels and buffers, is read elsewhere, perhaps in another process.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from stepscope.tracer.aoti.printed_graphs import FUNCTION
from stepscope.tracer.aoti.printed_graphs import kind as kind_of
from stepscope.tracer.inductor.codegen_facts import CodegenFacts, CodegenTap, LaunchFacts, match
from stepscope.tracer.inductor.cpp_wrapper.calls import declared, scalars
from stepscope.tracer.schema.graphs import Argument, CppCode, LaunchSite
from stepscope.tracer.schema.scalars import InputSize, Scalar
from stepscope.tracer.wrapper.comments import commented, debug_handle

PRINTS = "before_launch"
"""Text in all code that prints its launches; code without it, which can be long, need not be read."""
_BLOCK = re.compile(
    r'aoti_torch_print_tensor_handle\(.*?, "(?P<moment>before|after)_launch - (?P<kernel>.+) - (?P<argument>.+?)"\);'
)
_NUMBER = re.compile(r'printf\("\[  (?P<moment>before|after)_launch - (?P<kernel>.+) - .+?: %ld  \]')
_NAME = re.compile(r'printf\("\[ (?P<moment>before|after)_launch: (?P<kernel>.+) \]\\n"\);')
_SAVED = re.compile(
    r'aoti_torch_save_tensor_handle\(.*?, "(?P<argument>[^"]+)", "(?P<moment>before|after)_launch", "(?P<kernel>[^"]+)"'
)
_MARKS = (_BLOCK, _SAVED, _NAME, _NUMBER)
_VARIABLE = re.compile(
    r"\s*(?:static )?(?:constexpr |const )?[\w:<>]+ (?P<name>(?:var|int_array)_\d+)(?:\[\])? = (?P<value>.+);"
)
_SIZE = re.compile(r"\s*int64_t (\w+) = (\w+)_size\[(\d+)\];")


class PackageHook:
    """Passes the launches of C++ code that prints them to `report`, before the code is compiled.

    Packages of AOTInductor are not loaded through Python (torch/_inductor/codecache.py).
    """

    def __init__(
        self,
        report: Callable[[CppCode], None],
        on_failure: Callable[[str, BaseException], None],
        codegen: CodegenTap,
    ) -> None:
        self._report, self._on_failure, self._codegen = report, on_failure, codegen

    def attach(self, undo: ExitStack) -> None:
        """Wrap `AotCodeCompiler.compile`, through which each package passes, until `undo` is closed."""
        from torch._inductor import codecache

        if not hasattr(codecache, "AotCodeCompiler"):
            return
        original = codecache.AotCodeCompiler.__dict__["compile"]
        hook = self

        def compile_package(cls: Any, graph: Any, wrapper_code: str, *args: Any, **kwargs: Any) -> Any:
            hook.on_package(wrapper_code)
            return original.__func__(cls, graph, wrapper_code, *args, **kwargs)

        setattr(codecache.AotCodeCompiler, "compile", classmethod(compile_package))  # noqa: B010 - it is a method
        undo.callback(setattr, codecache.AotCodeCompiler, "compile", original)

    def on_package(self, code: str) -> None:
        """Read `code`, which this thread has generated and AOTInductor is about to compile. Never raises."""
        try:
            self.tell(code, self._codegen.take())
        except Exception as error:
            self._on_failure("package", error)

    def tell(self, code: str, facts: CodegenFacts | None) -> None:
        if PRINTS not in code:
            return
        found = cpp_code(code, facts.launches if facts else [])
        if found.sites:
            self._report(found)


def cpp_code(code: str, facts: Sequence[LaunchFacts]) -> CppCode:
    """Return the launch sites and input sizes of `code`; `facts` were collected when Inductor generated it."""
    reader = _Reader(code)
    for number, line in enumerate(code.splitlines(), 1):
        reader.read(number, line)
    sites, _ = match(reader.sites, list(facts))
    return CppCode(sites, reader.sizes)


class _Reader:
    """Reads the lines of the code in order."""

    def __init__(self, code: str) -> None:
        self.sites: list[LaunchSite] = []
        self.sizes: list[InputSize] = []
        self._kernels = declared(code)
        self._variables: dict[str, str] = {}
        self._comment: tuple[list[str], list[str]] = [], []
        self._handle: str | None = None
        self._is_fresh = False
        """True if `_comment` belongs to the next handle."""
        self._arguments: list[str] = []
        self._line = 0
        self._text: str | None = None
        """Text of the call; None while no launch is being read."""

    def read(self, number: int, line: str) -> None:
        mark = _mark(line)
        if mark is None:
            self._statement(line)
        elif mark["moment"] == "before":
            if self._text is None or self._text:
                self._text, self._arguments, self._line = "", [], number + 1
            if "argument" in mark:
                self._arguments.append(mark["argument"])
        elif self._text is not None:
            self.sites.append(self._site(mark["kernel"], self._text))
            self._text = None

    def _statement(self, line: str) -> None:
        if line.lstrip().startswith("//"):
            self._remark(line)
        elif found := _VARIABLE.fullmatch(line):
            self._variables[found["name"]] = found["value"]
        elif self._text is not None:
            self._text += line + "\n"
        elif found := _SIZE.fullmatch(line):
            self.sizes.append(InputSize(found[1], found[2], int(found[3])))

    def _remark(self, line: str) -> None:
        if found := commented(line):
            self._comment, self._handle, self._is_fresh = found, None, True
        elif handle := debug_handle(line):
            if not self._is_fresh:
                self._comment = [], []
            self._handle, self._is_fresh = handle, False

    def _site(self, kernel: str, text: str) -> LaunchSite:
        """Return the site of a launch that ends here; a C++ kernel has no comment of its own."""
        kind = kind_of(kernel)
        nodes, operators = self._comment if kind != "cpp" else ([], [])
        site = LaunchSite(
            len(self.sites), FUNCTION, self._line, kernel, kind,
            [Argument(name, "in", name) for name in self._arguments], [], handle=self._handle,
            source_nodes=nodes, aten=operators, scalars=self._scalars(text),
        )  # fmt: skip
        self._comment, self._handle = ([], []), None
        return site

    def _scalars(self, text: str) -> list[Scalar]:
        return scalars(text, self._kernels, operator_parameters, self._variables)


def _mark(line: str) -> dict[str, str] | None:
    """Return the moment, the kernel and, if any, the argument that a line prints."""
    if "_launch" in line:
        for pattern in _MARKS:
            if found := pattern.search(line):
                return found.groupdict()
    return None


@cache
def operator_parameters(function: str) -> str | None:
    """Return the parameters of an operator as PyTorch's C shim headers declare it, or None if they do not."""
    if not function.startswith("aoti_torch_"):
        return None
    found = re.search(rf"\b{function}\(([^)]*)\)", _headers())
    return found[1] if found else None


@cache
def _headers() -> str:
    found = find_spec("torch")
    folder = Path(found.origin if found and found.origin else "").parent / "include/torch/csrc/inductor/aoti_torch"
    files = [*folder.glob("generated/c_shim_*.h"), *folder.glob("c/shim_*.h")]
    return "\n".join(file.read_text("utf-8", "replace") for file in sorted(files))
