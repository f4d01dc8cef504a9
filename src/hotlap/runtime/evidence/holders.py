"""Which of the user's variables hold more tensors with every step, or carry their graph on from step to step.

The variables of the running functions are scanned a few times, and those that grew from each scan to the next are
reported. A scan visits a bounded number of objects, keeps only names and numbers, and calls nothing on an object that
could run the user's code.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from types import CodeType, FunctionType, ModuleType
from typing import Any

from hotlap.evidence import MemoryHolder
from hotlap.records import CallSite
from hotlap.runtime.evidence.emptied import Running, emptied_by, emptied_in_a_loop, gone_when_it_returns
from hotlap.runtime.evidence.graph_depth import accumulations
from hotlap.runtime.evidence.growth_lines import growing_line
from hotlap.runtime.evidence.variables import Namespace, namespaces, running_on_the_stack

FEWEST_LOOKS = 3
MOST_HOLDERS = 16
_MOST_VISITED = 100_000
_MOST_IN_ONE = 20_000
_MOST_GRAPHS = 64
_CONTAINER_DEPTH = 3
_OBJECT_DEPTH = 2
_MOST_OBJECTS = 32
"""A container with more of the user's objects holds data; one with fewer may hold what collects it, as meters."""

_SEQUENCES = (list, tuple, set, deque)
_MAPPINGS = (dict, OrderedDict, defaultdict)
_NOT_LOOKED_INTO = (type, ModuleType, FunctionType)
_REGISTERED = frozenset({"_parameters", "_buffers", "_modules"})
"""Of a module: what it registered is its own, and does not grow."""


@dataclass(frozen=True, slots=True)
class _Key:
    file: str
    function: str
    path: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Held:
    """What a variable held when it was looked at; ``owner`` is the class of the object that it is an attribute of."""

    step: int
    tensors: int
    bytes: int
    holds_graph: bool
    owner: type | None


class Holders:
    """The history of every variable that could be a holder, over all scans."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._histories: dict[_Key, list[_Held]] = {}
        self._running: tuple[Running, ...] = ()

    def look(self, step: int) -> None:
        """Look at the variables now; ``step`` is the number of steps done. Called from within the user's step: where
        none of the user's functions is running any more, there is nothing to see."""
        running = running_on_the_stack()
        if not running:
            return
        self._running = running
        found = dict(_Look(self._torch, step).all())
        for key in [it for it in self._histories if it not in found]:
            del self._histories[key]
        for key, held in found.items():
            history = self._histories.setdefault(key, [])
            if not history or history[-1].step < step:
                history.append(held)

    def result(self) -> tuple[MemoryHolder, ...]:
        """The variables that grew from each scan to the next, the fastest first."""
        grown = [self._holder(key, history) for key, history in self._histories.items() if _always_grew(history)]
        return tuple(sorted(grown, key=lambda it: -it.tensors_per_step)[:MOST_HOLDERS])

    def _holder(self, key: _Key, history: list[_Held]) -> MemoryHolder:
        first, last = history[0], history[-1]
        return MemoryHolder(
            name=".".join(key.path),
            tensors=last.tensors,
            bytes=last.bytes,
            tensors_per_step=(last.tensors - first.tensors) / (last.step - first.step),
            holds_graph=last.holds_graph,
            emptied=self._is_emptied(key, last.owner),
            site=self._site(key, last.owner),
        )

    def _site(self, key: _Key, owner: type | None) -> CallSite | None:
        codes = [it.code for it in self._running]
        return (
            growing_line(codes, key.path)
            or growing_line(_methods(owner), ("self", key.path[-1]))
            or growing_line(_made_in(codes), key.path)
        )

    def _is_emptied(self, key: _Key, owner: type | None) -> bool:
        if emptied_in_a_loop(self._running, key.path):
            return True
        if len(key.path) == 1:
            return gone_when_it_returns(self._running, key.function, key.path[0])
        made = [it for it in _methods(owner) if it.co_name != "__init__"]
        return emptied_by(made, ("self", key.path[-1]))


def _methods(owner: type | None) -> list[CodeType]:
    """The code of a class's methods, and of the functions that are made in them, such as hooks."""
    methods = [it.__code__ for it in vars(owner).values() if type(it) is FunctionType] if owner else []
    return [*methods, *(inner for it in methods for inner in it.co_consts if type(inner) is CodeType)]


def _made_in(codes: Iterable[CodeType]) -> Iterator[CodeType]:
    """The functions that are written in these, and in those: a hook is called when none of them is on the stack."""
    for code in codes:
        inner = [it for it in code.co_consts if type(it) is CodeType]
        yield from inner
        yield from _made_in(inner)


def _always_grew(history: list[_Held]) -> bool:
    return len(history) >= FEWEST_LOOKS and all(later.tensors > earlier.tensors for earlier, later in pairwise(history))


