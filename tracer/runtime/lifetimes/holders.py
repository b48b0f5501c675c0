"""Finds and describes the holders that keep a storage alive.

The search looks at Python's objects through the garbage collector, at the local variables of running functions, and at
tensors that autograd has saved. It keeps none of these objects alive for longer than it runs.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from threading import Lock, get_ident
from time import monotonic, perf_counter_ns
from types import CellType, FrameType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

from stepscope.tracer.inductor.compat import without_modes
from stepscope.tracer.inductor.tensor_owners import saved_tensors
from stepscope.tracer.runtime.lifetimes.referrers import (
    attribute_words,
    container_words,
    held_by,
    is_container,
    is_dict_of,
    locals_by_identity,
    module_dicts,
    subscript,
    subscripted,
)

if TYPE_CHECKING:
    import torch

MOST_STORAGES = 64
MOST_WORDS = 8
"""Maximum number of holders per storage."""
MOST_NODES = 2000
LEVELS = 4
SECONDS = 2.0
GRAPH_OF = "the autograd graph of a tensor"
UNKNOWN = "not found: autograd, C++ or a running function holds it"
UNNAMED = "which a running function or C++ holds"


@dataclass(slots=True)
class Held:
    """What keeps a storage alive."""

    words: list[str]
    """Descriptions of the holders, such as ``list of 3 in keep of __main__``; empty if they were not found."""
    tensor_bytes: int = 0
    """Bytes of the elements that the tensors show which were found in the storage; 0 if none was."""


def find_holders(storages: Sequence[torch.UntypedStorage], seconds: float = SECONDS) -> list[list[str]]:
    """Return the words of `find_held`."""
    return [one.words for one in find_held(storages, seconds)]


def find_held(storages: Sequence[torch.UntypedStorage], seconds: float = SECONDS) -> list[Held]:
    """Return what keeps each storage alive.

    Nothing is known of storages after the first 64, if the time (`seconds`) is over, or if the search failed. A view's
    holders count too. The search looks through the whole heap, which takes some tenths of a second. Raises nothing.
    """
    held = [Held([]) for _ in storages]
    with _searches.one(), suppress(Exception), without_modes():
        _Search(storages, monotonic() + seconds).run(held)
    return held


def find_places(objects: Sequence[Any], seconds: float = SECONDS) -> list[list[str]]:
    """Return for each of a few containers or tensors what holds it, as in ``list of 3 in keep of __main__``.

    Lists are empty if nothing with a name was found. Raises nothing.
    """
    found: list[list[str]] = [[] for _ in objects]
    with _searches.one(), suppress(Exception), without_modes():
        _Search(objects, monotonic() + seconds).run_places(found)
    return found


def searching() -> AbstractContextManager[None]:
    """Return a context for code that keeps tensors of the program alive as a search does."""
    return _searches.one()


def overlapped(start_ns: int) -> bool:
    """Return whether another thread has searched since `start_ns` (`perf_counter_ns`), which may delay deaths."""
    return _searches.elsewhere_since(start_ns, get_ident())


def describe_holders(held: Sequence[str]) -> str:
    """Return the holders of a storage as the end of a sentence; empty if they were not searched."""
    if len(held) == 1 and held[0].startswith(UNKNOWN):
        return f"; its holder was {held[0]}"
    return f"; it is held by {', '.join(held)}" if held else ""


class _Searches:
    """The running and last searches. A search refers to all tensors of the process, so none dies in its thread."""

    def __init__(self) -> None:
        self._running: list[int] = []
        """Threads that are searching now."""
        self._ended: list[tuple[int, int]] = []
        """(end in ns, thread) of the last search, and of the last search of any other thread."""
        self._lock = Lock()

    @contextmanager
    def one(self) -> Iterator[None]:
        """Note that this thread searches."""
        thread = get_ident()
        with self._lock:
            self._running.append(thread)
        try:
            yield
        finally:
            with self._lock:
                self._running.remove(thread)
                others = [entry for entry in self._ended if entry[1] != thread]
                self._ended = [(perf_counter_ns(), thread), *others[:1]]

    def elsewhere_since(self, start_ns: int, thread: int) -> bool:
        with self._lock:
            ended = any(ns >= start_ns for ns, other in self._ended if other != thread)
            return ended or any(other != thread for other in self._running)


_searches = _Searches()


@dataclass(eq=False, slots=True)
class _Node:
    """An object on the path from a storage to a holder with a name."""

    value: Any
    position: int
    words: str
    """Description of the path so far, without dicts at its end; empty for a tensor of the storage."""
    inner: Any = None
    """The previous node on the path, if it is needed to describe this one."""
    depth: int = 0
    subscripts: str = ""
    """Subscripts by which such dicts have what is described so far."""
    dict_words: str = ""
    """Description of the outermost of these dicts."""

    @property
    def whole(self) -> str:
        """Description of the path with these dicts."""
        own = f"value {self.subscripts} of a {self.dict_words}" if self.subscripts else ""
        return " in ".join(filter(None, (self.words, own)))


def _frozen() -> str:
    """Return what else may be a holder: the collector does not tell of objects that the program has frozen."""
    return ", or an object that gc.freeze() hides" if gc.get_freeze_count() else ""


class _Search:
    def __init__(self, storages: Sequence[Any], deadline: float) -> None:
        self._wanted = {id(storage): n for n, storage in enumerate(storages[:MOST_STORAGES])}
        self._storages = storages
        self._deadline = deadline
        self._ours: set[int] = {id(storages)}
        self._found: list[set[str]] = [set() for _ in storages]
        self._saved: list[set[str]] = [set() for _ in storages]
        self._shown: list[dict[object, int]] = [{} for _ in storages]
        """Bytes of the found tensors by what they show."""

    def run(self, held: list[Held]) -> None:
        if not self._wanted:
            return
        everything = gc.get_objects()  # keeps reference cycles alive, which a collection during the search would free
        self._ours.add(id(everything))
        tensors, roots = self._tensors(everything)
        graphs = self._graphs(roots)
        del roots
        nodes = [_Node(tensor, position, "") for tensor, position in tensors]
        nodes += [_Node(self._storages[position], position, "") for position in self._wanted.values()]
        nodes += graphs
        del graphs
        self._ours |= {id(tensors), *map(id, tensors)}
        self._climb(nodes)
        is_in_time = monotonic() < self._deadline
        for position in self._wanted.values():
            held[position].tensor_bytes = min(sum(self._shown[position].values()), self._storages[position].nbytes())
            found = sorted(self._words(position), key=len)[:MOST_WORDS]
            held[position].words = found or ([UNKNOWN + _frozen()] if is_in_time else [])

    def run_places(self, found: list[list[str]]) -> None:
        nodes = [
            _Node(one, position, container_words(one) if is_container(one) else "")
            for position, one in enumerate(self._storages)
        ]
        self._climb(nodes)
        for position, words in enumerate(self._found[: len(found)]):
            found[position] = sorted(words, key=len)[:MOST_WORDS]

    def _climb(self, nodes: list[_Node]) -> None:
        """Note what holds the objects of `nodes`, level by level."""
        self._locals, own = locals_by_identity()
        self._modules = module_dicts()
        self._ours |= own | {id(nodes), id(self._found), id(self.__dict__)}
        while nodes and monotonic() < self._deadline:
            self._locally(nodes)
            nodes = self._level(nodes)

    def _tensors(self, everything: list[Any]) -> tuple[list[tuple[Any, int]], list[Any]]:
        """Return the tensors of the storages with the storages' positions, and all tensors that have a `grad_fn`."""
        tensors, roots = [], []
        is_tensor: dict[type, bool] = {}
        for value in everything:
            kind = type(value)
            if kind not in is_tensor:
                is_tensor[kind] = self._is_tensor(value)
            if not is_tensor[kind]:
                continue
            position = self._position(value)
            if position is not None:
                tensors.append((value, position))
            try:
                if value.grad_fn is not None:
                    roots.append(value)
                elif value.grad is not None and (position := self._position(value.grad)) is not None:
                    self._note_size(position, value.grad)
                    self._found[position].add(f"gradient of a {type(value).__name__} of shape {list(value.shape)}")
            except (RuntimeError, NotImplementedError, AttributeError):
                continue
        return tensors, roots

    def _position(self, tensor: Any) -> int | None:
        try:
            return self._wanted.get(id(tensor.untyped_storage()))
        except (RuntimeError, NotImplementedError, AttributeError):  # sparse, functional: no storage of its own
            return None

    @staticmethod
    def _is_tensor(value: Any) -> bool:
        import torch

        return issubclass(type(value), torch.Tensor)

    def _note_size(self, position: int, tensor: Any) -> None:
        self._shown[position][tensor.storage_offset(), tensor.size(), tensor.stride(), tensor.dtype] = tensor.nbytes

    def _graphs(self, roots: Iterable[Any]) -> list[_Node]:
        """Note what autograd has saved, and return the tensors whose graphs hold it."""
        owners: dict[tuple[int, int], _Node] = {}
        for root, name, tensor in saved_tensors(roots, self._deadline):
            position = self._position(tensor)
            if position is not None:
                self._note_size(position, tensor)
                self._saved[position].add(f"autograd: saved for the backward of {name}")
                owners.setdefault((id(root), position), _Node(root, position, GRAPH_OF))
        return list(owners.values())

    def _words(self, position: int) -> set[str]:
        """Return the holders of a storage; what saved it only if nothing that holds the graph has a name."""
        found = self._found[position]
        return found if any(GRAPH_OF in words for words in found) else found | self._saved[position]

    def _locally(self, nodes: Iterable[_Node]) -> None:
        for node in nodes:
            for place in self._locals.get(id(node.value), ()):
                self._say(node, place)

    def _say(self, node: _Node, place: str) -> None:
        variable = subscripted(place, node.subscripts) if node.subscripts else None
        if variable is not None:
            words, place = node.words, f"{variable} ({node.dict_words})"
        else:
            words = node.whole
        self._found[node.position].add(f"{words} in {place}" if words else place)

    def _level(self, nodes: list[_Node]) -> list[_Node]:
        """Note the referrers of `nodes` that have names, and return the others as the nodes of the next level."""
        by_identity: dict[int, list[_Node]] = {}
        for node in nodes:
            by_identity.setdefault(id(node.value), []).append(node)
        values = [node.value for node in nodes]
        following: list[_Node] = []
        self._ours |= {id(values), id(by_identity), id(following), *map(id, nodes), *map(id, by_identity.values())}
        referrers = gc.get_referrers(*values)
        self._ours.add(id(referrers))
        named: set[int] = set()
        for referrer in referrers:
            if id(referrer) in self._ours or type(referrer) is _Node or monotonic() > self._deadline:
                continue
            for inner in {id(one): one for one in gc.get_referents(referrer) if id(one) in by_identity}.values():
                for node in by_identity[id(inner)]:
                    named.add(id(node))
                    self._step(node, referrer, following)
        if monotonic() > self._deadline:  # some referrers were not looked at, so other holders may exist
            return []
        for node in nodes:
            is_held = id(node) in named or bool(self._locals.get(id(node.value)))
            if is_held and not node.words and self._is_tensor(node.value):  # not the base that only a view holds
                self._note_size(node.position, node.value)
            if not is_held and node.depth and node.whole:
                self._found[node.position].add(f"{node.whole}, {UNNAMED}{_frozen()}")
        return following[:MOST_NODES]

    def _step(self, node: _Node, referrer: Any, following: list[_Node]) -> None:
        module = self._modules.get(id(referrer))
        if module is not None:
            for key, value in list(referrer.items()):
                if value is node.value:
                    self._say(node, f"{key} of {module}")
        elif type(referrer) is ModuleType:
            return
        elif type(referrer) is FrameType:
            name = held_by(referrer).get(id(node.value))
            variable = f"local variable {name}" if name is not None else "a local variable"
            self._say(node, f"{variable} of {referrer.f_code.co_name}(), which has ended but is kept by a traceback")
        elif is_container(referrer) or type(referrer) is CellType:
            self._go_on(node, referrer, following)
        elif type(referrer) is FunctionType:
            self._say(node, _function_words(node, referrer))
        else:
            self._say_attribute(node, referrer)

    def _go_on(self, node: _Node, referrer: Any, following: list[_Node]) -> None:
        holder = _Node(referrer, node.position, node.words, None, node.depth + 1, node.subscripts, node.dict_words)
        if type(node.value) is not CellType and type(referrer) is not CellType:
            own, key = container_words(referrer), subscript(referrer, node.value)
            if key is not None:
                holder.subscripts, holder.dict_words = key + node.subscripts, own
            else:
                holder.words = f"{node.whole} in {own}" if node.whole else own
                holder.subscripts = ""
        if holder.depth < LEVELS:
            if type(node.value) is CellType or type(referrer) is dict:
                holder.inner = node
            following.append(holder)
        else:
            self._found[node.position].add(holder.whole)

    def _say_attribute(self, node: _Node, referrer: Any) -> None:
        """Note `referrer`, which has `node`'s object as an attribute or as the dict of its attributes."""
        held = node
        if type(node.value) is dict and node.inner is not None and is_dict_of(node.value, referrer):
            held = node.inner
        self._say(held, attribute_words(referrer, held.value))


def _function_words(node: _Node, function: FunctionType) -> str:
    cell = node.inner.value if node.inner is not None else None
    for name, one in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        if one is cell:
            return f"closure variable {name} of {function.__qualname__}()"
    return f"the defaults or attributes of {function.__qualname__}()"
