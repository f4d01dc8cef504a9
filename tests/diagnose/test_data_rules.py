"""Rules about data, at their thresholds."""

from __future__ import annotations

import msgspec
import pytest
from feeding import LOADER, account

from hotlap.diagnose.profile import Profile
from hotlap.diagnose.rules import (
    accelerator_in_dataset,
    loader_bound,
    no_workers,
    short_queue,
    slow_sampler,
    slow_transform,
    small_shared_memory,
    too_many_workers,
    worker_startup,
)
from hotlap.evidence import (
    DatasetProfile,
    FunctionTime,
    LineSamples,
    LoaderUse,
    RunEvidence,
    SampledLine,
    Window,
)
from hotlap.records import (
    CallSite,
    Ceiling,
    LoaderFacts,
    LoaderRate,
    Machine,
    ScriptFacts,
    Setting,
    Steps,
)


def rate(workers: int, seconds: float, prefetch: int = 2) -> LoaderRate:
    values = (("num_workers", workers), ("prefetch_factor", prefetch)) if workers else (("num_workers", 0),)
    return LoaderRate(setting=Setting(lever="loader", values=values), seconds_per_sample=seconds)


def chosen(seconds: float, *, sampler: bool = True) -> RunEvidence:
    """Make forty steps of 0.1 s in which one line took ``seconds`` while the step waited for a batch."""
    line = SampledLine(
        phase="data_wait",
        samples=round(100 * seconds),
        seconds=seconds,
        sampler=sampler,
        site=CallSite(role="call", file="/home/ada/sampling.py", line=24),
    )
    return RunEvidence(observed_steps=40, observed_seconds=4.0, sampled=LineSamples(lines=(line,)))


# ---------------------------------------------------------------------------------------------
# slow-sampler
# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("sampler", "fires"), [(True, False), (False, True)])
def test_workers_do_not_shorten_the_sampler(sampler: bool, fires: bool) -> None:
    """If nearly all of the wait is the sampler's, no number of workers shortens it."""
    profile = Profile(
        account=account(0.4),
        facts=ScriptFacts(loaders=(LoaderFacts(dataset="Rows"),)),
        machine=Machine(cores=2),
        evidence=chosen(1.56, sampler=sampler),
    )
    assert bool(list(no_workers.check(profile))) is fires
    assert bool(list(slow_sampler.check(profile))) is not fires


@pytest.mark.parametrize(("sampler", "fires"), [(True, False), (False, True)])
def test_a_transform_is_not_blamed_for_the_sampler(sampler: bool, fires: bool) -> None:
    decode = FunctionTime(name="decode", calls=32, own_seconds=0.6, total_seconds=0.6)
    evidence = msgspec.structs.replace(
        chosen(1.56, sampler=sampler),
        datasets=(DatasetProfile(dataset="Rows", samples=32, seconds=1.0, functions=(decode,)),),
    )
    assert bool(list(slow_transform.check(Profile(account=account(0.4), evidence=evidence)))) is fires


@pytest.mark.parametrize(
    ("name", "file", "own_seconds", "named"),
    [
        ("built-in method torch.tensor", "", 0.41, "Collating"),
        ("built-in method torch.tensor", "", 0.6, "`torch.tensor`"),
        ("pad", "/home/ada/data.py", 0.41, "`pad`"),
    ],
)
def test_collating_is_named_if_no_library_call_dominates_it(
    name: str, file: str, own_seconds: float, named: str
) -> None:
    """Split collating between a padding loop and making tensors, and name the script's function."""
    taken = FunctionTime(name=name, file=file, line=12, own_seconds=own_seconds, total_seconds=own_seconds)
    dataset = DatasetProfile(dataset="Texts", samples=32, seconds=1.0, functions=(taken,), collate_seconds=0.95)
    (finding,) = slow_transform.check(Profile(account=account(0.5), evidence=RunEvidence(datasets=(dataset,))))
    assert finding.title.startswith(named)


