"""Floating-point operations of the steps: count, rate, share of the peak, and when none is reported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from trace_writer import TraceWriter

from hotlap.cli.main import main
from hotlap.diagnose.trace_verdict import StepWork, verdict_of
from hotlap.render.lines import Paper
from hotlap.render.trace_work import work_lines
from hotlap.traces import analyse, operators, read_trace

HALF = "c10::Half"
V100 = "Tesla V100-SXM2-32GB"
V100_HALF = 125e12
STEP_SECONDS = 0.01
ENGINE = "autograd::engine::evaluate_function: MmBackward0"
ENGINE_THREAD = 77


def sizes(*shapes: list[int], dtype: str = HALF) -> dict[str, Any]:
    return {"Input Dims": list(shapes), "Input type": [dtype] * len(shapes)}


PRODUCT = sizes([1024, 512], [512, 256])
PRODUCT_FLOPS = 2 * 1024 * 512 * 256


def call(
    writer: TraceWriter,
    operator: str,
    begin: int,
    length: int,
    *,
    thread: int = 4242,
    kernel: str = "gemm",
    **args: Any,
) -> None:
    writer.host("operator", operator, begin, 20, thread=thread, **args)
    writer.launch(kernel, begin + 5, begin + 10, length, thread=thread)


def training(*, others: int = 0, kernel: str = "gemm", dtype: str = HALF) -> TraceWriter:
    """Write two steps of 10 ms: a product of 1 ms forward, two backward, and other work of matrix units."""
    writer = TraceWriter()
    for begin in writer.steps(2, 10_000, 10_000):
        product = sizes([1024, 512], [512, 256], dtype=dtype)
        call(writer, "aten::mm", begin + 100, 1000, kernel=kernel, **product)
        writer.host("operator", ENGINE, begin + 3000, 2000, thread=ENGINE_THREAD)
        for index in range(2):
            call(writer, "aten::mm", begin + 3010 + 1010 * index, 1000, thread=ENGINE_THREAD, kernel=kernel, **product)
        if others:
            call(writer, "mine::attention", begin + 6000, others, kernel="flash_fwd_kernel<Flash_fwd_kernel_traits>")
    return writer


def work(writer: TraceWriter, folder: Path, *, device: str = V100) -> StepWork | None:
    path = writer.write(folder / "trace.json", deviceProperties=[{"id": 0, "name": device}])
    line = read_trace(path, with_inputs=True)
    return verdict_of(analyse(line), operators(line)).work


def known(writer: TraceWriter, folder: Path, *, device: str = V100) -> StepWork:
    found = work(writer, folder, device=device)
    assert found is not None
    return found


def test_forward_and_backward(tmp_path: Path) -> None:
    found = known(training(), tmp_path)
    assert (found.steps, found.devices, found.nanoseconds) == (2, 1, 20_000_000)
    assert found.flops_per_step == 3 * PRODUCT_FLOPS
    assert found.backward_flops == 2 * 2 * PRODUCT_FLOPS
    assert found.flops_per_second == pytest.approx(3 * PRODUCT_FLOPS / STEP_SECONDS)
    assert found.peak_share == pytest.approx(3 * PRODUCT_FLOPS / STEP_SECONDS / V100_HALF)
    assert [(it.dtype, it.peak_flops_per_second) for it in found.dtypes] == [("float16", V100_HALF)]
    assert (found.known_matrix_share, found.known_kernel_share, found.is_lower_bound) == (1, 1, False)


def test_legacy_nodes_of_the_backward_pass(tmp_path: Path) -> None:
    writer = TraceWriter()
    call(writer, "aten::mm", 0, 100, **PRODUCT)
    writer.host("operator", "MmBackward", 200, 100, **{"Fwd thread id": 1, "Sequence number": 4})
    call(writer, "aten::mm", 210, 100, **PRODUCT)
    assert known(writer, tmp_path).flops == 2 * PRODUCT_FLOPS


def test_matrix_work_of_unknown_size_makes_the_figure_a_bound(tmp_path: Path) -> None:
    found = known(training(others=1000), tmp_path)
    assert found.is_lower_bound
    assert found.known_matrix_share == pytest.approx(0.75)
    page = "\n".join(work_lines(found, Paper(width=120)))
    assert "At least 805 MFLOP per step: 268 MFLOP forward, 537 MFLOP backward." in page
    assert "known for 75 % of the time of matrix kernels" in page


def test_no_figure_if_too_little_is_known(tmp_path: Path) -> None:
    assert work(training(others=4000), tmp_path) is None
    writer = TraceWriter()
    call(writer, "aten::mm", 0, 100)
    assert work(writer, tmp_path) is None
    assert list(work_lines(None, Paper())) == []


def test_elementwise_kernels_count_no_operations(tmp_path: Path) -> None:
    writer = training()
    for begin in (0, 10_000):
        call(writer, "aten::gelu", begin + 6000, 3000, kernel="vectorized_elementwise_kernel")
    found = known(writer, tmp_path)
    assert (found.known_matrix_share, found.is_lower_bound) == (1, False)
    assert found.known_kernel_share == pytest.approx(0.5)


def test_a_device_without_a_published_peak(tmp_path: Path) -> None:
    found = known(training(), tmp_path, device="Some Device")
    assert found.peak_share is None
    assert "no published peak is known for this device and these dtypes" in " ".join(
        work_lines(found, Paper(width=200))
    )


def test_more_than_the_published_peak_has_no_share(tmp_path: Path) -> None:
    """The trace names the wrong device, or a published rate is wrong."""
    writer = TraceWriter()
    call(writer, "aten::mm", 0, 100, **sizes([8192, 8192], [8192, 8192]))
    found = known(writer, tmp_path)
    assert found.peak_share is None
    page = " ".join(work_lines(found, Paper(width=200)))
    assert "more than the published peak of this device, so no share of it is given" in page
    assert "no published peak is known" not in page


def test_float32_that_may_be_tf32_has_no_share(tmp_path: Path) -> None:
    kernel = "cutlass_80_tensorop_s1688gemm_128x128"
    assert known(training(kernel=kernel, dtype="float"), tmp_path, device="NVIDIA A100").peak_share is None
    share = known(training(dtype="float"), tmp_path, device="NVIDIA A100").peak_share
    assert share == pytest.approx(3 * PRODUCT_FLOPS / STEP_SECONDS / 19.5e12)


def test_types_are_compared_with_their_own_peaks(tmp_path: Path) -> None:
    writer = training()
    for begin in (0, 10_000):
        call(writer, "aten::mm", begin + 7000, 1000, **sizes([1024, 512], [512, 256], dtype="float"))
    share = known(writer, tmp_path).peak_share
    assert share == pytest.approx((3 * PRODUCT_FLOPS / V100_HALF + PRODUCT_FLOPS / 15.7e12) / STEP_SECONDS)


def test_a_convolution_by_its_backward_call(tmp_path: Path) -> None:
    """8 images of 16 channels, 32 x 32; 64 filters of 3 x 3, stride 2: outputs of 16 x 16."""
    image, weight, output = [8, 16, 32, 32], [64, 16, 3, 3], [8, 64, 16, 16]
    writer = TraceWriter()
    writer.host("operator", "aten::conv2d", 0, 50, **sizes(image, weight))
    call(writer, "aten::cudnn_convolution", 10, 100, **sizes(image, weight))
    call(writer, "aten::convolution_backward", 300, 200, **sizes(output, image, weight))
    forward = 2 * 8 * 16 * 16 * 64 * 16 * 3 * 3
    assert known(writer, tmp_path).flops == 3 * forward


def test_operations_that_the_profiler_counted(tmp_path: Path) -> None:
    """The profiler writes them at the outer convolution, which calls the one that launches kernels."""
    image, weight = [8, 16, 32, 32], [64, 16, 3, 3]
    writer = TraceWriter()
    writer.host("operator", "aten::conv2d", 0, 50, **sizes(image, weight), flops=5_000_000)
    call(writer, "aten::cudnn_convolution", 10, 100, **sizes(image, weight))
    call(writer, "aten::mm", 300, 100, **PRODUCT, flops=7)
    assert known(writer, tmp_path).flops == 5_000_007


def test_counted_operations_of_a_convolution_of_unknown_size(tmp_path: Path) -> None:
    """For one image without a batch, shapes do not show what the inner operator computes."""
    image, weight = [16, 32, 32], [64, 16, 3, 3]
    writer = TraceWriter()
    writer.host("operator", "aten::conv2d", 0, 5, **sizes(image, weight), flops=5_000_000)
    call(writer, "aten::cudnn_convolution", 10, 100, **sizes(image[1:], weight))
    assert work(writer, tmp_path) is None


@pytest.mark.parametrize(
    ("name", "concrete", "positions"),
    [
        ("aten::conv2d", ["", "", "", "[2, 2]", "[1, 1]", "[1, 1]", "1"], 16 * 16),
        ("aten::conv2d", ["", "", "", "[1, 1]", "[0, 0]", "[2, 2]", "1"], 28 * 28),
        ("aten::convolution", ["", "", "", "[1, 1]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1"], 32 * 32),
        ("aten::convolution", ["", "", "", "[2, 2]", "[1, 1]", "[1, 1]", "True", "[0, 0]", "1"], 32 * 32),
    ],
)
def test_a_convolution_by_its_arguments(tmp_path: Path, name: str, concrete: list[str], positions: int) -> None:
    image, weight = [8, 16, 32, 32], [64, 16, 3, 3]
    writer = TraceWriter()
    writer.host("operator", name, 0, 50, **sizes(image, weight), **{"Concrete Inputs": concrete})
    call(writer, "aten::cudnn_convolution", 10, 100, **sizes(image, weight))
    assert known(writer, tmp_path).flops == 2 * 8 * positions * 64 * 16 * 3 * 3


@pytest.mark.parametrize(
    "concrete",
    [["", "", ""], ["", "", "", "same", "[1, 1]", "[1, 1]"], ["", "", "", "[0, 0]", "[1, 1]", "[1, 1]"], 5,
     ["", "", "", "[1]", "[1, 1]", "[1, 1]"], ["", "", "", "[1, 1]", "[0, 0]", "[99, 99]"]],
)  # fmt: skip
def test_convolution_arguments_without_sizes(tmp_path: Path, concrete: Any) -> None:
    image, weight = [8, 16, 32, 32], [64, 16, 3, 3]
    writer = TraceWriter()
    writer.host("operator", "aten::conv2d", 0, 50, **sizes(image, weight), **{"Concrete Inputs": concrete})
    call(writer, "aten::cudnn_convolution", 10, 100, **sizes(image, weight))
    assert work(writer, tmp_path) is None


def test_attention_counts_once(tmp_path: Path) -> None:
    """2 samples, 4 heads, 128 x 128 scores, heads of 64: the inner operator has the length before the heads."""
    outer, inner = [2, 4, 128, 64], [2, 128, 4, 64]
    writer = TraceWriter()
    writer.host("operator", "aten::_scaled_dot_product_flash_attention", 0, 100, **sizes(outer, outer, outer))
    writer.launch("pad", 1, 5, 10)
    call(writer, "aten::_flash_attention_forward", 20, 200, kernel="flash_fwd_kernel", **sizes(inner, inner, inner))
    assert known(writer, tmp_path).flops == 2 * (2 * 2 * 4 * 128 * 128 * 64)


def test_attention_without_its_inner_operator(tmp_path: Path) -> None:
    outer = [2, 4, 128, 64]
    writer = TraceWriter()
    call(writer, "aten::_scaled_dot_product_flash_attention", 0, 100, kernel="flash_fwd", **sizes(outer, outer, outer))
    assert known(writer, tmp_path).flops == 2 * (2 * 2 * 4 * 128 * 128 * 64)


def test_without_steps_the_whole_trace_counts(tmp_path: Path) -> None:
    writer = TraceWriter()
    call(writer, "aten::mm", 0, 1000, **PRODUCT)
    found = known(writer, tmp_path)
    assert (found.steps, found.nanoseconds) == (0, 1_000_000)
    assert "268 MFLOP in the trace." in "\n".join(work_lines(found, Paper(width=120)))


def test_two_devices_have_twice_the_peak(tmp_path: Path) -> None:
    writer = training()
    for begin in (0, 10_000):
        writer.host("operator", "aten::mm", begin + 50, 20, **PRODUCT)
        writer.launch("gemm", begin + 55, begin + 110, 1000, device=1, stream=8)
    names = [{"id": it, "name": V100} for it in range(2)]
    line = read_trace(writer.write(tmp_path / "trace.json", deviceProperties=names), with_inputs=True)
    found = verdict_of(analyse(line), operators(line)).work
    assert found is not None
    assert (found.devices, found.flops_per_step) == (2, 4 * PRODUCT_FLOPS)
    assert found.peak_share == pytest.approx(4 * PRODUCT_FLOPS / STEP_SECONDS / (2 * V100_HALF))


def test_on_the_page_and_in_the_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = training().write(tmp_path / "trace.json", deviceProperties=[{"id": 0, "name": V100}])
    assert main(["trace", "--full", str(path)]) == 0
    page = " ".join(capsys.readouterr().out.split())
    assert "Floating-point operations 805 MFLOP per step" in page
    assert "0.06 % of the dense peak that the manufacturer publishes (MFU): 125 TFLOP/s in float16." in page
    assert main(["trace", "--json", str(path)]) == 0
    (found,) = json.loads(capsys.readouterr().out)["verdicts"]
    assert found["work"]["flops"] == 6 * PRODUCT_FLOPS
