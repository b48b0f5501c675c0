"""Runs the first calls of each compiled graph in eager mode too, and compares (`stepscope run --check-eager`)."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any, Literal, Protocol

import torch
from torch import Tensor

from stepscope.tracer.inductor import captured_graph, eager_runs
from stepscope.tracer.inductor.captured_graph import TRANSFORMS, CapturedGraph
from stepscope.tracer.inductor.compile_layers import CompileLayers, LayerMissing, running
from stepscope.tracer.inductor.float64_mode import WIDER, Float64Mode, Rounding
from stepscope.tracer.judge.backward_check import BackwardCheck, Before, gradients_of
from stepscope.tracer.judge.clones import Clones, NotComparable, copies, with_gradients
from stepscope.tracer.judge.comparison import MOST_DIFFERENCES, Named, References, Side, structure, values
from stepscope.tracer.judge.judge import Tally
from stepscope.tracer.judge.layers import Compare, Found, first_difference, in_new_compile, tried
from stepscope.tracer.judge.memory import is_out_of_memory
from stepscope.tracer.schema.gaps import Skipped
from stepscope.tracer.schema.layer_checks import LayerCheck, TensorDifference
from stepscope.tracer.schema.record import Record

ROUNDINGS: tuple[tuple[Rounding, int], ...] = (("random", 1), ("up", 0), ("down", 0), ("random", 2), ("random", 3))
"""The perturbed runs, in the order in which they are made, with their seeds."""
Compared = tuple[list[TensorDifference], list[TensorDifference]]
RANDOM = "it draws random numbers, and compiled code draws others than eager code"


class Tallied(Protocol):
    """The part of the judge that is used here."""

    @property
    def tally(self) -> Tally: ...


class CheckSink(Protocol):
    """The part of the recorder that is used here."""

    @property
    def judge(self) -> Tallied: ...
    @property
    def is_on(self) -> bool: ...
    def write(self, record: Record) -> None: ...
    def failed(self, where: str, error: BaseException) -> None: ...


class EagerChecks:
    """Wraps compiled graphs so that their first calls are checked."""

    def __init__(self, sink: CheckSink, calls: int, *, with_layers: bool = False) -> None:
        """Create the checks of the first `calls` calls; with `with_layers` what differs is looked for in each layer."""
        self._sink, self._calls = sink, calls
        self._layers = CompileLayers(sink.failed) if with_layers else None

    def capture(self, output_graph: Any, module: Any) -> CapturedGraph | None:
        """Keep the graph that Dynamo is about to pass to a backend. Never raises."""
        try:
            if self._layers is not None:
                self._layers.attach()
            return captured_graph.keep(output_graph, module)
        except Exception as error:
            self._sink.failed("captured graph of the eager check", error)
            return None

    def checked(self, graph: CapturedGraph, compiled: Any) -> Any:
        """Return `compiled` with its first calls checked."""
        check = _GraphCheck(self._sink, graph, compiled, self._calls, with_layers=self._layers is not None)

        @functools.wraps(compiled)
        def run(*args: Any) -> Any:
            return check.call(args) if check.is_due else compiled(*args)

        return run

    def detach(self) -> None:
        """Remove the hooks in the compiler; calls of graphs that were compiled before are no longer checked."""
        if self._layers is not None:
            self._layers.detach()


class _GraphCheck:
    def __init__(self, sink: CheckSink, graph: CapturedGraph, compiled: Any, calls: int, *, with_layers: bool) -> None:
        self._sink, self._graph, self._compiled, self._calls = sink, graph, compiled, calls
        self._with_layers = with_layers
        self._begun = 0
        self._lock = threading.RLock()

    @property
    def is_due(self) -> bool:
        return self._begun < self._calls and self._sink.is_on

    def call(self, args: tuple[Any, ...]) -> Any:
        """Call the compiled graph and check this call. What the compiled code raises is raised."""
        with self._lock:
            call, self._begun = self._begun, self._begun + 1
        can_layer = self._with_layers and not self._graph.own_tensors  # a layer would change them
        inputs = (*args, *self._graph.own_tensors)
        run = _EagerRun(self._sink, self._graph, call, inputs, self._compiled if can_layer else None)
        run.guarded("forward", run.prepare)
        result = self._compiled(*args)
        run.guarded("forward", lambda: run.compare(result))
        return result


class _EagerRun:
    """One checked call."""

    def __init__(
        self, sink: CheckSink, graph: CapturedGraph, call: int, args: tuple[Any, ...], layered: Any | None
    ) -> None:
        """Create it; `layered` is the compiled graph if the layers are compared where the results differ."""
        self._sink, self._graph, self._call, self._args, self._layered = sink, graph, call, args, layered
        self._pristine: list[Any] | None = None

    @property
    def _begins_with_aot(self) -> bool:
        """Whether the graph of AOTAutograd takes the place of Dynamo's, which cannot run twice."""
        return self._graph.obstacle == TRANSFORMS and self._layered is not None

    def guarded(self, phase: Literal["forward", "backward"], function: Callable[[], None]) -> None:
        """Call `function`; if it cannot go on, say why, and check this call no further."""
        try:
            function()
        except NotComparable as reason:
            self._give_up(phase, str(reason))
        except Exception as error:
            if is_out_of_memory(error):
                self._give_up(phase, "there is not enough memory for a second run")
            else:
                self._sink.failed("eager check", error)
                self._give_up(phase, f"the comparison raised {type(error).__name__}: {_first_line(error)}")

    def _give_up(self, phase: Literal["forward", "backward"], why: str) -> None:
        self._pristine = None
        self._write(phase, "not_compared", why, 0, [])

    def prepare(self) -> None:
        if self._graph.obstacle is not None and not self._begins_with_aot:
            raise NotComparable(self._graph.obstacle)
        if eager_runs.is_recording_a_device_graph():
            raise NotComparable("the call is being recorded into a CUDA graph")
        self._states = eager_runs.generator_states()
        self._tally = self._sink.judge.tally
        with eager_runs.apart():
            self._pristine = copies(self._args)
        self._before = Before.of(self._args)

    def compare(self, result: Any) -> None:
        if self._pristine is None:
            return
        after = Side(list(result), list(self._args))
        drawn = eager_runs.generator_states()
        with eager_runs.apart(self._states):
            clones = with_gradients(copies(self._pristine), self._before.like)
            before = Side(self._run(clones), clones.values)
            draws = eager_runs.generator_states()
        if len(before.outputs) != len(after.outputs):
            raise NotComparable("the compiled graph returns another number of outputs")
        is_random = not eager_runs.states_equal(draws, self._states) and not (
            self._graph.draws_alike and eager_runs.states_equal(draws, drawn)
        )
        named = self._named()
        differences = structure(before, after, named)
        off: list[TensorDifference] = []
        if not is_random:
            wrong, off = values(before, after, named, self._graph.eps, self._references)
            differences = [*wrong, *differences]
        found = Found()
        if not is_random:

            def compare(one: Side, other: Side) -> Compared:
                return self._compared(one, other, named, self._references)

            found = self._in_layers((differences, off), before, after, lambda graph: self._in_layer(graph)[1], compare)
        self._conclude("forward", differences, off, len(after.results), RANDOM if is_random else None, found)
        if not is_random and not self._begins_with_aot:
            self.guarded("backward", lambda: self._watch_backward(clones, before, after))

    def _watch_backward(self, clones: Clones, before: Side, after: Side) -> None:
        if not any(leaf is not None for leaf in clones.leaves):
            return
        if eager_runs.traces_backward():
            raise NotComparable("compiled autograd traces the backward")
        check = BackwardCheck(self._before, clones, before.results, self._compare_gradients, self.guarded)
        args, self._args = self._args, ()  # the hooks must not keep an input that the graph has changed, and so itself
        if past := check.watch(after.results, args, self._pristine or ()):
            results = "an output that is a view" if past == 1 else f"{past} outputs that are views"
            why = f"gradients through {results} of inputs do not reach the compiled backward"
            self._sink.write(Skipped(self._what("backward"), why))

    def _compare_gradients(
        self, eager: list[Any], compiled: list[Any], wanted: list[int], gradients: dict[int, Tensor]
    ) -> None:
        """Compare gradients of the inputs `wanted`, given those of the results by position."""

        def references(count: int) -> References:
            runs = [self._gradients_in_float64(mode, wanted, gradients) for mode in self._modes(count)]
            return References(runs[0], runs[1:])

        named = Named([f"gradient of {self._graph.inputs[position]}" for position in wanted])
        before, after = Side([], eager), Side([], compiled)

        def compare(one: Side, other: Side) -> Compared:
            return self._compared(one, other, named, references)

        def run(compiled: Any) -> Side:
            with torch.enable_grad():
                clones, side = self._in_layer(compiled)
            with eager_runs.apart(self._states):
                return Side([], gradients_of(side.results, clones, gradients, wanted))

        differences, off = compare(before, after)
        with torch.enable_grad():  # what is compiled here has a backward
            found = self._in_layers((differences, off), before, after, run, compare)
        self._conclude("backward", differences, off, len(wanted), None, found)

    def _compared(self, before: Side, after: Side, named: Named, references: Callable[[int], References]) -> Compared:
        """Return what differs, and in what only `before` is far from float64."""
        wrong, off = values(before, after, named, self._graph.eps, references)
        return [*wrong, *structure(before, after, named)], off

    def _in_layers(
        self, different: Compared, before: Side, after: Side, run: Callable[[Any], Side], compare: Compare
    ) -> Found:
        """Find the layer of what differs, if that was asked for, or if no kernel of a judged call can be the reason."""
        differences, off = different
        is_wrong = _is_worth_it(differences)
        if self._layered is not None and (is_wrong or off):
            begin: Literal["dynamo", "aot"] = "aot" if self._begins_with_aot else "dynamo"
            found = first_difference(before, after, lambda: run(self._layered), compare, begin)
            if found.is_inductors and begin == "dynamo":
                found.settings = tried(self._graph, self._inputs(), before, run, compare)
            return found
        if is_wrong and self._layered is None and self._kernels_are_right():
            return in_new_compile(self._graph, self._inputs(), before, after, run, compare, self._sink.failed)
        return Found()

    def _kernels_are_right(self) -> bool:
        """Return whether the judge was at work since the call began, and has accused nothing."""
        now = self._sink.judge.tally
        return now.calls > self._tally.calls and now.accused == self._tally.accused

    def _inputs(self) -> list[Any]:
        assert self._pristine is not None
        with eager_runs.apart(self._states):
            return with_gradients(copies(self._pristine), self._before.like).values

    def _in_layer(self, compiled: Any) -> tuple[Clones, Side]:
        """Call a compiled graph on copies; that of the program runs the layer that is switched on."""
        assert self._pristine is not None
        with eager_runs.apart(self._states):
            clones = with_gradients(copies(self._pristine), self._before.like)
            return clones, Side(list(compiled(*clones.values)), clones.values)

    # Runs in float64.

    def _modes(self, count: int) -> list[Float64Mode]:
        return [Float64Mode(), *(Float64Mode(kind, self._graph.eps, seed) for kind, seed in ROUNDINGS[:count])]

    def _references(self, count: int) -> References:
        runs = [self._in_float64(mode)[1].results for mode in self._modes(count)]
        return References(runs[0], runs[1:])

    def _in_float64(self, mode: Float64Mode) -> tuple[Clones, Side]:
        assert self._pristine is not None
        with eager_runs.apart(self._states):
            clones = with_gradients(mode.moved_inputs(copies(self._pristine, WIDER)), self._before.like)
            with mode:
                return clones, Side(self._run(clones), clones.values)

    def _gradients_in_float64(self, mode: Float64Mode, wanted: list[int], gradients: dict[int, Tensor]) -> list[Any]:
        with torch.enable_grad():
            clones, side = self._in_float64(mode)
        wide = {at: one.to(WIDER.get(one.dtype, one.dtype)) for at, one in gradients.items()}
        with eager_runs.apart(self._states), mode:
            return gradients_of(side.results, clones, wide, wanted)

    def _run(self, clones: Clones) -> list[Any]:
        try:
            if self._begins_with_aot:
                return self._run_aot(clones)
            return list(self._graph.module(*clones.values))
        except LayerMissing:
            raise NotComparable(f"{TRANSFORMS}, and AOTAutograd made a joint graph of forward and backward") from None
        except NotComparable:
            raise
        except Exception as error:  # not every operator that can be compiled runs in eager mode
            if is_out_of_memory(error):
                raise
            raise NotComparable(f"the eager run raised {type(error).__name__}: {_first_line(error)}") from None

    def _run_aot(self, clones: Clones) -> list[Any]:
        assert self._layered is not None
        with running("aot") as ran:
            results = list(self._layered(*clones.values))
        if not ran:
            raise NotComparable(f"{TRANSFORMS}, and the one of AOTAutograd came from a cache")
        return results

    # Records.

    def _named(self) -> Named:
        outputs = [f"output {position}" for position in range(len(self._graph.output_lines))]
        inputs = [f"input {name} after the call" for name in self._graph.inputs]
        return Named([*outputs, *inputs], [*self._graph.output_lines, *self._graph.input_lines])

    def _conclude(
        self,
        phase: Literal["forward", "backward"],
        differences: list[TensorDifference],
        off: list[TensorDifference],
        tensors: int,
        why: str | None,
        found: Found,
    ) -> None:
        if _is_worth_it(differences):
            self._write(phase, "differs", why, tensors, differences, found)
        elif why is not None:
            self._write(phase, "not_compared", why, tensors, [])
        else:
            verdict = "eager_is_off" if off else "agrees"
            self._write(phase, verdict, None, tensors, [*off, *differences], found)

    def _what(self, phase: Literal["forward", "backward"]) -> str:
        frame = self._graph.frame
        return f"comparison of {frame.function if frame else 'a graph'} with eager mode ({phase})"

    def _write(
        self, phase: Literal["forward", "backward"], verdict: Any, why: str | None, tensors: int,
        differences: list[TensorDifference], found: Found | None = None,
    ) -> None:  # fmt: skip
        graph = self._graph
        right = "aot" if self._begins_with_aot else "eager"
        if verdict == "not_compared":
            self._sink.write(Skipped(self._what(phase), why or ""))
        self._sink.write(
            LayerCheck(
                graph.compile_id, self._call, phase, right, "compiled", verdict, why, tensors,
                len({one.name for one in differences}), graph.frame, differences[:MOST_DIFFERENCES],
                found.steps if found else [], found.nodes if found else [],
                found.settings if found else [], found.lines if found else [],
                found.change if found else [],
            )
        )  # fmt: skip


def _is_worth_it(differences: list[TensorDifference]) -> bool:
    """Return whether there is a difference other than of strides, which fake tensors often predict wrongly."""
    return any(one.what != "strides" for one in differences)


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [""])[0][:300]
