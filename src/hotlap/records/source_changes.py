"""The changes to the source that a lever requests."""

from __future__ import annotations

from typing import TypeAlias

from hotlap.records.base import Record, Values


class LoaderArguments(Record, frozen=True, kw_only=True, tag="loader-arguments"):
    """These arguments for the training loaders over map-style data sets, or for those that are only read for
    ``evaluation``; ``removed`` are those that may not be given next to them."""

    values: Values
    removed: tuple[str, ...] = ()
    evaluation: bool = False


class OptimizerArguments(Record, frozen=True, kw_only=True, tag="optimizer-arguments"):
    """These arguments for each optimizer that leaves them, and the ``alternatives`` to them, open."""

    values: Values
    alternatives: tuple[str, ...] = ()


class ModelStatement(Record, frozen=True, kw_only=True, tag="model-statement"):
    """A statement on each model once it is on its device; the name ``_`` in ``code`` stands for the model. ``needs``
    are the full names that the code uses. With ``convolutions_only`` other models are passed over."""

    code: str
    needs: tuple[str, ...] = ()
    convolutions_only: bool = False


class ModelInputs(Record, frozen=True, kw_only=True, tag="model-inputs"):
    """Wrap the input tensor of each training forward; ``_`` stands for it. It must have ``dimensions``."""

    code: str
    needs: tuple[str, ...] = ()
    dimensions: int


class ForwardRegion(Record, frozen=True, kw_only=True, tag="forward-region"):
    """Forward pass and loss inside this context manager; the name in ``already`` shows that the script has it."""

    context: str
    needs: tuple[str, ...] = ()
    already: str = ""


class CallRegion(Record, frozen=True, kw_only=True, tag="call-region"):
    """Each call of a model that is not trained inside this context manager, or the context in the place of one that it
    ``replaces``; the name in ``already`` shows that the script has it."""

    context: str
    needs: tuple[str, ...] = ()
    already: str = ""
    replaces: str = ""


class ScaledLoss(Record, frozen=True, kw_only=True, tag="scaled-loss"):
    """The loss scaled by a ``torch.amp.GradScaler`` for this device, unscaled before clipping, and its steps."""

    device: str


class CopiesWithoutWaiting(Record, frozen=True, kw_only=True, tag="copies-without-waiting"):
    """``non_blocking=True`` for the copies of batches to the device that can be found."""


class AttentionArgument(Record, frozen=True, kw_only=True, tag="attention-argument"):
    """This implementation, wherever the script requests the one in ``instead_of`` from ``transformers``."""

    implementation: str
    instead_of: str


class DataParallelArguments(Record, frozen=True, kw_only=True, tag="data-parallel-arguments"):
    """These arguments for each ``DistributedDataParallel`` that the script makes."""

    values: Values


class DataParallelStatement(Record, frozen=True, kw_only=True, tag="data-parallel-statement"):
    """A statement below each line that makes a ``DistributedDataParallel``, for which ``_`` stands in ``code``;
    ``needs`` are the full names that the code uses."""

    code: str
    needs: tuple[str, ...] = ()


class TopStatement(Record, frozen=True, kw_only=True, tag="top-statement"):
    """A statement below the imports of the script."""

    code: str
    needs: tuple[str, ...] = ()


class NoSourceForm(Record, frozen=True, kw_only=True, tag="no-source-form"):
    """The lever cannot be written into a script, and why."""

    reason: str


SourceChange: TypeAlias = (
    LoaderArguments
    | OptimizerArguments
    | ModelStatement
    | ModelInputs
    | ForwardRegion
    | CallRegion
    | ScaledLoss
    | CopiesWithoutWaiting
    | AttentionArgument
    | DataParallelArguments
    | DataParallelStatement
    | TopStatement
    | NoSourceForm
)
