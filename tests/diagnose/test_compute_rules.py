"""The rules about what computes: their arithmetic, and what they do at their thresholds."""

from __future__ import annotations

import math
import re

import msgspec
import pytest

from hotlap.diagnose import Profile
from hotlap.diagnose import operators as operators_of
from hotlap.diagnose.api import all_rules
from hotlap.diagnose.example_traces import STEPS, trace_of
from hotlap.diagnose.examples import CPU, GPU, operator, run_on, with_kernels, with_optimizer
from hotlap.diagnose.operators import WORTH_A_LOOK
from hotlap.diagnose.work import Rates, beaten, work_of
from hotlap.evidence import LayerUse, LineSamples, RunEvidence, SampledLine, Window
from hotlap.records import Accelerator, CallSite, Ceilings, Finding, Machine, ModelFacts, OptimizerFacts
from hotlap.trace.records import CopyRow, IdleCause, OperatorRow

BFLOAT16, FLOAT16 = "c10::BFloat16", "c10::Half"
BUSY = operator("aten::gelu", 60, [(4096, 1024)])
"""Keeps the GPU of an example busy for three fifths of the step, so that its kernels matter."""

SITE = CallSite(role="model", file="/home/someone/train.py", line=31)


def found(rule: str, profile: Profile) -> list[Finding]:
    return list(all_rules()[rule].check(profile))


def one(rule: str, profile: Profile) -> Finding:
    (finding,) = found(rule, profile)
    return finding


def profiled(profile: Profile, *, steps: int, seconds: float) -> Profile:
    """The same operators, counted in a window of other steps and seconds."""
    window = Window(first_step=3, steps=steps, wall_seconds=seconds, trace_path="trace.json")
    return msgspec.structs.replace(profile, evidence=RunEvidence(observed_steps=50, window=window))


# ---------------------------------------------------------------------------------------------
# What operators are, and what they take
# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("aten::mm", {"product"}),
        ("aten::addmm", {"product"}),
        ("aten::_addmm_activation", {"product"}),
        ("aten::bmm", {"product"}),
        ("aten::baddbmm", {"product"}),
        ("aten::linear", {"product"}),
        ("aten::mul", set()),
        ("aten::mv", set()),
        ("aten::cudnn_convolution", {"convolution"}),
        ("aten::mkldnn_convolution", {"convolution"}),
        ("aten::convolution_backward", {"convolution"}),
        ("aten::_slow_conv2d_forward", {"convolution"}),
        ("aten::_conv_depthwise2d", {"convolution"}),
        ("aten::conv_transpose2d", {"convolution"}),
        ("aten::_convert_indices_from_csr_to_coo", set()),
        ("aten::_scaled_dot_product_flash_attention_backward", {"attention"}),
        ("aten::_efficient_attention_forward", {"attention"}),
        ("aten::_softmax", set()),
        ("aten::_cudnn_rnn_backward", {"recurrent"}),
        ("aten::mkldnn_rnn_layer", {"recurrent"}),
        ("aten::lstm_cell", set()),
        ("aten::embedding_dense_backward", set()),
        ("library::mm", set()),
    ],
)
def test_operators_are_told_apart_by_their_names(name: str, kinds: set[str]) -> None:
    row = OperatorRow(name=name)
    of_kind = {
        it for it in ("product", "convolution", "attention", "recurrent") if getattr(operators_of, f"is_{it}")(row)
    }
    assert of_kind == kinds
    assert operators_of.is_matrix_work(row) == bool(kinds)


@pytest.mark.parametrize(
    ("types", "dtype"),
    [
        (("float", "float", "Scalar"), "float32"),
        (("c10::BFloat16", "c10::BFloat16"), "bfloat16"),
        (("c10::Half",), "float16"),
        (("double", "double"), "float64"),
        (("float", "long int"), "float32"),
        (("float", "c10::Half"), ""),
        (("long int",), ""),
        ((), ""),
    ],
)
def test_a_dtype_is_what_all_floating_inputs_have(types: tuple[str, ...], dtype: str) -> None:
    assert operators_of.dtype_of(OperatorRow(name="aten::mm", types=types)) == dtype


def test_on_a_cpu_time_is_held_against_the_profiled_step() -> None:
    row = operator("aten::mm", 30)
    slowed_down = profiled(run_on(CPU, row), steps=STEPS, seconds=STEPS * 0.2)
    assert operators_of.share_of(slowed_down, [row]) == pytest.approx(0.15)


def test_on_an_accelerator_kernels_are_held_against_the_untouched_step() -> None:
    row = operator("aten::mm", 30)
    slowed_down = profiled(run_on(GPU, row), steps=STEPS, seconds=STEPS * 0.2)
    assert operators_of.share_of(slowed_down, [row]) == pytest.approx(0.30)
    assert operators_of.seconds_per_step(slowed_down, [row]) == pytest.approx(0.030)


def test_without_profiled_steps_there_is_no_share() -> None:
    row = operator("aten::mm", 30)
    unknown = msgspec.structs.replace(run_on(CPU, row), evidence=RunEvidence())
    assert operators_of.share_of(unknown, [row]) == 0.0
    assert operators_of.share_of(msgspec.structs.replace(unknown, account=Profile().account), [row]) == 0.0


def test_a_trace_says_how_busy_the_device_is_and_operators_where_there_is_none() -> None:
    row = operator("aten::mm", 30)
    assert operators_of.device_busy_share(run_on(GPU, row)) == pytest.approx(0.30)
    assert operators_of.device_busy_share(with_kernels(run_on(GPU, row), {"gemm": 70})) == pytest.approx(0.70)


