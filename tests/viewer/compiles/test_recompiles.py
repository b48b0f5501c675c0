"""What the finding says of functions that were compiled again."""

from __future__ import annotations

from collections.abc import Callable

import orjson
import pytest

from stepscope.viewer.findings import all_findings
from stepscope.viewer.store.trace import Trace
from tests.logs import compile_logs
from tests.logs.synthetic import LogBuilder
from tests.viewer.compiles.test_compile_verdicts import begun

Opened = Callable[[LogBuilder | bytes], Trace]
LOSS = ("/src/model.py", 20, "loss", "")


def recompiled(log: LogBuilder, *reasons: str) -> LogBuilder:
    """A function that is compiled, and once more for each reason."""
    compile_logs.metrics(begun(log, compile_logs.FORWARD), 0, 0)
    for number, reason in enumerate(reasons, 1):
        log.artifact("recompile_reasons", orjson.dumps(reason.split("\n")), **compile_logs.ids(0, number))
        compile_logs.metrics(begun(log, compile_logs.FORWARD, number=number), 0, number)
    return log


def test_a_compile_for_another_grad_mode_does_not_hide_the_size_that_changes(opened: Opened) -> None:
    size = "tensor 'ids' size mismatch at index 1. expected {}, actual {}"
    state = "0/0: GLOBAL_STATE changed: grad_mode "
    reasons = (
        state,
        f"{state}\n0/1: {size.format(4, 6)}",
        f"{state}\n0/2: {size.format(6, 8)}\n0/1: {size.format(4, 8)}",
    )
    (finding,) = all_findings(opened(recompiled(LogBuilder(), *reasons)))
    assert "was recompiled 3 times: ids.size()[1] changed (4, 6, 8), and 1 other guard failed" in finding.title
    assert "torch._dynamo.mark_dynamic(ids, 1) before the first call raises an error" in finding.proof[-1]


@pytest.mark.parametrize(
    ("reasons", "changed", "once"),
    [
        (["GLOBAL_STATE changed: grad_mode "], "grad mode changed", "trains, and evaluates under torch.no_grad()"),
        (
            ["tensor 'x' requires_grad mismatch. expected requires_grad=0"],
            "requires_grad of x changed from False to True",
            "on inputs with and without gradients",
        ),
        (["GLOBAL_STATE changed: autocast_state num_threads "], "autocast and the number of threads changed", None),
        (["GLOBAL_STATE changed: grad_mode ", "GLOBAL_STATE changed: grad_mode "], "grad mode changed", None),
    ],
)
def test_what_a_healthy_program_compiles_once_is_said_to_be_needed(
    opened: Opened, reasons: list[str], changed: str, once: str | None
) -> None:
    (finding,) = all_findings(opened(recompiled(LogBuilder(), *(f"0/0: {reason}" for reason in reasons))))
    assert finding.title.endswith(f": {changed}")
    assert [once is not None and once in said for said in finding.proof if "once:" in said] == [True] * bool(once)
    assert finding.severity == "info"


@pytest.mark.parametrize(
    ("reason", "titles"),
    [
        (
            "GLOBAL_STATE changed: grad_mode ",
            ["forward (model.py:10) and 1 other function were recompiled: grad mode changed"],
        ),
        (
            "n == 1",
            ["forward (model.py:10) was recompiled: the guard n", "loss (model.py:20) was recompiled: the guard n"],
        ),
    ],
)
def test_functions_that_are_compiled_for_one_new_state_are_one_finding(
    opened: Opened, reason: str, titles: list[str]
) -> None:
    log = recompiled(LogBuilder(), f"0/0: {reason}")
    compile_logs.metrics(begun(log, LOSS, frame=1), 1, 0, co_name="loss", co_firstlineno=20)
    log.artifact("recompile_reasons", orjson.dumps([f"1/0: {reason}"]), **compile_logs.ids(1, 1))
    compile_logs.metrics(begun(log, LOSS, frame=1, number=1), 1, 1, co_name="loss", co_firstlineno=20)
    found = all_findings(opened(log))
    assert [one.title.startswith(title) for one, title in zip(found, titles, strict=True)] == [True] * len(titles)


SAME_KEYS = "batch needs the same keys in the same order in all calls: pass what differs as values."


def test_missing_keys_of_a_dictionary_are_one_cause(opened: Opened) -> None:
    reasons = [f"0/{number}: KeyError on batch['meta_{number}']" for number in range(3)]
    (finding,) = all_findings(opened(recompiled(LogBuilder(), *reasons)))
    assert "was recompiled 3 times: the keys of batch changed ('meta_0', 'meta_1', 'meta_2')" in finding.title
    assert finding.proof[-1] == SAME_KEYS


def test_the_length_and_the_order_of_a_dictionary_are_its_keys(opened: Opened) -> None:
    reasons = [
        "0/0: len(batch) != 4",
        "0/1: list(dict.keys(batch))[0] == 'text'    # for name in batch:",
        "0/2: len(batch) != 3",
    ]
    (finding,) = all_findings(opened(recompiled(LogBuilder(), *reasons)))
    assert finding.title.endswith("was recompiled 3 times: the keys of batch changed")
    assert finding.proof[-1] == SAME_KEYS
    (finding,) = all_findings(opened(recompiled(LogBuilder(), "0/0: len(batch) != 4", "0/1: len(batch) != 3")))
    assert "len(batch) changed from 4 to 3" in finding.title


def test_a_guard_that_could_not_be_evaluated_is_told_as_such(opened: Opened) -> None:
    (finding,) = all_findings(opened(recompiled(LogBuilder(), "0/0: 'NoneType' object has no attribute 'size'")))
    assert finding.title.endswith("was recompiled: a guard reads the attribute size of a value that is now None")
