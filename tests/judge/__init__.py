"""Programs that measure the judge: `python -m tests.judge.healthy` and `python -m tests.judge.faults`."""