@pytest.mark.parametrize(("milliseconds", "matter"), [(50, True), (49, False)])
def test_kernels_matter_where_the_device_is_busy_for_half_of_the_step(milliseconds: float, matter: bool) -> None:
    assert operators_of.kernels_matter(run_on(GPU, operator("aten::mm", milliseconds))) is matter
    assert operators_of.kernels_matter(run_on(CPU, operator("aten::mm", milliseconds))) is True


@pytest.mark.parametrize(
    ("place", "site"),
    [
        ("train.py(31): forward", CallSite(role="model", file="train.py", line=31, function="forward")),
        ("/a b/(x)/net.py(7): <lambda>", CallSite(role="model", file="/a b/(x)/net.py", line=7, function="<lambda>")),
        ("train.py(31)", CallSite(role="model", file="train.py", line=31)),
        ("train.py(1): <module>", None),
        ("train.py", None),
        ("", None),
        ("train.py(many): f", None),
    ],
)
def test_places_become_lines(place: str, site: CallSite | None) -> None:
    assert operators_of.site_of(OperatorRow(name="aten::mm", place=place)) == site


def test_many_shapes_and_long_names_are_cut() -> None:
    row = operator("aten::cat", 1, [(1024, 1024)] * 50)
    assert operators_of.in_words(row) == "aten::cat [1024x1024, 1024x1024, 1024x1024]"
    assert len(operators_of.in_words(operator("x" * 5000, 1))) <= 80


# ---------------------------------------------------------------------------------------------
# slow-matmul-precision
# ---------------------------------------------------------------------------------------------


FLOAT32_RATES = {"cpu": 5.0e11, "cuda": 4.5e13}


def float32_product(milliseconds: float, device: str = "cuda", *, part: float = 1.0) -> OperatorRow:
    """Products of a size whose rates are in the examples; at its rate they take ``part`` of that time."""
    calls = math.ceil(part * milliseconds * 1e-3 * STEPS * FLOAT32_RATES[device] / (2 * 1024**3))
    row = operator("aten::mm", milliseconds, [(1024, 1024), (1024, 1024)])
    return msgspec.structs.replace(row, calls=calls)


def test_the_bound_is_the_share_times_what_the_rates_of_the_size_differ_by() -> None:
    finding = one("slow-matmul-precision", run_on(GPU, float32_product(40), BUSY))
    assert finding.share.value == pytest.approx(0.40 * (1 - 4.5e13 / 3.5e14))
    assert finding.share.low == 0.0
    assert "40 % of the step" in finding.title and "bfloat16 would save at most 35 %" in finding.title
    assert finding.levers == ("matmul-precision", "mixed-precision")
    assert "45.0 TFLOP/s in float32, 350 TFLOP/s in bfloat16" in finding.evidence[1]


def thin_product(milliseconds: float, calls: int) -> OperatorRow:
    """So few rows that reading the other matrix takes the time."""
    return operator("aten::mm", milliseconds, [(8, 2048), (2048, 2048)], calls=calls)


def test_no_more_is_saved_than_the_operations_take_at_the_measured_rate() -> None:
    """By hand bfloat16 changed nothing in a network of such products."""
    row = thin_product(60, calls=5)
    rates = Rates(CPU.ceilings, "cpu")
    work = work_of(row, {})
    assert work is not None
    at_the_rate = 5 * (rates.seconds("float32", work) or 0) / 0.1
    assert at_the_rate < 0.05
    assert not found("slow-matmul-precision", run_on(CPU, row))
    beside = one("slow-matmul-precision", run_on(CPU, row, float32_product(30, "cpu")))
    ratio = (rates.seconds("bfloat16", work) or 0) / (rates.seconds("float32", work) or 1)
    assert beside.share.value == pytest.approx(0.30 * 0.75 + at_the_rate * (1 - ratio))


def test_a_machine_that_was_slower_than_in_the_test_was_slower_for_all_products() -> None:
    """While others computed, the test's best tries slipped between them, and the script's steps did not: by hand 54 %
    were saved where 33 % should have been the most."""
    row = float32_product(80, "cpu", part=0.5)
    assert one("slow-matmul-precision", run_on(CPU, row)).share.value == pytest.approx(0.80 * 0.75)


def test_convolutions_and_recurrent_layers_are_bounded_by_their_own_time() -> None:
    """Rates of products are none of theirs: by hand 38 % were saved in convolutions at a tenth of such a rate."""
    image, weight = (32, 64, 16, 16), (64, 64, 3, 3)
    backward = operator("aten::convolution_backward", 60, [image, image, weight])
    work = work_of(backward, {(image, weight): image})
    assert work is not None
    rates = Rates(CPU.ceilings, "cpu")
    part = 1 - (rates.rate("float32", work.side) or 0) / (rates.rate("bfloat16", work.side) or 1)
    assert one("slow-matmul-precision", run_on(CPU, backward)).share.value == pytest.approx(0.60 * part)
    recurrent = operator("aten::mkldnn_rnn_layer", 60, [(40, 32, 64), (512, 64), (512, 128)])
    assert one("slow-matmul-precision", run_on(CPU, recurrent)).share.value > 0.3


def test_a_script_with_fewer_threads_than_the_test_reaches_less() -> None:
    ceilings = msgspec.structs.replace(CPU.ceilings, threads=4)
    assert Rates(ceilings, "cpu", 1).rate("float32", 1024) == 5.0e11 / 4
    assert Rates(ceilings, "cpu", 8).rate("float32", 1024) == 5.0e11
    assert Rates(ceilings, "cpu").rate("float32", 1024) == 5.0e11


@pytest.mark.parametrize(("milliseconds", "fires"), [(6.7, True), (6.6, False)])
def test_what_is_saved_must_be_worth_a_look(milliseconds: float, fires: bool) -> None:
    """On the CPU of the examples bfloat16 is four times as fast with this size, so three quarters are saved."""
    assert 0.066 * 0.75 < WORTH_A_LOOK < 0.067 * 0.75
    assert bool(found("slow-matmul-precision", run_on(CPU, float32_product(milliseconds, "cpu")))) is fires


