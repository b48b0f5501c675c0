"""Parses single expressions of a wrapper: names, buffers, views and methods."""

from __future__ import annotations

import ast
import re

VIEWS = frozenset({"reinterpret_tensor", "alloc_from_pool"})
VIEW_METHODS = frozenset(
    {"as_strided", "view", "permute", "transpose", "t", "unsqueeze", "squeeze", "expand", "select", "narrow", "detach"}
)
STREAM_METHODS = frozenset({"record", "record_event", "wait", "wait_event", "wait_stream", "synchronize", "query"})
HARMLESS_METHODS = frozenset({"size", "stride", "clear", "numel", "storage_offset", "append", "item"})
SYMBOL = re.compile(r"(?:s|u|z|zf|zuf|ps)\d+")
BUFFER = re.compile(
    r"(\w+_)?(buf|arg|primals|tangents|workspace|pool|getitem|constant|semaphores|convert_element_type|view|permute)"
    r"_?\d+(_\w+)?"
)


def dotted(node: ast.expr) -> str | None:
    """Return ``a.b.c`` for a chain of attributes or constant subscripts (``self.partitions[0]``), else None."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        base = dotted(node.value)
        return base and f"{base}.{node.attr}"
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        base = dotted(node.value)
        return base and f"{base}[{node.slice.value!r}]"
    return None


def buffer_of(node: ast.expr) -> str | None:
    """Return the name whose storage an argument refers to, or None."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Subscript):
        return buffer_of(node.value)
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Name) and node.func.id in VIEWS and node.args:
            return buffer_of(node.args[0])
        if isinstance(node.func, ast.Attribute):
            return buffer_of(node.func.value) if not dotted(node.func) or node.args == [] else None
    return None


def evaluable(node: ast.expr) -> ast.expr:
    """Return `node` if a second evaluation has no effect and costs no more than a view, else ``...``."""
    is_pure = all(
        not isinstance(part, ast.Call) or dotted(part.func) in VIEWS
        for part in ast.walk(node)
        if isinstance(part, (ast.Call, ast.NamedExpr, ast.Lambda, ast.Await, ast.Yield))
    )
    return node if is_pure else ast.Constant(...)


def core_call(value: ast.expr) -> ast.Call | None:
    """Return the call inside subscripts and view methods, or None if there is none."""
    while True:
        if isinstance(value, ast.Subscript):
            value = value.value
        elif isinstance(value, ast.Call):
            inner = value.func.value if isinstance(value.func, ast.Attribute) else None
            if method_of(value) in ("as_strided", "view") and isinstance(inner, ast.Call):
                value = inner
            else:
                return value
        else:
            return None


def method_of(call: ast.Call) -> str | None:
    return call.func.attr if isinstance(call.func, ast.Attribute) else None


def receiver_of(call: ast.Call) -> ast.expr:
    return call.func.value if isinstance(call.func, ast.Attribute) else call.func


def root_of(expression: ast.expr) -> str | None:
    """Return the name inside methods, attributes and subscripts, or None if there is none."""
    while not isinstance(expression, ast.Name):
        if isinstance(expression, ast.Call):
            expression = expression.func
        elif isinstance(expression, (ast.Attribute, ast.Subscript)):
            expression = expression.value
        else:
            return None
    return expression.id


def is_buffer(expression: ast.expr) -> bool:
    """Return whether an expression begins with one of Inductor's names for a tensor."""
    return BUFFER.fullmatch(root_of(expression) or "") is not None


def is_harmless_method(call: ast.Call) -> bool:
    method = method_of(call)
    if method in STREAM_METHODS and re.search("stream|event", ast.unparse(receiver_of(call))):
        return True
    return method in HARMLESS_METHODS or (method in VIEW_METHODS and is_buffer(receiver_of(call)))


def given_to(call: ast.Call) -> list[ast.expr]:
    """Return all arguments of a call, including the object of a method."""
    own = [call.func.value] if isinstance(call.func, ast.Attribute) and dotted(call.func) is None else []
    return [*own, *call.args, *(keyword.value for keyword in call.keywords)]


def bound_names(statement: ast.stmt) -> list[str]:
    if not isinstance(statement, ast.Assign):
        return []
    names = []
    for target in statement.targets:
        members = target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]
        names += [ast.unparse(member) for member in members]
    return names


def may_be_tensor(expression: ast.expr) -> bool:
    if isinstance(expression, ast.Name):
        return not SYMBOL.fullmatch(expression.id) and not re.match(r"(triton|stream)\w*numel|stream\d+", expression.id)
    return isinstance(expression, (ast.Call, ast.Subscript))


def is_constant(expression: ast.expr) -> bool:
    return not any(isinstance(part, ast.Name) for part in ast.walk(expression))
