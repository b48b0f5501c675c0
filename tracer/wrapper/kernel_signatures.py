"""Finds the arguments that a kernel reads and writes, from its definition in the wrapper or the schema of its operator.

For C++ kernels these are the type list of `async_compile.cpp_pybinding` and the parameter names of the C++ function
(torch/_inductor/codegen/cpp.py); for Triton kernels the parameter names of the `@triton.jit` function, its
`signature` and `mutated_arg_names` (torch/_inductor/codegen/triton.py, wrapper.py for user kernels).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from stepscope.tracer.schema.graphs import LaunchKind, Role

CPP_FUNCTION = re.compile(r'extern "C"\s+(?:[\w:]+\s+)*?void\s+\w+\((.*?)\)\s*\{', re.S)
TRITON_FUNCTION = re.compile(r"^@triton\.jit\s*\ndef (\w+)\((.*?)\)\s*(?:->[^:]*)?:", re.S | re.M)
MUTATED = re.compile(r"""['"]mutated_arg_names['"]: (\[[^\]]*\])""")
CONSTANTS = re.compile(r"""['"]constants['"]: (\{.*?\})""", re.S)
SIGNATURE = re.compile(r"""['"]signature['"]: (\{.*?\})""", re.S)

Literal = TypeVar("Literal", "list[Any]", "dict[str, Any]")


@dataclass(frozen=True)
class Parameter:
    """A parameter of a kernel; `role` is None for a scalar."""

    name: str | None
    role: Role | None
    type: str | None = None
    """Type of a scalar (``int64_t``, ``i32``, ``SymInt``); None if it is unknown or the parameter is a tensor."""


@dataclass(frozen=True)
class KernelDefinition:
    name: str
    kind: LaunchKind
    parameters: tuple[Parameter, ...] | None
    """Parameters in call order; None if the definition cannot be read."""
    constants: tuple[tuple[str, str], ...] = ()
    """Name and value of parameters that the definition sets, as of a user's Triton kernel."""


class OperatorSchema(NamedTuple):
    """The parameters of an operator, and whether its results are views."""

    parameters: tuple[tuple[str, bool], ...]
    """Name of each parameter in order, and whether the operator writes to it."""
    view_of: str | None = None
    """Parameter whose memory all results share, or None if the results have their own memory."""
    scalars: tuple[str | None, ...] = ()
    """Type of each parameter that is not a tensor (``SymInt``, ``float``), and None for the others."""


SchemaLookup = Callable[[str], "OperatorSchema | None"]
"""Function that returns the schema of an operator given its dotted name, or None if the operator is unknown."""


def read_definition(name: str, call: ast.Call, factory: str) -> KernelDefinition | None:
    """Return the kernel that ``name = factory(...)`` defines, or None if the statement defines no kernel."""
    if factory in ("async_compile.cpp_pybinding", "async_compile.cpp"):
        return KernelDefinition(name, "cpp", _cpp_parameters(call))
    if factory.split(".")[-1] in ("multi_kernel", "MultiKernelCall", "SizeHintMultiKernelCall"):
        return KernelDefinition(name, "triton", None)
    if factory.startswith("async_compile."):
        source = longest_string(call)
        kind: LaunchKind = "user_triton" if "user_autotune" in source else "triton"
        return KernelDefinition(name, kind, _triton_parameters(source, _first_string(call)), _triton_constants(source))
    return None