@pytest.mark.parametrize("workers", [0, 2])
def test_no_workers_are_advised_for_a_sampler(workers: int) -> None:
    facts = ScriptFacts(loaders=(LoaderFacts(dataset="Rows", workers=workers),))
    (finding,) = loader_bound.check(Profile(account=account(0.4), facts=facts, evidence=chosen(1.2)))
    assert finding.remedy.startswith("Make the sampler cheaper")
    (finding,) = loader_bound.check(Profile(account=account(0.4), facts=facts, evidence=chosen(0.4)))
    assert not finding.remedy.startswith("Make the sampler cheaper")


def test_a_sampler_costs_at_most_the_wait() -> None:
    (finding,) = slow_sampler.check(Profile(account=account(0.2), evidence=chosen(3.0)))
    assert finding.share.value == pytest.approx(0.2)
    assert finding.site is not None and finding.site.line == 24


# ---------------------------------------------------------------------------------------------
# loader-bound
# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("data_wait", "fires"), [(0.0199, False), (0.0201, True), (1.0, True)])
def test_loader_bound_from_two_percent_on(data_wait: float, fires: bool) -> None:
    assert bool(list(loader_bound.check(Profile(account=account(data_wait))))) is fires


def test_loader_bound_is_silent_if_the_wait_may_be_noise() -> None:
    """A mean of 3 %, all of it in one step of forty: the interval reaches zero."""
    once = Steps(wall_seconds=(0.1,) * 46, phases=(("data_wait", (0.0,) * 20 + (0.12,) + (0.0,) * 25),))
    assert not list(loader_bound.check(Profile(account=account(0.03), steps=once)))
    always = Steps(wall_seconds=(0.1,) * 46, phases=(("data_wait", (0.003,) * 46),))
    assert list(loader_bound.check(Profile(account=account(0.03), steps=always)))


@pytest.mark.parametrize(("speedup", "fires"), [(1.02, False), (1.03, False), (1.05, True)])
def test_loader_bound_needs_a_model_alone_faster_beyond_noise(speedup: float, fires: bool) -> None:
    ceilings = (Ceiling(name="model-alone", bound_speedup=speedup),)
    assert bool(list(loader_bound.check(Profile(account=account(0.3), ceilings=ceilings)))) is fires


def test_loader_bound_shows_the_rates_of_loader_and_model() -> None:
    ceilings = (
        Ceiling(name="loader-alone", seconds_per_sample=0.002, bound_speedup=5.0),
        Ceiling(name="model-alone", seconds_per_sample=0.008, bound_speedup=1.25),
    )
    facts = ScriptFacts(loaders=(LoaderFacts(dataset="Images", batch_size=10, workers=3, site=LOADER),))
    (found,) = loader_bound.check(Profile(account=account(0.3), ceilings=ceilings, facts=facts))
    assert found.title == "The step waits 20 % of its time for data."
    assert "samples per second: 100 in the script, 500 by its loader alone, 125 by its model alone" in found.evidence
    assert "DataLoader over Images: 3 workers, batches of 10" in found.evidence
    assert found.site == LOADER and "loader" in found.levers
    assert "add workers" in found.remedy


def test_loader_bound_lists_only_training_loaders() -> None:
    images = LoaderFacts(dataset="Images", workers=3, trains=True, site=LOADER)
    held_out = LoaderFacts(dataset="Images", workers=0, trains=False)
    profile = Profile(account=account(0.3), facts=ScriptFacts(loaders=(held_out, images)))
    (found,) = loader_bound.check(profile)
    assert [it for it in found.evidence if it.startswith("DataLoader")] == [
        "DataLoader over Images: 3 workers, batches created by the data set"
    ]
    assert found.site == LOADER


# ---------------------------------------------------------------------------------------------
# How many workers
# ---------------------------------------------------------------------------------------------


def without_workers(data_wait: float = 0.4, device: str = "cuda", **fields: object) -> Profile:
    loader = LoaderFacts(dataset="Images", site=LOADER)
    known = Profile(
        account=account(data_wait), facts=ScriptFacts(device=device, loaders=(loader,)), machine=Machine(cores=8)
    )
    return msgspec.structs.replace(known, **fields)


@pytest.mark.parametrize(("data_wait", "fires"), [(0.0199, False), (0.0201, True)])
def test_no_workers_needs_a_material_wait(data_wait: float, fires: bool) -> None:
    assert bool(list(no_workers.check(without_workers(data_wait)))) is fires


