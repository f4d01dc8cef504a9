"""Every trace's causes are ordered by cost, each with evidence and a remedy."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from test_conclusions import CONSTRUCTED, LOADER, SHARED, many_small_kernels
from test_conclusions import computing_at_full_speed as in_float32
from trace_writer import TraceWriter

from hotlap.cli.main import main
from hotlap.diagnose.trace_verdict import TraceVerdict, verdict_of
from hotlap.records import Finding
from hotlap.render.lines import Paper
from hotlap.render.trace_verdict import verdict_lines
from hotlap.traces import analyse, operators, read_trace
from hotlap.traces.records import Limit

RULES: dict[Limit, str] = {
    "compute": "slow-matmul-precision",
    "data_loader": "loader-bound",
    "host_sync": "host-sync",
    "launch_bound": "launch-bound",
    "blocking_copy": "pageable-copies",
    "communication": "exposed-communication",
    "capture_or_compile": "compilation",
    "initialisation": "first-use",
    "between_steps": "python-overhead",
    "copies": "copies",
}

REAL = {
    "hta_alexnet_cudasync.json.gz": ["first-use", "compilation"],
    # 33 % launching, 21 % all-reduce, 23 % in volta_sgemm.
    "hta_v100x2_ddp_216k.json.gz": ["launch-bound", "exposed-communication", "slow-matmul-precision"],
    # 28 % in the loader; float32 convolutions of a V100 take 38 %, of which the saving by float16 is a bound.
    "kineto_v100_resnet50_nw0.pt.trace.json.gz": ["loader-bound", "slow-matmul-precision", "launch-bound"],
    # Besides the loader, softmax over 5185 x 5185 scores and its two products.
    "tracelens_h100_owlv2.json.gz": ["loader-bound", "eager-attention"],
}


def verdict(writer: TraceWriter, folder: Path, **fields: Any) -> TraceVerdict:
    timeline = read_trace(writer.write(folder / "trace.json", **fields), with_inputs=True)
    return verdict_of(analyse(timeline), operators(timeline))


def rules(found: TraceVerdict) -> list[str]:
    return [it.rule for it in found.findings]


def precision(found: TraceVerdict) -> Finding:
    return next(it for it in found.findings if it.rule == "slow-matmul-precision")


def device(name: str, capability: tuple[int, int]) -> list[dict[str, Any]]:
    return [{"id": 0, "name": name, "computeMajor": capability[0], "computeMinor": capability[1]}]


def busy_with(kernel: str, **operator: Any) -> TraceWriter:
    """Write a device that is busy 98 % of the time with one kernel, launched far ahead."""
    it = TraceWriter(origin=2000)
    for step in range(3):
        it.step(step, step * 10_000 - 1000, 9_990)
        for number in range(10):
            begin = step * 10_000 + number * 1000
            if operator:
                it.host("operator", "aten::mm", begin - 910, 20, **operator)
            it.launch(kernel, begin - 900, begin, 980)
    return it


@pytest.mark.skipif(not SHARED.exists(), reason=f"the reference traces are not at {SHARED}")
@pytest.mark.parametrize("file", REAL)
def test_a_real_trace_has_the_causes_that_the_expert_found(file: str) -> None:
    timeline = read_trace(SHARED / file, with_inputs=True)
    found = verdict_of(analyse(timeline), operators(timeline))
    assert rules(found)[: len(REAL[file])] == REAL[file]
    assert all(it.evidence and it.remedy for it in found.findings)


@pytest.mark.parametrize("make", CONSTRUCTED, ids=lambda it: it.__name__)
def test_the_main_cause_matches_the_conclusion_and_has_a_remedy(
    make: Callable[[], TraceWriter], tmp_path: Path
) -> None:
    found = verdict(make(), tmp_path)
    first = found.findings[0]
    assert found.conclusion is not None
    assert first.rule == RULES[found.conclusion.limit] == RULES[CONSTRUCTED[make]]
    assert first.evidence
    assert first.remedy
    assert 0.25 < first.share.value <= 1


def test_float32_on_a_busy_v100_gets_advice_on_mixed_precision(tmp_path: Path) -> None:
    found = verdict(in_float32(), tmp_path, deviceProperties=device("Tesla V100-SXM2-32GB", (7, 0)))
    assert rules(found) == ["slow-matmul-precision"]
    (it,) = found.findings
    assert "torch.float16" in it.remedy
    assert "GradScaler" in it.remedy
    assert "bfloat16)" not in it.remedy
    assert any("15.7 TFLOP/s in float32, 125 TFLOP/s in float16" in line for line in it.evidence)
    # 990 of each 1000 us, of which a V100 needs 15.7 / 125 in float16.
    assert it.share.value == pytest.approx(0.99 * (1 - 15.7 / 125), abs=0.01)
    assert it.share.low == 0


def test_devices_with_tf32_may_keep_float32(tmp_path: Path) -> None:
    found = verdict(busy_with("ampere_sgemm_128x64_tn"), tmp_path, deviceProperties=device("NVIDIA A100", (8, 0)))
    assert "torch.bfloat16" in precision(found).remedy
    assert "set_float32_matmul_precision" in precision(found).remedy


def test_a_device_without_published_rates_has_a_trivial_bound(tmp_path: Path) -> None:
    found = verdict(busy_with("turing_sgemm_128x64_tn"), tmp_path, deviceProperties=device("Some GPU", (7, 5)))
    assert precision(found).share.value == pytest.approx(0.98, abs=0.01)


def test_recorded_types_add_to_a_kernels_name(tmp_path: Path) -> None:
    inputs = {"Input Dims": [[512, 512], [512, 512]], "Input type": ["float", "float"]}
    volta = device("Tesla V100-PCIE-16GB", (7, 0))
    found = verdict(busy_with("gemm_of_a_library", **inputs), tmp_path, deviceProperties=volta)
    assert any("aten::mm [512x512, 512x512]" in line for line in precision(found).evidence)
    # A device with TensorFloat-32 may multiply such inputs in it.
    ampere = device("NVIDIA A100-SXM4-40GB", (8, 0))
    found = verdict(busy_with("gemm_of_a_library", **inputs), tmp_path, deviceProperties=ampere)
    assert "slow-matmul-precision" not in rules(found)


@pytest.mark.parametrize(
    ("kernel", "name", "capability"),
    [
        ("sm80_xmma_gemm_bf16bf16_bf16f32_f32_tn_n", "NVIDIA A100", (8, 0)),
        ("void gemv2T_kernel_val<int, int, float, float>", "NVIDIA A100", (8, 0)),
        ("ampere_dgemm_128x64_tn", "NVIDIA A100", (8, 0)),
        ("maxwell_sgemm_128x64_nn", "Tesla P100-SXM2-16GB", (6, 0)),
        ("cudnn::bn_fw_tr_1C11_kernel_NCHW<float>", "Tesla V100-SXM2-32GB", (7, 0)),
    ],
)
def test_precision_is_not_advised_where_it_would_not_help(
    kernel: str, name: str, capability: tuple[int, int], tmp_path: Path
) -> None:
    found = verdict(busy_with(kernel), tmp_path, deviceProperties=device(name, capability))
    assert rules(found) == ["computing"]
    assert found.findings[0].remedy


def test_elementwise_kernels_are_a_cause_unless_they_are_fused(tmp_path: Path) -> None:
    name = "void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float>>"
    assert rules(verdict(busy_with(name), tmp_path)) == ["unfused-kernels"]
    assert "unfused-kernels" not in rules(verdict(busy_with("triton_poi_fused_add_0"), tmp_path))


def test_a_loader_without_workers_gets_advice_to_use_some(tmp_path: Path) -> None:
    writer = next(make for make, limit in CONSTRUCTED.items() if limit == "data_loader")()
    assert "no workers" in verdict(writer, tmp_path).findings[0].remedy


def test_without_marked_steps_shares_are_of_the_trace(tmp_path: Path) -> None:
    writer = many_small_kernels()
    writer.events = [it for it in writer.events if not it["name"].startswith("ProfilerStep")]
    found = verdict(writer, tmp_path)
    assert "of the trace" in found.findings[0].title
    assert not [line for it in found.findings for line in (it.title, *it.evidence) if "of the step" in line]


def test_an_unreliable_trace_should_be_recorded_again(tmp_path: Path) -> None:
    writer = many_small_kernels()
    writer.host("call", "cudaGraphLaunch", 900, 10, correlation=9_000)
    found = verdict(writer, tmp_path)
    assert rules(found) == ["unreliable-trace"]
    assert "Record it again" in found.findings[0].remedy
    assert found.conclusion is None


def test_a_trace_of_the_host_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    writer = TraceWriter()
    for begin in writer.steps(3, 1000, 1000):
        writer.host("operator", LOADER, begin, 500)
        writer.host("operator", "aten::mm", begin + 500, 300)
    path = writer.write(tmp_path / "trace.json")
    assert main(["trace", "--json", str(path)]) == 0
    (found,) = json.loads(capsys.readouterr().out)["verdicts"]
    assert [it["rule"] for it in found["findings"]] == ["loader-bound", "python-overhead", "dominant-operator"]
    assert [it["share"]["value"] for it in found["findings"][:2]] == pytest.approx([0.5, 0.2])
    assert found["conclusion"]["limit"] == "data_loader"
    assert main(["trace", "--full", str(path)]) == 0
    shown = capsys.readouterr().out
    assert shown.index("Operators, by") < shown.index("Main causes, and what to do")
    assert "num_workers" in shown


def test_a_host_trace_without_steps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    writer = TraceWriter()
    writer.host("operator", "aten::conv2d", 0, 100)
    assert main(["trace", "--full", str(writer.write(tmp_path / "trace.json"))]) == 0
    assert "aten::conv2d, takes 100 % of their time." in capsys.readouterr().out


def test_ranks_of_one_run_name_the_straggler(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for rank, compute in enumerate((500, 800)):
        writer = TraceWriter()
        for begin in writer.steps(4, 1000):
            writer.launch("gemm", begin, begin + 5, compute)
            writer.launch("ncclDevKernel_AllReduce_Sum_f32", begin + 2, begin + 5 + compute, 900 - compute, stream=20)
        distributed = {"backend": "nccl", "rank": rank, "world_size": 2}
        writer.write(tmp_path / f"rank{rank}.json", distributedInfo=distributed)
    assert main(["trace", "--json", str(tmp_path)]) == 0
    together = json.loads(capsys.readouterr().out)["verdict_of_ranks"]
    assert "straggler" in [it["rule"] for it in together["findings"]]
    assert main(["trace", "--full", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "(the ranks together)" in shown
    assert "what only rank 1 does" in " ".join(shown.split())


PRODUCT = {"Input Dims": [[1024, 512], [512, 256]]}
FLOPS_PER_SECOND = 2 * 1024 * 512 * 256 / 980e-6
"""Of one such product in the 980 us that the kernels of :func:`busy_with` take."""


@pytest.mark.parametrize(
    ("name", "dtype", "peak"),
    [
        ("Tesla V100-SXM2-32GB", "float", 15.7e12),
        ("Tesla V100-SXM2-32GB", "c10::Half", 125e12),
        ("Tesla V100-SXM2-32GB", "c10::BFloat16", None),
        ("NVIDIA A100-SXM4-80GB", "c10::BFloat16", 312e12),
        ("NVIDIA A100-SXM4-80GB", "double", None),
        ("Some GPU", "float", None),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "c10::BFloat16", None),
        ("NVIDIA A10G", "c10::BFloat16", None),
    ],
)
def test_products_are_compared_with_the_published_peak(
    name: str, dtype: str, peak: float | None, tmp_path: Path
) -> None:
    writer = busy_with("gemm", **PRODUCT, **{"Input type": [dtype, dtype]})
    (product,) = verdict(writer, tmp_path, deviceProperties=device(name, (8, 0))).products
    assert (product.batch, product.rows, product.common, product.columns, product.calls) == (1, 1024, 512, 256, 30)
    assert product.flops_per_second == pytest.approx(FLOPS_PER_SECOND)
    assert product.peak_share == (None if peak is None else pytest.approx(FLOPS_PER_SECOND / peak))


def test_float32_inputs_that_may_run_in_tf32_have_no_peak(tmp_path: Path) -> None:
    writer = busy_with("cutlass_80_tensorop_s1688gemm_128x128", **PRODUCT, **{"Input type": ["float", "float"]})
    (product,) = verdict(writer, tmp_path, deviceProperties=device("NVIDIA A100", (8, 0))).products
    assert product.peak_share is None


def test_products_without_consistent_sizes_are_left_out(tmp_path: Path) -> None:
    types = {"Input type": ["float", "float"]}
    assert not verdict(busy_with("gemm", **types), tmp_path).products
    assert not verdict(busy_with("gemm", **{"Input Dims": [[8, 0], [0, 8]]}, **types), tmp_path).products
    assert not verdict(busy_with("gemm", **{"Input Dims": [[8, 4], [5, 8]]}, **types), tmp_path).products


def test_the_products_are_listed_before_the_causes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    writer = busy_with("gemm", **PRODUCT, **{"Input type": ["c10::Half", "c10::Half"]})
    path = writer.write(tmp_path / "trace.json", deviceProperties=device("Tesla V100-SXM2-32GB", (7, 0)))
    assert main(["trace", "--full", str(path)]) == 0
    page = capsys.readouterr().out
    shown = " ".join(page.split())
    assert page.index("Matrix products, by their sizes") < page.index("Main causes, and what to do")
    assert "29.4 ms 274 GFLOP/s" in shown
    assert main(["trace", "--json", str(path)]) == 0
    (found,) = json.loads(capsys.readouterr().out)["verdicts"]
    assert found["products"][0]["peak_share"] == pytest.approx(FLOPS_PER_SECOND / 125e12)


@pytest.mark.parametrize("width", [40, 80, 120])
def test_lines_fit_the_terminal(width: int, tmp_path: Path) -> None:
    writer = busy_with(f"volta_sgemm_{'x' * 200}", **PRODUCT, **{"Input type": ["float", "float"]})
    found = verdict(writer, tmp_path, deviceProperties=device("Tesla V100-SXM2-32GB", (7, 0)))
    lines = verdict_lines([found, found], Paper(width, ascii_only=True))
    assert max(map(len, lines)) <= width
    assert all(it.isascii() and it == it.rstrip() for it in lines)


def test_control_characters_in_kernel_names_are_removed(tmp_path: Path) -> None:
    evil = "volta_sgemm\x1b[2J\u202e\n[red]x[/red]"
    found = verdict(busy_with(evil, **PRODUCT, **{"Input type": ["float", "float"]}), tmp_path)
    page = "\n".join(verdict_lines([found], Paper(120)))
    assert "[red]x[/red]" in page
    assert "\x1b" not in page
    assert "\u202e" not in page


def test_the_busiest_of_several_devices_is_judged_and_named(tmp_path: Path) -> None:
    writer = busy_with("volta_sgemm_128x64_nn")
    writer.launch("gemm", 100, 110, 50, device=1, stream=9)
    found = verdict(writer, tmp_path)
    assert (found.device, found.devices) == (0, 2)
    assert "(device 0, the busiest of 2)" in verdict_lines([found], Paper(100))[0]
