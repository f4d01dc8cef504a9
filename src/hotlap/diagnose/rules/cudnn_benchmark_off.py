"""cuDNN chooses its convolution algorithms by a rule of thumb, although the inputs keep their shape.

## What it is
The model convolves on a GPU, its inputs had the same size in every step, and `torch.backends.cudnn.benchmark` is off.

## Why it is slow
cuDNN has several algorithms for each convolution. Which is fastest depends on sizes, formats and the GPU; its rule of
thumb does not always find it. In benchmark mode it times them once for each new shape and remembers the fastest.

## How to see it
`hotlap profile train.py` shows the share of convolutions. What another algorithm would save is unknown before it is
tried; `hotlap tune train.py` tries it.

## What to do
Set `torch.backends.cudnn.benchmark = True` once at the start.

## When it is fine
Where inputs change their size all the time, since every new shape is timed again, and where two runs must agree to the
last bit, since the choice may differ between them.
"""

from __future__ import annotations

from collections.abc import Iterator

from hotlap.diagnose.examples import CPU, GPU, operator, run_on
from hotlap.diagnose.operators import WORTH_A_LOOK, is_convolution, kernels_matter, share_of, site_with
from hotlap.diagnose.profile import Profile
from hotlap.diagnose.shares import exactly
from hotlap.diagnose.wording import levers_for, percent
from hotlap.levers.kernels import cudnn_benchmark
from hotlap.records import Finding, ModelFacts

title = "cuDNN may not try its convolution algorithms"
group = "compute"

FEWEST_DIMENSIONS = 3
"""What a convolution takes has at least batch, channels and one length; other inputs do not concern it."""


def check(profile: Profile) -> Iterator[Finding]:
    """Only where the lever could be tried, and convolutions take enough of the step for their choice to matter."""
    convolutional = [it for it in profile.facts.models if it.convolutions]
    shapes = {shape for it in convolutional for shape in it.input_shapes if len(shape) >= FEWEST_DIMENSIONS}
    share = share_of(profile, [it for it in profile.operators if is_convolution(it)])
    if cudnn_benchmark.obstacle(profile.situation) is not None or len(shapes) != 1:
        return
    if share < WORTH_A_LOOK or not kernels_matter(profile):
        return
    yield Finding(
        rule="cudnn-benchmark-off",
        kind="hint",
        share=exactly(0.0),
        title=f"Convolutions take {percent(share)} of the step, and cuDNN chooses their algorithms by a rule of thumb.",
        evidence=(
            f"The model's inputs had one shape in all observed steps: {'x'.join(map(str, *shapes))}.",
            "torch.backends.cudnn.benchmark is off.",
        ),
        remedy="Set `torch.backends.cudnn.benchmark = True` once at the start of the script.",
        site=site_with(profile, "model"),
        levers=levers_for("cudnn-benchmark-off", profile.situation),
    )


def _network(*shapes: tuple[int, ...]) -> ModelFacts:
    return ModelFacts(kind="ResNet", parameters=25_000_000, convolutions=53, device="cuda", input_shapes=shapes)


_IMAGES = (64, 3, 224, 224)
_CONVOLUTIONS = (
    operator("aten::cudnn_convolution", 25, [_IMAGES, (64, 3, 7, 7)], "c10::BFloat16"),
    operator("aten::convolution_backward", 45, [(64, 64, 112, 112), _IMAGES, (64, 3, 7, 7)], "c10::BFloat16"),
)
_NORMALISATION = operator("aten::cudnn_batch_norm", 20, [(64, 64, 112, 112)])

fires = {
    "images of one size": run_on(GPU, *_CONVOLUTIONS, _NORMALISATION, model=_network(_IMAGES)),
    "images of one size with their time steps": run_on(
        GPU, *_CONVOLUTIONS, _NORMALISATION, model=_network(_IMAGES, (64,))
    ),
}
silent = {
    "nothing was measured": Profile(),
    "it is on": run_on(GPU, *_CONVOLUTIONS, model=_network(_IMAGES), cudnn_benchmark=True),
    "determinism is asked for": run_on(GPU, *_CONVOLUTIONS, model=_network(_IMAGES), deterministic=True),
    "images of two sizes": run_on(GPU, *_CONVOLUTIONS, model=_network(_IMAGES, (64, 3, 256, 256))),
    "the inputs were not seen": run_on(GPU, *_CONVOLUTIONS, model=_network()),
    "convolutions take little": run_on(GPU, operator("aten::cudnn_convolution", 3), model=_network(_IMAGES)),
    "no operators were profiled": run_on(GPU, model=_network(_IMAGES)),
    "a processor": run_on(CPU, *_CONVOLUTIONS, model=_network(_IMAGES)),
}
