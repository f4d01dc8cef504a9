"""unaligned-sizes: which sides count, and what alignment could save."""

from __future__ import annotations

import msgspec
import pytest
from computing import BFLOAT16, BUSY, FLOAT16, found, one

from hotlap.diagnose.examples import GPU, operator, run_on
from hotlap.evidence import LayerUse
from hotlap.records import Ceilings
from hotlap.traces.records import OperatorRow


def logits(
    milliseconds: float, columns: int = 50257, rows: int = 8192, dtype: str = BFLOAT16
) -> tuple[OperatorRow, ...]:
    weight = operator("aten::linear", 0, [(8, 1024, 768), (columns, 768)], dtype)
    return weight, operator("aten::mm", milliseconds, [(rows, 768), (768, columns)], dtype)


def layer(milliseconds: float, *, rows: int, inputs: int, outputs: int, calls: int = 1) -> OperatorRow:
    """Make the product of a layer with a bias, in float16."""
    shapes = [(outputs,), (rows, inputs), (inputs, outputs)]
    return operator("aten::addmm", milliseconds, shapes, FLOAT16, calls=calls)


def test_the_bound_excludes_the_time_at_full_rate() -> None:
    finding = one("unaligned-sizes", run_on(GPU, *logits(20), BUSY))
    needed_seconds = 2 * 8192 * 768 * 50257 / 6.0e14
    assert finding.share.value == pytest.approx(0.20 - needed_seconds / 0.1)
    assert finding.share.low == 0.0
    assert "50304 instead of 50257" in finding.remedy


def test_memory_bound_products_are_not_blamed_on_alignment() -> None:
    """A layer from 64 to 577 features takes longer to write than to multiply."""
    finding = one("unaligned-sizes", run_on(GPU, layer(20, rows=400_000, inputs=64, outputs=577), BUSY))
    moved_seconds = 2 * (400_000 * 64 + 64 * 577 + 400_000 * 577) / 3.0e12
    assert moved_seconds > 2 * 400_000 * 64 * 577 / 6.0e14
    assert finding.share.value == pytest.approx(0.20 - moved_seconds / 0.1)


@pytest.mark.parametrize(
    ("columns", "dtype", "precision", "fires"),
    [
        (50256, BFLOAT16, "highest", False),  # 8 x 6282
        (50257, BFLOAT16, "highest", True),
        (50257, FLOAT16, "highest", True),
        (50260, FLOAT16, "highest", True),  # a multiple of 4, which is 8 bytes
        (50260, "float", "high", False),  # 16 bytes in TensorFloat-32
        (50262, "float", "high", True),
        (50262, "float", "highest", False),  # not on matrix units
        (50257, "double", "high", False),
    ],
)
def test_sixteen_bytes_are_eight_or_four_numbers(columns: int, dtype: str, precision: str, fires: bool) -> None:
    profile = run_on(GPU, *logits(30, columns, dtype=dtype), BUSY, matmul_precision=precision)
    assert bool(found("unaligned-sizes", profile)) is fires


def test_rows_may_have_any_number() -> None:
    """In the gradient of a weight the rows are the inner dimension, where alignment is irrelevant."""
    forward = operator("aten::mm", 20, [(8191, 768), (768, 3072)], BFLOAT16)
    of_weight = operator("aten::mm", 20, [(3072, 8191), (8191, 768)], BFLOAT16)
    weight = operator("aten::linear", 0, [(8191, 768), (3072, 768)], BFLOAT16)
    assert not found("unaligned-sizes", run_on(GPU, forward, of_weight, weight, BUSY))


@pytest.mark.parametrize("rows", [1000, 8191])
def test_rows_do_not_count_even_if_a_weight_has_as_many(rows: int) -> None:
    """Use batches of 1000 and 8191 samples, and 1001 classes."""
    logits = operator("aten::addmm", 15, [(1001,), (rows, 768), (768, 1001)], FLOAT16)
    hidden = operator("aten::addmm", 15, [(1001,), (1001, 768), (768, 3072)], FLOAT16)
    bias = operator("aten::addmm", 15, [(3072,), (rows, 768), (768, 3072)], FLOAT16)
    finding = one("unaligned-sizes", run_on(GPU, logits, hidden, bias, BUSY))
    assert finding.title.startswith("Matrix products with unaligned sides (1001) take 15 %")


