"""Which micro-batches of an accumulating script are computed together, and when. Not a lever itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from weakref import ReferenceType, WeakKeyDictionary, ref

from hotlap.levers.support.device_copies import tensors_in
from hotlap.levers.support.evaluation import evaluation_watch
from hotlap.levers.support.merged_batches import Call, Group, NotBySample, cannot_go_on
from hotlap.levers.support.micro_batches import CannotSplit, mapped, random_states, samples_in, tensors_of

if TYPE_CHECKING:
    from hotlap.runtime.hooks import Fetch, Hooks

_FORWARD = "forward"
_SHARED = -1
"""The place of a tensor that is the same for all samples: it comes from no batch."""


@dataclass(slots=True)
class _Ahead:
    """What was fetched ahead of an iterator, and whether that is all."""

    batches: list[Any] = field(default_factory=list)
    exhausted: bool = False

    def fill(self, fetch: Fetch, wanted: int) -> None:
        """Fetch so many batches, or up to the end."""
        while len(self.batches) < wanted and not self.exhausted:
            try:
                self.batches.append(fetch())
            except StopIteration:
                self.exhausted = True

    def take(self) -> Any:
        """The next batch; raises StopIteration at the end."""
        if not self.batches:
            raise StopIteration
        return self.batches.pop(0)


class Merging:
    """Computes up to ``merged`` of the ``each`` micro-batches of an update together.

    The first steps are only observed: a pass of several micro-batches begins after a step of ``each`` forward and
    backward passes whose inputs were all tensors of their batch.
    """

    def __init__(self, hooks: Hooks, *, each: int, merged: int) -> None:
        self._hooks = hooks
        self._torch = hooks.torch
        self._each = each
        self._merged = merged
        self._evaluates = evaluation_watch(hooks)
        self._loaders: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
        self._ahead: WeakKeyDictionary[Any, _Ahead] = WeakKeyDictionary()
        self._loader: ReferenceType[Any] | None = None
        self._batch: Any = None
        self._iterator: ReferenceType[Any] | None = None
        self._following: list[Any] = []
        self._places: tuple[int, ...] | None = None
        self._active = self._refused = False
        self._group: Group | None = None
        self._open_questions: list[Any] = []
        self._forwards = self._backwards = 0
        self._replaced: Any = None
        self._weights: list[Any] = []

    # -- the loader ------------------------------------------------------------------------------

    def loader_starts(self, loader: Any, start: Fetch) -> Any:
        """Remember whose iterator it is; forget what was fetched ahead of one that is used again."""
        iterator = start()
        self._loaders[iterator] = loader
        self._ahead.pop(iterator, None)
        return iterator

    def fetch(self, iterator: Any, fetch: Fetch) -> Any:
        """Hand out one batch; fetch those that are computed with it."""
        ahead = self._ahead.setdefault(iterator, _Ahead())
        if not ahead.batches:
            ahead.fill(fetch, self._wanted(iterator))
        batch = ahead.take()
        self._batch, self._iterator = batch, ref(iterator)
        self._following = list(ahead.batches)
        return batch

    def _wanted(self, iterator: Any) -> int:
        """How many batches: never more than those up to the next update."""
        known = self._loader() if self._loader is not None else None
        if not self._active or self._refused or known is None or self._loaders.get(iterator) is not known:
            return 1
        return 1 if self._evaluates() else max(1, min(self._merged, self._each - self._forwards))

    # -- the passes ------------------------------------------------------------------------------

    def before_forward(
        self, root: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Put the outputs that are already there, or a pass of several micro-batches, in place of this one."""
        self._forwards += 1
        call = (args, kwargs)
        if self._group is not None and self._is_next(self._group, call):
            self._stand_in(root, lambda *args, **kwargs: self._serve())
        elif self._refused:
            return args, kwargs
        elif not self._active:
            self._learn(call)
        else:
            calls = self._foreseen(call)
            if len(calls) > 1:
                forward = root.forward
                self._stand_in(root, lambda *args, **kwargs: self._begin(forward, calls))
        return args, kwargs

    def after_forward(self, root: Any, output: Any) -> None:
        """Put the model's own ``forward`` back."""
        self.forward_failed()

    def forward_failed(self) -> None:
        """Do the same after an error."""
        if self._replaced is not None:
            root, own = self._replaced
            self._replaced = None
            if own is None:
                del root.forward
            else:
                root.forward = own

    def before_backward(self, loss: Any) -> Any:
        """Count it."""
        self._backwards += 1
        if self._group is not None:
            self._group.backwards += 1
        return loss

    def before_update(self, optimizer: Any) -> None:
        """The gradients must be complete by now; a scaler may have unscaled them, so that none can be added."""
        if self._group is not None and self._group.pending:
            raise cannot_go_on("an update came early, or a step's last micro-batch had no backward pass")
        if self._open_questions:
            differs = self._torch.stack(self._open_questions).any()
            self._open_questions.clear()
            if bool(differs):
                raise cannot_go_on("the model's inputs were not those of the loader")

    def after_update(self, optimizer: Any) -> None:
        """Begin another step; the first that was as expected shows that micro-batches can be computed together."""
        if not self._active and not self._refused and self._forwards:
            as_expected = self._forwards == self._backwards == self._each
            self._active = as_expected and self._places is not None
            if self._forwards != self._backwards:
                self._refuse("its forward and backward passes do not alternate")
        self._forwards = self._backwards = 0
        self._group = None

    # -- groups ----------------------------------------------------------------------------------

    def _is_next(self, group: Group, call: Call) -> bool:
        """Whether the group has the outputs of this call; else it is over."""
        if group.all_served and group.backwards >= group.served:
            self._group = None
            return False
        if not group.all_served and group.backwards == group.served:
            try:
                open_questions = group.foresaw(call)
            except CannotSplit:
                open_questions = None
            if open_questions is not None:
                self._open_questions += open_questions
                return True
            self._refuse("its inputs are not always those of the loader")
        # A micro-batch without a backward pass, or other inputs: what is computed so far counts.
        group.flush(self._weights)
        self._group = None
        return False

    def _begin(self, forward: Callable[..., Any], calls: Sequence[Call]) -> Any:
        args, kwargs = calls[0]
        states = random_states(self._torch, calls[0])
        try:
            self._group = Group(self._torch, forward, calls)
        except NotBySample:
            for restore, state in states:
                restore(state)
            self._refuse("its outputs do not have one entry per sample")
            return forward(*args, **kwargs)
        return self._serve()

    def _serve(self) -> Any:
        assert self._group is not None
        return self._group.serve()

    def _stand_in(self, root: Any, forward: Callable[..., Any]) -> None:
        self._weights = list(root.parameters())
        self._replaced = (root, vars(root).get(_FORWARD))
        root.forward = forward

    # -- what a batch becomes --------------------------------------------------------------------

    def _learn(self, call: Call) -> None:
        """Find each input among the tensors of the batch."""
        torch = self._torch
        try:
            inputs, samples = list(tensors_of(torch, call)), samples_in(torch, call)
        except CannotSplit as error:
            self._refuse(str(error))
            return
        held = list(tensors_in(torch, self._batch))
        places = tuple(_place(torch, it, held, samples) for it in inputs)
        if None in places or all(it == _SHARED for it in places) or any(it.requires_grad for it in inputs):
            self._refuse("its inputs are not those of the loader")
        elif self._places not in (None, places):
            self._refuse("its inputs are not always those of the loader")
        else:
            self._places = tuple(it for it in places if it is not None)
            iterator = self._iterator() if self._iterator is not None else None
            loader = self._loaders.get(iterator) if iterator is not None else None
            self._loader = ref(loader) if loader is not None else None

    def _foreseen(self, call: Call) -> list[Call]:
        """This call, and those of the micro-batches that follow, as far as they can be concatenated with it."""
        torch, calls = self._torch, [call]
        inputs = list(tensors_of(torch, call))
        for batch in self._following:
            held = list(tensors_in(torch, batch))
            made = _inputs_from(held, inputs, self._places or ())
            if made is None:
                break
            calls.append(_filled(torch, call, iter(made)))
        return calls

    # -- what cannot be done ---------------------------------------------------------------------

    def _refuse(self, reason: str) -> None:
        self._refused = True
        self._hooks.note(f"Micro-batches are computed one by one: {reason}.")


def _filled(torch: Any, call: Call, tensors: Iterator[Any]) -> Call:
    """The call with these tensors in the places of its own."""
    filled: Call = mapped(torch, call, lambda _: next(tensors))
    return filled


def _place(torch: Any, tensor: Any, held: Sequence[Any], samples: int) -> int | None:
    """Which tensor of the batch it is, moved or cast; None if it is none of them although it has its samples."""
    for index, it in enumerate(held):
        if it is tensor or (it.shape == tensor.shape and torch.equal(it.to(tensor.device, tensor.dtype), tensor)):
            return index
    return None if tensor.dim() and tensor.shape[0] == samples else _SHARED


def _inputs_from(held: Sequence[Any], like: Sequence[Any], places: Sequence[int]) -> list[Any] | None:
    """The inputs that a batch becomes; None if they cannot be concatenated with those of the first."""
    if len(like) != len(places) or max(places, default=0) >= len(held):
        return None
    made = []
    for tensor, place in zip(like, places, strict=True):
        source = tensor if place == _SHARED else held[place]
        if source.shape[1:] != tensor.shape[1:] or source.dim() != tensor.dim():
            return None
        made.append(source.to(tensor.device, tensor.dtype))
    return made
