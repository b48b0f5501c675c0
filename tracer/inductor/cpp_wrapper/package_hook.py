"""Reads generated C++ code before it is compiled: the launches that it prints, and what they compute.

AOTInductor's packages are not loaded through Python; each passes through `AotCodeCompiler.compile`
(torch/_inductor/codecache.py).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from stepscope.tracer.inductor.codegen_facts import CodegenFacts, CodegenTap
from stepscope.tracer.inductor.cpp_wrapper.code import PRINTS, cpp_code
from stepscope.tracer.schema.graphs import CppCode


class PackageHook:
    """Passes C++ code whose launches print to `report`."""

    def __init__(
        self,
        report: Callable[[CppCode], None],
        on_failure: Callable[[str, BaseException], None],
        codegen: CodegenTap,
    ) -> None:
        self._report, self._on_failure, self._codegen = report, on_failure, codegen
        self._undo = ExitStack()

    def attach(self) -> None:
        from torch._inductor import codecache

        if not hasattr(codecache, "AotCodeCompiler"):
            return
        original = codecache.AotCodeCompiler.__dict__["compile"]
        hook = self

        def compile_package(cls: Any, graph: Any, wrapper_code: str, *args: Any, **kwargs: Any) -> Any:
            hook.on_package(wrapper_code)
            return original.__func__(cls, graph, wrapper_code, *args, **kwargs)

        setattr(codecache.AotCodeCompiler, "compile", classmethod(compile_package))  # noqa: B010 - it is a method
        self._undo.callback(setattr, codecache.AotCodeCompiler, "compile", original)

    def detach(self) -> None:
        self._undo.close()

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
