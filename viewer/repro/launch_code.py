"""Writes the launch statement and the kernel of a generated wrapper as code whose parts are all known.

The wrapper is text from a log. Only the kernel's own source is copied as code. A launch is written again from its
syntax, and anything other than an argument, a number or a name of torch's data types is refused.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from stepscope.tracer.wrapper.expressions import core_call
from stepscope.tracer.wrapper.parsed import assigned_calls, function_named, parsed
from stepscope.viewer.errors import StepscopeError
from stepscope.viewer.kernel_source.arithmetic import Number

_EXTERN = re.compile(r"extern_kernels\.[A-Za-z]\w*|extern_kernels\._[A-Za-z]\w*")
_OPERATOR_ROOTS = {"aten": "aten", "inductor_ops": "inductor", "_quantized": "_quantized"}
_PART = r"(?!__)[A-Za-z_]\w*"
_BUILT_IN_DUNDERS = r"__i?(?:and|or|xor|lshift|rshift)__"
_OPERATOR = re.compile(rf"torch\.ops\.{_PART}\.(?:{_PART}|{_BUILT_IN_DUNDERS})(?:\.{_PART})?")
_ON_FILES = re.compile(r"torch\.ops\.aten\.(?:from_file|save)(?:\.\w+)?")
"""Operators that create files or write to them."""
_CPP_TYPE = re.compile(r"[A-Za-z_][\w:<>, ]*\*?")
"""A type of a C++ argument, which Inductor's loader puts into C++ code of its own."""
_METHODS = frozenset({"clone", "copy_", "zero_", "fill_", "resize_", "index_put_", "add_"})
_TORCH_DATA = re.compile(
    r"torch\.(bool|u?int\d+|float\d*(_\w+)?|bfloat16|half|double|complex\d+|strided|preserve_format|contiguous_format"
    r"|channels_last(_3d)?)"
)
_NUMBERS = {"inf": "inf", "nan": "nan"}
_STREAM = re.compile(r"stream\d*")


@dataclass(frozen=True)
class KernelCode:
    """``async_compile.FACTORY(...)`` with literal arguments."""

    factory: str
    arguments: list[Any]
    """The positional arguments, with None in place of the source."""
    keywords: dict[str, Any]
    source: str


@dataclass(frozen=True)
class LaunchCode:
    """The launch for a script: an expression over ``kernel``, ``a[i]`` and ``stream``."""

    kernel: KernelCode | None
    callee: str
    """The meaning of `kernel` if no source is compiled: ``extern_kernels.mm``, ``torch.ops.aten.sort.stable``."""
    expression: str
    sizes: dict[str, Number]
    """Sizes that the wrapper computes, as text, and the numbers that replaced them."""
    bound: int
    """Number of names that the statement binds."""


def parse(code: str) -> ast.Module:
    """Return the wrapper's syntax. Raises StepscopeError if it is not Python."""
    tree = parsed(code)
    if tree is None:
        raise StepscopeError("The generated code in the log is not valid Python.")
    return tree


def launch_code(
    tree: ast.Module,
    place: tuple[str, int],
    kernel: str,
    kind: str,
    arguments: Sequence[str],
    size_of: Callable[[ast.FunctionDef, ast.expr], Number | None],
) -> LaunchCode:
    """Return the launch of `kernel` at `place` (function, line); `arguments` are the recorder's names of its arguments.

    `size_of` returns the value of an expression over sizes. Raises StepscopeError for a launch that cannot be written
    as a script.
    """
    function, statement = _statement(tree, *place, kernel)
    value, bound = _bound(statement)
    call = core_call(value)
    if call is None:
        raise StepscopeError(f"The generated code in the log has no launch of {kernel} at line {place[1]}.")
    source, callee = _kernel(tree, call, kernel, kind)
    writer = _Writer(call, kind, arguments, lambda node: size_of(function, node))
    return LaunchCode(source, callee, writer.text(value), writer.sizes, bound)


def _statement(tree: ast.Module, function: str, line: int, kernel: str) -> tuple[ast.FunctionDef, ast.stmt]:
    node = function_named(tree, function)
    for statement in ast.walk(node) if node is not None else ():
        if node is not None and isinstance(statement, (ast.Expr, ast.Assign)) and statement.lineno == line:
            return node, statement
    raise StepscopeError(f"The generated code in the log has no launch of {kernel} at line {line}.")


def _bound(statement: ast.stmt) -> tuple[ast.expr, int]:
    if isinstance(statement, ast.Expr):
        return statement.value, 0
    assert isinstance(statement, ast.Assign)
    target = statement.targets[0]
    return statement.value, len(target.elts) if isinstance(target, (ast.Tuple, ast.List)) else 1


def _kernel(tree: ast.Module, call: ast.Call, kernel: str, kind: str) -> tuple[KernelCode | None, str]:
    name = ast.unparse(call.func)
    if kind in ("cpp", "triton", "user_triton"):
        if name.removesuffix(".run") != kernel or not kernel.isidentifier():
            raise StepscopeError(f"The generated code in the log launches something else than {kernel} there.")
        return _definition(tree, kernel), ""
    if kind == "copy":
        method = kernel.removeprefix("Tensor.")
        if method in _METHODS and isinstance(call.func, ast.Attribute) and call.func.attr == method:
            return None, f"torch.Tensor.{method}"
    if kind == "extern" and name == kernel and _EXTERN.fullmatch(name):
        return None, name
    if kind == "fallback" and name == kernel:
        root, _, rest = name.partition(".")
        full = f"torch.ops.{_OPERATOR_ROOTS[root]}.{rest}" if root in _OPERATOR_ROOTS else name
        if _OPERATOR.fullmatch(full) and not _ON_FILES.fullmatch(full):
            return None, full
    raise StepscopeError(f"A launch of {kernel} ({kind}) cannot be written as a script.")


