"""Findings about calls of `state_dict` and `load_state_dict`."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stepscope.tracer.schema.process_ends import End
from stepscope.tracer.schema.states import UncopiedState, UnmatchedKeys
from stepscope.tracer.schema.steps import SharedParameters
from stepscope.viewer.findings import all_findings
from stepscope.viewer.store.trace import Trace
from tests.logs.synthetic import LogBuilder, run

Open = Callable[[LogBuilder | bytes], Trace]


@pytest.mark.parametrize(
    ("given", "own", "cause", "advice"),
    [
        ("_orig_mod.", "", 'the keys of the checkpoint contain "_orig_mod." of torch.compile', "Use getattr(model, "),
        ("", "_orig_mod.", 'the keys of the module contain "_orig_mod." of torch.compile', "Use getattr(model, "),
        (
            "module.",
            "",
            'the keys of the checkpoint contain "module." of DataParallel or DistributedDataParallel',
            'Remove "module." from the keys',
        ),
        (
            "_orig_mod.",
            "module.",
            'the keys of the checkpoint contain "_orig_mod." of torch.compile, and the keys of the module contain'
            ' "module." of DataParallel or DistributedDataParallel',
            "Use getattr(model, ",
        ),
        (
            "",
            "net.",
            'the keys of the module contain "net."',
            "Call load_state_dict() of the inner module, model.net",
        ),
    ],
)
def test_a_checkpoint_whose_keys_have_another_prefix(
    opened: Open, given: str, own: str, cause: str, advice: str
) -> None:
    record = UnmatchedKeys("Net", 1006, 1004, 1000, given, own, f"{given}head.weight", "/src/train.py", 9)
    log = LogBuilder().record(run()).record(record).record(End("exit", 1))
    (finding,) = [one for one in all_findings(opened(log)) if one.kind == "unmatched_keys"]
    assert finding.title == (
        f"load_state_dict(strict=False) (train.py:9) does not load 1,004 of 1,006 tensors of Net: {cause}"
    )
    assert (finding.severity, finding.source and finding.source.line) == ("warning", 9)
    prefix = "prefixes" if given and own else "prefix"
    assert finding.proof[0] == f"Without the {prefix}, 1,000 keys would match; the first is {given}head.weight."
    assert finding.proof[1].startswith(advice)


def test_a_checkpoint_with_one_key(opened: Open) -> None:
    record = UnmatchedKeys("Net", 1, 1, 1, "net.", "", "net.weight", "/src/train.py", 9)
    log = LogBuilder().record(run()).record(record).record(End("exit", 1))
    (finding,) = [one for one in all_findings(opened(log)) if one.kind == "unmatched_keys"]
    assert finding.proof[0] == "Without the prefix, 1 key would match: net.weight."


def test_strange_records_of_keys(opened: Open) -> None:
    builder = LogBuilder().record(run())
    for explained, prefix in ((0, "net."), (4, "")):
        builder.record(UnmatchedKeys("Net", 4, 4, explained, prefix, "", "weight", None, None))
    assert [one.kind for one in all_findings(opened(builder.record(End("exit", 1))))] == []


def test_weights_that_are_no_copy(opened: Open) -> None:
    record = UncopiedState("Net", "Adam", 6, 40, "/src/train.py", 9, "/src/train.py", 12)
    log = LogBuilder().record(run()).record(record).record(End("exit", 1))
    (finding,) = [one for one in all_findings(opened(log)) if one.kind == "uncopied_state"]
    assert finding.title == (
        "load_state_dict() (train.py:12) restores nothing: state_dict() (train.py:9) returned the parameters of Net"
        " rather than copies, and Adam has changed them since"
    )
    assert (finding.severity, finding.source and finding.source.line) == ("warning", 12)
    assert finding.proof[0] == "6 parameters that Adam trains would get their own values, 40 steps after state_dict()"


def test_weights_that_are_no_copy_beside_a_moving_average_of_another_model(opened: Open) -> None:
    record = UncopiedState("Net", "SGD", 4, 8, "/src/train.py", 9, "/src/train.py", 12)
    average = SharedParameters("SGD", 2, ["other.weight", "other.bias"], ["shadow['weight'] of ema",
                               "shadow['bias'] of ema"], False, True, "/src/train.py", 7, are_tensors=True)  # fmt: skip
    log = LogBuilder().record(run()).record(record).record(average).record(End("exit", 1))
    found = {one.kind for one in all_findings(opened(log))}
    assert found == {"uncopied_state", "shared_parameters"}