@pytest.mark.parametrize(("cores", "processes", "fires"), [(1, 1, False), (2, 1, True), (2, 2, False), (4, 2, True)])
def test_no_workers_needs_a_free_core(cores: int, processes: int, fires: bool) -> None:
    profile = without_workers(machine=Machine(cores=cores))
    facts = msgspec.structs.replace(profile.facts, processes=processes)
    assert bool(list(no_workers.check(msgspec.structs.replace(profile, facts=facts)))) is fires


def test_no_workers_costs_the_saving_of_the_best_setting() -> None:
    """With 10 ms per sample, 6 of them computing, a loader of 8 ms leaves 8 ms per sample."""
    (found,) = no_workers.check(without_workers(loader_rates=(rate(0, 0.004), rate(2, 0.009), rate(4, 0.008))))
    assert found.share.value == pytest.approx(0.2)
    assert found.share.low == found.share.value
    (all_of_it,) = no_workers.check(without_workers(loader_rates=(rate(4, 0.001),)))
    assert all_of_it.share.value == pytest.approx(0.4)


@pytest.mark.parametrize(("seconds", "fires"), [(0.0097, True), (0.0099, False), (0.02, False)])
def test_no_workers_is_silent_for_savings_below_two_percent(seconds: float, fires: bool) -> None:
    assert bool(list(no_workers.check(without_workers(loader_rates=(rate(4, seconds),))))) is fires


def test_no_workers_is_a_bound_on_a_cpu() -> None:
    (found,) = no_workers.check(without_workers(device="cpu", loader_rates=(rate(4, 0.001),)))
    assert (found.share.low, found.share.value) == (0.0, pytest.approx(0.4))
    assert "at most 40 %" in found.title and "set_num_threads" in found.remedy


def test_no_workers_names_no_lever_for_iterable_datasets() -> None:
    facts = ScriptFacts(device="cuda", loaders=(LoaderFacts(dataset="Stream", iterable=True),))
    (found,) = no_workers.check(without_workers(facts=facts))
    assert found.levers == () and "get_worker_info" in found.remedy


def test_no_workers_skips_datasets_on_the_accelerator() -> None:
    there = DatasetProfile(dataset="Images", samples=8, seconds=0.1, sample_devices=("cuda:0",))
    assert not list(no_workers.check(without_workers(evidence=RunEvidence(datasets=(there,)))))


def test_no_workers_ignores_the_loader_of_the_evaluation() -> None:
    training, evaluation = LoaderFacts(dataset="Train", workers=4), LoaderFacts(dataset="Test")
    facts = ScriptFacts(device="cuda", loaders=(evaluation, training))
    seen = RunEvidence(loaders=(LoaderUse(dataset="Train"),))
    assert not list(no_workers.check(without_workers(facts=facts, evidence=seen)))
    assert not list(no_workers.check(without_workers(facts=facts))), "which of them is the training loader is unknown"


@pytest.mark.parametrize(("seconds", "fires"), [(0.001019, True), (0.001021, False)])
def test_too_many_workers_within_two_percent(seconds: float, fires: bool) -> None:
    facts = ScriptFacts(loaders=(LoaderFacts(dataset="Images", workers=8),))
    profile = Profile(facts=facts, loader_rates=(rate(8, 0.001), rate(4, seconds)))
    assert bool(list(too_many_workers.check(profile))) is fires


def test_too_many_workers_names_the_fewest_that_suffice() -> None:
    facts = ScriptFacts(loaders=(LoaderFacts(dataset="Images", workers=8),))
    rates = (rate(8, 0.001), rate(4, 0.001), rate(1, 0.001), rate(0, 0.001))
    (found,) = too_many_workers.check(Profile(facts=facts, loader_rates=rates))
    assert found.title == "1 worker would load as fast as the script's 8."
    assert found.kind == "hint" and "num_workers=1" in found.remedy


@pytest.mark.parametrize(("workers", "fires"), [(8, False), (9, True)])
def test_too_many_workers_for_the_cores(workers: int, fires: bool) -> None:
    facts = ScriptFacts(loaders=(LoaderFacts(dataset="Images", workers=workers),), processes=2)
    machine = Machine(cores=16, physical_cores=8)
    assert bool(list(too_many_workers.check(Profile(facts=facts, machine=machine)))) is fires