def test_nothing_is_said_to_take_more_than_forward_and_backward_do() -> None:
    run = run_on(CPU, float32_product(60, "cpu"))
    account = msgspec.structs.replace(run.account, forward=0.005, backward=0.008, other=0.077)
    finding = one("slow-matmul-precision", msgspec.structs.replace(run, account=account))
    assert finding.share.value == pytest.approx(0.13)
    assert "take 13 % of the step" in finding.title and "13 % of the step" in finding.evidence[0]


def test_small_products_that_the_other_format_makes_slower_are_no_finding() -> None:
    """A tiny network: by hand bfloat16 made such scripts slower, and they were told to use it."""
    small = operator("aten::addmm", 60, [(64,), (32, 64), (64, 64)], calls=1000)
    assert not found("slow-matmul-precision", run_on(CPU, small))
    large = operator("aten::addmm", 60, [(512,), (1024, 512), (512, 512)], calls=100)
    assert found("slow-matmul-precision", run_on(CPU, large))


def test_converting_weights_is_taken_off() -> None:
    layers = (LayerUse(kind="Linear", name="net.0", weight_shape=(1024, 1024), count=4),)
    run = run_on(CPU, float32_product(40, "cpu"))
    evidence = msgspec.structs.replace(run.evidence, layers=layers)
    with_layers = msgspec.structs.replace(run, evidence=evidence)
    seconds = 2e-6 * (1024 / 128) ** 2
    finding = one("slow-matmul-precision", with_layers)
    assert finding.share.value == pytest.approx(0.40 * 0.75 - 4 * seconds / 0.1)
    assert any(it.startswith("Converting weights and gradients takes") for it in finding.evidence)
    twice = msgspec.structs.replace(with_layers, facts=msgspec.structs.replace(run.facts, backwards_per_step=2.0))
    assert one("slow-matmul-precision", twice).share.value == pytest.approx(0.40 * 0.75 - 8 * seconds / 0.1)


@pytest.mark.parametrize(
    ("row", "operations"),
    [
        (operator("aten::bmm", 1, [(8, 64, 32), (8, 32, 16)]), 2 * 8 * 64 * 32 * 16),
        (operator("aten::addmm", 1, [(10,), (32, 128), (128, 10)]), 2 * 32 * 128 * 10),
        (operator("aten::convolution_backward", 1, [(4, 32, 15, 15), (4, 16, 32, 32), (32, 16, 3, 3)]), 8294400 * 2),
        (operator("aten::mkldnn_convolution", 1, [(4, 16, 32, 32), (32, 16, 3, 3), (32,)]), 8294400),
        (operator("aten::mkldnn_rnn_layer", 1, [(50, 32, 64), (512, 64), (512, 128)]), 2 * 50 * 32 * 512 * 192),
        (
            operator("aten::_scaled_dot_product_flash_attention_for_cpu", 1, [(2, 4, 32, 16)] * 3),
            2 * 2 * (2 * 4 * 32 * 32 * 16),
        ),
        (operator("aten::mm", 1), None),
        (operator("aten::mkldnn_convolution", 1, [(1, 3, 8, 8), (8, 3, 3, 3)]), None),
        (operator("aten::gelu", 1, [(8, 8)]), None),
    ],
)
def test_work_is_read_off_the_shapes(row: OperatorRow, operations: float | None) -> None:
    outputs = {((4, 16, 32, 32), (32, 16, 3, 3)): (4, 32, 15, 15)}
    work = work_of(row, outputs)
    assert (work.operations if work else None) == operations


def test_rates_of_sizes_between_and_beyond_those_measured() -> None:
    rates = Rates(CPU.ceilings, "cpu")
    assert rates.rate("float32", 1024) == 5.0e11
    assert 4e10 < (rates.rate("bfloat16", 128) or 0) < 1.2e12
    assert rates.rate("float32", 8) == 8e9, "so small a product is mostly the call"
    assert rates.rate("float32", 4 * 1024) == 5.0e11
    assert rates.rate("float32", 4 * 1024 + 1) is None
    assert rates.rate("float16", 64) is None
    assert rates.conversion_seconds("bfloat16", 1) == 2e-6
    assert rates.conversion_seconds("bfloat16", 2 * 1024**2) == pytest.approx(2 * 2e-6 * 64)
    assert rates.conversion_seconds("float32", 10**6) == 0.0


def test_convolutions_run_in_tensorfloat_already_and_are_weighed_apart() -> None:
    image, weight = (64, 64, 32, 32), (64, 64, 4, 4)
    backward = operator("aten::convolution_backward", 0, [image, image, weight])
    convolution = operator("aten::cudnn_convolution", 40, [image, weight], calls=1100)
    both = one("slow-matmul-precision", run_on(GPU, convolution, backward, float32_product(20), BUSY))
    by_side = {it.side: it.flops_per_second for it in GPU.ceilings.matmul_by_size if it.key == "cuda:tf32"}
    alone = one("slow-matmul-precision", run_on(GPU, convolution, backward, BUSY))
    assert 0.40 * (1 - by_side[4096] / 6.0e14) >= alone.share.value >= 0.40 * (1 - by_side[1024] / 3.5e14)
    assert both.share.value == pytest.approx(alone.share.value + 0.20 * (1 - 4.5 / 35))
    assert alone.levers == ("mixed-precision",)
    assert "set_float32_matmul_precision" not in alone.remedy