class _Look:
    """One scan of all variables. Each object is visited once, under the first name that leads to it."""

    def __init__(self, torch: Any, step: int) -> None:
        self._tensor_types = (torch.Tensor, torch.nn.Parameter)
        self._step = step
        self._left = _MOST_VISITED
        self._graphs_left = _MOST_GRAPHS
        self._seen: set[int] = set()

    def all(self) -> Iterator[tuple[_Key, _Held]]:
        for space in namespaces():
            self._seen.add(id(space.variables))
            yield from self._among(space, (), space.variables, None)

    def _among(
        self, space: Namespace, path: tuple[str, ...], variables: Iterable[tuple[str, Any]], owner: type | None
    ) -> Iterator[tuple[_Key, _Held]]:
        for name, value in variables:
            self._left -= 1
            if self._left < 0:
                return
            if type(name) is not str or name.startswith("__") or (owner is not None and name in _REGISTERED):
                continue
            kind = type(value)
            key = _Key(space.file, space.function, (*path, name))
            if kind in self._tensor_types:
                yield from self._accumulated(key, value, owner)
            elif kind in _SEQUENCES or kind in _MAPPINGS:
                yield from self._contained(key, value, owner)
                yield from self._objects_in(space, key.path, value)
            elif len(path) < _OBJECT_DEPTH:
                yield from self._attributes(space, key.path, value)

    def _objects_in(self, space: Namespace, path: tuple[str, ...], container: Any) -> Iterator[tuple[_Key, _Held]]:
        """What the user's objects in a small container hold: their names are ``meters['loss'].values``."""
        if len(container) > _MOST_OBJECTS or len(path) > _OBJECT_DEPTH or type(container) is set:
            return
        items = container.items() if type(container) in _MAPPINGS else enumerate(container)
        for index, value in list(items):
            if type(index) in (str, int):
                yield from self._attributes(space, (*path[:-1], f"{path[-1]}[{index!r}]"), value)

    def _attributes(self, space: Namespace, path: tuple[str, ...], value: Any) -> Iterator[tuple[_Key, _Held]]:
        kind = type(value)
        if issubclass(kind, _NOT_LOOKED_INTO) or kind.__module__.partition(".")[0] == "torch" or not self._new(value):
            return
        try:
            attributes = object.__getattribute__(value, "__dict__")
        except AttributeError:
            return
        if type(attributes) is dict:
            yield from self._among(space, path, list(attributes.items()), kind)

    def _new(self, value: Any) -> bool:
        if id(value) in self._seen:
            return False
        self._seen.add(id(value))
        return True

    def _accumulated(self, key: _Key, tensor: Any, owner: type | None) -> Iterator[tuple[_Key, _Held]]:
        """A single tensor counts as often as it was accumulated with its graph."""
        if tensor.grad_fn is None or self._graphs_left <= 0 or not self._new(tensor):
            return
        self._graphs_left -= 1
        yield key, _Held(self._step, accumulations(tensor), _storage(tensor)[1], True, owner)

    def _contained(self, key: _Key, container: Any, owner: type | None) -> Iterator[tuple[_Key, _Held]]:
        # A deque with a largest length grows only so far, as its author meant it to.
        if not self._new(container) or (type(container) is deque and container.maxlen is not None):
            return
        count = _Count()
        self._count(container, count, 0)
        if not count.gave_up:
            held = sum(count.storages.values())
            yield key, _Held(self._step, count.tensors, held, count.holds_graph, owner)

    def _count(self, container: Any, count: _Count, depth: int) -> None:
        size = len(container)
        if size > min(self._left, _MOST_IN_ONE):
            count.gave_up = True
            return
        self._left -= size
        for value in list(container.values() if type(container) in _MAPPINGS else container):
            kind = type(value)
            if kind in self._tensor_types:
                count.add(value)
            elif depth < _CONTAINER_DEPTH and (kind in _SEQUENCES or kind in _MAPPINGS) and self._new(value):
                self._count(value, count, depth + 1)


class _Count:
    """The tensors of one container; memory that several of them share counts once."""

    def __init__(self) -> None:
        self.tensors = 0
        self.holds_graph = False
        self.gave_up = False
        self.storages: dict[int, int] = {}

    def add(self, tensor: Any) -> None:
        self.tensors += 1
        self.holds_graph |= tensor.grad_fn is not None
        address, size = _storage(tensor)
        self.storages[address] = size


def _storage(tensor: Any) -> tuple[int, int]:
    """The memory behind a tensor, which a view keeps alive as a whole: what tells it from others, and its bytes."""
    try:
        storage = tensor.untyped_storage()
        return int(storage._cdata), int(storage.nbytes())
    except (RuntimeError, NotImplementedError):  # sparse tensors have none
        return id(tensor), int(tensor.numel() * tensor.element_size())