def _definition(tree: ast.Module, kernel: str) -> KernelCode:
    call = dict(assigned_calls(tree)).get(kernel)
    if call is not None:
        return _kernel_code(kernel, call)
    raise StepscopeError(f"The generated code in the log does not hold the source of {kernel}.")


def _kernel_code(kernel: str, call: ast.Call) -> KernelCode:
    factory = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    if factory not in ("cpp_pybinding", "triton"):
        raise StepscopeError(f"{kernel} is made by {ast.unparse(call.func)}, which cannot be written as a script.")
    try:
        arguments = [ast.literal_eval(argument) for argument in call.args]
        keywords = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        raise StepscopeError(f"The definition of {kernel} in the log has parts that are no text or number.") from None
    wanted = (list, str) if factory == "cpp_pybinding" else (str, str)
    if tuple(map(type, arguments)) != wanted or not set(keywords) <= {"device_str"}:
        raise StepscopeError(f"The definition of {kernel} in the log has an unknown form.")
    if factory == "cpp_pybinding" and not all(_CPP_TYPE.fullmatch(str(one)) for one in arguments[0]):
        raise StepscopeError(f"The definition of {kernel} in the log has an argument of a type that C++ does not have.")
    return KernelCode(factory, [arguments[0], None], keywords, arguments[1])


class _Writer:
    """Writes an expression again, and refuses each part that it does not know."""

    def __init__(
        self, call: ast.Call, kind: str, arguments: Sequence[str], size_of: Callable[[ast.expr], Number | None]
    ) -> None:
        self.sizes: dict[str, Number] = {}
        self._call, self._kind, self._names, self._size_of = call, kind, list(arguments), size_of
        self._next = 0

    def text(self, node: ast.expr) -> str:
        """Return the text of the launch with the subscripts and views of its result."""
        if node is self._call:
            return self._launch(node)
        if isinstance(node, ast.Subscript):
            return f"{self.text(node.value)}[{self._data(node.slice)}]"
        assert isinstance(node, ast.Call)
        assert isinstance(node.func, ast.Attribute)
        return f"{self.text(node.func.value)}.{node.func.attr}({self._all(node)})"

    def _launch(self, call: ast.Call) -> str:
        lead = []
        if self._kind == "copy":
            assert isinstance(call.func, ast.Attribute)
            lead = [self._data(call.func.value)]
        run = "kernel.run" if ast.unparse(call.func).endswith(".run") else "kernel"
        return f"{run}({', '.join([*lead, self._all(call)])})".replace(", )", ")")

    def _all(self, call: ast.Call) -> str:
        positional = [self._data(argument) for argument in call.args]
        named = []
        for keyword in call.keywords:
            if keyword.arg is None:
                raise StepscopeError(_refusal(keyword.value))
            is_stream = keyword.arg == "stream" and _STREAM.fullmatch(ast.unparse(keyword.value))
            named.append(f"{keyword.arg}={'stream' if is_stream else self._data(keyword.value)}")
        return ", ".join([*positional, *named])

    def _data(self, node: ast.expr) -> str:
        place = self._argument(node)
        if place is not None:
            return f"a[{place}]"
        if isinstance(node, ast.Constant) and isinstance(node.value, (int, float, str, type(None))):
            return f"float({str(node.value)!r})" if isinstance(node.value, float) else repr(node.value)
        if isinstance(node, (ast.List, ast.Tuple)):
            members = [self._data(member) for member in node.elts]
            if isinstance(node, ast.List):
                return f"[{', '.join(members)}]"
            return f"({', '.join(members)}{',' if len(members) == 1 else ''})"
        if isinstance(node, ast.Call):
            return self._known_call(node)
        text = ast.unparse(node)
        if _TORCH_DATA.fullmatch(text):
            return text
        if text in _NUMBERS:
            return f"float({_NUMBERS[text]!r})"
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and _is_plain(node.operand):
            return f"-{self._data(node.operand)}"
        return self._size(node)

    def _known_call(self, node: ast.Call) -> str:
        """Return the text of ``device('cpu')``, ``torch.device(type='cuda', index=0)`` or ``float('inf')``."""
        name = ast.unparse(node.func)
        parts = [*node.args, *(keyword.value for keyword in node.keywords)]
        if all(isinstance(part, ast.Constant) for part in parts):
            if name in ("device", "torch.device") and parts:
                return f"torch.device({self._all(node)})"
            if name == "float" and len(parts) == 1:
                return f"float({self._data(parts[0])})"
        return self._size(node)

    def _size(self, node: ast.expr) -> str:
        value = self._size_of(node)
        if value is None:
            raise StepscopeError(_refusal(node))
        self.sizes[ast.unparse(node)] = value
        return f"float({str(value)!r})" if isinstance(value, float) else repr(value)

    def _argument(self, node: ast.expr) -> int | None:
        """Return the number of the argument with this name. Those of one name are taken in their order."""
        if isinstance(node, ast.Constant):
            return None
        text = ast.unparse(node)
        places = [n for n, name in enumerate(self._names) if name == text]
        if not places:
            return None
        place = next((n for n in places if n >= self._next), places[-1])
        self._next = place + 1
        return place


def _is_plain(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) or ast.unparse(node) in _NUMBERS


def _refusal(node: ast.expr) -> str:
    text = ast.unparse(node)
    shown = text if len(text) <= 60 else text[:59] + "…"
    return f"The launch has an argument whose value is not in the log: {shown}"
