"""The rules about computation: their arithmetic and their thresholds."""

from __future__ import annotations

import math
import re

import msgspec
import pytest
from computing import BUSY, SITE, found, one, profiled

from hotlap.diagnose import Profile
from hotlap.diagnose import operators as operators_of
from hotlap.diagnose.api import all_rules
from hotlap.diagnose.example_traces import STEP_SECONDS, STEPS, trace_of
from hotlap.diagnose.examples import CPU, GPU, operator, run_on, with_kernels, with_optimizer
from hotlap.evidence import LayerUse, LineSamples, RunEvidence, SampledLine
from hotlap.records import AttentionRate, CallSite, ModelFacts, OptimizerFacts
from hotlap.traces.records import CopyRow, IdleCause, OperatorRow

# ---------------------------------------------------------------------------------------------
# Kinds of operators, and their time
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
def test_operators_are_distinguished_by_their_names(name: str, kinds: set[str]) -> None:
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


def test_on_a_cpu_shares_are_of_the_profiled_step() -> None:
    row = operator("aten::mm", 30)
    slowed_down = profiled(run_on(CPU, row), steps=STEPS, seconds=STEPS * 0.2)
    assert operators_of.share_of(slowed_down, [row]) == pytest.approx(0.15)


def test_on_an_accelerator_shares_are_of_the_unmodified_step() -> None:
    row = operator("aten::mm", 30)
    slowed_down = profiled(run_on(GPU, row), steps=STEPS, seconds=STEPS * 0.2)
    assert operators_of.share_of(slowed_down, [row]) == pytest.approx(0.30)
    assert operators_of.seconds_per_step(slowed_down, [row]) == pytest.approx(0.030)


def test_without_profiled_steps_there_is_no_share() -> None:
    row = operator("aten::mm", 30)
    unknown = msgspec.structs.replace(run_on(CPU, row), evidence=RunEvidence())
    assert operators_of.share_of(unknown, [row]) == 0.0
    assert operators_of.share_of(msgspec.structs.replace(unknown, account=Profile().account), [row]) == 0.0


def test_the_busy_share_comes_from_a_trace_or_from_operators() -> None:
    row = operator("aten::mm", 30)
    assert operators_of.device_busy_share(run_on(GPU, row)) == pytest.approx(0.30)
    assert operators_of.device_busy_share(with_kernels(run_on(GPU, row), {"gemm": 70})) == pytest.approx(0.70)


@pytest.mark.parametrize(("milliseconds", "matter"), [(50, True), (49, False)])
def test_kernels_matter_if_the_device_is_busy_half_of_the_step(milliseconds: float, matter: bool) -> None:
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
def test_places_are_shown_as_lines(place: str, site: CallSite | None) -> None:
    assert operators_of.site_of(OperatorRow(name="aten::mm", place=place)) == site


def test_many_shapes_and_long_names_are_shortened() -> None:
    row = operator("aten::cat", 1, [(1024, 1024)] * 50)
    assert operators_of.in_words(row) == "aten::cat [1024x1024, 1024x1024, 1024x1024]"
    assert len(operators_of.in_words(operator("x" * 5000, 1))) <= 80


# ---------------------------------------------------------------------------------------------
# dominant-operator
# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("milliseconds", "fires"), [(40, False), (41, True)])
def test_an_operator_dominates_above_40_percent(milliseconds: float, fires: bool) -> None:
    rest = operator("aten::mm", 100 - milliseconds)
    profile = run_on(CPU, operator("aten::sort", milliseconds, [(1000, 1000)]), rest)
    assert bool(found("dominant-operator", profile)) is fires


@pytest.mark.parametrize(("milliseconds", "fires"), [(4.99, False), (5.01, True)])
def test_it_must_take_a_part_of_the_step_as_well(milliseconds: float, fires: bool) -> None:
    assert bool(found("dominant-operator", run_on(CPU, operator("aten::sort", milliseconds)))) is fires


def test_calls_with_the_same_shapes_count_together() -> None:
    here = operator("aten::cat", 30, [(64, 64)], place="net.py(3): forward")
    there = operator("aten::cat", 20, [(64, 64)], place="net.py(9): forward")
    other_shape = operator("aten::cat", 20, [(8, 8)])
    rest = operator("aten::mm", 40)
    finding = one("dominant-operator", run_on(CPU, there, here, rest))
    assert "aten::cat [64x64] takes 56 %" in finding.title
    assert finding.site is not None and finding.site.line == 3
    assert not found("dominant-operator", run_on(CPU, here, other_shape, rest))


