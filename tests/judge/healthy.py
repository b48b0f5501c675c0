"""Judges programs that are right: ``python -m tests.judge.healthy [NAME...]`` must accuse nothing.

The programs are those of `tests.programs`, with every step judged.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import torch
import torch._inductor.config as inductor_config

import stepscope
from tests.judge.reading import Judged, judged_in
from tests.programs import load

MOST_TEXT = 300


def judge_program(name: str) -> Judged:
    program = load()[name]
    torch._dynamo.reset()
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        with stepscope.trace(folder, judge="every:1"), inductor_config.patch(program.config):
            step = program.build()
            for _ in range(program.steps):
                step()
        return judged_in(Path(folder))


def shown(found: Judged) -> list[str]:
    """Return what a person has to look at."""
    lines = [f"  FAILED {one['where']}: {one.get('error') or one}" for one in found.failures]
    for one in found.buffers:
        fragment = "; ".join(one["fragment"])[:MOST_TEXT]
        of_limit = "none allowed" if one["of_limit"] is None else f"{one['of_limit']:.3g} of the limit"
        places = f"{one['compiled']} eager {one['eager']} float64 {one['float64']}"
        lines.append(
            f"  {one['verdict']} graph {one['graph']} launch {one['launch']} {found.kernel(one)} {one['buffer']}"
            f" {one['node']} {one['rules']} {one['dtype']} {one['size']} at {one['index']}: {places}"
            f" allowed {one['allowed']}, {one['bad']} bad, {of_limit}; {fragment}"
        )
    return lines + [f"  INPUT {found.kernel(one)} {one}" for one in found.inputs]


def main() -> int:
    torch.set_num_threads(2)  # loops are parallel then, and scattered sums are computed elsewhere
    accused = failed = 0
    reasons: Counter[str] = Counter()
    launches = judged = 0
    for name in sys.argv[1:] or sorted(load()):
        started = time.perf_counter()
        try:
            found = judge_program(name)
        except Exception as error:
            failed += 1
            print(f"{name}: {type(error).__name__}: {error}", flush=True)
            continue
        launches, judged = launches + found.launches, judged + found.judged
        reasons.update(found.reasons())
        wrong = len(found.wrong()) + len(found.suspects()) + len(found.inputs) + len(found.failures)
        accused += wrong
        verdicts = ", ".join(f"{v}/{h} {n}" for (v, h), n in sorted(found.verdicts().items(), key=str))
        print(
            f"{name}: judged {found.judged} of {found.launches} launches; {verdicts}; highest {found.highest():.2f}; "
            f"{wrong} accused; {time.perf_counter() - started:.1f} s",
            flush=True,
        )
        print("\n".join(shown(found)), end="\n" if shown(found) else "", flush=True)
    print(f"judged {judged} of {launches} launches, {accused} accused; {failed} programs raised an error")
    for reason, count in reasons.most_common():
        print(f"  {count} launches: {reason}")
    return accused > 0 or failed > 0


if __name__ == "__main__":
    sys.exit(main())
