"""Predict published throughputs of models of 7 and 8 billion parameters, by arithmetic alone.

    python -m bench.scale.paper

prints the table of ``docs/paper-exercise.md``, where the sources are. Nothing is measured: a step's computing is that
of the smallest published size, or of another publication's share of the peak, and links have their published figures.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from bench.report import table
from hotlap.records import Cluster, Link, MeasuredStep, ReadyGradient
from hotlap.scaling.predict import point_of
from hotlap.scaling.published import devices

BLOCKS = 32
PER_NODE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """``forward_share`` is that of computing: a quarter where everything is computed again in backward, else a third.

    ``gathered`` and ``reduced`` are bytes per parameter.
    """

    parameters: float
    width: int
    tokens_per_sample: int
    samples: int
    forward_share: float
    gathered: int
    reduced: int

    @property
    def tokens(self) -> int:
        return self.samples * self.tokens_per_sample

    @property
    def flops_per_token(self) -> float:
        """Without what is computed again, as publications count."""
        return 6 * self.parameters + 12 * BLOCKS * self.width * self.tokens_per_sample


MPT_7B = Model(parameters=6_658_859_008, width=4096, tokens_per_sample=2048, samples=18, forward_share=1 / 4,
               gathered=2, reduced=2)  # fmt: skip
LLAMA_8B = Model(parameters=8_030_261_248, width=4096, tokens_per_sample=8192, samples=2, forward_share=1 / 3,
                 gathered=2, reduced=4)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Tokens per second and device by number of devices, ``known`` of which is where computing is taken from."""

    name: str
    model: Model
    device: str
    link: float
    known: float
    published: tuple[tuple[int, float | None], ...]


CASES = (
    Case(name="MPT 7B, A100 40 GB", model=MPT_7B, device="a100-40gb", link=200e9 / 8, known=3679,
         published=((16, 3645), (32, 3725), (64, 3665), (128, 3623), (512, None))),
    Case(name="Llama 3.1 8B, torchtitan, H100", model=LLAMA_8B, device="h100", link=400e9 / 8, known=5762,
         published=((64, None), (128, 5605), (512, None))),
    Case(name="the same with torch.compile", model=LLAMA_8B, device="h100", link=400e9 / 8, known=6667,
         published=((64, None), (128, 6514), (512, None))),
    Case(name="the same with Float8 too", model=LLAMA_8B, device="h100", link=400e9 / 8, known=8532,
         published=((64, None), (128, 8380), (512, None))),
)  # fmt: skip
MPT_7B_H100_SHARE = 0.4644
TITAN_FP8, MEGATRON_FP8 = 8532, 14451


def step_of(model: Model, seconds: float) -> MeasuredStep:
    """A step of so many seconds of computing, its blocks of equal size."""
    reduced = int(model.reduced * model.parameters / BLOCKS)
    return MeasuredStep(
        forward_seconds=model.forward_share * seconds,
        backward_seconds=(1 - model.forward_share) * seconds,
        optimizer_seconds=0.0,
        gradients=tuple(ReadyGradient(share=(it + 1) / BLOCKS, size_bytes=reduced) for it in range(BLOCKS)),
        samples=model.tokens,
        units=BLOCKS,
        parameter_bytes=int(model.gathered * model.parameters),
        gradient_bytes=int(model.reduced * model.parameters),
    )


def rate(case: Case, ranks: int, latency_seconds: float = 0.0) -> float:
    """Predicted tokens per second and device under FSDP2; those of one node are the known ones."""
    device = devices()[case.device]
    cluster = Cluster(
        nodes=-(-ranks // PER_NODE),
        devices_per_node=PER_NODE,
        within=Link(bytes_per_second=device.node_link_bytes_per_second),
        between=Link(bytes_per_second=case.link, latency_seconds=latency_seconds),
    )
    whole = case.model.tokens / case.known
    here = msgspec.structs.replace(cluster, nodes=1)
    exposed = point_of(step_of(case.model, whole), here, PER_NODE, "fsdp2").step_seconds - whole
    point = point_of(step_of(case.model, whole - exposed), cluster, ranks, "fsdp2")
    return point.samples_per_second / ranks


def rows() -> Iterator[tuple[str, ...]]:
    """A row for each size; the first of each case is taken from the publication."""
    for case in CASES:
        yield case.name, str(PER_NODE), f"{case.known:,.0f}", "taken from it", ""
        for ranks, published in case.published:
            found = rate(case, ranks)
            error = f"{100 * (found / published - 1):+.1f} %" if published else ""
            yield "", str(ranks), f"{published:,.0f}" if published else "none found", f"{found:,.0f}", error
    h100 = devices()["h100"].flops_per_second
    crossed = MPT_7B_H100_SHARE * h100 / LLAMA_8B.flops_per_token
    for name, published in (
        ("Llama 3.1 8B from MPT 7B's share of the peak", 5762),
        ("the same with torch.compile", 6667),
    ):
        yield name, str(PER_NODE), f"{published:,.0f}", f"{crossed:,.0f}", f"{100 * (crossed / published - 1):+.1f} %"
    error = f"{100 * (TITAN_FP8 / MEGATRON_FP8 - 1):+.1f} %"
    name = "Llama 3 8B, Megatron, FP8, from torchtitan's Float8"
    yield name, str(PER_NODE), f"{MEGATRON_FP8:,.0f}", f"{TITAN_FP8:,.0f}", error


def text() -> str:
    """The table."""
    return table(("model", "devices", "published", "predicted", "error"), list(rows()))


def main() -> None:
    """Print the table, and what a latency would change."""
    sys.stdout.write(f"{text()}\n\n")
    for case in CASES:
        sys.stdout.write(f"{case.name}, 512 devices, 10 us per message: {rate(case, 512, 1e-5):,.0f}\n")


if __name__ == "__main__":
    main()
