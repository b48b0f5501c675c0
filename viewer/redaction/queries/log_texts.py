"""Queries the texts of a trace that come from a program, its files or its machine, by their kind of redaction."""

from __future__ import annotations

import getpass
import re
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson

from stepscope.viewer.redaction.secrets import HOME
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

_COLUMNS = {
    "paths": (
        "logs.path", "strings.text", "compiles.file", "compile_events.file", "saved_tensors.file", "data_waits.file",
        "judged_buffers.files", "call_sites.file", "kept_gradients.file", "lost_updates.file",
        "sampled_lines.files", "missing_gradients.file", "optimizer_steps.file", "learning_rates.file",
        "learning_rates.scheduler_file",
        "untrained_parameters.file", "shared_parameters.file", "cleared_gradients.file",
        "cleared_gradients.zero_grad_file", "missing_gradients.zero_grad_file", "missing_gradients.checkpoint_file",
        "kept_tensors.file", "changed_hooks.file", "misplaced_clipping.file", "eval_calls.file",
        "misplaced_clipping.clip_file", "unaveraged_gradients.file", "piled_hooks.file",
        "piled_hooks.step_file", "unmatched_keys.file", "nonfinite_parameters.file", "zero_gradients.file",
        "uncopied_states.file", "uncopied_states.saved_file", "loss_paths.file", "summed_losses.file",
        "repeated_seeds.file", "repeated_batches.file",
    ),
    "names": (
        "compiles.function", "compile_events.function", "sites.kernel", "arguments.name",
        "arguments.parameter", "steps.optimizers", "uncaught_exceptions.type", "raised_calls.type",
        "failed_nodes.type", "failed_nodes.node", "failed_nodes.target", "scalars.name",
        "profiled_operators.name", "device_work.name", "optimizer_steps.name", "kept_gradients.name",
        "lost_updates.name", "call_sites.function", "sampled_lines.functions",
        "missing_gradients.name", "learning_rates.name",
        "learning_rates.scheduler", "missing_gradients.names", "changed_frozen_weights.name",
        "untrained_parameters.name", "untrained_parameters.container", "untrained_parameters.names",
        "shared_parameters.name", "shared_parameters.names", "shared_parameters.others", "cleared_gradients.name",
        "changed_hooks.name", "changed_hooks.module", "misplaced_clipping.name",
        "unaveraged_gradients.name", "unaveraged_gradients.module", "piled_hooks.name", "piled_hooks.owner",
        "unmatched_keys.module", "unmatched_keys.given_prefix", "unmatched_keys.own_prefix",
        "unmatched_keys.given_key", "uncopied_states.module", "uncopied_states.optimizer",
        "zero_gradients.name", "zero_gradients.names",
        "nonfinite_parameters.name", "nonfinite_parameters.names", "nonfinite_parameters.nan_before",
        "nonfinite_parameters.largest_rate_names",
        "loss_paths.nodes",
    ),
    "constants": ("compiles.recompile_reason", "scalars.value", "symbols.source", "repeated_seeds.seed"),
    "environment": ("process_ends.environment",),
    "texts": (
        "compiles.graph_break_reason", "compiles.failure", "compile_events.text", "process_ends.error_tail",
        "uncaught_exceptions.text", "lifetime_mismatches.holders", "memory_step_mismatches.holders",
        "left_behind.holders", "export_events.reason", "cache_lookups.detail", "layer_checks.why",
        "layer_checks.settings", "layer_checks.layers", "judged_calls.reasons", "raised_calls.text",
        "failed_nodes.text", "collections.holders", "kept_results.holder", "kept_tensors.holder",
    ),
    "source": (
        "compile_events.code", "compiles.stack", "sites.stacks", "uncaught_exceptions.frames", "layer_checks.frame",
        "layer_checks.lines", "loss_paths.lines", "call_sites.code", "call_sites.lines_between", "sampled_lines.code",
        "raised_calls.frames", "raised_calls.statement", "failed_nodes.frame",
        "layer_checks.differences", "layer_checks.nodes", "layer_checks.change", "judged_buffers.source",
        "judged_buffers.fragment", "judged_buffers.inputs",
    ),
}  # fmt: skip
_KIND_OF_KEY = {"file": "paths", "function": "names", "code": "source"}
_LITERAL = re.compile(r"(['\"])((?:(?!\1)[^\\\n]|\\.){4,200})\1")
_NAMES_A_HOST = re.compile(r"HOST|ADDR")
_EMPTY: dict[str, Any] = {}

Texts = dict[str, set[str]]


def log_texts(trace: Trace) -> Texts:
    """Return the texts by kind, those of the narrowest kinds first."""
    found: Texts = {kind: set() for kind in ("user", "host", "paths", "names", "constants", "environment", "texts")}
    for kind, columns in _COLUMNS.items():
        for column in columns:
            for text in _distinct(trace, column):
                _add(found, kind, _json(text))
    for (text,) in sql.rows(trace, "SELECT run FROM logs WHERE run IS NOT NULL"):
        _add_run(found, orjson.loads(text))
    for code in found.get("source", ()):
        found["constants"].update(literal for _, literal in _LITERAL.findall(code))
    for path in [text for texts in found.values() for text in texts]:
        found["user"].update(name for _, name in HOME.findall(path))
    _add_reader(found)
    return found


def _distinct(trace: Trace, column: str) -> Iterator[str]:
    table, _, name = column.partition(".")
    yield from (text for (text,) in sql.rows(trace, f"SELECT DISTINCT {name} FROM {table} WHERE {name} IS NOT NULL"))


def _json(text: str) -> Any:
    """Return the lists and objects of a JSON column, or the text itself."""
    if text[:1] in "[{":
        with suppress(ValueError):
            return orjson.loads(text)
    return text


def _add(found: Texts, kind: str, value: Any) -> None:
    if isinstance(value, str):
        found.setdefault(kind, set()).add(value)
    elif isinstance(value, list):
        for one in value:
            _add(found, kind, one)
    elif isinstance(value, dict):
        for key, one in value.items():
            _add(found, _KIND_OF_KEY.get(key, kind), one)


def _add_run(found: Texts, run: dict[str, Any]) -> None:
    argv, machine = run.get("argv") or [], run.get("machine") or _EMPTY
    for part in argv:
        found["names" if part.endswith(".py") else "environment"].add(Path(part).name if part.endswith(".py") else part)
        found["paths"].update([part] if "/" in part or "\\" in part else [])
    variables = machine.get("variables") or _EMPTY
    found["host"].update(text for name, text in variables.items() if _NAMES_A_HOST.search(name))
    for settings in (run.get("config") or _EMPTY, variables):
        _add(found, "environment", list(settings.values()))


def _add_reader(found: Texts) -> None:
    """Add the user and the host that write the report: the log may lie in a folder of that name."""
    with suppress(Exception):  # a user without an entry
        found["user"].add(getpass.getuser())
    found["host"].add(socket.gethostname())
