"""Reads the launch sites, their arguments and the memory statements from the source of an Inductor wrapper.

The module imports no torch. What may stand in a wrapper's functions is written by
torch/_inductor/codegen/wrapper.py; both forms of the module (`def call(args)` and `class Runner`) are read.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from stepscope.tracer.schema.records import Argument, LaunchKind, LaunchSite, MemoryEvent, MemoryStatement, Role, Scalar
from stepscope.tracer.wrapper.comments import commented, debug_handle
from stepscope.tracer.wrapper.expressions import (
    SYMBOL,
    VIEW_METHODS,
    VIEWS,
    bound_names,
    buffer_of,
    core_call,
    dotted,
    evaluable,
    given_to,
    is_buffer,
    is_constant,
    is_harmless_method,
    may_be_tensor,
    method_of,
    receiver_of,
    root_of,
)
from stepscope.tracer.wrapper.kernel_signatures import KernelDefinition, Parameter, read_definition
from stepscope.tracer.wrapper.operator_schema import SchemaLookup
from stepscope.tracer.wrapper.parsed import LaunchStatement, WrapperSource, wrapper_functions
from stepscope.tracer.wrapper.symbols import FunctionSymbols, ScalarArgument, grouped

ALLOCATION = re.compile(r"(tracked_)?empty_strided(_\w+)?|torch\.empty(_strided)?|torch\.zeros")
OPERATOR_ROOTS = ("torch.ops.", "aten.", "inductor_ops.", "_quantized.", "prims.", "quantized.")
TENSOR_METHODS = frozenset({"clone", "copy_", "zero_", "fill_", "resize_", "index_put_", "add_", "record_stream"})
HARMLESS_CALLS = re.compile(
    r"assert_\w+|args\.clear|print|len|int|float|bool|max|min|abs|round|align|isinstance|range|torch\._?sym_\w+|"
    r"torch\.\w+\.(set_device|synchronize|_DeviceGuard|device|stream|current_stream)|"
    r"get_raw_stream\w*|torch\._C\._\w+Stream\w*|run_intermediate_hooks|record_function\w*|RuntimeError|"
    r"(torch\.ops\._inductor_debug\.)?check_memory_step(\.default)?|track_tensor|math\.\w+|start_graph|end_graph|"
    r"_print_debugging_tensor_value_info|torch\.save"
)
BEFORE_A_LAUNCH = re.compile(r"stream\w+ = get_raw_stream\(.*\)|(_print_debugging_\w+|torch\.save)\(.*before_launch.*")
"""The statements that may be between a launch and its comments."""
MAY_BE_VIEWS = frozenset({"contiguous", "to", "reshape", "flatten", "expand_as", "view_as", "unbind", "split", "chunk"})
"""The methods whose result may or may not share the memory of the tensor."""
CARRIERS = {"run_and_save_rng_state": 0, "run_with_rng_state": 1, "graphsafe_run_with_rng_state": 0}
MOST_TEXT = 120


def analyse(source: str, schema: SchemaLookup = lambda name: None) -> WrapperSource:
    """Read a wrapper's source. Raises SyntaxError when it is not Python."""
    found = re.match(r"# AOT ID: \['([^']*)'\]", source)
    tree = ast.parse(source)
    result = WrapperSource(aot_id=found[1] if found else None, tree=tree)
    result.is_cuda = "torch.cuda" in source or "device='cuda" in source
    result.cpp_wrapper = "CppWrapperCodeCache" in source or "inductor_entry" in source
    kernels = dict(_kernel_definitions(tree))
    functions = list(wrapper_functions(tree))
    names = frozenset(node.name for _, node in functions)
    lines = source.splitlines()
    for qualified_name, node in functions:
        result.functions.append(qualified_name)
        if result.cpp_wrapper:
            continue
        first = len(result.launches)
        _FunctionReader(result, qualified_name.split(".")[-1], kernels, names, lines, schema).read(node.body)
        _add_symbols(result, node, result.launches[first:])
    return result


def _add_symbols(result: WrapperSource, function: ast.FunctionDef, launches: list[LaunchStatement]) -> None:
    symbols = FunctionSymbols(function)
    for launch in launches:
        launch.site = symbols.with_scalars(launch.site, launch.scalars)
    result.symbols += [name for name in symbols.names if name not in result.symbols]
    result.bindings += grouped(symbols.bindings(), function)


def _kernel_definitions(tree: ast.Module) -> Iterator[tuple[str, KernelDefinition]]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            target = node.targets[0]
            factory = dotted(node.value.func)
            if isinstance(target, ast.Name) and factory:
                definition = read_definition(target.id, node.value, factory)
                if definition:
                    yield target.id, definition


