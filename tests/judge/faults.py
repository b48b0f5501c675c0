"""Plants faults in compiled models and counts which of them the judge names.

``python -m tests.judge.faults [--dtype float32] [--most N] [MODEL...]``: each C++ kernel is replaced by variants of its
source with one fault each, and each wrapper is loaded with a dropped launch, a wrong stride, or memory that is reused
too early. A fault is *visible* if it changes a result or a gradient. It is *exact* if the judge names that kernel (or,
for a wrapper, that kernel or buffer), and nothing else.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch._inductor.config as inductor_config
from torch import Tensor
from torch._inductor.codecache import PyCodeCache

import stepscope
from tests.judge.cpp_variants import Kernel, compiled, kernels_of
from tests.judge.healthy import shown
from tests.judge.models import MODELS
from tests.judge.mutations import CPP, TRITON, WrapperFault, faults_of, wrapper_faults
from tests.judge.other_models import OTHER_MODELS
from tests.judge.reading import Judged, judged_in
from tests.judge.triton_variants import compiled_triton, triton_kernels_of
from tests.judge.wrapper_changes import changed_wrappers


def step_of(name: str, dtype: torch.dtype, device: str = "cpu") -> Callable[[], list[Tensor]]:
    """Return a function that runs one training step of a model and returns its results and gradients."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    model, inputs = (MODELS | OTHER_MODELS)[name]()
    model = model.to(device, dtype)
    inputs = tuple(x.to(device, dtype if x.is_floating_point() else x.dtype) for x in inputs)
    run = torch.compile(model)
    weights = torch.rand(100_000, device=device) + 0.5

    def step() -> list[Tensor]:
        torch.manual_seed(1)
        model.zero_grad(set_to_none=True)
        out = run(*inputs)
        (out.float() * weights[: out.numel()].view(out.shape)).sum().backward()
        gradients = [p.grad.clone() for p in model.parameters() if p.grad is not None]
        return [out.detach().clone(), *gradients]

    return step


def differ(a: list[Tensor], b: list[Tensor]) -> bool:
    return any(not torch.equal(x, y) for x, y in zip(a, b, strict=True))


class Score:
    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()
        self.innocent = 0

    def add(
        self, place: str, kind: str, visible: bool, named: set[str], guilty: tuple[str, ...], suspects: set[str],
        found: Judged,
    ) -> None:  # fmt: skip
        is_named, others = bool(named & set(guilty)), named - set(guilty)
        if not named and suspects & set(guilty):
            self.counts[kind, "one of several suspects"] += visible
            self.counts[kind, "visible"] += visible
            return
        self.innocent += bool(others)
        outcome = "exact" if is_named and not others else "with others" if is_named else "missed"
        self.counts[kind, outcome if visible or outcome != "missed" else "invisible"] += 1
        self.counts[kind, "visible"] += visible
        self.counts[kind, "visible exact"] += visible and outcome == "exact"
        if (visible and outcome != "exact") or others:
            print(f"  {place}: {kind}: {outcome}; named {sorted(named)}, guilty {guilty}", flush=True)
            print("".join(f"  {line}\n" for line in shown(found)), end="", flush=True)

    def report(self) -> None:
        kinds = sorted({kind for kind, _ in self.counts})
        for kind in kinds:
            found = {outcome: n for (one, outcome), n in self.counts.items() if one == kind and n}
            print(f"{kind}: {found}")
        visible = sum(n for (_, outcome), n in self.counts.items() if outcome == "visible")
        exact = sum(n for (_, outcome), n in self.counts.items() if outcome == "visible exact")
        print(f"{exact} of {visible} visible faults named exactly, {self.innocent} with an innocent kernel accused")


def wrappers() -> dict[str, Any]:
    return {str(module.__file__): module for module in PyCodeCache.modules if hasattr(module, "call")}