def test_too_many_workers_needs_a_timing_of_the_scripts_number() -> None:
    facts = ScriptFacts(loaders=(LoaderFacts(dataset="Images", workers=20),))
    machine = Machine(cores=8, physical_cores=4)
    assert not list(too_many_workers.check(Profile(facts=facts, machine=machine, loader_rates=(rate(8, 0.001),))))


# ---------------------------------------------------------------------------------------------
# slow-transform
# ---------------------------------------------------------------------------------------------


def transform(own_seconds: float, data_wait: float = 0.5, **fields: object) -> Profile:
    function = FunctionTime(
        name="resize", file="/home/ada/data.py", line=40, own_seconds=own_seconds, total_seconds=1.0
    )
    dataset = DatasetProfile(dataset="Images", samples=32, seconds=1.0, functions=(function,))
    return Profile(
        account=account(data_wait), evidence=RunEvidence(datasets=(msgspec.structs.replace(dataset, **fields),))
    )


@pytest.mark.parametrize(("own_seconds", "fires"), [(0.3, False), (0.301, True)])
def test_slow_transform_above_thirty_percent(own_seconds: float, fires: bool) -> None:
    assert bool(list(slow_transform.check(transform(own_seconds)))) is fires


@pytest.mark.parametrize(
    ("function", "line"),
    [
        (FunctionTime(name="sorted", own_seconds=0.6, total_seconds=0.6, caller=LOADER), LOADER.line),
        (FunctionTime(name="sorted", own_seconds=0.6, total_seconds=0.6), 3),
        (FunctionTime(name="load", file="/home/ada/data.py", line=40, own_seconds=0.6, total_seconds=0.6), 40),
    ],
)
def test_slow_transform_is_shown_at_the_users_call(function: FunctionTime, line: int) -> None:
    site = CallSite(role="loader", file="/home/ada/data.py", line=3)
    dataset = DatasetProfile(dataset="Images", samples=32, seconds=1.0, functions=(function,), site=site)
    profile = msgspec.structs.replace(transform(0.6), evidence=RunEvidence(datasets=(dataset,)))
    (found,) = slow_transform.check(profile)
    assert found.site is not None and found.site.line == line


def test_collating_is_shown_at_the_users_function() -> None:
    site, collate = (CallSite(role="loader", file="/home/ada/data.py", line=it) for it in (3, 30))
    dataset = DatasetProfile(dataset="Images", samples=32, seconds=1.0, collate_seconds=0.6, site=site)
    for known, line in ((dataset, 3), (msgspec.structs.replace(dataset, collate_site=collate), 30)):
        profile = msgspec.structs.replace(transform(0.6), evidence=RunEvidence(datasets=(known,)))
        (found,) = slow_transform.check(profile)
        assert found.site is not None and found.site.line == line
        assert ("stack or pad" in found.remedy) is (line == 30)
        assert ("`__getitems__`" in found.remedy) is (line == 3)  # torch's own function, which only stacks samples


def test_slow_transform_costs_its_share_of_the_wait() -> None:
    (found,) = slow_transform.check(transform(0.6))
    assert found.share.value == pytest.approx(0.3)
    assert found.title == "`resize` at data.py:40 takes 60 % of the time of loading samples."
    assert found.site == CallSite(role="loader", file="/home/ada/data.py", line=40, function="resize")
    assert "`resize` (data.py:40): 18.8 ms per sample, 60 %" in found.evidence


def test_slow_transform_costs_at_most_its_time_per_step() -> None:
    """0.6 s for 250 samples is 24 ms for the ten samples of a 100 ms step, which waits for 50 ms."""
    (found,) = slow_transform.check(transform(0.6, samples=250))
    assert found.share.value == pytest.approx(0.24)


def test_slow_transform_is_silent_for_waits_it_does_not_explain() -> None:
    """20 ms of making samples do not explain 30 ms of waiting, which may come from too many workers."""
    assert not list(slow_transform.check(transform(0.6, samples=300)))


@pytest.mark.parametrize(("data_wait", "fires"), [(0.039, False), (0.041, True)])
def test_slow_transform_needs_a_material_share(data_wait: float, fires: bool) -> None:
    assert bool(list(slow_transform.check(transform(0.5, data_wait)))) is fires


