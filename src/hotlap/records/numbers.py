"""Where a number that is NaN or infinite came from."""

from __future__ import annotations

from typing import Literal, TypeAlias

from hotlap.records.base import Record
from hotlap.records.script import CallSite


class NumberRange(Record, frozen=True, kw_only=True):
    """What one tensor held: the smallest and the largest of its finite numbers (None: it had none), and how many of all
    its ``numbers`` were NaN or infinite. ``rows`` are the first few places along its first dimension with such."""

    name: str = ""
    dtype: str
    shape: tuple[int, ...]
    numbers: int
    nan: int = 0
    infinite: int = 0
    low: float | None = None
    high: float | None = None
    rows: tuple[int, ...] = ()


NumberSource: TypeAlias = Literal["operation", "written", "uninitialised", "batch", "state", "entered"]
NoticedIn: TypeAlias = Literal["loss", "gradients", "weights", "script"]
NumberPhase: TypeAlias = Literal["setup", "data", "forward", "backward", "optimizer", "other"]


class NumberOrigin(Record, frozen=True, kw_only=True):
    """Where a number that is NaN or infinite came from.

    ``operation``: one that made it out of finite numbers (or NaN out of infinite ones). ``written``: the script wrote
    it there, as a mask does. ``uninitialised``: memory of ``torch.empty`` that was never written. ``batch``: it
    was in the batch that the loader delivered. ``state``: in a parameter or buffer when the check began. ``entered``:
    in a tensor that was made outside of torch's operations, and ``operation`` was the first to read it (that of a
    batch, where the main process made it).

    ``name`` is the parameter's, buffer's or dataset's; ``module`` the layer that called; ``autograd_node`` the node of
    the backward pass, and ``site`` then the line of the forward pass that it belongs to. ``arguments`` are numbers
    among the arguments that were not finite.
    """

    source: NumberSource
    phase: NumberPhase
    step: int
    operation: str = ""
    arguments: tuple[str, ...] = ()
    inputs: tuple[NumberRange, ...] = ()
    outputs: tuple[NumberRange, ...] = ()
    name: str = ""
    module: str = ""
    autograd_node: str = ""
    site: CallSite | None = None


class BadNumber(Record, frozen=True, kw_only=True):
    """The first loss, gradient or weight of a run that was NaN or infinite; ``step`` counts from 0.

    ``noticed_in`` is ``script`` where the script itself checked the number and ended. ``name`` is the parameter's.
    ``origin`` is known only where every operation was checked: ``first_nan`` is then what made NaN of the origin's
    infinity, and ``written`` an infinity that the script wrote on purpose and that the origin was given. Where an
    operation (such as ``nan_to_num``) replaced the origin's results by huge finite numbers, ``replaced`` is that
    operation, and ``overflow`` the one that then made infinities or NaN of the huge numbers.
    """

    step: int
    noticed_in: NoticedIn
    nan: bool
    name: str = ""
    origin: NumberOrigin | None = None
    first_nan: NumberOrigin | None = None
    written: NumberOrigin | None = None
    replaced: NumberOrigin | None = None
    overflow: NumberOrigin | None = None
