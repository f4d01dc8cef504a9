"""What the benchmark stores of each piece, and what it concludes from them."""

from __future__ import annotations

import msgspec

from hotlap.records import Estimate, Plan, Replicate


class Searched(msgspec.Struct, kw_only=True):
    """What `hotlap infer` recommends for one model with one batch size, after ``spent_seconds`` of trials."""

    plan: Plan
    level: float
    inputs: int
    speedup: Estimate | None = None
    quality: float | None = None
    status: str = ""
    spent_seconds: float = 0.0


class OnOthers(msgspec.Struct, kw_only=True):
    """The outputs of the recommended form for inputs that the search did not have.

    ``below`` says that they are below the level, and ``beyond_chance`` that the whole interval is.
    """

    quality: float | None = None
    below: bool = False
    beyond_chance: bool = False
    text: str = ""


class Likeness(msgspec.Struct, kw_only=True):
    """The outputs of one engine by hand, and the median seconds of the last calls of the launch that stored them: the
    launch was not timed in turns, so these only say which engines are near the fastest one."""

    engine: str
    quality: float | None = None
    admissible: bool = False
    call_seconds: float | None = None
    obstacle: str = ""


class Turns(msgspec.Struct, kw_only=True):
    """One replicate: the recommended form twice, then these engines by hand."""

    engines: tuple[str, ...]
    replicate: Replicate


class ByHand(msgspec.Struct, kw_only=True):
    """One engine by hand. ``against_chosen`` above 1 means that it is faster than the recommended form; None where it
    was not timed, as it is inadmissible or far slower than the fastest one."""

    engine: str
    quality: float | None = None
    admissible: bool = False
    call_seconds: float | None = None
    against_chosen: Estimate | None = None
    obstacle: str = ""


class Row(msgspec.Struct, kw_only=True):
    """One model with one batch size; ``speedup`` is that of the recommended form over the unmodified model.

    ``copies`` compares two copies of the recommended form, in the same turns; ``remarks`` say what disturbed them.
    """

    model: str
    batch: int
    chosen: str
    status: str
    spent_seconds: float
    speedup: Estimate | None
    quality: float | None
    others: OnOthers | None
    engines: tuple[ByHand, ...]
    copies: Estimate | None = None
    remarks: tuple[str, ...] = ()

    @property
    def best(self) -> ByHand | None:
        """The fastest admissible engine by hand."""
        known = [(it.against_chosen.value, it) for it in self.engines if it.admissible and it.against_chosen]
        return max(known, key=lambda it: it[0])[1] if known else None

    @property
    def missed(self) -> float:
        """By which share of its time the recommended form is slower than the fastest admissible engine."""
        best = self.best
        return max(0.0, best.against_chosen.value - 1) if best is not None and best.against_chosen else 0.0