def test_an_older_gpu_is_told_of_float16_and_a_scaler() -> None:
    turing = Accelerator(
        kind="cuda", name="T4", memory_bytes=1 << 34, capability="7.5", native_dtypes=("float32", "float16")
    )
    finding = one("slow-matmul-precision", run_on(Machine(accelerators=(turing,)), float32_product(60)))
    assert "torch.float16" in finding.remedy and "scaler" in finding.remedy
    assert "matmul-precision" not in finding.levers


def test_a_device_that_nobody_knows_gives_no_ground() -> None:
    run = run_on(GPU, float32_product(60))
    assert found("slow-matmul-precision", run)
    facts = msgspec.structs.replace(run.facts, device="mps")
    assert not found("slow-matmul-precision", msgspec.structs.replace(run, facts=facts))


def test_rates_of_another_device_are_no_rates() -> None:
    of_cpu = msgspec.structs.replace(GPU, ceilings=CPU.ceilings)
    finding = one("slow-matmul-precision", run_on(of_cpu, float32_product(60)))
    assert finding.kind == "hint" and finding.share.value == 0
    assert "would save" not in finding.title and "60 % of the step" in finding.title
    assert "no rate was measured" in finding.evidence[1]


def test_without_rates_of_small_products_there_is_no_figure() -> None:
    """As in a study of before sizes were measured."""
    old = msgspec.structs.replace(CPU, ceilings=msgspec.structs.replace(CPU.ceilings, matmul_by_size=()))
    assert one("slow-matmul-precision", run_on(old, float32_product(60, "cpu"))).kind == "hint"


def test_products_far_larger_than_any_that_was_measured_give_no_figure() -> None:
    huge = operator("aten::mm", 60, [(1 << 15, 1 << 15), (1 << 15, 1 << 15)])
    assert one("slow-matmul-precision", run_on(CPU, huge)).kind == "hint"


def test_rates_in_doubt_give_no_figure() -> None:
    doubts = (("cpu", "These rates varied by 60 % within their test."), ("cuda", "So did these, by 3 %."))
    ceilings = msgspec.structs.replace(CPU.ceilings, doubts=doubts)
    finding = one(
        "slow-matmul-precision", run_on(msgspec.structs.replace(CPU, ceilings=ceilings), float32_product(60, "cpu"))
    )
    assert finding.kind == "hint"
    assert "varied by 60 %" in finding.evidence[1] and "So did these" not in finding.evidence[1]


def test_sparse_products_are_neither_slow_nor_faster_than_the_machine() -> None:
    """A trace shows the shape of a graph's adjacency and not that it is nearly empty; the counted operations do."""
    adjacency = operator("aten::mm", 60, [(20_000, 20_000), (20_000, 16)], calls=30)
    model = ModelFacts(kind="Net", parameters=1000, flops_per_step=1e7)
    assert not found("slow-matmul-precision", run_on(CPU, adjacency, model=model))
    assert beaten(run_on(CPU, adjacency)) and not beaten(run_on(CPU, adjacency, model=model))


def test_rates_in_doubt_that_leave_nothing_to_gain_are_no_hint() -> None:
    doubts = (("cpu", "These rates varied by 60 % within their test."),)
    ceilings = msgspec.structs.replace(CPU.ceilings, doubts=doubts)
    machine = msgspec.structs.replace(CPU, ceilings=ceilings)
    small = operator("aten::addmm", 60, [(64,), (32, 64), (64, 64)], calls=1000)
    assert not found("slow-matmul-precision", run_on(machine, small))
    assert not found("slow-matmul-precision", run_on(machine, thin_product(60, calls=5)))


def test_rates_that_the_script_itself_beats_are_in_doubt() -> None:
    """As measured by the issue: a ceiling of 14.7 GFLOP/s where hundreds are usual."""
    disturbed = msgspec.structs.replace(CPU.ceilings, matmul_flops_per_second=(("cpu:float32", 1.47e10),))
    row = operator("aten::mm", 60, [(1024, 1024), (1024, 1024)], calls=12)
    finding = one("slow-matmul-precision", run_on(msgspec.structs.replace(CPU, ceilings=disturbed), row))
    assert finding.kind == "hint"
    assert "429 GFLOP/s, more than the 14.7 GFLOP/s of this machine's test" in finding.evidence[1]


def test_the_line_is_the_models_call() -> None:
    """The products' own places are those of their layers, or of the loop for the backward ones."""
    placed = operator("aten::mm", 60, [(512, 512), (512, 512)], calls=200, place="net.py(12): forward")
    assert one("slow-matmul-precision", run_on(CPU, placed, sites=(SITE,))).site == SITE


# ---------------------------------------------------------------------------------------------
# dominant-operator
# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("milliseconds", "fires"), [(40, False), (41, True)])
def test_an_operator_dominates_above_two_fifths(milliseconds: float, fires: bool) -> None:
    rest = operator("aten::mm", 100 - milliseconds)
    profile = run_on(CPU, operator("aten::sort", milliseconds, [(1000, 1000)]), rest)
    assert bool(found("dominant-operator", profile)) is fires


@pytest.mark.parametrize(("milliseconds", "fires"), [(4.99, False), (5.01, True)])
def test_it_must_take_a_part_of_the_step_as_well(milliseconds: float, fires: bool) -> None:
    assert bool(found("dominant-operator", run_on(CPU, operator("aten::sort", milliseconds)))) is fires


def test_calls_with_the_same_shapes_count_together_wherever_they_are() -> None:
    here = operator("aten::cat", 30, [(64, 64)], place="net.py(3): forward")
    there = operator("aten::cat", 20, [(64, 64)], place="net.py(9): forward")
    other_shape = operator("aten::cat", 20, [(8, 8)])
    rest = operator("aten::mm", 40)
    finding = one("dominant-operator", run_on(CPU, there, here, rest))
    assert "aten::cat [64x64] takes 56 %" in finding.title
    assert finding.site is not None and finding.site.line == 3
    assert not found("dominant-operator", run_on(CPU, here, other_shape, rest))


