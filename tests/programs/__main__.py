"""Runs programs of the corpus: ``python -m tests.programs [NAME...]``."""

from __future__ import annotations

import sys
import time

import torch
import torch._inductor.config as inductor_config

from tests.programs import load


def main() -> int:
    corpus = load()
    if len(sys.argv) == 1:
        print("\n".join(sorted(corpus)))
        return 0
    torch.set_num_threads(1)
    for name in sys.argv[1:]:
        program = corpus[name]
        torch._dynamo.reset()
        torch.manual_seed(0)
        start = time.perf_counter()
        with inductor_config.patch(program.config):
            step = program.build()
            for _ in range(program.steps):
                step()
        print(f"{name}: {program.steps} steps in {time.perf_counter() - start:.1f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
