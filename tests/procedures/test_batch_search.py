"""The search for the batch size: which sizes are tried, where the knee is, and what is reported if there is none."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fake_script import WORKLOAD, FakeExecutor, FakeScript

import hotlap
from hotlap.api import Engine, engine
from hotlap.cli.main import main
from hotlap.experiment.options import BatchChoices, Options
from hotlap.procedures.batch.changing import changer_of
from hotlap.procedures.batch.search import search_batch
from hotlap.records import BatchSearch, LoaderFacts, ScriptFacts, Study


def look(
    *, budget_seconds: float | None = None, arguments: tuple[str, ...] = (), choices: BatchChoices | None = None,
    **script: Any,
) -> tuple[Study, FakeExecutor]:  # fmt: skip
    settings = {"has_loader": True, "samples_per_step": 8, "batch_size": 8, "launch_noise": 0.002, **script}
    executor = FakeExecutor(FakeScript(**settings))
    options = Options(budget_seconds=budget_seconds, batch=choices or BatchChoices())
    workload = msgspec.structs.replace(WORKLOAD, arguments=arguments)
    return search_batch(workload, options, executor, clock=executor.clock), executor


def found(**script: Any) -> BatchSearch:
    search = look(**script)[0].batch_search
    assert search is not None
    return search


@pytest.mark.parametrize("fixed", [0.2, 0.5, 0.8])
def test_the_knee_is_the_smallest_size_with_nearly_the_best_throughput(fixed: float) -> None:
    search = found(fixed_share=fixed, largest_scale=1e6, memory_bytes=10**13)
    true = {it.batch_size: 1 / (fixed / it.scale + 1 - fixed) for it in search.rates if not it.error}
    assert true[search.knee] > 0.94 * max(true.values())
    assert search.knee < search.largest_fitting and search.bound_by == "throughput"
    smaller = max(size for size in true if size < search.knee)
    assert true[smaller] < 0.985 * max(true.values())


def test_where_size_gains_nothing_smaller_sizes_are_tried_and_the_smallest_is_the_knee() -> None:
    search = found(fixed_share=0.0)
    assert min(it.batch_size for it in search.rates) == 1 == search.knee
    assert search.bound_by == "throughput"


def test_out_of_memory_is_an_outcome_with_its_size_and_the_search_narrows_below_it() -> None:
    search = found(largest_scale=3.0)
    failed = {it.batch_size for it in search.rates if it.out_of_memory}
    assert 32 in failed and search.bound_by == "memory"
    assert 16 < search.largest_fitting <= 24 and search.knee == search.largest_fitting
    assert all("planted" in it.error for it in search.rates if it.out_of_memory)


def test_out_of_memory_after_the_probe_is_an_outcome_with_its_size_too() -> None:
    search = found(largest_timed_scale=3.0, fixed_share=0.9)
    rates = {it.batch_size: it for it in search.rates}
    assert rates[32].out_of_memory and "planted" in rates[32].error
    assert search.bound_by == "memory" and 16 <= search.largest_fitting <= 24


def test_what_leaves_no_headroom_counts_as_out_of_memory() -> None:
    search = found(peak_bytes=1_000_000_000, memory_bytes=4_200_000_000, fixed_share=0.8)
    rates = {it.batch_size: it for it in search.rates}
    assert rates[32].out_of_memory and "95 % of the memory" in rates[32].error
    assert search.largest_fitting < 32


def test_a_batch_whose_memory_grows_until_it_is_full_is_refused_with_its_reason() -> None:
    search = found(peak_bytes=100 << 20, memory_bytes=16 << 30, growth_bytes=1 << 20, fixed_share=0.8)
    rates = {it.batch_size: it for it in search.rates}
    assert rates[16].out_of_memory and search.bound_by == "memory"
    # 90 % of 16 GiB less the peak of 200 MiB, at 2 MiB per step.
    assert "grows by 2 MiB per step" in rates[16].error and "7,300 more steps" in rates[16].error


def test_growth_that_cannot_fill_the_memory_refuses_nothing() -> None:
    search = found(peak_bytes=10 << 20, memory_bytes=1 << 40, growth_bytes=1 << 19, choices=BatchChoices(most=32))
    assert not any(it.error for it in search.rates)


def test_a_batch_at_which_the_allocator_retries_is_refused() -> None:
    search = found(retries_from=4.0, fixed_share=0.9)
    rates = {it.batch_size: it for it in search.rates}
    assert rates[32].out_of_memory and "retry 2 times" in rates[32].error
    assert search.bound_by == "memory" and 16 <= search.largest_fitting < 32


def test_launches_that_do_not_fit_together_are_alternated() -> None:
    _, executor = look(peak_bytes=1_000_000_000, memory_bytes=3_500_000_000, fixed_share=0.8)
    replicates = [it for it in map(json.loads, executor.requests[1:]) if "arms" in it]
    assert replicates and not any(it.get("interleaved", True) for it in replicates)


def test_nothing_larger_than_the_cap_or_the_data_set_is_tried() -> None:
    capped = found(fixed_share=0.9, choices=BatchChoices(most=20))
    assert max(it.batch_size for it in capped.rates) == 20 and capped.bound_by == "cap"
    small = found(fixed_share=0.9, batches=5)
    assert max(it.batch_size for it in small.rates) <= 40 and small.bound_by == "data-set"


def test_a_script_whose_own_batch_is_larger_than_its_data_set_is_told_so() -> None:
    search = found(batches=1, samples_per_step=5)
    assert "batch size, 8, is larger than its data set" in search.obstacle and "all of its 5 samples" in search.obstacle
    assert search.rates == () and search.knee == 0
    assert not found(batches=1).obstacle, "a batch may be the whole data set"


def test_a_size_at_which_no_step_is_made_is_said_and_not_taken_for_one_that_stayed_as_it_was() -> None:
    search = found(ends_from=4.0, fixed_share=0.9)
    rates = {it.batch_size: it for it in search.rates}
    assert "ended without a training step" in rates[32].error and not rates[32].out_of_memory
    assert search.bound_by == "failure" and not rates[16].error


def test_what_is_timed_ends_where_the_script_catches_an_error_of_memory() -> None:
    _, executor = look(fixed_share=0.5, choices=BatchChoices(most=16))
    timed = [it for it in map(json.loads, executor.requests[1:]) if "arms" in it]
    arms = [
        arm["assignment"]["instruments"] if "assignment" in arm else arm["instruments"]
        for it in timed
        for arm in it["arms"]
    ]
    assert arms and all("watch-failed-passes" in [one["type"] for one in it] for it in arms)


def test_a_built_in_size_is_said_with_the_way_out() -> None:
    search = found(breaks_at=2.0)
    error = next(it.error for it in search.rates if it.batch_size == 16)
    assert "shape '[8, 4]' is invalid" in error and "--batch-flag" in error
    assert search.bound_by == "failure"


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ({"has_loader": False}, "No batch of the script comes from a DataLoader"),
        ({"batch_size": None}, "batch sampler"),
    ],
)
def test_a_size_that_cannot_be_changed_is_one_sentence_with_the_flag(script: dict[str, object], said: str) -> None:
    search = found(**script)
    assert said in search.obstacle and "--batch-flag=--batch-size" in search.obstacle
    assert search.rates == () and search.knee == 0


def test_batches_that_stay_as_they_were_are_not_taken_for_larger_ones() -> None:
    search = found(resizable=False)
    assert "stayed as they were" in search.rates[-1].error and search.knee == 0


def test_the_option_of_the_script_is_changed_where_it_is_named() -> None:
    choices = BatchChoices(flag="--batch-size", most=32)
    study, executor = look(choices=choices, arguments=("--batch-size", "8", "--lr", "1"), batch_size=None)
    search = study.batch_search
    assert search is not None and search.own == 8 and search.changed_by == "flag"
    assert {it.batch_size for it in search.rates} >= {8, 16, 32}
    assert any(b'["--batch-size","16","--lr","1"]' in it for it in executor.requests)


def test_each_size_runs_alone_first_under_guard() -> None:
    _, executor = look(fixed_share=0.5, choices=BatchChoices(most=16, headroom=0.25))
    probes = [json.loads(it) for it in executor.requests[2:] if b"guard-memory" in it]
    kinds = [[one["type"] for one in it["assignment"]["instruments"]] for it in probes]
    assert kinds and all(
        it[-4:] == ["largest-samples", "watch-failed-passes", "watch-memory", "guard-memory"] for it in kinds
    )
    assert all(it["assignment"]["instruments"][-1]["headroom"] == 0.25 for it in probes)


def test_a_budget_is_kept() -> None:
    study, _ = look(budget_seconds=60.0)
    assert study.spent_seconds <= 63.0 and study.batch_search is not None


def test_the_model_alone_is_timed_at_the_same_sizes() -> None:
    study, _ = look(choices=BatchChoices(most=16, model_alone=True))
    assert study.batch_search is not None
    scales = {it.scale for it in study.batch_search.rates if not it.error}
    assert {it.scale for it in study.batch_rates} == scales


def show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *words: str, **script: Any) -> int:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("import torch\n", encoding="utf-8")
    settings = {"has_loader": True, "samples_per_step": 8, "batch_size": 8, **script}
    engine = Engine(executor=lambda directory, isolation: FakeExecutor(FakeScript(**settings)))
    return main(["batch", "--quiet", *words, "train.py"], engine=engine)


def test_the_command_shows_curve_knee_and_advice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    assert show(tmp_path, monkeypatch, "--full", largest_scale=5.0, fixed_share=0.9) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "The knee is a batch size of" in out and "does not fit with the headroom" in out
    assert "Another batch size changes what is learned" in out
    assert "Advice, not measured: with SGD" in out and "linear rule" in out
    assert "runs out of memory" in out and "unmodified" in out


def test_json_and_markdown_hold_the_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert show(tmp_path, monkeypatch, "--json", "--max-batch-size", "16") == 0
    document = json.loads(capsys.readouterr().out)
    study = document.get("study", document)
    assert study["batch_search"]["own"] == 8 and math.isclose(study["batch_search"]["headroom"], 0.1)
    folder = next(iter((tmp_path / ".hotlap" / "batch").iterdir()))
    assert main(["report", "--markdown", str(folder)]) == 0
    out = capsys.readouterr().out
    assert "| batch size |" in out.replace("  ", " ") and "knee" in out


@pytest.mark.parametrize("words", [["--headroom", "2"], ["--max-batch-size", "0"], ["--batch-flag=batch"]])
def test_choices_that_make_no_sense_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    assert show(tmp_path, monkeypatch, *words) == 2
    assert words[0].partition("=")[0] in capsys.readouterr().err.lower()


def test_it_is_called_from_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    executor = FakeExecutor(FakeScript(has_loader=True, samples_per_step=8, batch_size=8, fixed_share=0.9))
    monkeypatch.setattr(engine, "local_executor", lambda directory, isolation: executor)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("")
    study = hotlap.batch("train.py", most=20, headroom=0.2)
    assert study.batch_search is not None and study.batch_search.bound_by == "cap"
    assert max(it.batch_size for it in study.batch_search.rates) == 20
    assert (study.kind, Path(study.directory).parent) == ("batch", tmp_path / ".hotlap" / "batch")
    with pytest.raises(hotlap.HotlapError, match="headroom"):
        hotlap.batch("train.py", headroom=2.0)


@pytest.mark.parametrize(
    ("loaders", "said"),
    [
        ((LoaderFacts(dataset="Stream", batch_size=None, iterable=True),), "iterable data set yields whole batches"),
        ((LoaderFacts(dataset="Rows", batch_size=None),), "DataLoader has a batch sampler"),
        (
            (LoaderFacts(dataset="Rows", batch_size=4), LoaderFacts(dataset="More", batch_size=16)),
            "Several DataLoaders feed the training, with batch sizes 4, 16",
        ),
    ],
)
def test_loaders_without_one_batch_size_are_said_with_the_way_out(loaders: tuple[LoaderFacts, ...], said: str) -> None:
    found = changer_of(WORKLOAD, ScriptFacts(loaders=loaders), "")
    assert isinstance(found, str) and said in found and "--batch-flag=--batch-size" in found


@pytest.mark.parametrize("given", ["auto", "-8", "0", ""])
def test_an_option_that_holds_no_batch_size_is_said(given: str) -> None:
    workload = msgspec.structs.replace(WORKLOAD, arguments=(f"--batch-size={given}",))
    found = changer_of(workload, ScriptFacts(), "--batch-size")
    assert isinstance(found, str) and repr(given) in found


def test_without_the_option_and_a_loader_the_own_batch_size_is_unknown() -> None:
    """A step of gpt has two batches of 6: that it has 12 samples does not show the value of ``--batch-size``."""
    found = changer_of(WORKLOAD, ScriptFacts(), "--batch-size")
    assert isinstance(found, str) and "--batch-size explicitly" in found
    given = msgspec.structs.replace(WORKLOAD, arguments=("--batch-size", "6"))
    by_option = changer_of(given, ScriptFacts(), "--batch-size")
    assert not isinstance(by_option, str) and by_option.own == 6
    loader = ScriptFacts(loaders=(LoaderFacts(dataset="Rows", batch_size=4),))
    by_loader = changer_of(WORKLOAD, loader, "--batch-size")
    assert not isinstance(by_loader, str) and by_loader.own == 4