def test_tokens_do_not_count_in_attention_or_experts() -> None:
    """Use 577 tokens in attention, and experts with 501 tokens each, forward and backward."""
    scores = operator("aten::bmm", 10, [(768, 577, 64), (768, 64, 577)], FLOAT16)
    read = operator("aten::bmm", 10, [(768, 577, 577), (768, 577, 64)], FLOAT16)
    forward = operator("aten::bmm", 10, [(8, 501, 768), (8, 768, 3072)], FLOAT16)
    of_weight = operator("aten::bmm", 10, [(8, 768, 501), (8, 501, 3072)], FLOAT16)
    run = run_on(GPU, scores, read, forward, of_weight, BUSY)
    positions = LayerUse(kind="Embedding", name="positions", weight_shape=(577, 64))
    experts = LayerUse(kind="Experts", name="experts", weight_shape=(8, 768, 3072))
    evidence = msgspec.structs.replace(run.evidence, layers=(positions, experts))
    assert not found("unaligned-sizes", msgspec.structs.replace(run, evidence=evidence))


def test_widths_of_expert_weights_count() -> None:
    run = run_on(GPU, operator("aten::bmm", 30, [(8, 512, 768), (8, 768, 3001)], FLOAT16), BUSY)
    layers = (LayerUse(kind="Experts", name="experts", weight_shape=(8, 768, 3001)),)
    evidence = msgspec.structs.replace(run.evidence, layers=layers)
    assert "3001" in one("unaligned-sizes", msgspec.structs.replace(run, evidence=evidence)).title


def test_a_vocabulary_of_tied_embeddings_counts() -> None:
    run = run_on(GPU, operator("aten::mm", 30, [(8192, 768), (768, 50257)], BFLOAT16), BUSY)
    layers = (LayerUse(kind="Embedding", name="tokens", weight_shape=(50257, 768)),)
    evidence = msgspec.structs.replace(run.evidence, layers=layers)
    assert "50304 instead of 50257" in one("unaligned-sizes", msgspec.structs.replace(run, evidence=evidence)).remedy


def test_layers_report_the_sizes_of_weights_too() -> None:
    run = run_on(GPU, operator("aten::mm", 30, [(8192, 768), (768, 50257)], BFLOAT16), BUSY)
    assert not found("unaligned-sizes", run)
    layer = LayerUse(kind="Linear", name="head", weight_shape=(50257, 768))
    evidence = msgspec.structs.replace(run.evidence, layers=(layer,))
    assert found("unaligned-sizes", msgspec.structs.replace(run, evidence=evidence))


@pytest.mark.parametrize(("calls", "fires"), [(1500, True), (1501, False)])
def test_kernels_of_a_few_microseconds_are_silent(calls: int, fires: bool) -> None:
    row = layer(30, rows=6400, inputs=99, outputs=99, calls=calls)
    assert bool(found("unaligned-sizes", run_on(GPU, row, BUSY))) is fires


@pytest.mark.parametrize(("side", "fires"), [(63, False), (65, True)])
def test_thin_products_are_silent(side: int, fires: bool) -> None:
    row = layer(30, rows=8192, inputs=side, outputs=1001)
    assert bool(found("unaligned-sizes", run_on(GPU, row, BUSY))) is fires


def test_a_convolution_takes_the_shapes_of_its_backward() -> None:
    image, weight, output = (64, 90, 56, 56), (120, 90, 3, 3), (64, 120, 56, 56)
    forward = operator("aten::cudnn_convolution", 10, [image, weight], FLOAT16)
    backward = operator("aten::convolution_backward", 20, [output, image, weight], FLOAT16)
    finding = one("unaligned-sizes", run_on(GPU, forward, backward, BUSY))
    operations = 2 * 64 * 56 * 56 * 120 * 90 * 9
    assert finding.share.value == pytest.approx(0.30 - 3 * operations / 6.0e14 / 0.1)
    assert finding.remedy.startswith("Round the sizes up: 96 instead of 90.")


def test_grouped_convolutions_are_silent() -> None:
    grouped = operator("aten::cudnn_convolution", 30, [(64, 90, 56, 56), (90, 1, 3, 3)], FLOAT16)
    assert not found("unaligned-sizes", run_on(GPU, grouped, BUSY))


@pytest.mark.parametrize(("size", "better"), [(50257, 50304), (30522, 30528), (577, 584), (90, 96), (1001, 1008)])
def test_sizes_are_rounded_up_further_if_that_adds_little(size: int, better: int) -> None:
    row = layer(30, rows=4096, inputs=size, outputs=size)
    free = msgspec.structs.replace(GPU, ceilings=Ceilings())
    finding = one("unaligned-sizes", run_on(free, row, BUSY))
    assert f"{better} instead of {size}" in finding.remedy
    assert "were not measured" in finding.evidence[-1]


def test_only_nvidia_gpus_are_reported() -> None:
    rocm = msgspec.structs.replace(GPU.accelerators[0], kind="rocm")
    assert not found("unaligned-sizes", run_on(msgspec.structs.replace(GPU, accelerators=(rocm,)), *logits(30), BUSY))
