"""A pre-forking server: the parent imports torch, its workers compile and answer over pipes until SIGTERM."""

from __future__ import annotations

import os
import signal
import sys
from multiprocessing.connection import Connection, Pipe

import torch

WORKERS, REQUESTS = 2, 4


def model(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.gelu(x @ x.T).softmax(-1).sum(0)


def serve(requests: Connection) -> None:
    """What a worker does until it is stopped."""
    torch.set_num_threads(1)
    compiled = torch.compile(model)
    with torch.inference_mode():
        while True:
            seed = requests.recv()
            requests.send(compiled(torch.randn(8, 8, generator=torch.Generator().manual_seed(seed))).sum().item())


def forked(at_end: str) -> tuple[int, Connection]:
    """Start a worker; `at_end` says how it goes: by SIGTERM, or by os._exit(0) once its pipe is closed."""
    here, there = Pipe()
    pid = os.fork()
    if pid:
        there.close()
        return pid, here
    here.close()
    try:
        serve(there)
    except EOFError:
        sys.stdout.flush()
    os._exit(0 if at_end == "exit" else 1)


def main(at_end: str) -> None:
    workers = []
    for _ in range(WORKERS):
        workers.append(forked(at_end))
    answers = []
    for request in range(WORKERS * REQUESTS):
        pipe = workers[request % WORKERS][1]
        pipe.send(request)
        answers.append(pipe.recv())
    for pid, pipe in reversed(workers):  # a later worker holds the pipes of those before it
        if at_end == "exit":
            pipe.close()
        else:
            os.kill(pid, signal.SIGTERM)
        print("WORKER ended with", os.waitpid(pid, 0)[1])
    print("ANSWERS", " ".join(f"{answer:.8f}" for answer in answers))
    print(f"ITERATIONS {len(answers)}")


if __name__ == "__main__":
    main("terminated")