def test_the_line_is_from_the_trace_or_the_models_call() -> None:
    placed = operator("aten::sort", 60, [(64, 64)], place="net.py(12): forward")
    at_module = operator("aten::sort", 60, [(64, 64)], place="train.py(1): <module>")
    found_there = one("dominant-operator", run_on(CPU, placed, sites=(SITE,))).site
    assert found_there == CallSite(role="model", file="net.py", line=12, function="forward")
    assert one("dominant-operator", run_on(CPU, at_module, sites=(SITE,))).site == SITE


def met(line: int, native: str = "", *, function: str = "forward", samples: int = 40, called: str = "") -> SampledLine:
    """Make a sampled line of net.py."""
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
def test_the_sampled_line_of_the_operator_is_named(name: str, lines: list[SampledLine], line: int) -> None:
    """Name the sampled line, not line 12, where the trace says that the function begins."""
    run = run_on(CPU, operator(name, 60, [(64, 4096)], place="net.py(12): forward"))
    evidence = msgspec.structs.replace(run.evidence, sampled=LineSamples(samples=200, lines=tuple(lines)))
    site = one("dominant-operator", msgspec.structs.replace(run, evidence=evidence)).site
    assert site is not None and site.line == line


def test_a_loop_is_distinguished_from_one_large_call() -> None:
    large = one("dominant-operator", run_on(CPU, operator("aten::add", 50, [(4096, 4096)])))
    loop = one("dominant-operator", run_on(CPU, operator("aten::add", 9, [(4,)], calls=100)))
    few = one("dominant-operator", run_on(CPU, operator("aten::add", 9, [(4,)], calls=99)))
    assert "loop" in loop.remedy and "loop" not in large.remedy and "loop" not in few.remedy
    assert loop.levers == () and "compile" in large.levers
    assert "Calls per step: 100, of 90.0 us each" in loop.evidence[0]


@pytest.mark.parametrize("name", ["aten::embedding_dense_backward", "aten::fill_", "aten::zero_"])
def test_operators_with_specific_advice_name_no_lever(name: str) -> None:
    """Advise ``sparse=True``: on a CPU an embedding's gradient mostly fills the table with zeros."""
    finding = one("dominant-operator", run_on(CPU, operator(name, 60)))
    assert "sparse=True" in finding.remedy and finding.levers == ()


def test_levers_that_do_not_apply_are_not_named() -> None:
    on_gpu = one("dominant-operator", run_on(GPU, operator("aten::exp", 60)))
    assert "huge-pages" not in on_gpu.levers and "compile" in on_gpu.levers


@pytest.mark.parametrize(("direction", "fires"), [("HtoD", False), ("DtoD", True)])
def test_copies_of_batches_are_left_to_the_rules_about_data(direction: str, fires: bool) -> None:
    copies = CopyRow(direction=direction, memory="pageable", copies=10, nanoseconds=300_000_000, bytes=1 << 30)
    idle = IdleCause(cause="unknown", nanoseconds=1_000, gaps=1, longest_nanoseconds=1_000)
    profile = run_on(GPU, operator("aten::copy_", 60, [(64, 3, 224, 224)]))
    traced = msgspec.structs.replace(profile, breakdowns=(trace_of(idle, copies=(copies,)),))
    assert bool(found("dominant-operator", traced)) is fires


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


def test_memory_bandwidth_bounds_the_optimizers_saving() -> None:
    """28 bytes for each of 50 million parameters, at 50 GB/s."""
    finding = one("unfused-optimizer", with_optimizer(run_on(CPU, optimizers=(adam(50_000_000),)), 0.05))
    assert finding.share.value == pytest.approx(0.50 - 28 * 50e6 / 5.0e10 / 0.1)
    assert "Memory alone needs 28 % of the step for it." in finding.evidence


def test_parameters_that_fit_into_a_cache_are_not_bounded() -> None:
    just_below = (256 << 20) // 28
    assert one("unfused-optimizer", with_optimizer(run_on(CPU, optimizers=(adam(just_below),)), 0.05)).share.value == (
        pytest.approx(0.50)
    )
    over = one("unfused-optimizer", with_optimizer(run_on(CPU, optimizers=(adam(just_below + 1),)), 0.05))
    assert over.share.value < 0.45