def longest_string(call: ast.Call) -> str:
    texts = [a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
    return max(texts, key=len, default="")


def _cpp_parameters(call: ast.Call) -> tuple[Parameter, ...] | None:
    if len(call.args) < 2 or not isinstance(call.args[0], ast.List):
        return None
    types = [e.value for e in call.args[0].elts if isinstance(e, ast.Constant) and isinstance(e.value, str)]
    found = CPP_FUNCTION.search(longest_string(call))
    names: list[str | None] = []
    if found:
        names = [part.split()[-1].lstrip("*&") for part in found[1].split(",") if part.strip()]
    if len(names) != len(types):
        names = [None] * len(types)
    return tuple(Parameter(n, _cpp_role(t, n), _cpp_scalar(t)) for t, n in zip(types, names, strict=True))


def _cpp_scalar(type_name: str) -> str | None:
    """Return ``int64_t`` for ``const int64_t``, or None for a pointer."""
    return None if type_name.rstrip().endswith("*") else type_name.removeprefix("const ").strip()


def _cpp_role(type_name: str, name: str | None) -> Role | None:
    if not type_name.rstrip().endswith("*"):
        return None
    if type_name.startswith("const "):
        return "in"
    return "inout" if name and name.startswith("in_out_ptr") else "out"


def _first_string(call: ast.Call) -> str | None:
    first = call.args[0] if call.args else None
    return first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else None


def _triton_parameters(source: str, kernel: str | None) -> tuple[Parameter, ...] | None:
    """Return the parameters of the function `kernel`, since helpers, as those of scans, stand before it; else of the
    first function."""
    functions = list(TRITON_FUNCTION.finditer(source))
    if not functions:
        return None
    function = next((one for one in functions if one[1] == kernel), functions[0])
    mutated = set(_literal(MUTATED, source, list) or ()) or _stored_parameters(source)
    signature = _literal(SIGNATURE, source, dict) or {}
    parameters = []
    for text in _split_parameters(function[2]):
        name, _, annotation = (part.strip() for part in text.partition(":"))
        name = name.split("=")[0].strip()
        if "constexpr" in annotation:  # an argument of 1 or None is a constant only in the signature, and is passed
            continue
        role, type_name = _triton_role(name, signature.get(name), mutated), signature.get(name)
        parameters.append(Parameter(name, role, type_name if role is None and type_name else None))
    return tuple(parameters)


def _triton_constants(source: str) -> tuple[tuple[str, str], ...]:
    """Return the constants that Triton compiles in: ``tl.constexpr``, and arguments that are always 1 or None."""
    found = _literal(CONSTANTS, source, dict) or {}
    return tuple((str(name), repr(value)) for name, value in found.items())


def _stored_parameters(source: str) -> set[str]:
    """Return the parameters of a Triton function that flow into the first argument of a store or atomic.

    This is for kernels of the user, whose definition does not contain the mutated arguments.
    """
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return set()
    stored: set[str] = set()
    for function in (node for node in tree.body if isinstance(node, ast.FunctionDef)):
        origins: dict[str, set[str]] = {argument.arg: {argument.arg} for argument in function.args.args}
        for node in ast.walk(function):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                origins.setdefault(node.targets[0].id, set()).update(_flowing(node.value, origins))
            elif isinstance(node, ast.Call) and _is_store(node) and node.args:
                stored |= _flowing(node.args[0], origins)
    return stored


def _is_store(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and (call.func.attr == "store" or call.func.attr.startswith("atomic_"))


def _flowing(expression: ast.expr, origins: dict[str, set[str]]) -> set[str]:
    names = (node.id for node in ast.walk(expression) if isinstance(node, ast.Name))
    return set().union(*(origins.get(name, set()) for name in names))


def _split_parameters(text: str) -> list[str]:
    return [part for part in (p.strip() for p in text.replace("\n", " ").split(",")) if part]


def _triton_role(name: str, type_name: str | None, mutated: set[str]) -> Role | None:
    is_pointer = type_name.startswith("*") if type_name else bool(re.match(r"(in|out|in_out|ws|arg)_", name))
    if not is_pointer:
        return None
    if name.startswith("out_ptr"):
        return "out"
    return "inout" if name in mutated or name.startswith(("in_out_ptr", "ws_ptr")) else "in"


def _literal(pattern: re.Pattern[str], source: str, kind: type[Literal]) -> Literal | None:
    found = pattern.search(source)
    try:
        value = ast.literal_eval(found[1]) if found else None
    except (ValueError, SyntaxError):
        return None
    return value if isinstance(value, kind) else None