class _FunctionReader:
    """Reads the statements of one function in order."""

    def __init__(
        self,
        result: WrapperSource,
        function: str,
        kernels: dict[str, KernelDefinition],
        names: frozenset[str],
        lines: list[str],
        schema: SchemaLookup,
    ) -> None:
        self.result, self.function, self.kernels = result, function, kernels
        self.names, self.lines, self.schema = names, lines, schema

    def read(self, body: list[ast.stmt]) -> None:
        for statement in body:
            if isinstance(statement, (ast.Expr, ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Return)):
                self._statement(statement)
            elif isinstance(statement, ast.Delete):
                for target in statement.targets:
                    self._memory("free", ast.unparse(target), statement)
            elif isinstance(statement, (ast.If, ast.While)):
                self._predicate(statement.test, statement)
                self._keep_unknown(statement.test)
            elif isinstance(statement, ast.With):
                for item in statement.items:
                    self._keep_unknown(item.context_expr)
            elif isinstance(statement, ast.For):
                self._keep_unknown(statement.iter)
            elif isinstance(statement, ast.Assert):
                self._predicate(statement.test, statement)
                self._otherwise(statement, statement.test)
            for block in ("body", "orelse", "finalbody"):
                self.read(getattr(statement, block, None) or [])

    def _statement(self, statement: ast.Expr | ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Return) -> None:
        value = statement.value
        if value is None:
            return
        call = core_call(value)
        kind = self._launch_kind(call) if call else None
        if call is not None and kind is not None:
            self._launch(statement, call, kind)
            return
        if isinstance(statement, ast.Assign):
            self._assignment(statement)
            self._view(statement, call)
        self._predicate(value, statement)
        self._otherwise(statement, value)

    def _otherwise(self, statement: ast.stmt, value: ast.expr) -> None:
        """Note a call of an unknown form as a launch: of a method of a tensor, or of an unknown kind."""
        call = next(self._unknown_calls(value), None)
        if call is None:
            return
        is_method = method_of(call) is not None and is_buffer(receiver_of(call))
        self._launch(statement, call, "fallback" if is_method else "unknown")

    def _launch_kind(self, call: ast.Call) -> LaunchKind | None:
        name = dotted(call.func)
        if name is None:
            return "copy" if method_of(call) in TENSOR_METHODS else None
        root = name.removesuffix(".run")
        if HARMLESS_CALLS.fullmatch(name):
            return None
        if root in self.kernels:
            return self.kernels[root].kind
        if name in self.names or name.startswith("self.partitions["):
            return "subgraph"
        if name.startswith("extern_kernels."):
            return "extern"
        if name.startswith(OPERATOR_ROOTS) and name.split(".")[-1] not in VIEWS:
            return "collective" if "c10d" in name else "fallback"
        return "copy" if method_of(call) in TENSOR_METHODS else None

    def _launch(self, statement: ast.stmt, call: ast.Call, kind: LaunchKind) -> None:
        kernel: str = dotted(call.func) or method_of(call) or "?"
        operator = None
        self.scalars: list[ScalarArgument] = []
        is_method = kind == "copy" or (kind == "fallback" and is_buffer(receiver_of(call)))
        if is_method:
            arguments = self._method_arguments(call)
            kernel = f"Tensor.{method_of(call)}"
        elif kind == "unknown":
            found = [
                pair
                for position, member in enumerate(given_to(call))
                for pair in self._tensors_of(member, "inout", None, position)
            ]
            arguments = [(argument, evaluable(expression)) for argument, expression in found]
            kernel = dotted(call.func) or ast.unparse(statement)[:MOST_TEXT]
        else:
            kernel = kernel.removesuffix(".run") if kind in ("triton", "user_triton") else kernel
            carried = CARRIERS.get(kernel.split(".")[-1])
            if carried is not None and carried < len(call.args):
                operator = ast.unparse(call.args[carried])
            arguments = self._call_arguments(call, kernel, kind, operator, carried)
        bound = bound_names(statement)
        expressions = [expression for _, expression in arguments]
        outputs = [Argument(name=name, role="out", buffer=name.partition("[")[0]) for name in bound]
        source_nodes, aten, handle = self._comments(statement.lineno)
        site = LaunchSite(
            site=len(self.result.launches),
            function=self.function,
            line=statement.lineno,
            kernel=kernel,
            kind=kind,
            arguments=[argument for argument, _ in arguments] + outputs,
            outputs=bound,
            operator=operator,
            handle=handle,
            source_nodes=source_nodes,
            aten=aten,
            scalars=self._compiled_in(kernel),
        )
        launch = LaunchStatement(site, statement, expressions, bound, self._view_of(site), self.scalars)
        self.result.launches.append(launch)
        self.result.events.setdefault(statement, []).append(launch)

    def _view_of(self, site: LaunchSite) -> int | None:
        if site.kernel.startswith("Tensor."):
            return 0 if site.kernel.removeprefix("Tensor.") in MAY_BE_VIEWS else None
        schema = self.schema(site.operator or site.kernel) if site.kind in ("fallback", "collective") else None
        shared = schema.view_of if schema is not None else None
        if shared is None:
            return None
        return next((n for n, argument in enumerate(site.arguments) if argument.parameter == shared), None)

    def _method_arguments(self, call: ast.Call) -> list[tuple[Argument, ast.expr]]:
        assert isinstance(call.func, ast.Attribute)
        role: Role = "inout" if call.func.attr.endswith("_") else "in"
        receiver = call.func.value
        found = [(Argument(ast.unparse(receiver), role, root_of(receiver), "self"), receiver)]
        for position, expression in enumerate(call.args):
            found += self._tensors_of(expression, "in", None, position)
        for keyword in call.keywords:
            found += self._tensors_of(keyword.value, "in", keyword.arg, None)
        return [(argument, evaluable(expression)) for argument, expression in found]

    def _call_arguments(
        self, call: ast.Call, kernel: str, kind: LaunchKind, operator: str | None, carried: int | None
    ) -> list[tuple[Argument, ast.expr]]:
        parameters = self._parameters(kernel, kind, operator, carried)
        positional = parameters if parameters is not None else ()
        # Of a generated kernel that cannot be read nothing says that it leaves an argument alone.
        otherwise: Role = "inout" if parameters is None and kind in ("cpp", "triton", "user_triton") else "in"
        by_name = {p.name: p for p in positional if p.name}
        found: list[tuple[Argument, ast.expr]] = []
        for position, expression in enumerate(call.args):
            known = positional[position] if position < len(positional) else None
            role: Role | None = known.role if known else otherwise
            if position == carried:
                continue
            name, scalar = (known.name, known.type) if known else (None, None)
            if known is None and parameters is not None and kind == "user_triton":
                name = f"grid[{position - len(positional)}]"
            found += self._tensors_of(expression, role, name, position, scalar)
        for keyword in call.keywords:
            if keyword.arg in ("stream", "grid"):
                continue
            written = keyword.arg is not None and re.fullmatch(r"out\d*", keyword.arg)
            known = by_name.get(keyword.arg or "")
            role = "out" if written else (known.role if known else None) or "in"
            found += self._tensors_of(keyword.value, role, keyword.arg, None, known.type if known else None)
        return [(argument, evaluable(expression)) for argument, expression in found]

    def _parameters(
        self, kernel: str, kind: LaunchKind, operator: str | None, carried: int | None
    ) -> tuple[Parameter, ...] | None:
        if kind in ("cpp", "triton", "user_triton"):
            return self.kernels[kernel].parameters
        if kind not in ("fallback", "collective"):
            return None
        schema = self.schema(operator or kernel)
        if schema is None:
            return None
        lead = (Parameter(None, "in"),) * (carried + 1) if carried is not None else ()
        scalars = schema.scalars or (None,) * len(schema.parameters)
        return lead + tuple(
            Parameter(name, ("inout" if written else "in") if scalar is None else None, scalar)
            for (name, written), scalar in zip(schema.parameters, scalars, strict=True)
        )

    def _compiled_in(self, kernel: str) -> list[Scalar]:
        definition = self.kernels.get(kernel)
        constants = definition.constants if definition is not None else ()
        return [Scalar(None, name, value[:MOST_TEXT], "constexpr") for name, value in constants]

    def _tensors_of(
        self, expression: ast.expr, role: Role | None, name: str | None, position: int | None, scalar: str | None = None
    ) -> list[tuple[Argument, ast.expr]]:
        """Return the parts of an argument that may be tensors; an argument without any is noted as a scalar."""
        found = self._flatten(expression, role, name) if role is not None and scalar is None else []
        if not found:
            self.scalars.append(ScalarArgument(position, name, expression, scalar))
        return found

    def _flatten(self, expression: ast.expr, role: Role, parameter: str | None) -> list[tuple[Argument, ast.expr]]:
        """Return the arguments that may be tensors, the members of a list one by one."""
        if isinstance(expression, (ast.List, ast.Tuple)):
            return [
                pair
                for position, member in enumerate(expression.elts)
                for pair in self._flatten(member, role, f"{parameter}[{position}]" if parameter else None)
            ]
        buffer = buffer_of(expression)
        if buffer is None or not may_be_tensor(expression):
            return []
        return [(Argument(ast.unparse(expression), role, buffer, parameter), expression)]

    def _assignment(self, statement: ast.Assign) -> None:
        target, value = statement.targets[0], statement.value
        name = ast.unparse(target)
        call = core_call(value)
        factory = dotted(call.func) if call else None
        if call and factory and ALLOCATION.fullmatch(factory):
            self._memory("pool" if re.fullmatch(r"pool\d+", name) else "allocate", name, statement)
            self.result.dynamic |= any(not is_constant(argument) for argument in call.args[:2])
        elif call and factory in VIEWS:
            pool = factory == "alloc_from_pool" or "alloc_from_pool" in ast.unparse(call)
            event: MemoryEvent = "pool_member" if pool else self._reuse_or_alias(statement)
            self._memory(event, name, statement, of=buffer_of(call))
        elif isinstance(target, ast.Subscript) and isinstance(value, ast.Name):
            self._memory("hold", ast.unparse(target.value), statement, of=value.id)
        elif isinstance(value, ast.Name) and isinstance(target, ast.Name):
            if not SYMBOL.fullmatch(name):
                self._memory(self._reuse_or_alias(statement), name, statement, of=value.id)
        elif isinstance(value, ast.Subscript) and isinstance(target, ast.Name):
            if not SYMBOL.fullmatch(name):
                self._memory("item", name, statement, of=buffer_of(value))
        elif isinstance(value, ast.Constant) and value.value is None:
            self._memory("drop", name, statement)
        elif isinstance(value, ast.List):
            for member in value.elts:
                if (buffer := buffer_of(member)) is not None:
                    self._memory("hold", name, statement, of=buffer)

    def _view(self, statement: ast.Assign, call: ast.Call | None) -> None:
        """Note a view such as ``buf1 = buf0.permute(1, 0)``."""
        target = statement.targets[0]
        if call and method_of(call) in VIEW_METHODS and is_buffer(receiver_of(call)) and isinstance(target, ast.Name):
            self._memory(self._reuse_or_alias(statement), target.id, statement, of=root_of(call))

    def _reuse_or_alias(self, statement: ast.stmt) -> MemoryEvent:
        return "reuse" if "# reuse" in self.lines[statement.lineno - 1] else "alias"

    def _predicate(self, test: ast.expr, statement: ast.stmt) -> None:
        """Note a value that the host reads to decide something, which waits for the device."""
        for part in ast.walk(test):
            if isinstance(part, ast.Call) and method_of(part) == "item":
                self._memory("read", ast.unparse(part.func.value), statement)  # type: ignore[attr-defined]

    def _unknown_calls(self, value: ast.expr) -> Iterator[ast.Call]:
        """Yield the calls of unknown form, outermost first, and note dynamic sizes."""
        for part in ast.walk(value):
            if not isinstance(part, ast.Call):
                continue
            name = dotted(part.func)
            if name == "assert_size_stride":
                self.result.dynamic |= any(not is_constant(argument) for argument in part.args[1:3])
            is_known = name is not None and (
                HARMLESS_CALLS.fullmatch(name) or name in VIEWS or ALLOCATION.fullmatch(name)
            )
            if not is_known and not is_harmless_method(part):
                yield part

    def _keep_unknown(self, value: ast.expr) -> None:
        for part in self._unknown_calls(value):
            self.result.unknown.append(f"{self.function}: {ast.unparse(part)[:MOST_TEXT]}")

    def _memory(self, event: MemoryEvent, buffer: str, statement: ast.stmt, of: str | None = None) -> None:
        found = MemoryStatement(event, buffer, self.function, statement.lineno, of)
        self.result.memory.append(found)
        self.result.events.setdefault(statement, []).append(found)

    def _comments(self, line: int) -> tuple[list[str], list[str], str | None]:
        """Return FX nodes, operators and debug handle from the comments directly above `line`, counted from 1."""
        source_nodes: list[str] = []
        aten: list[str] = []
        handle = None
        for number in range(line - 2, -1, -1):
            text = self.lines[number].strip()
            if BEFORE_A_LAUNCH.fullmatch(text):
                continue
            if not text.startswith("#"):
                break
            if found := commented(text):
                source_nodes, aten = found
            handle = debug_handle(text) or handle
        return source_nodes, aten, handle