@pytest.mark.parametrize(("seconds", "fires"), [(0.00201, True), (0.00199, False)])
def test_an_optimizer_must_take_two_percent_of_the_step(seconds: float, fires: bool) -> None:
    assert bool(found("unfused-optimizer", with_optimizer(run_on(CPU, optimizers=(adam(1000),)), seconds))) is fires


def test_of_two_optimizers_the_unconfigured_one_is_named() -> None:
    fused = msgspec.structs.replace(adam(1000, "SGD"), fused=True)
    profile = with_optimizer(run_on(GPU, optimizers=(fused, adam(1000))), 0.05)
    finding = one("unfused-optimizer", profile)
    assert finding.remedy == "Pass `fused=True` to Adam."
    assert finding.levers == ("fused-optimizer",)
    assert "50 parameter tensors" in finding.evidence[1]


def test_a_device_without_fused_kernels_is_silent() -> None:
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


def test_all_operators_on_the_scores_count() -> None:
    """Use scores of 96 by 128 tokens, which the products of gradients see transposed."""
    other = (operator("aten::bmm", 30, [(8, 64, 32), (8, 32, 64)]), operator("aten::mul", 20, [(2, 96, 512)]))
    finding = one("eager-attention", run_on(CPU, *EAGER, *other))
    assert finding.share.value == pytest.approx(0.23)
    assert "scores of 2x4x96x128" in finding.title
    assert "12 % go to products" in finding.evidence[0] and "11 % to softmax" in finding.evidence[0]
    assert "384 KiB" in finding.evidence[1]


@pytest.mark.parametrize("without", [0, 2], ids=["nothing makes scores", "nothing uses scores"])
def test_a_softmax_without_both_products_is_not_attention(without: int) -> None:
    forward = [EAGER[0], EAGER[1], EAGER[2]]
    assert found("eager-attention", run_on(CPU, *forward))
    del forward[without]
    assert not found("eager-attention", run_on(CPU, *forward))


def test_products_of_another_batch_do_not_count() -> None:
    other_heads = operator("aten::bmm", 3, [(16, 96, 32), (16, 32, 128)])
    assert not found("eager-attention", run_on(CPU, other_heads, EAGER[1], EAGER[2]))


def test_the_line_is_that_of_the_forward_softmax() -> None:
    placed = operator("aten::_softmax", 4, [SCORES], place="net.py(40): forward")
    backward = operator("aten::_softmax_backward_data", 9, [SCORES, SCORES], place="train.py(7): train")
    finding = one("eager-attention", run_on(CPU, EAGER[0], placed, EAGER[2], backward))
    assert finding.site is not None and finding.site.line == 40


def test_a_product_that_adds_a_bias_makes_scores_too() -> None:
    with_bias = operator("aten::baddbmm", 3, [FLAT, QUERY, KEY])
    finding = one("eager-attention", run_on(CPU, with_bias, EAGER[1], EAGER[2]))
    assert finding.share.value == pytest.approx(0.10)


def test_memory_allocated_for_scores_counts_too() -> None:
    """A fused operator allocates no scores; the measured rates include no allocation."""
    rates = tuple(
        AttentionRate(key="cpu:float32", tokens=it, head_width=32, eager_seconds=0.010, fused_seconds=0.008)
        for it in (64, 256)
    )
    seconds_per_byte = 5e-8
    ceilings = msgspec.structs.replace(CPU.ceilings, attention=rates, fresh_memory_seconds_per_byte=seconds_per_byte)
    run = run_on(msgspec.structs.replace(CPU, ceilings=ceilings), *EAGER)
    alone = one("eager-attention", run)
    assert alone.share.value == pytest.approx(0.02 + 0.21 * 0.2), "a fused operator applies the mask itself"
    written = sum(it.calls for it in EAGER) / STEPS * math.prod(SCORES) * 4
    for fresh_bytes, counted in ((1.2e5, 1.2e5), (1e9, written)):
        finding = one("eager-attention", msgspec.structs.replace(run, fresh_bytes_per_step=fresh_bytes))
        fresh = min(0.21, counted * seconds_per_byte / STEP_SECONDS)
        assert finding.share.value == pytest.approx(0.02 + fresh + (0.21 - fresh) * 0.2)
        assert "Allocating memory for the scores" in finding.evidence[1]


