"""How well findings of speed know the share of a planted slowness: ``python -m tests.slowness [PROGRAM ...]``.

Compares the share that each finding states with what the program measured itself at the same time, so that noise of the
machine is in both, and prints what else is found, and what in the fast twins.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.slowness.test_slowness import PLANTED, recorded


def main(programs: list[str]) -> None:
    for planted in PLANTED:
        if programs and planted.program not in programs:
            continue
        with tempfile.TemporaryDirectory() as folder:
            measured, slow = recorded(planted.program, "slow", Path(folder, "slow"))
            _, fast = recorded(planted.program, "fast", Path(folder, "fast"))
        told = [f"{one['evidence']['share']:.3f}" for one in slow if one["kind"] == planted.kind]
        others = [one["kind"] for one in slow if one["kind"] != planted.kind]
        print(
            f"{planted.program:<20} finding {', '.join(told) or 'none':<8} program {measured['share']:.3f}"
            f"  other findings: {', '.join(others) or 'none'};"
            f" of the fast twin: {', '.join(one['kind'] for one in fast) or 'none'}",
            flush=True,
        )


if __name__ == "__main__":
    main(sys.argv[1:])
