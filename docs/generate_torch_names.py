"""Writes viewer/redaction/torch_names.json: public names of PyTorch that may stand in a redacted report.

Run it with PyTorch installed and nothing else that registers operators: python docs/generate_torch_names.py
"""

from __future__ import annotations

import ast
import json
import re
from dataclasses import fields
from pathlib import Path

import torch
import torch._dynamo.utils
import torch._higher_order_ops
import torch._inductor.compile_fx
import torch._inductor.inductor_prims

OUT = Path(__file__).resolve().parents[1] / "viewer" / "redaction" / "torch_names.json"
NAMESPACES = (
    "aten", "prims", "prim", "inductor", "inductor_prims", "quantized", "mkldnn", "mkl", "onednn", "rngprims",
    "_c10d_functional", "c10d_functional", "_c10d_functional_autograd", "c10d", "fsdp", "symm_mem",
    "quantized_decomposed", "streams", "_quantized", "sparse",
)  # fmt: skip
_SPAN = re.compile(r"[A-Za-z_][\w.<>-]*( no-op)?")
_TIMED = {
    "dynamo_timed", "log_event_start", "log_event_end", "log_instant_event", "GraphTransformObserver", "apply_gm_pass",
}  # fmt: skip
_MORE_SPANS = {
    "dynamo", "backward", "entire_frame_compile", "entire_backward_compile", "compile_attempt", "inductor_compile",
    "backend_compile", "code_gen", "TritonBundler.collect", "compile_fx.<locals>.fw_compiler_base",
    "compile_fx.<locals>.bw_compiler", "pass", "pre_grad_passes", "joint_graph_passes", "post_grad_passes",
    "pass_pattern",
    "pad_mm_benchmark", "pad_mm_benchmark_get_do_bench", "TritonBenchmarker.benchmark_gpu", "remote_fx_graph_cache_get",
    "remote_fx_graph_cache_put", "remote_aot_autograd_cache_get", "remote_aot_autograd_cache_put",
}  # fmt: skip


def operators() -> dict[str, list[str]]:
    """Namespace -> names of its operators without their overloads."""
    found: dict[str, set[str]] = {}
    for full in torch._C._dispatch_get_all_op_names():
        namespace, _, name = full.partition("::")
        if namespace in NAMESPACES:
            found.setdefault(namespace, set()).add(name.partition(".")[0])
    found["higher_order"] = set(dir(torch.ops.higher_order)) | set(torch._ops._higher_order_ops)
    return {name: sorted(one for one in found[name] if not one.startswith("__")) for name in sorted(found)}


def overloads() -> list[str]:
    names = (full.partition("::")[2].partition(".")[2] for full in torch._C._dispatch_get_all_op_names()
             if full.partition("::")[0] in NAMESPACES)  # fmt: skip
    return sorted({"default", *filter(None, names)})


def spans() -> list[str]:
    """Names that PyTorch gives its own compile spans and passes."""
    folder = Path(torch.__file__).parent
    paths = [path for part in ("_dynamo", "_inductor", "_functorch", "fx") for path in (folder / part).rglob("*.py")]
    calls = (node for path in paths for node in ast.walk(ast.parse(path.read_bytes())) if isinstance(node, ast.Call))
    found = {text for call in calls if _called(call) in _TIMED for text in _texts(call)}
    return sorted({text for text in found if _SPAN.fullmatch(text)} | _MORE_SPANS)


def _called(call: ast.Call) -> str:
    return getattr(call.func, "attr", getattr(call.func, "id", ""))


def _texts(call: ast.Call) -> list[str]:
    given = [*call.args, *(keyword.value for keyword in call.keywords)]
    return [one.value for one in given if isinstance(one, ast.Constant) and isinstance(one.value, str)]


def metrics() -> list[str]:
    return sorted(field.name for field in fields(torch._dynamo.utils.CompilationMetrics))


def parameters() -> list[str]:
    """Names of the arguments of PyTorch's own operators."""
    schemas = torch._C._jit_get_all_schemas()
    own = (schema for schema in schemas if schema.name.partition("::")[0] in NAMESPACES)
    return sorted(
        {argument.name for schema in own for argument in (*schema.arguments, *schema.returns) if argument.name}
    )


def main() -> None:
    names = {
        **{f"operators of {namespace}": found for namespace, found in operators().items()},
        "overloads": overloads(),
        "parameters": parameters(),
        "spans": spans(),
        "metrics": metrics(),
    }
    lines = [
        f"{json.dumps(name)}: {json.dumps(' '.join(found) if name != 'spans' else found)}"
        for name, found in names.items()
    ]
    OUT.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")


if __name__ == "__main__":
    main()
