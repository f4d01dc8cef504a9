"""Levers for the search over a :mod:`fake_script`: they install nothing, since the fake script has their effects."""

from __future__ import annotations

from collections.abc import Callable

from hotlap import plan as plans_of
from hotlap.levers.api import Lever, Parameter
from hotlap.records import PEAK_BYTES, SECONDS_PER_SAMPLE, Proof, Setting, Situation, Skipped


def lever(
    name: str,
    *choices: str,
    proof: Proof = "rounding",
    addresses: tuple[str, ...] = ("anything",),
    obstacle: Skipped | None = None,
    bound: Callable[[Situation], float | None] | float | None = None,
    improves: tuple[str, ...] = (SECONDS_PER_SAMPLE, PEAK_BYTES),
) -> Lever:
    """A lever with one setting for each choice (or a single one without values)."""

    def candidates(situation: Situation) -> tuple[Setting, ...]:
        return tuple(plans_of.setting(name, choice=it) for it in choices) or (plans_of.setting(name),)

    return Lever(
        name=name,
        title=name,
        page=name,
        proof=proof,
        addresses=addresses,
        parameters={"choice": Parameter(str, required=False)},
        obstacle=lambda situation: obstacle,
        bound=bound if callable(bound) else lambda situation: bound,
        candidates=candidates,
        install=lambda hooks, setting: None,
        environment=lambda setting: {},
        proof_for=lambda situation, setting: proof,
        improves=improves,
    )


def named(*levers: Lever) -> dict[str, Lever]:
    return {it.name: it for it in levers}
