"""Observes captures and replays of CUDA graphs by wrapping the methods of `torch.cuda.CUDAGraph`."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from stepscope.tracer.log.writer import is_from_handler

METHODS = "capture_begin", "capture_end", "replay", "reset"


class Replays:
    """Calls back when graphs are captured, replayed and reset, and knows which graph is being captured.

    Exceptions of the callbacks do not reach the program, except those that its own signal handlers raise.
    """

    def __init__(
        self,
        on_replay: Callable[[Any, bool], None],
        on_capture: Callable[[Any, bool], None] | None = None,
        on_reset: Callable[[Any], None] | None = None,
    ) -> None:
        """Create the observer; the methods are wrapped by `attach`.

        `on_replay(graph, begins)` is called before and after a replay is submitted, in its thread and stream;
        `on_capture(graph, begins)` before a capture begins and before it ends; `on_reset(graph)` before a reset.
        """
        self._on_replay, self._on_capture, self._on_reset = on_replay, on_capture, on_reset
        self._original: dict[str, Any] = {}
        self._wrappers: dict[str, Any] = {}
        self._captured: dict[int, Any] = {}
        self._lock = threading.Lock()

    def current(self) -> Any:
        """Return the CUDAGraph that this thread, or the only capturing thread, is capturing; else None.

        Backward passes run in autograd's threads, while the thread that called them is capturing.
        """
        captured = self._captured
        if not captured:
            return None
        with self._lock:
            graph = captured.get(threading.get_ident())
            return graph if graph is not None or len(captured) > 1 else next(iter(captured.values()), None)

    def is_capturing(self) -> bool:
        """Return whether any thread is capturing a graph."""
        return bool(self._captured)

    def attach(self) -> None:
        """Wrap the methods; does nothing if torch has no CUDA graphs."""
        import torch

        graph = getattr(torch.cuda, "CUDAGraph", None)
        if graph is None or self._original or not all(hasattr(graph, name) for name in METHODS):
            return
        for name in METHODS:
            self._original[name] = graph.__dict__.get(name)
            self._wrappers[name] = getattr(self, f"_{name}")(getattr(graph, name))
            setattr(graph, name, self._wrappers[name])

    def detach(self) -> None:
        """Restore the methods; those that other code has wrapped meanwhile stay, and only pass calls on."""
        import torch

        for name, before in self._original.items():
            if torch.cuda.CUDAGraph.__dict__.get(name) is not self._wrappers[name]:
                continue
            if before is None:
                delattr(torch.cuda.CUDAGraph, name)
            else:
                setattr(torch.cuda.CUDAGraph, name, before)
        self._original.clear()
        self._wrappers.clear()
        self._captured.clear()

    def _tell(self, what: Callable[..., None] | None, *arguments: Any) -> None:
        if what is not None and self._original:
            try:
                what(*arguments)
            except Exception as error:
                if is_from_handler(error):
                    raise

    def _capture_begin(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def capture_begin(graph: Any, *args: Any, **kwargs: Any) -> Any:
            self._tell(self._on_capture, graph, True)
            with self._lock:
                self._captured[threading.get_ident()] = graph
            try:
                return method(graph, *args, **kwargs)
            except BaseException:
                self._forget(graph)
                raise

        return capture_begin

    def _capture_end(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def capture_end(graph: Any, *args: Any, **kwargs: Any) -> Any:
            self._tell(self._on_capture, graph, False)
            self._forget(graph)
            return method(graph, *args, **kwargs)

        return capture_end

    def _forget(self, graph: Any) -> None:
        with self._lock:
            for thread in [thread for thread, captured in self._captured.items() if captured is graph]:
                del self._captured[thread]

    def _replay(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def replay(graph: Any, *args: Any, **kwargs: Any) -> Any:
            self._tell(self._on_replay, graph, True)
            result = method(graph, *args, **kwargs)
            self._tell(self._on_replay, graph, False)
            return result

        return replay

    def _reset(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def reset(graph: Any, *args: Any, **kwargs: Any) -> Any:
            self._tell(self._on_reset, graph)
            return method(graph, *args, **kwargs)

        return reset
