"""When a lever applies, when it does not and why, and what it could give at most."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotlap.levers.data import cached_samples, device_prefetch, loader
from hotlap.levers.host import cpu_threads, huge_pages, keep_freed_memory
from hotlap.levers.kernels import channels_last, compile, cudnn_benchmark, sdpa_attention
from hotlap.levers.optimizer import fused_optimizer
from hotlap.levers.precision import matmul_precision, mixed_precision
from hotlap.levers.support.situations import bound_without, make_setting
from hotlap.records import (
    Accelerator,
    LoaderFacts,
    LoaderRate,
    Machine,
    ModelFacts,
    OptimizerFacts,
    PhaseAccount,
    RepeatedModules,
    ScriptFacts,
    Situation,
)

NET = ModelFacts(kind="Net", parameters=10)
IMAGES = ModelFacts(kind="ResNet", parameters=10, convolutions=3, input_shapes=((8, 3, 32, 32),))
ADAM = OptimizerFacts(kind="Adam", parameters=3, learning_rate=0.1, supports_fused=True, supports_foreach=True)


def on_cpu(machine: Machine | None = None, **facts: Any) -> Situation:
    return Situation(facts=ScriptFacts(device="cpu", **facts), machine=machine or Machine(cores=4, physical_cores=4))


def on_gpu(*native: str, capability: str = "8.0", cores: int = 8, **facts: Any) -> Situation:
    device = Accelerator(kind="cuda", name="A", memory_bytes=1, capability=capability, native_dtypes=native)
    return Situation(facts=ScriptFacts(device="cuda:0", **facts), machine=Machine(cores=cores, accelerators=(device,)))


def reason(lever, situation: Situation) -> str:
    skipped = lever.obstacle(situation)
    assert skipped is not None
    return skipped.reason


def already(lever, situation: Situation) -> bool:
    skipped = lever.obstacle(situation)
    return skipped is not None and skipped.already


# -- bounds --------------------------------------------------------------------------------------

phases = st.floats(min_value=0, max_value=10)


@given(phases, phases, phases, phases, st.floats(min_value=1e-6, max_value=10))
def test_a_bound_is_what_is_left_when_phases_vanish(data, forward, backward, optimizer, other) -> None:
    wall = data + forward + backward + optimizer + other
    account = PhaseAccount(
        wall=wall,
        phases=(
            ("data_wait", data),
            ("forward", forward),
            ("backward", backward),
            ("optimizer", optimizer),
            ("other", other),
        ),
    )
    situation = Situation(account=account)
    bounded = bound_without(situation, "forward", "backward")
    assert bounded is None or bounded >= 1.0
    more = bound_without(situation, "forward", "backward", "optimizer")
    assert more is None or bounded is None or more >= bounded
    alone = bound_without(situation, "data_wait")
    assert alone is None or alone == pytest.approx(wall / (wall - data))


def test_each_lever_is_bounded_by_the_phases_it_touches() -> None:
    account = PhaseAccount(
        wall=1.0,
        phases=(
            ("data_wait", 0.5),
            ("host_to_device", 0.1),
            ("forward", 0.1),
            ("backward", 0.1),
            ("optimizer", 0.1),
            ("other", 0.1),
        ),
    )
    situation = Situation(account=account, facts=ScriptFacts(loaders=(LoaderFacts(dataset="D"),)))
    assert loader.bound(situation) == pytest.approx(2.0)
    assert compile.bound(situation) == pytest.approx(1 / 0.8)
    assert mixed_precision.bound(situation) == pytest.approx(1 / 0.8)
    assert fused_optimizer.bound(situation) == pytest.approx(1 / 0.9)
    assert device_prefetch.bound(situation) == pytest.approx(1 / 0.9)
    assert huge_pages.bound(situation) == pytest.approx(10.0)  # the process that trains also fetches
    fed = msgspec.structs.replace(situation.facts, loaders=(LoaderFacts(dataset="D", workers=2),))
    assert huge_pages.bound(msgspec.structs.replace(situation, facts=fed)) == pytest.approx(1 / 0.6)
    pageable = msgspec.structs.replace(situation, facts=msgspec.structs.replace(situation.facts, device="cuda"))
    assert loader.bound(pageable) == pytest.approx(1 / 0.4)


@pytest.mark.parametrize(("workers", "threads", "bounded"), [(0, 4, True), (1, 3, True), (1, 4, False), (4, 1, False)])
def test_workers_that_take_cores_from_the_training_bound_nothing(workers: int, threads: int, bounded: bool) -> None:
    """One worker next to two threads on two cores: a step of 218 ms waited for 25 and took 60 without its loader."""
    account = PhaseAccount(wall=1.0, phases=(("data_wait", 0.2), ("forward", 0.4), ("backward", 0.4)))
    loaders = (LoaderFacts(dataset="D", workers=workers), LoaderFacts(dataset="V", workers=8, trains=False))
    situation = msgspec.structs.replace(on_cpu(threads=threads, loaders=loaders), account=account)
    for lever in (loader, cached_samples):
        assert lever.bound(situation) == (pytest.approx(1.25) if bounded else None)
    facts = msgspec.structs.replace(situation.facts, device="cuda")
    assert cached_samples.bound(msgspec.structs.replace(situation, facts=facts)) == pytest.approx(1.25)


# -- precision -----------------------------------------------------------------------------------


def test_mixed_precision_takes_the_format_that_the_hardware_has() -> None:
    bfloat16 = (make_setting("mixed-precision", dtype="bfloat16"),)
    float16 = (make_setting("mixed-precision", dtype="float16"),)
    assert mixed_precision.candidates(on_gpu("float16", "bfloat16", models=(NET,))) == bfloat16
    assert mixed_precision.candidates(on_gpu("float16", models=(NET,), optimizers=(ADAM,))) == float16
    assert mixed_precision.candidates(on_cpu(Machine(native_dtypes=("bfloat16",)), models=(NET,))) == bfloat16
    assert mixed_precision.candidates(on_cpu(Machine(native_dtypes=("float32",)), models=(NET,))) == ()


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ({"step_source": "backward", "optimizers": ()}, "by hand"),
        ({"grad_scaler": True}, "scales its loss itself"),
        ({"processes": 2}, "several processes"),
    ],
)
def test_float16_is_not_tried_where_its_scaling_cannot_be_right(facts: dict[str, Any], why: str) -> None:
    assert why in reason(mixed_precision, on_gpu("float16", models=(NET,), **{"optimizers": (ADAM,), **facts}))


def test_mixed_precision_recognises_what_the_script_does() -> None:
    native = Machine(native_dtypes=("bfloat16",))
    assert already(mixed_precision, on_cpu(native, models=(NET,), autocast_dtype="bfloat16"))
    half = msgspec.structs.replace(NET, dtype="bfloat16")
    assert already(mixed_precision, on_cpu(native, models=(half,)))
    double = msgspec.structs.replace(NET, dtype="float64")
    assert "float64" in reason(mixed_precision, on_cpu(native, models=(double,)))
    assert "No model" in reason(mixed_precision, on_cpu(native))
    assert "No model" not in reason(mixed_precision, on_cpu(models=(NET,)))


def test_matmul_precision_follows_the_device() -> None:
    assert matmul_precision.candidates(on_gpu())[0].values == (("precision", "high"),)
    assert "faster unit" in reason(matmul_precision, on_gpu(capability="7.5"))
    assert matmul_precision.candidates(on_cpu(Machine(native_dtypes=("bfloat16",))))[0].values == (
        ("precision", "medium"),
    )
    assert already(matmul_precision, on_gpu(matmul_precision="high"))


# -- convolutions --------------------------------------------------------------------------------


def test_cudnn_benchmark_needs_convolutions_of_few_shapes_on_a_gpu() -> None:
    assert cudnn_benchmark.obstacle(on_gpu(models=(IMAGES,))) is None
    assert "NVIDIA" in reason(cudnn_benchmark, on_cpu(models=(IMAGES,)))
    assert already(cudnn_benchmark, on_gpu(models=(IMAGES,), cudnn_benchmark=True))
    assert "deterministic" in reason(cudnn_benchmark, on_gpu(models=(IMAGES,), deterministic=True))
    changing = msgspec.structs.replace(IMAGES, input_shapes=tuple((8, 3, size, size) for size in range(20, 40)))
    assert "20 shapes" in reason(cudnn_benchmark, on_gpu(models=(changing,)))


def test_channels_last_needs_images() -> None:
    assert channels_last.obstacle(on_cpu(models=(IMAGES,))) is None
    assert "no convolution" in reason(channels_last, on_cpu(models=(NET,)))
    sound = msgspec.structs.replace(IMAGES, input_shapes=((8, 1, 16000),))
    assert "4-D image tensor" in reason(channels_last, on_cpu(models=(sound,)))
    assert already(channels_last, on_cpu(models=(msgspec.structs.replace(IMAGES, channels_last=True),)))


# -- the rest ------------------------------------------------------------------------------------


def test_fused_optimizer_prefers_fused_and_keeps_what_the_script_chose() -> None:
    implementation = dict(fused_optimizer.candidates(on_cpu(optimizers=(ADAM,)))[0].values)["implementation"]
    assert implementation == "fused"
    only_foreach = msgspec.structs.replace(ADAM, supports_fused=False)
    assert dict(fused_optimizer.candidates(on_cpu(optimizers=(only_foreach,)))[0].values) == {
        "implementation": "foreach"
    }
    assert "faster than torch's default" in reason(fused_optimizer, on_gpu(optimizers=(only_foreach,)))
    assert already(fused_optimizer, on_cpu(optimizers=(msgspec.structs.replace(ADAM, fused=True),)))
    assert "explicitly disables" in reason(
        fused_optimizer, on_cpu(optimizers=(msgspec.structs.replace(ADAM, foreach=False),))
    )
    assert "without an optimizer" in reason(fused_optimizer, on_cpu())


def test_compile_chooses_modes_by_device_and_shapes() -> None:
    def modes(situation: Situation) -> list[object]:
        return [dict(setting.values)["mode"] for setting in compile.candidates(situation)]

    assert modes(on_cpu(models=(NET,))) == ["default"]
    assert modes(on_gpu(models=(IMAGES,))) == ["default", "reduce-overhead", "max-autotune"]
    changing = msgspec.structs.replace(NET, input_shapes=((8, 10), (8, 12)))
    assert modes(on_gpu(models=(changing,))) == ["default", "default", "max-autotune-no-cudagraphs"]
    assert [dict(it.values)["dynamic"] for it in compile.candidates(on_gpu(models=(changing,)))] == [True, False, True]
    ragged = msgspec.structs.replace(NET, input_shapes=tuple((8, length) for length in range(10, 20)))
    assert all(dict(it.values)["dynamic"] is True for it in compile.candidates(on_gpu(models=(ragged,))))
    alike = msgspec.structs.replace(changing, shapes_vary=False)  # several inputs, the same in each call
    assert not any(dict(it.values)["dynamic"] for it in compile.candidates(on_gpu(models=(alike,))))
    assert already(compile, on_gpu(models=(msgspec.structs.replace(NET, compiled=True),)))


@pytest.mark.parametrize(("count", "offered"), [(2, False), (12, True)])
def test_compile_offers_the_blocks_of_a_model_that_has_some(count: int, offered: bool) -> None:
    blocks = RepeatedModules(kind="Layer", count=count, place=".layers")
    model = msgspec.structs.replace(NET, repeated=(blocks,))
    settings = [dict(it.values) for it in compile.candidates(on_cpu(models=(model,)))]
    assert "blocks" not in settings[0]
    assert any(it.get("blocks") for it in settings) is offered
    assert not any(dict(it.values).get("blocks") for it in compile.candidates(on_cpu(models=(model, NET))))
    compiled = msgspec.structs.replace(NET, repeated=(msgspec.structs.replace(blocks, compiled=True),))
    assert already(compile, on_cpu(models=(compiled,)))


@given(
    st.floats(min_value=0, max_value=1e4),
    st.floats(min_value=1e-6, max_value=1e3),
    st.floats(min_value=1e-6, max_value=1e3),
)
def test_compile_pays_back_after_its_seconds_are_won(seconds: float, baseline: float, step: float) -> None:
    steps = compile.pay_back_steps(seconds, baseline, step)
    if step >= baseline:
        assert steps is None
    else:
        assert steps is not None
        assert steps * (baseline - step) == pytest.approx(seconds)


def test_cpu_threads_tries_other_numbers_than_the_present_one() -> None:
    def counts(situation: Situation) -> list[object]:
        return [dict(setting.values)["threads"] for setting in cpu_threads.candidates(situation)]

    hyperthreads = Machine(cores=8, physical_cores=4)
    assert counts(on_cpu(hyperthreads, threads=8)) == [4, 1]
    assert counts(on_cpu(hyperthreads, threads=1)) == [4, 8]
    assert counts(on_cpu(hyperthreads, threads=1, processes=2)) == [2, 4]
    assert already(cpu_threads, on_cpu(Machine(cores=1, physical_cores=1), threads=1))
    assert "accelerator" in reason(cpu_threads, on_gpu())


def test_sdpa_attention_needs_an_eager_hugging_face_model() -> None:
    assert sdpa_attention.obstacle(on_cpu(models=(msgspec.structs.replace(NET, attention="eager"),))) is None
    assert already(sdpa_attention, on_cpu(models=(msgspec.structs.replace(NET, attention="sdpa"),)))
    assert "not a Hugging Face" in reason(sdpa_attention, on_cpu(models=(NET,)))


def test_huge_pages_needs_a_linux_that_gives_them_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    def linux(**facts: Any) -> Situation:
        return on_cpu(Machine(system="Linux", **facts))

    assert huge_pages.obstacle(linux(transparent_huge_pages="madvise")) is None
    assert already(huge_pages, linux(transparent_huge_pages="always"))
    assert "never" in reason(huge_pages, linux(transparent_huge_pages="never"))
    set_already = (("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1"),)
    assert already(huge_pages, linux(environment=set_already))
    assert "Linux" in reason(huge_pages, on_cpu(Machine(system="Darwin 24")))
    assert "accelerator" in reason(huge_pages, on_gpu())


@pytest.mark.parametrize(
    ("present", "then"),
    [
        (None, "glibc.malloc.hugetlb=1"),
        ("glibc.malloc.check=1", "glibc.malloc.check=1:glibc.malloc.hugetlb=1"),
        ("glibc.malloc.hugetlb=0:glibc.malloc.check=1", "glibc.malloc.check=1:glibc.malloc.hugetlb=1"),
    ],
)
def test_huge_pages_keeps_other_tunables(monkeypatch: pytest.MonkeyPatch, present: str | None, then: str) -> None:
    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    if present is not None:
        monkeypatch.setenv("GLIBC_TUNABLES", present)
    assert huge_pages.environment(make_setting("huge-pages")) == {"GLIBC_TUNABLES": then}


def test_freed_memory_is_kept_by_an_allocator_that_nobody_tuned() -> None:
    def linux(*variables: tuple[str, str]) -> Situation:
        return on_cpu(Machine(system="Linux", environment=variables))

    assert keep_freed_memory.obstacle(linux()) is None
    assert "LD_PRELOAD" in reason(keep_freed_memory, linux(("LD_PRELOAD", "/usr/lib/libjemalloc.so.2")))
    assert already(keep_freed_memory, linux(("MALLOC_TRIM_THRESHOLD_", "0")))
    assert "Linux" in reason(keep_freed_memory, on_cpu(Machine(system="Darwin 24")))
    assert "accelerator" in reason(keep_freed_memory, on_gpu())


def test_device_prefetch_needs_copies_on_a_gpu() -> None:
    feeds = (LoaderFacts(dataset="D"),)
    assert device_prefetch.obstacle(on_gpu(loaders=feeds)) is None
    assert "GPU" in reason(device_prefetch, on_cpu(loaders=feeds))
    assert "without a DataLoader" in reason(device_prefetch, on_gpu())
    drawing = (LoaderFacts(dataset="D", draws_random=True),)
    assert device_prefetch.proof_for(on_gpu(loaders=drawing), make_setting("device-prefetch")) == "rounding"


# -- the loader ----------------------------------------------------------------------------------


def swept(situation: Situation, seconds: dict[int, float], account: PhaseAccount | None = None) -> Situation:
    """The situation after a sweep with these seconds per sample by number of workers."""
    by_workers = {dict(it.values)["num_workers"]: it for it in loader.sweep_candidates(situation)[: len(seconds)]}
    rates = tuple(LoaderRate(setting=by_workers[count], seconds_per_sample=it) for count, it in seconds.items())
    return msgspec.structs.replace(situation, loader_rates=rates, account=account or situation.account)


def workers(situation: Situation) -> list[object]:
    return [dict(setting.values)["num_workers"] for setting in loader.candidates(situation)]


def test_the_sweep_is_bounded_by_cores_and_shared_memory() -> None:
    plenty = on_gpu(cores=6, loaders=(LoaderFacts(dataset="D", batch_bytes=1000),))
    counts = [dict(it.values)["num_workers"] for it in loader.sweep_candidates(plenty)]
    assert counts == [0, 1, 2, 4, 6, 6]
    assert all(dict(it.values)["pin_memory"] for it in loader.sweep_candidates(plenty))
    assert "persistent_workers" not in dict(loader.sweep_candidates(plenty)[0].values)
    tight = Machine(cores=6, shared_memory_bytes=10_000)
    situation = on_cpu(tight, loaders=(LoaderFacts(dataset="D", batch_bytes=1000),))
    assert [dict(it.values)["num_workers"] for it in loader.sweep_candidates(situation)] == [0, 1, 2]
    assert loader.sweep_candidates(on_cpu(loaders=(LoaderFacts(dataset="D", iterable=True),))) == ()
    shared = on_cpu(Machine(cores=4), processes=2, loaders=(LoaderFacts(dataset="D"),))
    assert max(dict(it.values)["num_workers"] for it in loader.sweep_candidates(shared)) == 2


def test_the_fewest_workers_within_two_percent_of_the_best_come_first_on_a_gpu() -> None:
    situation = on_gpu(cores=8, loaders=(LoaderFacts(dataset="D"),))
    assert workers(swept(situation, {0: 8e-3, 1: 8e-3, 2: 4e-3, 4: 2.03e-3, 8: 2.00e-3}))[0] == 4
    assert workers(swept(situation, {0: 8e-3, 1: 8e-3, 2: 4e-3, 4: 2.05e-3, 8: 2.00e-3}))[0] == 8


def test_the_fewest_workers_that_outpace_the_model_come_first_on_a_cpu() -> None:
    situation = on_cpu(Machine(cores=4), loaders=(LoaderFacts(dataset="D"),))
    account = PhaseAccount(
        wall=0.2, phases=(("data_wait", 0.1),), samples_per_step=10
    )  # the model needs 10 ms a sample
    assert workers(swept(situation, {0: 0.012, 1: 0.009, 2: 0.005, 4: 0.004}, account)) == [1, 4]
    assert workers(swept(situation, {0: 0.10, 1: 0.09, 2: 0.05, 4: 0.04}, account)) == [4]


def test_failed_sweeps_are_not_chosen_and_what_the_script_has_is_not_tried_again() -> None:
    has = LoaderFacts(dataset="D", workers=2, pin_memory=True, persistent_workers=True)
    rates = swept(on_gpu(cores=4, loaders=(has,)), {0: 8e-3, 1: 4e-3, 2: 2e-3, 4: 2e-3})
    assert loader.candidates(rates) == ()
    anew = msgspec.structs.replace(has, persistent_workers=False)
    (setting,) = loader.candidates(swept(on_gpu(cores=4, loaders=(anew,)), {0: 8e-3, 1: 4e-3, 2: 2e-3, 4: 2e-3}))
    assert dict(setting.values)["persistent_workers"] is True
    assert already(loader, rates)
    broken = tuple(
        msgspec.structs.replace(rate, seconds_per_sample=0.0, error="OSError: full") for rate in rates.loader_rates
    )
    assert workers(msgspec.structs.replace(rates, loader_rates=broken)) == [4]  # as if there had been no sweep


def test_only_training_loaders_decide_about_the_loader() -> None:
    tuned = LoaderFacts(
        dataset="D", workers=2, pin_memory=True, persistent_workers=True, prefetch_factor=2, trains=True
    )
    held_out = LoaderFacts(dataset="D", workers=0, iterable=True, draws_random=True, trains=False)
    seconds = {0: 8e-3, 1: 4e-3, 2: 2e-3, 4: 2e-3}
    assert loader.candidates(swept(on_gpu(cores=4, loaders=(held_out, tuned)), seconds)) == ()
    untuned = msgspec.structs.replace(tuned, workers=0)
    situation = on_gpu(cores=4, loaders=(msgspec.structs.replace(held_out, iterable=False), untuned))
    assert loader.proof_for(situation, make_setting("loader", num_workers=2, pin_memory=True)) == "exact"


def test_the_loader_leaves_iterable_data_sets_alone() -> None:
    assert "iterable" in reason(loader, on_cpu(loaders=(LoaderFacts(dataset="D", iterable=True),)))
    setting = make_setting("loader", num_workers=1)
    assert loader.proof_for(on_cpu(loaders=(LoaderFacts(dataset="D"),)), setting) == "exact"
    assert loader.proof_for(on_cpu(loaders=(LoaderFacts(dataset="D", draws_random=True),)), setting) == "rounding"


def test_on_a_cpu_workers_are_also_tried_with_a_core_of_their_own() -> None:
    account = PhaseAccount(wall=0.2, phases=(("data_wait", 0.1),), samples_per_step=10)
    rates = {0: 0.012, 1: 0.009, 2: 0.009}
    full = on_cpu(Machine(cores=2), loaders=(LoaderFacts(dataset="D"),), threads=2)
    tried = [dict(it.values) for it in loader.candidates(swept(full, rates, account))]
    assert [(it["num_workers"], it.get("threads")) for it in tried] == [(1, 1), (1, None)]
    with_room = make_setting("loader", num_workers=1, threads=1)
    assert loader.proof_for(full, with_room) == "rounding"
    assert not loader.changes_randomness(full, with_room)
    idle = on_cpu(Machine(cores=2), loaders=(LoaderFacts(dataset="D"),), threads=1)
    assert [dict(it.values).get("threads") for it in loader.candidates(swept(idle, rates, account))] == [None]
