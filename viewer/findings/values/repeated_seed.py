"""The same line of a program gives the default generator the same seed again between six or more successive steps of an
optimizer of `torch.optim`, and compiled code draws random numbers after each of these calls, so that each step draws
the same ones, such as the same mask of a dropout. The functions `torch.manual_seed`, `torch.cuda.manual_seed` and
`torch.cuda.manual_seed_all` count, also if a function of an installed package calls them. The proof is the generator,
which had the same state before each of the steps, and the graphs of AOTAutograd, which draw. It is information if only
graphs that compute no gradients draw. Seeds that change do not count, nor those that are set by PyTorch itself, or
within `torch.random.fork_rng()`, which restores the generator, nor random numbers of eager code."""

from __future__ import annotations

from stepscope.viewer.compiles.queries.repeated_seeds import Redrawn, redrawn
from stepscope.viewer.findings.evidence import Evidence, Timed, attributes, grouped, in_logs, logs_of, rule_of
from stepscope.viewer.findings.values.operations import place
from stepscope.viewer.overview.rows import Finding

SUMMARY = "Each step draws the same random numbers, because a seed is set in each step"
TITLE_IS_MEASURED = True


def find(evidence: Evidence) -> list[Timed]:
    """Return one finding per line and seed."""
    alike = grouped(redrawn(evidence.trace), lambda one: (one.seed.file, one.seed.line, one.seed.seed))
    return [_finding(evidence, same) for same in alike]


def _finding(evidence: Evidence, same: list[Redrawn]) -> Timed:
    one, logs = same[0], len({each.seed.log for each in same})
    operator, seed = one.operator or "compiled code", one.seed
    draws = "drops the same elements" if "dropout" in operator else "draws the same random numbers"
    generator = "the CPU" if seed.device == "cpu" else "the CUDA device"
    return seed.time_unix_ns, Finding(
        kind="repeated_seed",
        severity="warning" if one.trains else "info",
        title=f"{seed.function}({seed.seed}){place(seed.place)} sets the same seed in each of {one.steps:,} or more"
        f" steps in a row, so that {operator}{place(one.source)} {draws} in each of them{in_logs(logs)}",
        proof=[
            f"The generator of {generator} had the same state before each of these steps.",
            "Set the seed once, before the first step. What needs a seed of its own can run within"
            " torch.random.fork_rng(), which restores the generator.",
        ],
        rule=rule_of(__doc__),
        evidence={**attributes(seed, "function", "seed", "device"), **attributes(one, "steps", "operator")}
        | logs_of(logs),
        page=f"/graphs/{one.graph}",
        rank=evidence.rank_of(seed.log),
        log=seed.log,
        source=seed.place,
        **attributes(one, "step", "graph"),
    )
