"""Change the batch size of a script: in its DataLoader, or by its own option."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from hotlap.levers.support.command_options import flag_value, with_flag
from hotlap.records import BatchChange, Instrument, LoaderFacts, ResizeBatches, ScriptFacts, Workload

WAY_OUT = "If the script has an option for its batch size, name it: --batch-flag=--batch-size."


@dataclass(frozen=True, slots=True)
class Changer:
    """``own`` is the unmodified script's batch size; ``samples`` the size of its data set (None: unknown)."""

    own: int
    samples: int | None
    changed_by: BatchChange
    instruments: Callable[[int], tuple[Instrument, ...]]
    workload: Callable[[int], Workload | None]


def changer_of(workload: Workload, facts: ScriptFacts, flag: str) -> Changer | str:
    """How to change this script's batch size, or a sentence on why that is impossible and what to do."""
    loaders = facts.training_loaders
    if flag:
        return _by_flag(workload, loaders, flag)
    if not loaders:
        return f"No batch of the script comes from a DataLoader, so hotlap cannot change its size. {WAY_OUT}"
    sizes = {it.batch_size for it in loaders}
    if None in sizes:
        kind = "iterable data set yields whole batches" if _iterable(loaders) else "DataLoader has a batch sampler"
        return f"The script's {kind}, so it has no batch size to change. {WAY_OUT}"
    if len(sizes) > 1:
        listed = ", ".join(str(it) for it in sorted(it for it in sizes if it is not None))
        return f"Several DataLoaders feed the training, with batch sizes {listed}. {WAY_OUT}"
    own = next(it for it in sizes if it is not None)
    sites = {it.site for it in loaders}
    site = next(iter(sites)) if len(sites) == 1 else None
    return Changer(
        own=own,
        samples=_data_set(loaders, own),
        changed_by="loader",
        instruments=lambda size: (ResizeBatches(own=own, size=size, site=site),) if size != own else (),
        workload=lambda size: None,
    )


def beyond_data_set(changer: Changer, samples_per_step: float) -> str:
    """A sentence if the script's own batch is larger than its data set; empty if it is not, or that is unknown."""
    if changer.samples != changer.own or samples_per_step >= changer.own:
        return ""
    return (
        f"The script's batch size, {changer.own}, is larger than its data set: each batch holds all of its "
        f"{samples_per_step:g} samples, so that a larger batch size changes nothing."
    )


def _by_flag(workload: Workload, loaders: tuple[LoaderFacts, ...], flag: str) -> Changer | str:
    """The own size is the option's value, or the DataLoader's. The samples of a step do not show it: a step may
    accumulate the gradients of several batches."""
    given = flag_value(workload.arguments, flag)
    if given is not None and not (given.isdecimal() and int(given) > 0):
        return f"The script's {flag} is {given!r}, which is not a batch size. Name the option that is."
    own = int(given) if given is not None else next((it.batch_size for it in loaders if it.batch_size), None)
    if own is None:
        return (
            f"The script's own batch size is unknown: {flag} is not given, and no DataLoader has a batch size. "
            f"Give the script its {flag} explicitly."
        )

    def changed(size: int) -> Workload:
        return msgspec.structs.replace(workload, arguments=with_flag(workload.arguments, flag, size))

    return Changer(
        own=own,
        samples=_data_set(loaders, own),
        changed_by="flag",
        instruments=lambda size: (),
        workload=lambda size: changed(size) if size != own else None,
    )


def _iterable(loaders: tuple[LoaderFacts, ...]) -> bool:
    return any(it.iterable for it in loaders)


def _data_set(loaders: tuple[LoaderFacts, ...], own: int) -> int | None:
    """The approximate samples of an epoch; None if the loader has no length."""
    lengths = [it.length for it in loaders]
    if not lengths or any(it is None for it in lengths):
        return None
    return min(it for it in lengths if it is not None) * own
