"""A compiled graph and the same graph in eager mode, on copies of the same inputs, gave results that rounding does not
explain: different values, dtypes or shapes, a change of an input that is missing or wrong, or tensors that share memory
in one and not in the other. The error against float64 decides: the compiled one is compared with that of eager mode and
with the effect of rounding errors after every operation. A difference of requires_grad alone is a warning, and strides
alone do not count. With --judge-layers the graphs between Dynamo and the kernels ran on the same inputs as well, and
the first of them that differs is named, with the nodes that it changed. It is information only if float64 agrees with
the compiled result, so that eager mode is the one that is off. But if the graph calls custom operators, and rounding
after every operation has less than a tenth of the effect, it is a warning: an operator may change an input that it does
not declare to change, and the input is another tensor in eager mode, or it may return the memory of an input, which the
finding names if it is known. There is one finding per compiled graph and direction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stepscope.viewer.findings.evidence import MOST_EXAMPLES, Evidence, Timed, compile_page, grouped, rule_of
from stepscope.viewer.graphs.queries.hidden_aliases import aliasing_operators, custom_operators
from stepscope.viewer.graphs.rows import SourceLine
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.text.formats import basename, format_count, plural
from stepscope.viewer.values.queries.changed_values import reads_again
from stepscope.viewer.values.queries.layer_checks import LayerCheckRow, layer_checks

SUMMARY = "A compiled graph and eager mode gave different results"

LAYERS = {
    "dynamo": "Dynamo's graph",
    "aot": "the graph of AOTAutograd",
    "joint": "the graph after the joint-graph passes",
    "post_grad": "the graph after the post-grad passes",
    "compiled": "the kernels",
}
"""Names of the layers."""
_MILD = ("strides", "requires_grad")
_NUMBERS = ("index", "before", "after", "float64", "allowed", "before_error", "after_error", "rounding_error", "wrong",
            "elements")  # fmt: skip
MOST_NAMES = 4
MOST_ROUNDING = 10.0
"""How much larger than the effect of rounding errors the error of eager mode is if they do not explain it."""


def find(evidence: Evidence) -> list[Timed]:
    """Return one finding per compiled graph, direction and verdict."""
    rows = [row for row in layer_checks(evidence.trace) if row.verdict in ("differs", "eager_is_off")]
    return [
        _finding(evidence.trace, group)
        for group in grouped(rows, lambda row: (row.log, row.compile_id, row.phase, row.verdict))
    ]


def _finding(trace: Trace, group: list[LayerCheckRow]) -> Timed:
    row = group[0]
    is_mild = all(one["what"] in _MILD for one in row.differences)
    is_off = row.verdict == "eager_is_off"
    unexplained = [one for one in row.differences if is_off and one["what"] == "values" and not _explains(one)]
    is_unexplained = bool(unexplained)
    worst = unexplained[0] if unexplained else _worst(row)
    operators = custom_operators(trace, row.log, row.compile_id) if is_unexplained else []
    aliasing = aliasing_operators(trace, row.log, row.compile_id) if is_unexplained else []
    severity: Any = "warning" if operators or (is_mild and not is_off) else "info" if is_off else "critical"
    frame = worst.get("frame")
    return row.time_unix_ns or 0, Finding(
        kind="layer_difference",
        severity=severity,
        title=_off(row, worst, is_unexplained, operators, aliasing)
        if is_off
        else (f"{_subject(row)} differs from {_right(row)}: {_said(worst)}"),
        proof=[
            line
            for line in (
                _values(worst, row),
                _layer(row) or _others(row, worst),
                _hint(row),
                _undeclared(trace, [] if aliasing else operators),
            )
            if line
        ],
        rule=rule_of(__doc__),
        evidence={
            "layers": [row.before, row.after],
            "phase": row.phase,
            "tensor": worst["name"],
            "what": worst["what"],
            "dtype": worst.get("dtype"),
            "shape": worst.get("shape"),
            **{name: worst.get(name) for name in _NUMBERS},
            "differing": [f"{one['name']}: {one['text']}" for one in row.differences[:MOST_EXAMPLES]],
            "tensors": row.tensors,
            "calls": [one.call for one in group][:MOST_EXAMPLES],
            "not_compared": row.why,
            "appears_between": [row.culprit["before"], row.culprit["after"]] if row.culprit else None,
            "layer_steps": [_step(step) for step in row.layers],
            "changed_nodes": row.nodes,
            "changed_lines": [f"{line.file}:{line.line}: {line.code}" for line in row.lines],
            "custom_operators": operators,
            "aliasing_operators": aliasing,
            "settings": [_trial(trial) for trial in row.settings],
            "compile_id": row.compile_id,
        },
        page=compile_page(row.log, row.compile_id) if row.compile_id else "/",
        rank=row.rank,
        source=_source(row, frame),
        log=row.log,
    )


def _source(row: LayerCheckRow, frame: dict[str, Any] | None) -> SourceLine | None:
    """Return the line of the nodes that a pass changed, which may stand far above that of the result which differs."""
    if row.lines:
        return row.lines[0]
    return SourceLine(**frame) if frame else row.frame


def _worst(row: LayerCheckRow) -> dict[str, Any]:
    """Return the first difference of values, that of a changed input before those of results that may follow from it;
    if there is none, the first that is not mild."""
    ranked = sorted(
        row.differences,
        key=lambda one: (one["what"] != "values", one["what"] in _MILD, not one["name"].endswith("after the call")),
    )
    return ranked[0] if ranked else {"name": "", "what": "values", "text": ""}


def _subject(row: LayerCheckRow) -> str:
    name = f" {row.frame.function} ({basename(row.frame.file)}:{row.frame.line})" if row.frame else ""
    return f"{row.after.capitalize()}{name}"


def _right(row: LayerCheckRow) -> str:
    """Return the name of the layer that is taken as right."""
    return LAYERS.get(row.before, row.before)


def _said(worst: dict[str, Any]) -> str:
    if worst["what"] != "values":
        return f"{worst['name']}, {worst['text']}"
    return f"{worst['name']}, {worst['wrong']:,} of {format_count(worst['elements'])} elements"


def _explains(worst: dict[str, Any]) -> bool:
    """Return whether rounding, or an overflow, explains the error of eager mode; older logs do not have the bound."""
    error, rounding = worst.get("before_error"), worst.get("rounding_error")
    if not isinstance(worst.get("before"), float):
        return worst.get("dtype") == "float16"
    return error is None or rounding is None or error <= MOST_ROUNDING * rounding


def _off(
    row: LayerCheckRow,
    worst: dict[str, Any],
    is_unexplained: bool,
    operators: Sequence[str],
    aliasing: Sequence[str],
) -> str:
    ours, theirs = worst.get("after_error"), worst.get("before_error")
    off = f"is off by {theirs:.0e}" if isinstance(worst.get("before"), float) and theirs else "is not finite"
    agrees = f" to {ours:.0e}" if ours else ""
    agrees += f", and {_right(row)} {off}"
    if aliasing:
        returns = "return the memory of their inputs" if len(aliasing) > 1 else "returns the memory of its input"
        why = f"{_few(aliasing)} {returns}, so that eager code which changes the input changes the result as well"
    elif operators:
        why = f"custom operators ({_few(operators)}) may change inputs that they do not declare"
    elif is_unexplained and row.before == "eager" and off != "is not finite":
        why = "this is no error of compiled code"
    else:
        why = "this is rounding, not a compiler error"
    return f"{_subject(row)} agrees with float64{agrees}: {why}"


def _few(operators: Sequence[str]) -> str:
    return f"{', '.join(operators[:MOST_NAMES])}{', …' if len(operators) > MOST_NAMES else ''}"


def _undeclared(trace: Trace, operators: Sequence[str]) -> str:
    if not operators or reads_again(trace):
        return ""
    return (
        "Rounding does not explain the difference. Record with --level values --verify-before to find out whether the"
        " operators change inputs without declaring it."
    )


def _values(worst: dict[str, Any], row: LayerCheckRow) -> str:
    if worst["what"] != "values" or worst.get("after") is None:
        return ""
    at = f"at {worst['index']} of {worst['name']}: " if worst.get("index") else f"{worst['name']}: "
    numbers = f"{row.after} {_number(worst['after'])}, {_right(row)} {_number(worst['before'])}"
    allowed = f" (allowed error {worst['allowed']:.1e})" if worst.get("allowed") else ""
    return f"{at}{numbers}, float64 {_number(worst['float64'])}{allowed}"


def _others(row: LayerCheckRow, worst: dict[str, Any]) -> str:
    others = [one for one in row.differences if one is not worst]
    if not others:
        return ""
    return f"{plural(len(others), 'other difference')}: {others[0]['name']}, {others[0]['text']}"


def _hint(row: LayerCheckRow) -> str:
    is_open = row.verdict == "differs" and not row.layers
    return "Record with --judge-layers to see in which layer of the compile the difference appears." if is_open else ""


def _layer(row: LayerCheckRow) -> str:
    """Return the layer in which the difference appears, with the first nodes that it changed."""
    step = row.culprit
    if step is None:
        return "The layers agree with each other." if row.layers else ""
    changed = row.change or [line for line in row.nodes if line[:1] in "+-" and line[:3] not in ("+++", "---")][:2]
    nodes = f"; the passes changed {' and '.join(changed)}" if changed else ""
    if row.lines:
        first = row.lines[0]
        others = f" and {plural(len(row.lines) - 1, 'other line')}" if len(row.lines) > 1 else ""
        nodes += f", which come{'s' * (len(changed) == 1)} from {basename(first.file)}:{first.line}{others}"
    removes = [f"{trial['name']}={trial['value']}" for trial in row.settings if trial["verdict"] == "removes"]
    gone = f"; it disappears with {' or with '.join(removes)}" if removes else ""
    missing = _not_run(row, step)
    layers = f"{LAYERS[step['before']]} and {LAYERS[step['after']]}"
    return f"The difference appears between {layers}{missing}{gone}{nodes}"


def _not_run(row: LayerCheckRow, step: dict[str, Any]) -> str:
    """Return why a layer within a step was not compared; empty if there is none."""
    within = [one for one in row.layers if one["verdict"] == "not_compared" and one["before"] == step["before"]]
    return f" ({LAYERS[within[-1]['after']]} was not compared: {within[-1]['text']})" if within else ""


def _trial(trial: dict[str, Any]) -> str:
    how = {"removes": "it disappears", "stays": "it remains"}.get(trial["verdict"], f"not compared, {trial['text']}")
    return f"{trial['name']}={trial['value']}: {how}"


def _step(step: dict[str, Any]) -> str:
    text = f" ({step['text']})" if step["text"] else ""
    return f"{LAYERS[step['before']]} and {LAYERS[step['after']]}: {step['verdict'].replace('_', ' ')}{text}"


def _number(value: float | str | None) -> str:
    if value is None:
        return "unknown"
    return value if isinstance(value, str) else f"{value:.6g}"