def test_the_line_is_where_the_trace_says_or_the_models_call() -> None:
    placed = operator("aten::sort", 60, [(64, 64)], place="net.py(12): forward")
    at_module = operator("aten::sort", 60, [(64, 64)], place="train.py(1): <module>")
    found_there = one("dominant-operator", run_on(CPU, placed, sites=(SITE,))).site
    assert found_there == CallSite(role="model", file="net.py", line=12, function="forward")
    assert one("dominant-operator", run_on(CPU, at_module, sites=(SITE,))).site == SITE


def met(line: int, native: str = "", *, function: str = "forward", samples: int = 40, called: str = "") -> SampledLine:
    """A line of net.py in which the host was met."""
    site = CallSite(role="call", file="/home/ada/net.py", line=line, function=function)
    return SampledLine(phase="forward", samples=samples, seconds=samples / 100, native=native, called=called, site=site)


@pytest.mark.parametrize(
    ("name", "lines", "line"),
    [
        ("aten::sort", [met(14, "torch.sort")], 14),
        ("aten::sort", [met(14, "torch.sort"), met(15, "torch.Tensor.sort", samples=90)], 15),
        ("aten::relu", [met(14, called="torch.nn.functional.relu")], 14),
        ("aten::sort", [met(14, "torch.topk")], 12),
        ("aten::sort", [met(14, "torch.sort", samples=9)], 12),
        ("aten::sort", [met(14, "torch.sort", function="training_step")], 12),
        ("aten::mul", [met(14, "operator")], 14),
        ("aten::mul", [met(14, "operator"), met(15, "operator")], 12),
        ("aten::sort", [met(14, "operator")], 12),
    ],
)
def test_the_line_that_was_met_in_the_operator_is_named(name: str, lines: list[SampledLine], line: int) -> None:
    """The trace knows that the function begins in line 12."""
    run = run_on(CPU, operator(name, 60, [(64, 4096)], place="net.py(12): forward"))
    evidence = msgspec.structs.replace(run.evidence, sampled=LineSamples(samples=200, lines=tuple(lines)))
    site = one("dominant-operator", msgspec.structs.replace(run, evidence=evidence)).site
    assert site is not None and site.line == line


def test_a_loop_is_told_from_one_large_call() -> None:
    large = one("dominant-operator", run_on(CPU, operator("aten::add", 50, [(4096, 4096)])))
    loop = one("dominant-operator", run_on(CPU, operator("aten::add", 9, [(4,)], calls=100)))
    few = one("dominant-operator", run_on(CPU, operator("aten::add", 9, [(4,)], calls=99)))
    assert "loop" in loop.remedy and "loop" not in large.remedy and "loop" not in few.remedy
    assert loop.levers == () and "compile" in large.levers
    assert "Calls a step: 100, of 90.0 us each" in loop.evidence[0]


@pytest.mark.parametrize("name", ["aten::embedding_dense_backward", "aten::fill_", "aten::zero_"])
def test_what_has_an_advice_of_its_own_names_no_lever(name: str) -> None:
    """On a CPU the gradient of an embedding spends its time in filling the table with zeros."""
    finding = one("dominant-operator", run_on(CPU, operator(name, 60)))
    assert "sparse=True" in finding.remedy and finding.levers == ()


def test_levers_that_cannot_be_tried_there_are_not_named() -> None:
    on_gpu = one("dominant-operator", run_on(GPU, operator("aten::exp", 60)))
    assert "huge-pages" not in on_gpu.levers and "compile" in on_gpu.levers


@pytest.mark.parametrize(("direction", "fires"), [("HtoD", False), ("DtoD", True)])
def test_copies_of_batches_are_for_the_rules_about_data(direction: str, fires: bool) -> None:
    copies = CopyRow(direction=direction, memory="pageable", copies=10, nanoseconds=300_000_000, bytes=1 << 30)
    idle = IdleCause(cause="unknown", nanoseconds=1_000, gaps=1, longest_nanoseconds=1_000)
    profile = run_on(GPU, operator("aten::copy_", 60, [(64, 3, 224, 224)]))
    traced = msgspec.structs.replace(profile, breakdowns=(trace_of(idle, copies=(copies,)),))
    assert bool(found("dominant-operator", traced)) is fires


# ---------------------------------------------------------------------------------------------
# unaligned-sizes
# ---------------------------------------------------------------------------------------------


def logits(
    milliseconds: float, columns: int = 50257, rows: int = 8192, dtype: str = BFLOAT16
) -> tuple[OperatorRow, ...]:
    weight = operator("aten::linear", 0, [(8, 1024, 768), (columns, 768)], dtype)
    return weight, operator("aten::mm", milliseconds, [(rows, 768), (768, columns)], dtype)


def layer(milliseconds: float, *, rows: int, inputs: int, outputs: int, calls: int = 1) -> OperatorRow:
    """The product of a layer with a bias, in float16."""
    shapes = [(outputs,), (rows, inputs), (inputs, outputs)]
    return operator("aten::addmm", milliseconds, shapes, FLOAT16, calls=calls)


def test_the_bound_leaves_what_the_product_needs_at_full_rate() -> None:
    finding = one("unaligned-sizes", run_on(GPU, *logits(20), BUSY))
    needed_seconds = 2 * 8192 * 768 * 50257 / 6.0e14
    assert finding.share.value == pytest.approx(0.20 - needed_seconds / 0.1)
    assert finding.share.low == 0.0
    assert "50304 instead of 50257" in finding.remedy