@pytest.mark.parametrize(("threads", "saved"), [(1, 0.5), (2, 0.3), (16, 0.3), (0, 0.3)])
def test_rates_are_for_the_scripts_thread_count(threads: int, saved: float) -> None:
    """Use the rates of one thread or of the fastest thread count, as both were measured."""
    rates = tuple(
        AttentionRate(
            key="cpu:float32", tokens=it, head_width=32, eager_seconds=0.01, fused_seconds=fused, threads=count
        )
        for it in (64, 256)
        for count, fused in ((1, 0.005), (8, 0.007))
    )
    ceilings = msgspec.structs.replace(CPU.ceilings, attention=rates)
    run = run_on(msgspec.structs.replace(CPU, ceilings=ceilings), *EAGER, threads=threads)
    assert one("eager-attention", run).share.value == pytest.approx(0.02 + 0.21 * saved)


@pytest.mark.parametrize(("milliseconds", "fires"), [(5.01, True), (4.99, False)])
def test_attention_below_its_threshold_is_silent(milliseconds: float, fires: bool) -> None:
    rows = [operator(it.name, milliseconds / 3, it.shapes) for it in EAGER[:3]]
    assert bool(found("eager-attention", run_on(CPU, *rows))) is fires


@pytest.mark.parametrize(("attention", "remedy"), [("eager", "attn_implementation"), ("sdpa", "scaled_dot_product")])
def test_a_hugging_face_model_gets_advice_on_its_own_option(attention: str, remedy: str) -> None:
    model = ModelFacts(kind="Bert", parameters=1, transformers_model=True, attention=attention)
    finding = one("eager-attention", run_on(CPU, *EAGER, model=model))
    assert remedy in finding.remedy
    assert finding.levers == (("sdpa-attention",) if attention == "eager" else ())


# ---------------------------------------------------------------------------------------------
# bias-before-norm and cudnn-benchmark-off
# ---------------------------------------------------------------------------------------------


def test_convolutions_have_one_bias_per_output_channel() -> None:
    plain = LayerUse(kind="Conv2d", name="a", weight_shape=(32, 16, 3, 3), bias=True, normalised_after=True, count=3)
    turned = LayerUse(kind="ConvTranspose2d", name="b", weight_shape=(64, 8, 2, 2), bias=True, normalised_after=True)
    finding = one("bias-before-norm", Profile(evidence=RunEvidence(layers=(turned, plain))))
    assert finding.title.startswith("4 layers add a bias")
    assert "Together they have 104 parameters" in finding.evidence[0]
    assert finding.evidence[1] == "Conv2d a with weights of 32x16x3x3, and 2 like it."
    assert finding.kind == "hint"


@pytest.mark.parametrize(("milliseconds", "fires"), [(5.01, True), (4.99, False)])
def test_convolutions_below_their_threshold_are_silent(milliseconds: float, fires: bool) -> None:
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
def test_only_inputs_of_convolutions_must_keep_their_shape(shapes: tuple[tuple[int, ...], ...], fires: bool) -> None:
    model = ModelFacts(kind="Net", parameters=1, convolutions=1, device="cuda", input_shapes=shapes)
    run = run_on(GPU, operator("aten::cudnn_convolution", 30), BUSY, model=model)
    assert bool(found("cudnn-benchmark-off", run)) is fires


@pytest.mark.parametrize("rule", ["eager-attention", "layout-conversions", "slow-matmul-precision", "unaligned-sizes"])
def test_no_bound_exceeds_the_time_of_forward_and_backward(rule: str) -> None:
    """Operators are counted over the whole step, including those of the optimizer and the loader."""
    for profile in all_rules()[rule].fires.values():
        account = profile.account.with_seconds(("forward", 0.03), ("backward", 0.03), ("other", 0.04))
        for finding in found(rule, msgspec.structs.replace(profile, account=account)):
            assert finding.share.value <= 0.6 + 1e-9
            assert max(map(int, re.findall(r"(\d+) % of the step", finding.title)), default=0) <= 60


def test_one_slow_call_makes_no_operator_dominant() -> None:
    """Make one call ten times as slow as the other calls together."""
    relu = operator("aten::relu", 10, [(256, 512)], calls=4)
    others = (operator("aten::mm", 4, [(256, 512), (512, 512)]), operator("aten::exp", 4, [(9, 9)]))
    assert found("dominant-operator", run_on(CPU, relu, *others))
    once = msgspec.structs.replace(relu, longest_nanoseconds=round(0.9 * relu.host_nanoseconds))
    assert not found("dominant-operator", run_on(CPU, once, *others))
    alike = msgspec.structs.replace(relu, longest_nanoseconds=relu.host_nanoseconds // relu.calls + 5)
    assert found("dominant-operator", run_on(CPU, alike, *others))
