"""What another batch size asks of the learning rate and of the number of samples: advice from published rules.

- Linear rule, for SGD: Goyal et al. 2017, "Accurate, Large Minibatch SGD".
- Square-root rule, for adaptive optimizers: Malladi et al. 2022, "On the SDEs and Scaling Rules for Adaptive Gradient
  Algorithms".
- What the noise scale N changes: McCandlish et al. 2018. A batch of B samples makes 1 / (1 + N / B) of the progress per
  step of an infinite batch, so that the useful rate of SGD grows by (1 + N / own) / (1 + N / size), which is the linear
  rule while N is much larger than both; the same loss takes (1 + size / N) / (1 + own / N) times as many samples.
"""

from __future__ import annotations

import math

from hotlap.records import BatchAdvice, GradientNoise, LearningRateRule, OptimizerFacts

_EXPONENTS: dict[LearningRateRule, float] = {"linear": 1.0, "square-root": 0.5}
_RULES: dict[str, LearningRateRule] = {
    "SGD": "linear",
    "Adam": "square-root",
    "AdamW": "square-root",
    "RMSprop": "square-root",
}


def advise(
    own: int, size: int, optimizer: OptimizerFacts, noise: GradientNoise | None, noise_missing: str = ""
) -> BatchAdvice:
    """The advice for one optimizer; without a rule or a noise scale, its figures are None."""
    rule = _RULES.get(optimizer.kind, "unknown")
    exponent = _EXPONENTS.get(rule)
    scale = noise.scale if noise is not None else None
    tempered = samples_factor = None
    if scale:
        samples_factor = (1 + size / scale) / (1 + own / scale)
        if exponent is not None:
            tempered = math.pow((1 + scale / own) / (1 + scale / size), exponent)
    return BatchAdvice(
        own=own,
        size=size,
        optimizer=optimizer.kind,
        learning_rate=optimizer.learning_rate,
        rule=rule,
        factor=math.pow(size / own, exponent) if exponent is not None else None,
        noise=noise,
        noise_missing=noise_missing,
        tempered=tempered,
        samples_factor=samples_factor,
    )
