"""Builds the text of a script that repeats one launch."""

from __future__ import annotations

import ast
import base64
from collections.abc import Mapping, Sequence
from pprint import pformat
from typing import Any

from stepscope.viewer.repro.launch_code import KernelCode, LaunchCode
from stepscope.viewer.text.clean import clean
from stepscope.viewer.web import assets

_MARK = "# stepscope: what the log says\n"
_PARTS = ("repro/reproducer.py", "repro/reproducer_run.py")
_WIDTH = 110
_EXTERN = "from torch._inductor.select_algorithm import extern_kernels"
_HEAD = '''#!/usr/bin/env python
"""Runs one kernel launch of a compiled PyTorch program again and compares what it leaves with what was recorded.

THIS SCRIPT RUNS CODE FROM A LOG: the kernel's source below. Read it before you run the script, as you would read
any program that somebody sent you.

    python {name}            run it; exit status 0: same as recorded, 1: not, 2: it cannot run here
    python {name} --bench    time it too

It needs torch{more}. Written by `stepscope repro`.
"""
'''
_NEEDS = {
    "cpp_pybinding": " and a C++ compiler; the vector code is made for a CPU like the one that recorded it",
    "triton": ", triton and a device that it was made for",
}


def script(name: str, spec: Mapping[str, Any], code: LaunchCode, saved: Mapping[str, bytes]) -> str:
    """Return a program that has only literals, the checked launch and the kernel's source from the log.

    `saved` has the tensors that are embedded in the script, by sha256.
    """
    more = _NEEDS.get(code.kernel.factory, "") if code.kernel else ""
    parts = [
        _HEAD.format(
            name=name if name.isascii() and name.isprintable() and not set('"\\') & set(name) else "repro.py", more=more
        ),
        _comments(spec),
        _kernel(code, spec),
        f"SPEC = {pformat(dict(spec), width=_WIDTH, sort_dicts=False)}\n",
        _embedded(saved),
        "# ---- from here on the same in every script " + "-" * 74 + "\n",
        program(),
    ]
    text = "\n".join(parts)
    ast.parse(text)
    return text


def program() -> str:
    """Return the part that is the same in every script."""
    texts = [assets.folder("templates").joinpath(part).read_text("utf-8").partition(_MARK)[2] for part in _PARTS]
    return "\n\n".join(text.lstrip("\n") for text in texts)


def _comments(spec: Mapping[str, Any]) -> str:
    lines = [f"{spec['kernel']}: {spec['where']}", f"recorded with {spec['recorded_with']}"]
    lines += [f"made up: {text}" for text in spec["made_up"]] + [f"note: {text}" for text in spec["notes"]]
    return "".join(f"# {_one_line(line)}\n" for line in lines)


def _kernel(code: LaunchCode, spec: Mapping[str, Any]) -> str:
    made = _compiled(code.kernel, str(spec["kernel"])) if code.kernel else _looked_up(code.callee)
    return f"""{made}

def launch(kernel, a, stream):
    return {code.expression}

"""


def _compiled(kernel: KernelCode, name: str) -> str:
    source = "source_here(KERNEL_SOURCE)" if kernel.factory == "triton" else "KERNEL_SOURCE"
    arguments = ", ".join(source if argument is None else repr(argument) for argument in kernel.arguments)
    keywords = "".join(f", {key}={value!r}" for key, value in kernel.keywords.items())
    return f"""# ---- code from the log: the source of the kernel {"-" * 68}

KERNEL_SOURCE = {literal(kernel.source)}

# ---- end of code from the log {"-" * 87}


def make_kernel():
    from torch._inductor.async_compile import AsyncCompile

    compiler = AsyncCompile()
    scope = {{"kernel": compiler.{kernel.factory}({arguments}{keywords})}}
    compiler.wait(scope)
    return scope["kernel"]
"""


def _looked_up(callee: str) -> str:
    extern = f"    {_EXTERN}\n\n" if callee.startswith("extern_kernels.") else ""
    return f"def make_kernel():\n{extern}    return {callee}\n"


def literal(text: str) -> str:
    """Return a Python literal for `text`: in triple quotes if that has the same meaning, or line by line."""
    for quotes in ("'''", '"""'):
        raw = f"r{quotes}{text}{quotes}"
        if quotes not in text and all(c.isprintable() or c in "\n\t" for c in text) and _means(raw, text):
            return raw
    lines = "\n".join(f"    {line!a}" for line in text.splitlines(keepends=True))
    return f"(\n{lines}\n)" if text else "''"


def _means(source: str, text: str) -> bool:
    try:
        return bool(ast.literal_eval(source) == text)
    except (SyntaxError, ValueError):
        return False


def _embedded(saved: Mapping[str, bytes]) -> str:
    """Return the definition of SAVED, whose values are base64."""
    entries = []
    for digest, data in saved.items():
        text = base64.b64encode(data).decode()
        lines = "\n".join(f'        "{text[at : at + 108]}"' for at in range(0, len(text), 108))
        entries.append(f"    {digest!r}: (\n{lines}\n    ),\n")
    return f"SAVED = {{\n{''.join(entries)}}}\n" if entries else "SAVED = {}\n"


def _one_line(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in clean(text))


def tidy(texts: Sequence[str]) -> list[str]:
    """Return the texts without control characters, each once."""
    return list(dict.fromkeys(map(_one_line, texts)))
