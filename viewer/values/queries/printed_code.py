"""Finds the printed launches that name every tensor that they read, by the generated C++ code if the trace has it.
PyTorch's debug printer leaves out weights and views; the code has the complete calls."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

_PRINTS = re.compile(r'aoti_torch_print_tensor_handle\(.*?, "(before|after)_launch - (.+) - (.+?)"\);')
_NAME = re.compile(r"(?<![\w.])[A-Za-z_]\w*|(?<=\.)[A-Za-z_]\w*")
_NO_TENSOR = re.compile(
    r"static|constexpr|const|int_array_\d+|[su]\d+|bool|float|double|u?int\d+_t|at|c10|Half|BFloat16|data_ptr"
    r"|AOTI_TORCH_ERROR_CODE_CHECK|wrap_with_raii_handle_if_needed|reinterpret_tensor_wrapper"
)
_CODES = """
    SELECT record FROM records WHERE name = 'inductor_aot_wrapper_code' OR event = 'inductor_output_code'
    ORDER BY record
"""
_LAUNCHES = """
    SELECT s.site, s.kernel, coalesce(list(a.name ORDER BY a.argument) FILTER (a.name IS NOT NULL), [])
    FROM sites s LEFT JOIN arguments a ON a.site = s.site WHERE s.graph = $1
    GROUP BY s.site, s.kernel, s.local_site ORDER BY s.local_site
"""
_LONGEST_CODE = 1 << 24


@dataclass
class PrintingCall:
    """A call in generated code, and the arguments that the code around it prints."""

    kernel: str
    arguments: list[str] = field(default_factory=list)
    text: str = ""

    @property
    def names_all(self) -> bool:
        """Whether each name in the call that may be a tensor is a printed argument."""
        function = self.kernel.split("::")[-1]
        names = [name for name in _NAME.findall(self.text) if not _NO_TENSOR.fullmatch(name)]
        return function in names and all(name == function or name in self.arguments for name in names)


def sites_that_name_all(trace: Trace, graph: int) -> set[int]:
    """Return the launch sites of a printed graph whose arguments are all tensors that they read. Every code of the
    trace that prints the same launches in the same order must agree."""
    launches = sql.rows(trace, _LAUNCHES, [graph])
    asked = [(kernel, list(arguments)) for _, kernel, arguments in launches]
    fitting = [
        calls
        for (record,) in sql.rows(trace, _CODES)
        if (calls := list(printing_calls(_code(trace, record)))) and fits(calls, asked)
    ]
    if not fitting:
        return set()
    return {site for place, (site, _, _) in enumerate(launches) if all(calls[place].names_all for calls in fitting)}


def fits(calls: Sequence[PrintingCall], asked: Sequence[tuple[str, list[str]]]) -> bool:
    """Return whether the code prints the launches `asked`, which may end early."""
    return len(calls) >= len(asked) and all(
        (call.kernel, call.arguments) == launch for call, launch in zip(calls, asked, strict=False)
    )


def printing_calls(code: str) -> Iterator[PrintingCall]:
    """Yield the calls in the order of the code."""
    call: PrintingCall | None = None
    for line in code.splitlines():
        found = _PRINTS.search(line)
        if found is None:
            if call is not None and not line.lstrip().startswith("//"):
                call.text += line + "\n"
        elif found[1] == "before":
            if call is None or call.text or call.kernel != found[2]:
                call = PrintingCall(found[2])
            call.arguments.append(found[3])
        elif call is not None:
            yield call
            call = None


def _code(trace: Trace, record: int) -> str:
    code = trace.payload(record)
    return code[:_LONGEST_CODE].decode("utf-8", "replace") if b"aoti_torch_print_tensor_handle" in code else ""
