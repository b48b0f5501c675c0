"""Runs scripts in forked children, so that loading torch is paid for once.

Reads requests from standard input, one JSON object a line: `body` (the script), `arguments` (its sys.argv[1:]),
`environment`, and the paths of `stdout` and `stderr`. Answers each with the child's exit code on a line. A child
ends like any Python program, with its atexit functions.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
import traceback
from typing import Any

import torch
import torch._dynamo
import torch._inductor.compile_fx

import stepscope

HANGS_AFTER_S = 150


def become_script(request: dict[str, Any]) -> None:
    for stream, name in ((sys.stdout, "stdout"), (sys.stderr, "stderr")):
        target = os.open(request[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(target, stream.fileno())
        os.close(target)
    faulthandler.register(signal.SIGALRM, all_threads=True, chain=True)
    signal.alarm(HANGS_AFTER_S)  # unlike faulthandler's own timer it is safe in a script that forks
    os.environ.update(request["environment"])
    sys.argv[1:] = request["arguments"]
    try:
        exec(compile(request["body"], "<script>", "exec"), {"__name__": "__main__"})
    except SystemExit:
        raise
    except BaseException:
        traceback.print_exc()
        sys.exit(1)


def answer(value: object) -> None:
    sys.stdout.write(f"{value}\n")
    sys.stdout.flush()


def main() -> int:
    torch.set_num_threads(1)
    assert stepscope.__version__
    answer("ready")
    while line := sys.stdin.readline():
        child = os.fork()
        if child == 0:
            become_script(json.loads(line))
            return 0
        answer(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
