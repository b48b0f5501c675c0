"""The launch statement and the kernel of a generated wrapper, as code of which every part is known.

The wrapper is text from a log. Only the kernel's own source is taken over as code. A launch is written anew from its
syntax, and anything other than an argument, a number or a name of torch's data types is refused.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from stepscope.viewer.errors import StepscopeError
from stepscope.viewer.kernel_source.arithmetic import Number

_EXTERN = re.compile(r"extern_kernels\.[A-Za-z]\w*|extern_kernels\._[A-Za-z]\w*")
_OPERATOR_ROOTS = {"aten": "aten", "inductor_ops": "inductor", "_quantized": "_quantized"}
_PART = r"(?!__)[A-Za-z_]\w*"
_BUILT_IN_DUNDERS = r"__i?(?:and|or|xor|lshift|rshift)__"
_OPERATOR = re.compile(rf"torch\.ops\.{_PART}\.(?:{_PART}|{_BUILT_IN_DUNDERS})(?:\.{_PART})?")
_ON_FILES = re.compile(r"torch\.ops\.aten\.(?:from_file|save)(?:\.\w+)?")
"""Operators that make files or write into them."""
_CPP_TYPE = re.compile(r"[A-Za-z_][\w:<>, ]*\*?")
"""Inductor's loader puts the types of a kernel's arguments into C++ code of its own."""
_METHODS = frozenset({"clone", "copy_", "zero_", "fill_", "resize_", "index_put_", "add_"})
_VIEW_METHODS = frozenset({"as_strided", "view"})
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
    """With None where the source stands."""
    keywords: dict[str, Any]
    source: str


@dataclass(frozen=True)
class LaunchCode:
    """What a script needs to launch: an expression over ``kernel``, ``a[i]`` and ``stream``."""

    kernel: KernelCode | None
    callee: str
    """What `kernel` is where no source is compiled: ``extern_kernels.mm``, ``torch.ops.aten.sort.stable``."""
    expression: str
    sizes: dict[str, Number]
    """Names of sizes that the wrapper computes -> the number that was put in."""
    bound: int
    """How many names the statement binds."""


def parse(code: str) -> ast.Module:
    """The wrapper's syntax. Raises StepscopeError for what is no Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of escapes in the wrapper's strings
            return ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise StepscopeError("The generated code in the log is no Python that can be read.") from None


def launch_code(
    tree: ast.Module,
    place: tuple[str, int],
    kernel: str,
    kind: str,
    arguments: Sequence[str],
    size_of: Callable[[ast.FunctionDef, ast.expr], Number | None],
) -> LaunchCode:
    """The launch of `kernel` at `place` (function, line), its arguments named as the recorder named them.

    `size_of` gives the number that an expression over sizes had. Raises StepscopeError for a launch that cannot be
    written down.
    """
    function, statement = _statement(tree, *place, kernel)
    value, bound = _bound(statement)
    call = _core_call(value)
    if call is None:
        raise StepscopeError(f"The generated code in the log has no launch of {kernel} at line {place[1]}.")
    source, callee = _kernel(tree, call, kernel, kind)
    writer = _Writer(call, kind, arguments, lambda node: size_of(function, node))
    return LaunchCode(source, callee, writer.text(value), writer.sizes, bound)


def _statement(tree: ast.Module, function: str, line: int, kernel: str) -> tuple[ast.FunctionDef, ast.stmt]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == function:
            for statement in ast.walk(node):
                if isinstance(statement, (ast.Expr, ast.Assign)) and statement.lineno == line:
                    return node, statement
    raise StepscopeError(f"The generated code in the log has no launch of {kernel} at line {line}.")


def _bound(statement: ast.stmt) -> tuple[ast.expr, int]:
    if isinstance(statement, ast.Expr):
        return statement.value, 0
    assert isinstance(statement, ast.Assign)
    target = statement.targets[0]
    return statement.value, len(target.elts) if isinstance(target, (ast.Tuple, ast.List)) else 1


def _core_call(value: ast.expr) -> ast.Call | None:
    """The call under subscripts and views of its result."""
    while True:
        if isinstance(value, ast.Subscript):
            value = value.value
        elif isinstance(value, ast.Call):
            inner = value.func.value if isinstance(value.func, ast.Attribute) else None
            if not isinstance(inner, ast.Call) or value.func.attr not in _VIEW_METHODS:  # type: ignore[attr-defined]
                return value
            value = inner
        else:
            return None


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
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            target = node.targets[0]
            if isinstance(target, ast.Name) and target.id == kernel:
                return _kernel_code(kernel, node.value)
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
        raise StepscopeError(f"The definition of {kernel} in the log has a form that is not known.")
    if factory == "cpp_pybinding" and not all(_CPP_TYPE.fullmatch(str(one)) for one in arguments[0]):
        raise StepscopeError(f"The definition of {kernel} in the log has an argument of a type that C++ does not have.")
    return KernelCode(factory, [arguments[0], None], keywords, arguments[1])


class _Writer:
    """Writes an expression anew; refuses every part that it does not know."""

    def __init__(
        self, call: ast.Call, kind: str, arguments: Sequence[str], size_of: Callable[[ast.expr], Number | None]
    ) -> None:
        self.sizes: dict[str, Number] = {}
        self._call, self._kind, self._names, self._size_of = call, kind, list(arguments), size_of
        self._next = 0

    def text(self, node: ast.expr) -> str:
        """`node` down to the launch: subscripts and views of what it returns."""
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
        """``device('cpu')``, ``torch.device(type='cuda', index=0)``, ``float('inf')``."""
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
        """The argument of this name; those of one name follow one another as in the statement."""
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
