"""The time of a step, its largest part, and its bottleneck by the ceilings."""

from __future__ import annotations

from collections.abc import Iterator

from hotlap.records import Study
from hotlap.render import text
from hotlap.render.account import bottleneck
from hotlap.render.disturbance import step_takes

_CLOSE = 0.9
"""A loader or model is the bottleneck if it alone takes at least this share of the step."""


def step_words(study: Study, *, busy_is_said: bool = False) -> Iterator[str]:
    """The sentences; none if no step was timed."""
    account = study.account_before
    if account is None or account.wall <= 0:
        return
    if account.is_of_calls:
        yield f"A call {step_takes(study, account.wall, busy_is_said=busy_is_said)}."
        return
    phase, share = bottleneck(account)
    takes = step_takes(study, account.wall, busy_is_said=busy_is_said)
    yield f"A step {takes}; its largest part is {phase} ({text.share(share)})."
    bounds = {it.name: it.bound_speedup for it in study.ceilings if it.bound_speedup}
    if "model-alone" not in bounds or "loader-alone" not in bounds:
        return
    loader_alone, model_alone = (min(1.0, 1 / bounds[name]) for name in ("loader-alone", "model-alone"))
    if model_alone >= _CLOSE and model_alone >= loader_alone:
        yield f"It is bound by the model, which alone takes {text.share(model_alone)} of that."
    elif loader_alone >= _CLOSE:
        yield f"It is bound by the loader, which alone takes {text.share(loader_alone)} of that."
    else:
        yield (
            f"Alone, the loader takes {text.share(loader_alone)} of that and the model {text.share(model_alone)}: "
            "neither binds it by itself."
        )
