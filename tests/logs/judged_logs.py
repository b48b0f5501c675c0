"""Records of the judge for the graph of `synthetic.recorded`: a right, a wrong and an unjudged launch, and one whose
input was changed."""

from __future__ import annotations

from stepscope.tracer.schema.judging import ClobberedInput, JudgedBuffer, JudgedCall
from stepscope.tracer.schema.process_ends import Frame
from tests.logs.synthetic import LogBuilder

NOT_JUDGED = "aten.bernoulli draws random numbers from the program's generator"


def judged(log: LogBuilder, call: int = 0, step: int = 0) -> LogBuilder:
    """Add the verdicts on a call whose second launch computed a wrong value and whose third read a changed input."""
    log.record(
        JudgedCall(
            graph=0, call=call, step=step, launches=3, judged=2, not_judged={NOT_JUDGED: 1}, launch=[0, 1, 2],
            site=[0, 1, 2], buffer=["buf0", "buf1", "buf2"], node=["mm", "relu", None],
            verdict=["ok", "wrong", "unjudged"], how=["equal", "float64", None], of_limit=[0.0, 250.0, None],
            reason=[None, None, 0], reasons=[NOT_JUDGED], duration_ns=2_000_000,
        )
    )  # fmt: skip
    log.record(
        JudgedBuffer(
            graph=0, call=call, step=step, launch=1, site=1, buffer="buf1", node="relu", verdict="wrong",
            rules=["element", "mean"], how="float64", dtype="float32", size=[4, 8], index=[2, 5], compiled=1.5,
            eager=0.5, float64=0.5, allowed=0.004, of_limit=250.0, bad=3, fragment=["relu = aten.relu.default(mm)"],
            inputs=["mm in buf0"], source=Frame("/src/model.py", 12, "forward", "return torch.relu(x @ w)"),
        )
    )  # fmt: skip
    return log.record(
        ClobberedInput(
            graph=0, call=call, step=step, launch=2, site=2, buffer="buf1", is_written=True, producer=0, writer=1
        )
    )