@pytest.mark.parametrize(("samples", "fires"), [(3, False), (4, True)])
def test_slow_transform_needs_some_samples(samples: int, fires: bool) -> None:
    assert bool(list(slow_transform.check(transform(0.9, samples=samples)))) is fires


def test_slow_transform_names_collating_only_if_nothing_else() -> None:
    (function,) = slow_transform.check(transform(0.4, collate_seconds=0.5))
    assert function.title.startswith("`resize` ")
    (collating,) = slow_transform.check(transform(0.2, collate_seconds=0.5))
    assert collating.title == "Collating takes 50 % of the time of loading samples."


@pytest.mark.parametrize(
    ("profilers", "shown"),
    [
        ("built-in method time.sleep", "`time.sleep`"),
        ("built-in method builtins.sorted", "`sorted`"),
        ("method 'decode' of 'ImagingDecoder' objects", "`ImagingDecoder.decode`"),
    ],
)
def test_slow_transform_may_be_outside_of_python_files(profilers: str, shown: str) -> None:
    function = FunctionTime(name=profilers, own_seconds=0.5, total_seconds=0.5)
    (found,) = slow_transform.check(transform(0.5, functions=(function,), site=LOADER))
    assert found.site == LOADER
    assert found.title == f"{shown} takes 50 % of the time of loading samples."


# ---------------------------------------------------------------------------------------------
# Queue and start of the workers
# ---------------------------------------------------------------------------------------------


def queue(fetches: list[float], lengths: list[int], *, seconds_per_sample: float = 0.004) -> Profile:
    use = LoaderUse(dataset="Texts", fetch_seconds=tuple(fetches), queue_lengths=tuple(lengths))
    return Profile(
        account=account(0.2),
        facts=ScriptFacts(device="cuda", loaders=(LoaderFacts(dataset="Texts", workers=4, prefetch_factor=2),)),
        loader_rates=(rate(4, seconds_per_sample),),
        evidence=RunEvidence(loaders=(use,)),
    )


def bursts(part_of_the_slowest: float) -> list[float]:
    """Make forty fetches that take 1 s in total, this part of it in the slowest four."""
    return [(1 - part_of_the_slowest) / 36] * 36 + [part_of_the_slowest / 4] * 4


@pytest.mark.parametrize(("part", "fires"), [(0.49, False), (0.51, True)])
def test_short_queue_needs_waits_concentrated_in_few_fetches(part: float, fires: bool) -> None:
    assert bool(list(short_queue.check(queue(bursts(part), [2] * 30 + [0] * 10)))) is fires


@pytest.mark.parametrize(("empty", "fires"), [(1, False), (2, True), (36, True), (37, False)])
def test_short_queue_is_empty_at_some_fetches_but_not_most(empty: int, fires: bool) -> None:
    assert bool(list(short_queue.check(queue(bursts(0.8), [0] * empty + [3] * (40 - empty))))) is fires


@pytest.mark.parametrize(("seconds", "fires"), [(0.0079, True), (0.0081, False)])
def test_short_queue_needs_workers_that_keep_up(seconds: float, fires: bool) -> None:
    """The model computes for 8 ms per sample."""
    profile = queue(bursts(0.8), [2] * 30 + [0] * 10, seconds_per_sample=seconds)
    assert bool(list(short_queue.check(profile))) is fires


def test_short_queue_needs_a_timing_of_the_loader_alone() -> None:
    profile = queue(bursts(0.8), [2] * 30 + [0] * 10)
    assert not list(short_queue.check(msgspec.structs.replace(profile, loader_rates=())))


def test_short_queue_costs_at_most_the_wait_within_epochs() -> None:
    profile = queue(bursts(0.8), [2] * 30 + [0] * 10)
    (use,) = profile.evidence.loaders
    started = msgspec.structs.replace(use, start_seconds=(0.5,), first_fetch_seconds=(0.5,))
    (found,) = short_queue.check(msgspec.structs.replace(profile, evidence=RunEvidence(loaders=(started,))))
    assert (found.share.low, found.share.value) == (0.0, pytest.approx(0.1))