def kernel_faults(name: str, dtype: torch.dtype, most: int, score: Score, folder: Path, device: str = "cpu") -> None:
    before = set(wrappers())
    with stepscope.trace(folder, judge="every:1"):
        step = step_of(name, dtype, device)
        right = step()
        stepscope.step()
        modules = {path: module for path, module in wrappers().items() if path not in before}
        planned: list[tuple[Any, str, str, Kernel]] = []
        for path, module in modules.items():
            text = Path(path).read_text("utf-8")
            definitions = kernels_of(text) if device == "cpu" else triton_kernels_of(text)
            for kernel, definition in definitions.items():
                for fault in faults_of(definition.source, CPP if device == "cpu" else TRITON, most):
                    planned.append((module, kernel, fault.kind, Kernel(definition.types, fault.source)))
        sources = {n: one[3] for n, one in enumerate(planned)}
        with tempfile.TemporaryDirectory() as scratch:
            variants = compiled(sources, Path(scratch)) if device == "cpu" else compiled_triton(sources)
        done: list[tuple[int, bool]] = []
        for number, function in variants.items():
            module, kernel, _, _ = planned[number]
            original = getattr(module, kernel)
            setattr(module, kernel, function)
            try:
                done.append((number, differ(step(), right)))
            except RuntimeError as error:
                print(f"  {name}: {kernel}: {str(error)[:200]}", flush=True)
            finally:
                setattr(module, kernel, original)
            stepscope.step()
    found = judged_in(folder)
    positions = {number: position for position, number in enumerate(variants, 1)}
    for number, visible in done:
        _, kernel, kind, _ = planned[number]
        position = positions[number]
        place = f"{name} {dtype}".replace("torch.", "")
        of_step = found.of_step(position)
        score.add(place, kind, visible, named_in(of_step), (kernel,), suspects_in(of_step), of_step)
    if healthy := named_in(found.of_step(0)):
        print(f"  {name} {dtype}: healthy, but accused {healthy}")
        score.innocent += 1
    left = len(planned) - len(variants)
    print(f"{name} {dtype}: {len(done)} faults, {left} do not compile", flush=True)


def named_in(found: Judged) -> set[str]:
    return {found.kernel(one) for one in found.wrong()} | {one["buffer"] for one in found.inputs}


def suspects_in(found: Judged) -> set[str]:
    """Return the kernels one of which is wrong, by what cannot tell them apart."""
    names: set[str] = set()
    for one in found.suspects():
        launches = [site for call in found.calls if call["call"] == one["call"] for site in _launch_sites(call)]
        kernels = found.sites[one["graph"]]
        names |= {kernels[launches[position]]["kernel"] for position in one["suspects"] if position < len(launches)}
        names.add(found.kernel(one))
    return names


def _launch_sites(call: dict[str, Any]) -> list[int]:
    """Return the site of each launch of a call without branches, in which every launch wrote something."""
    return [site for _, site in sorted(dict(zip(call["launch"], call["site"], strict=True)).items())]


def wrapper_fault(name: str, dtype: torch.dtype, fault: WrapperFault, original: str, right: list[Tensor], score: Score,
                  folder: Path) -> None:  # fmt: skip
    """Judge a model of which one wrapper has a fault."""
    with stepscope.trace(folder, judge="first"):
        step = step_of(name, dtype)
        with changed_wrappers(lambda text: fault.source if text == original else text):
            try:
                visible = differ(step(), right)
            except RuntimeError as error:  # an index that no kernel wrote
                print(f"  {name}: {fault.kind}: {str(error)[:200]}", flush=True)
                return
    found = judged_in(folder)
    named = {one["buffer"] for one in found.inputs}
    if fault.kind == "wrong stride" or not named:  # else the launch that reads the wrong contents is named with them
        named |= {found.kernel(one) for one in found.wrong()}
    score.add(f"{name} {dtype}".replace("torch.", ""), fault.kind, visible, named, fault.guilty, set(), found)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("models", nargs="*", default=[])
    parser.add_argument("--dtype", nargs="*", default=["float32", "bfloat16"])
    parser.add_argument("--most", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--wrappers", action="store_true", help="plant faults in wrappers, too")
    parser.add_argument("--other", action="store_true", help="use the further models")
    parser.add_argument("--threads", type=int, default=1, help="several add atomically, in another order in each step")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.device == "cuda":  # else the autotuner chooses another order of sums for some variants, which is visible
        inductor_config.deterministic = True
    score = Score()
    for name in options.models or (OTHER_MODELS if options.other else MODELS):
        for text in options.dtype:
            dtype = getattr(torch, text)
            with tempfile.TemporaryDirectory() as folder:
                before = set(wrappers())
                kernel_faults(name, dtype, options.most, score, Path(folder), options.device)
                sources = [Path(path).read_text("utf-8") for path in wrappers() if path not in before]
            if not options.wrappers:
                continue
            right = step_of(name, dtype)()
            for source in sources:
                for fault in wrapper_faults(source):
                    with tempfile.TemporaryDirectory() as folder:
                        wrapper_fault(name, dtype, fault, source, right, score, Path(folder))
    score.report()
    return score.innocent > 0


if __name__ == "__main__":
    sys.exit(main())
