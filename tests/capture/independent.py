"""Counts of kernel launches that share no code and no method with the recorder.

`count_statements` reads a wrapper's text by its tokens and lines; `LaunchCounts` counts what really runs, by
putting stand-ins for kernels and operators into the globals of the loaded wrapper modules.
"""

from __future__ import annotations

import io
import re
import threading
import tokenize
from collections import Counter
from collections.abc import Iterator
from types import ModuleType
from typing import Any

HELPERS = {"get_args", "benchmark_compiled_module", "__init__", "recursively_apply_fns"}
KERNEL_NAME = re.compile(r"^(\w+) = (?:async_compile\.\w+|\w*MultiKernelCall)\(", re.M)
FUNCTION = re.compile(r"^( *)def (\w+)\(")
OPERATOR = r"(?<![\w.])(?:torch\.ops|aten|inductor_ops|_quantized|prims)(?:\.\w+)+\("
COPY = re.compile(r"\.(?:clone|copy_)\(")


def _code_lines(source: str) -> list[str]:
    """The source with comments and the insides of strings blanked, line by line."""
    lines = [list(line) for line in source.splitlines()]
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in (tokenize.COMMENT, tokenize.STRING):
            continue
        (first, left), (last, right) = token.start, token.end
        for number in range(first, last + 1):
            row = lines[number - 1]
            begin, end = left if number == first else 0, right if number == last else len(row)
            row[begin:end] = " " * (end - begin)
    return ["".join(row) for row in lines]


def _functions(lines: list[str]) -> Iterator[tuple[str, str]]:
    """(name, text of the body) of each function that runs for a call of the graph."""
    for start, line in enumerate(lines):
        found = FUNCTION.match(line)
        if not found or found[2] in HELPERS:
            continue
        body = []
        for text in lines[start + 1 :]:
            if text.strip() and len(text) - len(text.lstrip()) <= len(found[1]):
                break
            body.append(text)
        yield found[2], "\n".join(body)


def count_statements(source: str) -> dict[str, Counter[str]]:
    """Function of the wrapper -> how many `kernel` calls, `subgraph` calls and `copy` calls stand in it."""
    kernels = KERNEL_NAME.findall(source)
    bodies = dict(_functions(_code_lines(source)))
    named = "|".join(map(re.escape, kernels)) or "(?!)"
    subgraphs = "|".join(name for name in bodies if name != "call") or "(?!)"
    kernel = re.compile(rf"(?<![\w.])(?:{named})(?:\.run)?\(|(?<![\w.])extern_kernels\.\w+\(|{OPERATOR}")
    subgraph = re.compile(rf"(?<![\w.])(?:{subgraphs})\(|self\.partitions\[\d+\]\(")
    return {
        name: Counter(
            kernel=len(kernel.findall(body)),
            subgraph=len(subgraph.findall(body)),
            copy=len(COPY.findall(body)),
        )
        for name, body in bodies.items()
    }


class _Counting:
    """Stands in for a kernel or a namespace of operators: attributes give stand-ins, calls are counted."""

    def __init__(self, target: Any, name: str, counts: LaunchCounts) -> None:
        self._target, self._name, self._counts = target, name, counts

    def __getattr__(self, name: str) -> _Counting:
        return _Counting(getattr(self._target, name), f"{self._name}.{name}", self._counts)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self._counts.add(self._name.removesuffix(".run"))
        result = self._target(*(a._target if isinstance(a, _Counting) else a for a in args), **kwargs)
        self._counts.returned()
        return result


class _CountingTorch:
    """Stands in for `torch` in a wrapper: only its operators are counted."""

    def __init__(self, torch: Any, counts: LaunchCounts) -> None:
        self._torch = torch
        self.ops = _Counting(torch.ops, "torch.ops", counts)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._torch, name)


class LaunchCounts:
    """Kernel name -> number of calls, one counter for each step."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.steps: list[Counter[str]] = [Counter()]

    def add(self, name: str) -> None:
        with self._lock:
            self.steps[-1][name] += 1

    def returned(self) -> None:
        """The launch that was counted last has returned."""

    def next_step(self) -> None:
        self.steps.append(Counter())

    def count(self, module: ModuleType) -> None:
        """Put the stand-ins into a loaded wrapper."""
        assert module.__file__ is not None
        with open(module.__file__, encoding="utf-8") as file:
            names = set(KERNEL_NAME.findall(file.read()))
        scope = vars(module)
        names |= {"extern_kernels", "aten", "inductor_ops", "_quantized"} & scope.keys()
        for name in names:
            scope[name] = _Counting(scope[name], name, self)
        scope["torch"] = _CountingTorch(scope["torch"], self)