def test_what_memory_limits_is_not_held_against_the_matrix_units() -> None:
    """64 numbers become 577: they take longer to write than to multiply."""
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
    """The gradient of a weight has the rows in the middle, where no row of memory begins."""
    forward = operator("aten::mm", 20, [(8191, 768), (768, 3072)], BFLOAT16)
    of_weight = operator("aten::mm", 20, [(3072, 8191), (8191, 768)], BFLOAT16)
    weight = operator("aten::linear", 0, [(8191, 768), (3072, 768)], BFLOAT16)
    assert not found("unaligned-sizes", run_on(GPU, forward, of_weight, weight, BUSY))


@pytest.mark.parametrize("rows", [1000, 8191])
def test_rows_are_no_width_even_where_a_weight_has_as_many(rows: int) -> None:
    """A batch of 1000 samples, or of 8191, and 1001 classes."""
    logits = operator("aten::addmm", 15, [(1001,), (rows, 768), (768, 1001)], FLOAT16)
    hidden = operator("aten::addmm", 15, [(1001,), (1001, 768), (768, 3072)], FLOAT16)
    bias = operator("aten::addmm", 15, [(3072,), (rows, 768), (768, 3072)], FLOAT16)
    finding = one("unaligned-sizes", run_on(GPU, logits, hidden, bias, BUSY))
    assert finding.title.startswith("Matrix products with unaligned sides (1001) take 15 %")


def test_tokens_are_no_width_of_attention_or_of_experts() -> None:
    """577 tokens in scores and in what is read by them; experts with 501 tokens each, forward and backward."""
    scores = operator("aten::bmm", 10, [(768, 577, 64), (768, 64, 577)], FLOAT16)
    read = operator("aten::bmm", 10, [(768, 577, 577), (768, 577, 64)], FLOAT16)
    forward = operator("aten::bmm", 10, [(8, 501, 768), (8, 768, 3072)], FLOAT16)
    of_weight = operator("aten::bmm", 10, [(8, 768, 501), (8, 501, 3072)], FLOAT16)
    run = run_on(GPU, scores, read, forward, of_weight, BUSY)
    positions = LayerUse(kind="Embedding", name="positions", weight_shape=(577, 64))
    experts = LayerUse(kind="Experts", name="experts", weight_shape=(8, 768, 3072))
    evidence = msgspec.structs.replace(run.evidence, layers=(positions, experts))
    assert not found("unaligned-sizes", msgspec.structs.replace(run, evidence=evidence))


def test_the_weights_of_experts_have_widths() -> None:
    run = run_on(GPU, operator("aten::bmm", 30, [(8, 512, 768), (8, 768, 3001)], FLOAT16), BUSY)
    layers = (LayerUse(kind="Experts", name="experts", weight_shape=(8, 768, 3001)),)
    evidence = msgspec.structs.replace(run.evidence, layers=layers)
    assert "3001" in one("unaligned-sizes", msgspec.structs.replace(run, evidence=evidence)).title


def test_a_vocabulary_that_the_output_shares_with_the_embedding_is_a_width() -> None:
    run = run_on(GPU, operator("aten::mm", 30, [(8192, 768), (768, 50257)], BFLOAT16), BUSY)
    layers = (LayerUse(kind="Embedding", name="tokens", weight_shape=(50257, 768)),)
    evidence = msgspec.structs.replace(run.evidence, layers=layers)
    assert "50304 instead of 50257" in one("unaligned-sizes", msgspec.structs.replace(run, evidence=evidence)).remedy


def test_layers_tell_the_sizes_of_weights_as_well() -> None:
    run = run_on(GPU, operator("aten::mm", 30, [(8192, 768), (768, 50257)], BFLOAT16), BUSY)
    assert not found("unaligned-sizes", run)
    layer = LayerUse(kind="Linear", name="head", weight_shape=(50257, 768))
    evidence = msgspec.structs.replace(run.evidence, layers=(layer,))
    assert found("unaligned-sizes", msgspec.structs.replace(run, evidence=evidence))


@pytest.mark.parametrize(("calls", "fires"), [(1500, True), (1501, False)])
def test_kernels_of_some_microseconds_are_left_alone(calls: int, fires: bool) -> None:
    row = layer(30, rows=6400, inputs=99, outputs=99, calls=calls)
    assert bool(found("unaligned-sizes", run_on(GPU, row, BUSY))) is fires


@pytest.mark.parametrize(("side", "fires"), [(63, False), (65, True)])
def test_thin_products_are_left_alone(side: int, fires: bool) -> None:
    row = layer(30, rows=8192, inputs=side, outputs=1001)
    assert bool(found("unaligned-sizes", run_on(GPU, row, BUSY))) is fires


def test_a_convolutions_forward_is_counted_by_its_backwards_shapes() -> None:
    image, weight, output = (64, 90, 56, 56), (120, 90, 3, 3), (64, 120, 56, 56)
    forward = operator("aten::cudnn_convolution", 10, [image, weight], FLOAT16)
    backward = operator("aten::convolution_backward", 20, [output, image, weight], FLOAT16)
    finding = one("unaligned-sizes", run_on(GPU, forward, backward, BUSY))
    operations = 2 * 64 * 56 * 56 * 120 * 90 * 9
    assert finding.share.value == pytest.approx(0.30 - 3 * operations / 6.0e14 / 0.1)
    assert finding.remedy.startswith("Round the sizes up: 96 instead of 90.")


def test_grouped_convolutions_are_left_alone() -> None:
    grouped = operator("aten::cudnn_convolution", 30, [(64, 90, 56, 56), (90, 1, 3, 3)], FLOAT16)
    assert not found("unaligned-sizes", run_on(GPU, grouped, BUSY))