def starts(lost_an_epoch: float, *, steps: int = 100, data_wait: float = 0.5) -> Profile:
    """Make two epochs; the second waits ``lost_an_epoch`` for its first batch."""
    use = LoaderUse(
        dataset="Images",
        start_seconds=(3.0, 0.0),
        first_fetch_seconds=(3.0, 0.01 + lost_an_epoch),
        fetch_seconds=(0.01,) * (steps - 2),
    )
    return Profile(
        account=account(data_wait),
        facts=ScriptFacts(loaders=(LoaderFacts(dataset="Images", workers=2),)),
        evidence=RunEvidence(observed_steps=steps, observed_seconds=20.0, loaders=(use,)),
    )


@pytest.mark.parametrize(("lost", "fires"), [(0.199, False), (0.201, True)])
def test_worker_startup_from_two_percent_of_the_step_on(lost: float, fires: bool) -> None:
    """Over a hundred steps of 0.1 s; the first start does not count."""
    assert bool(list(worker_startup.check(starts(lost)))) is fires


def test_worker_startup_is_spread_over_profiled_steps_too() -> None:
    profile = starts(0.4)
    (found,) = worker_startup.check(profile)
    window = Window(first_step=100, steps=100, wall_seconds=20.0, trace_path="t.json")
    evidence = msgspec.structs.replace(profile.evidence, window=window)
    (half,) = worker_startup.check(msgspec.structs.replace(profile, evidence=evidence))
    assert half.share.value == pytest.approx(found.share.value / 2)


def test_worker_startup_costs_at_most_the_data_wait() -> None:
    (found,) = worker_startup.check(starts(5.0, data_wait=0.3))
    assert found.share.value == pytest.approx(0.3)
    (less,) = worker_startup.check(starts(1.0, data_wait=0.3))
    assert less.share.value == pytest.approx(0.1)


# ---------------------------------------------------------------------------------------------
# Shared memory, and datasets on the accelerator
# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("available", "fires"), [(2 * 9 * 1024, False), (2 * 9 * 1024 - 1, True), (0, False)])
def test_small_shared_memory_from_half_full_on(available: int, fires: bool) -> None:
    """Four workers with two batches each, plus the one in use, are nine batches of 1 KiB."""
    loader = LoaderFacts(dataset="Images", workers=4, prefetch_factor=2, batch_bytes=1024)
    profile = Profile(facts=ScriptFacts(loaders=(loader,)), machine=Machine(shared_memory_bytes=available))
    assert bool(list(small_shared_memory.check(profile))) is fires


def test_small_shared_memory_adds_loaders_and_names_the_largest() -> None:
    small = LoaderFacts(dataset="Test", workers=1, batch_bytes=1024)
    other = LoaderFacts(dataset="Valid", workers=1, batch_bytes=1024)
    large = LoaderFacts(dataset="Train", workers=4, batch_bytes=1024, site=LOADER)
    profile = Profile(facts=ScriptFacts(loaders=(small, large, other)), machine=Machine(shared_memory_bytes=24 * 1024))
    (found,) = small_shared_memory.check(profile)
    assert found.kind == "risk" and found.site == LOADER
    assert found.title == "Prefetched batches may take 15 KiB of shared memory, which has 24 KiB."


@pytest.mark.parametrize(("data_wait", "fires"), [(0.0199, False), (0.0201, True)])
def test_accelerator_in_dataset_needs_a_data_wait(data_wait: float, fires: bool) -> None:
    there = DatasetProfile(dataset="Images", samples=8, seconds=0.1, sample_devices=("cuda:0",))
    profile = Profile(account=account(data_wait), evidence=RunEvidence(datasets=(there,)))
    assert bool(list(accelerator_in_dataset.check(profile))) is fires


def test_accelerator_in_dataset_names_the_line() -> None:
    call = CallSite(role="copy", file="/home/ada/data.py", line=7, what="Tensor.cuda")
    there = DatasetProfile(dataset="Images", samples=8, seconds=0.1, accelerator_calls=(call,))
    (found,) = accelerator_in_dataset.check(Profile(account=account(0.3), evidence=RunEvidence(datasets=(there,))))
    assert found.site == call and "Tensor.cuda at data.py:7" in found.evidence
    assert found.share.low == 0
