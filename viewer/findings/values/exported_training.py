"""A program of torch.export for inference behaves as in training: it drops values at random, or batch norm uses the
statistics of each batch and changes its running statistics. A module does so if it was in training mode, the default,
when the program was exported, and a later `eval()` has no effect; a function does so if the model calls it without its
argument `training`. The exported graph shows the operator and its line. The finding is a warning for a package of
AOTInductor, and information for a graph without gradients that torch.compile made of an exported program, as in an
evaluation, and if other such operators of the graph are in eval mode, as for Monte Carlo dropout. Batch norm without
running statistics, and calls with `training=True`, do not count. There is one finding per package or graph."""

from __future__ import annotations

from collections.abc import Iterable

from stepscope.viewer.compiles.queries.exported_training import ExportedTraining, TrainingOperator, exported_training
from stepscope.viewer.findings.evidence import Evidence, Timed, attributes, compile_page, names_text, rule_of
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.text.formats import basename

SUMMARY = "An exported program behaves as in training"
TITLE_IS_MEASURED = False
_OF_MODE = (
    "The model was in training mode when it was exported. Call model.eval() before torch.export.export(); a later call"
    " has no effect on the exported program."
)
_MIXED = (
    "Other modules were in eval mode when the model was exported, as for Monte Carlo dropout. If that is not meant,"
    " call model.eval() before torch.export.export(); a later call has no effect on the exported program."
)
_OF_FUNCTION = "model.eval() has no effect on {}(). In a module, pass training=self.training, or use nn.Dropout."
_UNKNOWN = (
    "Call model.eval() before torch.export.export(), and drop values only while self.training is true where the model"
    " calls a function."
)


def find(evidence: Evidence) -> list[Timed]:
    """Return one finding per package or graph."""
    return [_finding(evidence, one) for one in exported_training(evidence.trace)]


def _finding(evidence: Evidence, one: ExportedTraining) -> Timed:
    lines = [line for operator in one.operators for line in operator.lines]
    return one.time_unix_ns, Finding(
        kind="exported_training",
        severity="warning" if one.graph is None and not one.is_mixed else "info",
        title=f"{_subject(one)} {' and '.join(_effects(one.operators))}, as in training",
        proof=_advice(one.operators, _MIXED if one.is_mixed else _OF_MODE),
        rule=rule_of(__doc__),
        evidence={"operators": [operator.name for operator in one.operators]},
        page=compile_page(one.log, one.compile_id) if one.graph is None else f"/graphs/{one.graph}",
        rank=evidence.rank_of(one.log),
        source=lines[0] if lines else one.compiled_at,
        **attributes(one, "step", "graph", "log"),
    )


def _subject(one: ExportedTraining) -> str:
    if one.graph is not None:
        return f"The exported program of graph {one.graph}"
    at = one.compiled_at
    return f"The package that is compiled at {basename(at.file)}:{at.line}" if at is not None else "A package"


def _effects(operators: Iterable[TrainingOperator]) -> list[str]:
    of_batch = [one for one in operators if one.name == "batch_norm"]
    random = [one for one in operators if one.name != "batch_norm"]
    effects = [("drops values at random", random), ("normalizes with the statistics of each batch", of_batch)]
    return [f"{effect} ({_places(of)})" for effect, of in effects if of]


def _places(operators: Iterable[TrainingOperator]) -> str:
    """Return ``dropout, model.py:7``, or ``dropout and lstm, model.py:7 and model.py:9``."""
    names = dict.fromkeys(one.name for one in operators)
    lines = dict.fromkeys(f"{basename(line.file)}:{line.line}" for one in operators for line in one.lines)
    return ", ".join(filter(None, (names_text(list(names)), names_text(list(lines)))))


def _advice(operators: Iterable[TrainingOperator], for_mode: str) -> list[str]:
    functions = dict.fromkeys(f"F.{one.name}" for one in operators if one.cause == "function")
    of_mode = [for_mode] if any(one.cause == "mode" for one in operators) else []
    of_function = [_OF_FUNCTION.format(names_text(list(functions)))] if functions else []
    return [*of_mode, *of_function] or [_UNKNOWN]