@pytest.mark.parametrize(("size", "better"), [(50257, 50304), (30522, 30528), (577, 584), (90, 96), (1001, 1008)])
def test_sizes_are_rounded_up_generously_where_that_adds_little(size: int, better: int) -> None:
    row = layer(30, rows=4096, inputs=size, outputs=size)
    free = msgspec.structs.replace(GPU, ceilings=Ceilings())
    finding = one("unaligned-sizes", run_on(free, row, BUSY))
    assert f"{better} instead of {size}" in finding.remedy
    assert "were not measured" in finding.evidence[-1]


def test_only_nvidias_gpus_are_spoken_of() -> None:
    rocm = msgspec.structs.replace(GPU.accelerators[0], kind="rocm")
    assert not found("unaligned-sizes", run_on(msgspec.structs.replace(GPU, accelerators=(rocm,)), *logits(30), BUSY))


# ---------------------------------------------------------------------------------------------
# layout-conversions
# ---------------------------------------------------------------------------------------------

GEMM = "sm90_xmma_fprop_implicit_gemm"


@pytest.mark.parametrize(
    ("busy", "converting", "share"),
    [
        (95, 2.01, (0.0201, 0.0201)),
        (95, 1.99, None),
        (90.1, 2.01, (0.0201, 0.0201)),
        (89.9, 2.01, None),
        (89.9, 5.01, (0.0501, 0.0)),
        (89.9, 4.99, None),
        (49, 20.0, None),
    ],
)
def test_conversions_cost_what_they_take_where_the_gpu_is_busy(
    busy: float, converting: float, share: tuple[float, float] | None
) -> None:
    profile = with_kernels(run_on(GPU), {GEMM: busy - converting, "nhwcToNchwKernel": converting})
    seen = [(it.share.value, it.share.low) for it in found("layout-conversions", profile)]
    assert seen == ([] if share is None else [pytest.approx(share)])


@pytest.mark.parametrize(
    ("kernel", "converts"),
    [
        ("void cudnn::ops::nchwToNhwcKernel<float>", True),
        ("void cudnn::ops::nhwcToNchwKernel<__half>", True),
        ("nchw2nhwc_transpose", True),
        ("sm80_xmma_fprop_implicit_gemm_nhwc", False),
        ("void at::native::elementwise_kernel", False),
    ],
)
def test_conversions_are_known_by_their_kernels(kernel: str, converts: bool) -> None:
    assert bool(found("layout-conversions", with_kernels(run_on(GPU), {GEMM: 80, kernel: 15}))) is converts


# ---------------------------------------------------------------------------------------------
# unfused-optimizer
# ---------------------------------------------------------------------------------------------


def adam(parameters: int, kind: str = "Adam") -> OptimizerFacts:
    return OptimizerFacts(kind=kind, parameters=parameters, learning_rate=1e-3, supports_fused=True)


def test_memory_is_a_floor_that_no_form_passes() -> None:
    """28 bytes for each of 50 million parameters, at 50 GB/s."""
    finding = one("unfused-optimizer", with_optimizer(run_on(CPU, optimizers=(adam(50_000_000),)), 0.05))
    assert finding.share.value == pytest.approx(0.50 - 28 * 50e6 / 5.0e10 / 0.1)
    assert "Memory alone needs 28 % of the step for it." in finding.evidence


def test_parameters_that_fit_into_a_cache_have_no_floor() -> None:
    just_below = (256 << 20) // 28
    assert one("unfused-optimizer", with_optimizer(run_on(CPU, optimizers=(adam(just_below),)), 0.05)).share.value == (
        pytest.approx(0.50)
    )
    over = one("unfused-optimizer", with_optimizer(run_on(CPU, optimizers=(adam(just_below + 1),)), 0.05))
    assert over.share.value < 0.45


@pytest.mark.parametrize(("seconds", "fires"), [(0.00201, True), (0.00199, False)])
def test_an_optimizer_must_take_two_percent_of_the_step(seconds: float, fires: bool) -> None:
    assert bool(found("unfused-optimizer", with_optimizer(run_on(CPU, optimizers=(adam(1000),)), seconds))) is fires


def test_of_two_optimizers_the_one_that_was_left_open_is_named() -> None:
    fused = msgspec.structs.replace(adam(1000, "SGD"), fused=True)
    profile = with_optimizer(run_on(GPU, optimizers=(fused, adam(1000))), 0.05)
    finding = one("unfused-optimizer", profile)
    assert finding.remedy == "Pass `fused=True` to Adam."
    assert finding.levers == ("fused-optimizer",)
    assert "50 parameter tensors" in finding.evidence[1]


def test_a_device_without_fused_kernels_is_left_alone() -> None:
    run = with_optimizer(run_on(CPU, optimizers=(adam(1000),)), 0.05)
    facts = msgspec.structs.replace(run.facts, device="meta")
    assert not found("unfused-optimizer", msgspec.structs.replace(run, facts=facts))


# ---------------------------------------------------------------------------------------------
# eager-attention
# ---------------------------------------------------------------------------------------------

SCORES, FLAT, TRANSPOSED = (2, 4, 96, 128), (8, 96, 128), (8, 128, 96)
QUERY, KEY, VALUE, OUTPUT = (8, 96, 32), (8, 32, 128), (8, 128, 32), (8, 96, 32)
EAGER = (
    operator("aten::bmm", 3, [QUERY, KEY]),
    operator("aten::_softmax", 4, [SCORES]),
    operator("aten::bmm", 3, [FLAT, VALUE]),
    operator("aten::bmm", 3, [TRANSPOSED, OUTPUT]),
    operator("aten::bmm", 3, [OUTPUT, KEY]),
    operator("aten::_softmax_backward_data", 5, [SCORES, SCORES]),
    operator("aten::masked_fill", 2, [SCORES, (96, 128)]),
)


def test_everything_that_touches_the_scores_counts() -> None:
    """Scores between 96 and 128 tokens; the gradients' products see them transposed."""
    other = (operator("aten::bmm", 30, [(8, 64, 32), (8, 32, 64)]), operator("aten::mul", 20, [(2, 96, 512)]))
    finding = one("eager-attention", run_on(CPU, *EAGER, *other))
    assert finding.share.value == pytest.approx(0.23)
    assert "scores of 2x4x96x128" in finding.title
    assert "12 % go to products" in finding.evidence[0] and "11 % to softmax" in finding.evidence[0]
    assert "384 KiB" in finding.evidence[1]


@pytest.mark.parametrize("without", [0, 2], ids=["nothing makes scores", "nothing uses scores"])
def test_a_softmax_without_both_products_is_no_attention(without: int) -> None:
    forward = [EAGER[0], EAGER[1], EAGER[2]]
    assert found("eager-attention", run_on(CPU, *forward))
    del forward[without]
    assert not found("eager-attention", run_on(CPU, *forward))


def test_products_of_another_batch_are_none_of_it() -> None:
    other_heads = operator("aten::bmm", 3, [(16, 96, 32), (16, 32, 128)])
    assert not found("eager-attention", run_on(CPU, other_heads, EAGER[1], EAGER[2]))


def test_the_line_is_that_of_the_forward_softmax() -> None:
    placed = operator("aten::_softmax", 4, [SCORES], place="net.py(40): forward")
    backward = operator("aten::_softmax_backward_data", 9, [SCORES, SCORES], place="train.py(7): train")
    finding = one("eager-attention", run_on(CPU, EAGER[0], placed, EAGER[2], backward))
    assert finding.site is not None and finding.site.line == 40


def test_a_product_that_adds_a_bias_makes_scores_as_well() -> None:
    with_bias = operator("aten::baddbmm", 3, [FLAT, QUERY, KEY])
    finding = one("eager-attention", run_on(CPU, with_bias, EAGER[1], EAGER[2]))
    assert finding.share.value == pytest.approx(0.10)


@pytest.mark.parametrize(("milliseconds", "fires"), [(5.01, True), (4.99, False)])
def test_attention_must_be_worth_a_look(milliseconds: float, fires: bool) -> None:
    rows = [operator(it.name, milliseconds / 3, it.shapes) for it in EAGER[:3]]
    assert bool(found("eager-attention", run_on(CPU, *rows))) is fires


@pytest.mark.parametrize(("attention", "remedy"), [("eager", "attn_implementation"), ("sdpa", "scaled_dot_product")])
def test_a_hugging_face_model_is_told_of_its_own_switch(attention: str, remedy: str) -> None:
    model = ModelFacts(kind="Bert", parameters=1, transformers_model=True, attention=attention)
    finding = one("eager-attention", run_on(CPU, *EAGER, model=model))
    assert remedy in finding.remedy
    assert finding.levers == (("sdpa-attention",) if attention == "eager" else ())


# ---------------------------------------------------------------------------------------------
# bias-before-norm and cudnn-benchmark-off
# ---------------------------------------------------------------------------------------------


def test_biases_are_one_for_each_output_channel() -> None:
    plain = LayerUse(kind="Conv2d", name="a", weight_shape=(32, 16, 3, 3), bias=True, normalised_after=True, count=3)
    turned = LayerUse(kind="ConvTranspose2d", name="b", weight_shape=(64, 8, 2, 2), bias=True, normalised_after=True)
    finding = one("bias-before-norm", Profile(evidence=RunEvidence(layers=(turned, plain))))
    assert finding.title.startswith("4 layers add a bias")
    assert "Together 104 numbers" in finding.evidence[0]
    assert finding.evidence[1] == "Conv2d a with weights of 32x16x3x3, and 2 like it."
    assert finding.kind == "hint"


@pytest.mark.parametrize(("milliseconds", "fires"), [(5.01, True), (4.99, False)])
def test_convolutions_must_take_their_part(milliseconds: float, fires: bool) -> None:
    model = ModelFacts(kind="Net", parameters=1, convolutions=1, device="cuda", input_shapes=((8, 3, 32, 32),))
    run = run_on(GPU, operator("aten::cudnn_convolution", milliseconds), BUSY, model=model)
    assert bool(found("cudnn-benchmark-off", run)) is fires


@pytest.mark.parametrize(
    ("shapes", "fires"),
    [
        (((8, 3, 32, 32),), True),
        (((8, 3, 32, 32), (8,), (8, 77)), True),
        (((8, 3, 32, 32), (5, 3, 32, 32)), False),
        (((8,),), False),
        ((), False),
    ],
)
def test_only_what_convolutions_take_must_keep_its_shape(shapes: tuple[tuple[int, ...], ...], fires: bool) -> None:
    model = ModelFacts(kind="Net", parameters=1, convolutions=1, device="cuda", input_shapes=shapes)
    run = run_on(GPU, operator("aten::cudnn_convolution", 30), BUSY, model=model)
    assert bool(found("cudnn-benchmark-off", run)) is fires


@pytest.mark.parametrize("rule", ["eager-attention", "layout-conversions", "slow-matmul-precision", "unaligned-sizes"])
def test_no_bound_is_larger_than_what_forward_and_backward_take(rule: str) -> None:
    """Operators are counted over the whole step: those of an optimizer or of a loader are among them."""
    for profile in all_rules()[rule].fires.values():
        account = msgspec.structs.replace(profile.account, forward=0.03, backward=0.03, other=0.04)
        for finding in found(rule, msgspec.structs.replace(profile, account=account)):
            assert finding.share.value <= 0.6 + 1e-9
            assert max(map(int, re.findall(r"(\d+) % of the step", finding.title)), default=0) <= 60
