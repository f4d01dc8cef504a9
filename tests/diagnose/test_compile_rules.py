"""The rules about torch.compile: at their thresholds, and on reports of torch."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

import hotlap
from hotlap.diagnose import Profile
from hotlap.diagnose.api import all_rules
from hotlap.diagnose.compiled import compiled_with, reason_of, shortened
from hotlap.records import (
    CallSite,
    Comparison,
    CompileReport,
    Estimate,
    Finding,
    GraphBreak,
    Kept,
    LoaderFacts,
    NoGain,
    Outcome,
    PhaseAccount,
    Plan,
    ScriptFacts,
    SpeedComparison,
    Steps,
    Verdict,
)

NET = "/home/someone/net.py"


def found(rule: str, profile: Profile) -> list[Finding]:
    return list(all_rules()[rule].check(profile))


def one(rule: str, profile: Profile) -> Finding:
    (finding,) = found(rule, profile)
    return finding


def at(line: int, reason: str = "Unsupported", *, count: int = 1, file: str = NET) -> GraphBreak:
    return GraphBreak(reason=reason, file=file, line=line, count=count)


def reported(rule: str, *places: GraphBreak) -> CompileReport:
    """Make a report with these places in the field that the rule reads."""
    field = {"graph-breaks": "graph_breaks", "silent-fallback": "fallbacks", "recompiles": "recompiles"}[rule]
    return msgspec.structs.replace(CompileReport(seconds=9.0, graphs=3), **{field: places})


# ---------------------------------------------------------------------------------------------
# Places and reasons
# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", ["graph-breaks", "silent-fallback"])
def test_each_place_is_a_finding_most_frequent_first(rule: str) -> None:
    places = tuple(at(line, count=line) for line in range(1, 8))
    findings = found(rule, compiled_with(reported(rule, *places)))
    assert [it.site.line for it in findings if it.site] == [7, 6, 5, 4, 3]
    assert all(it.kind == "hint" and it.share.high == 0 for it in findings)


@pytest.mark.parametrize("rule", ["graph-breaks", "silent-fallback"])
@pytest.mark.parametrize(
    "file",
    ["", "<string>", "/usr/lib/python3/dist-packages/a.py", "/v/lib/python3.11/site-packages/transformers/models/b.py"],
)
def test_library_lines_are_not_shown_as_places(rule: str, file: str) -> None:
    place = at(3, file=file)
    assert one(rule, compiled_with(reported(rule, place))).site is None


def test_a_break_in_a_library_is_named_by_its_package_and_the_models_call() -> None:
    place = at(3, file="/v/lib/python3.11/site-packages/transformers/models/b.py")
    profile = compiled_with(reported("graph-breaks", place))
    call = CallSite(role="model", file="/home/someone/train.py", line=31)
    facts = msgspec.structs.replace(profile.facts, sites=(call,))
    finding = one("graph-breaks", msgspec.structs.replace(profile, facts=facts))
    assert finding.site == call and "breaks at transformers/models/b.py:3" in finding.title


@pytest.mark.parametrize("rule", ["graph-breaks", "silent-fallback", "recompiles"])
@pytest.mark.parametrize(
    "file",
    [str(Path(hotlap.__file__).parent / "runtime" / "roots.py"), "/v/site-packages/torch/_dynamo/external_utils.py"],
)
def test_wrappers_count_as_the_models_call(rule: str, file: str) -> None:
    """Count torch's own wrappers of the model, and those of hotlap while it observes a script."""
    place = at(75, count=4, file=file)
    report = reported(rule, place)
    call = CallSite(role="model", file="/home/someone/train.py", line=31)
    profile = compiled_with(report)
    facts = msgspec.structs.replace(profile.facts, sites=(call,))
    finding = one(rule, msgspec.structs.replace(profile, facts=facts))
    assert finding.site == call
    assert "the compiled model's call" in finding.title and ".py" not in finding.title


def test_messages_of_torch_are_shortened_and_cleaned() -> None:
    hostile = "Unsupported\x1b[31m:\n a call \t to " + "x" * 10_000
    text = shortened(hostile)
    assert text.isprintable() and len(text) <= 160 and text.endswith("...")
    assert reason_of(at(3, hostile)).endswith("...") and reason_of(at(3, "Why")) == "torch says: Why."
    finding = one("graph-breaks", compiled_with(CompileReport(graphs=1, graph_breaks=(at(3, hostile),))))
    assert all(it.isprintable() and len(it) <= 200 for it in (finding.title, *finding.evidence))


@pytest.mark.parametrize(
    ("reason", "remedy"),
    [
        ("A branch depends on the value of a tensor.", "torch.where"),
        ("Dynamo does not know how to trace builtin operator `print`", "output"),
        ("logging.Logger method not supported", "output"),
        ("Unsupported: logsumexp of a library", "TORCH_LOGS"),
    ],
)
def test_the_remedy_of_a_break_follows_its_reason(reason: str, remedy: str) -> None:
    finding = one("graph-breaks", compiled_with(CompileReport(graphs=2, graph_breaks=(at(3, reason),))))
    assert remedy in finding.remedy


@pytest.mark.parametrize(
    ("reason", "title", "remedy"),
    [
        (
            "Dynamo recompile limit exceeded: Dynamo attempted to recompile the code object too many times, exceeding "
            "the recompile_limit cache size limit (currently set to 8).",
            "torch.compile gave up, and code runs uncompiled (4 times).",
            "recompile_limit",
        ),
        (
            "No CUDA graph: skipping cudagraphs due to cpu device (arg0_1)",
            "A CUDA graph was requested but not used (4 times).",
            "CPU",
        ),
        ("Unsupported context manager", "torch.compile gave up, and code runs uncompiled (4 times).", "smaller part"),
    ],
)
def test_kinds_of_silent_fallback_are_distinguished(reason: str, title: str, remedy: str) -> None:
    finding = one("silent-fallback", compiled_with(CompileReport(fallbacks=(GraphBreak(reason=reason, count=4),))))
    assert finding.title == title
    assert remedy in finding.remedy
    assert finding.evidence[1] == "0 graphs were compiled."


# ---------------------------------------------------------------------------------------------
# recompiles
# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("counts", "fires"), [((1, 1), False), ((2,), False), ((1, 2), True), ((3,), True)])
def test_three_recompilations_of_one_function_are_too_many(counts: tuple[int, ...], fires: bool) -> None:
    guards = tuple(at(12, f"size mismatch {it}", count=count) for it, count in enumerate(counts))
    assert bool(found("recompiles", compiled_with(CompileReport(seconds=9.0, graphs=4, recompiles=guards)))) is fires


def test_each_function_counts_for_itself() -> None:
    guards = (at(12, count=2), at(30, count=2), at(12, count=5, file="/home/someone/other.py"))
    finding = one("recompiles", compiled_with(CompileReport(seconds=9.0, graphs=12, recompiles=guards)))
    assert finding.title == "torch compiled other.py:12 again, 5 times besides the first."
    assert finding.kind == "risk"
    assert "All compiling took 9.00 s, for 12 graphs." in finding.evidence


@pytest.mark.parametrize(
    ("reason", "remedy"),
    [
        ("tensor 'x' size mismatch at index 0. expected 3, actual 4", "dynamic=True"),
        ("tensor 'x' stride mismatch at index 0. expected 3, actual 4", "dynamic=True"),
        ("self.count == 3", "in a tensor"),
    ],
)
def test_changing_sizes_and_numbers_have_their_own_remedies(reason: str, remedy: str) -> None:
    report = CompileReport(seconds=9.0, graphs=4, recompiles=(at(12, reason, count=4),))
    assert remedy in one("recompiles", compiled_with(report)).remedy


# ---------------------------------------------------------------------------------------------
# compile-never-pays
# ---------------------------------------------------------------------------------------------


def trained_on(batches: int, seconds: float, *, backwards: float = 1.0, loaders: int = 1) -> Profile:
    """Make a profile of a compiled script with steps of 0.1 s."""
    profile = compiled_with(CompileReport(seconds=seconds, graphs=1))
    found = tuple(LoaderFacts(dataset="Digits", length=batches // (it + 1)) for it in range(loaders))
    facts = msgspec.structs.replace(profile.facts, loaders=found, backwards_per_step=backwards)
    return msgspec.structs.replace(profile, facts=facts)


@pytest.mark.parametrize(
    ("batches", "seconds", "fires"),
    [(10, 10.1, True), (10, 9.9, False), (1, 5.1, True), (1, 4.9, False), (0, 99.9, False), (0, 100.1, True)],
)
def test_compile_cost_is_reported_from_its_thresholds_on(batches: int, seconds: float, fires: bool) -> None:
    assert bool(found("compile-never-pays", trained_on(batches, seconds))) is fires


def test_accumulated_batches_make_fewer_steps() -> None:
    assert not found("compile-never-pays", trained_on(40, 30.0))
    finding = one("compile-never-pays", trained_on(40, 30.0, backwards=4.0))
    assert finding.title == "Compiling took 30.0 s, as long as 30 passes over the training data."
    assert "a pass has 10 of them" in finding.evidence[0]


def test_the_longest_loader_is_the_training_loader() -> None:
    assert not found("compile-never-pays", trained_on(100, 60.0, loaders=3))


def uncompiled_model(profile: Profile) -> Profile:
    """Return the profile without a compiled model; only a function may be compiled."""
    model = msgspec.structs.replace(profile.facts.models[0], compiled=False)
    return msgspec.structs.replace(profile, facts=msgspec.structs.replace(profile.facts, models=(model,)))


def test_a_script_that_compiles_nothing_is_left_alone() -> None:
    profile = msgspec.structs.replace(uncompiled_model(trained_on(10, 0.0)), compile=CompileReport())
    assert not found("compile-never-pays", profile)


def test_the_line_that_compiles_is_named() -> None:
    call = CallSite(role="model", file="/home/me/train.py", line=20)
    asked = CallSite(role="compile", file="/home/me/train.py", line=8)
    for sites, named in (((call, asked), asked), ((call,), call), ((), None)):
        profile = trained_on(10, 100.0)
        facts = msgspec.structs.replace(profile.facts, sites=sites)
        assert one("compile-never-pays", msgspec.structs.replace(profile, facts=facts)).site == named


def test_compiling_a_function_has_a_cost_too() -> None:
    assert found("compile-never-pays", uncompiled_model(trained_on(10, 100.0)))


def whole_run(seconds: float, run_seconds: float, steps: int = 240, batches: int = 0) -> Profile:
    """Make a profile of a compiled script with steps of 0.1 s that ran to its end."""
    profile = trained_on(batches, seconds)
    return msgspec.structs.replace(profile, run_seconds=run_seconds, steps=Steps(wall_seconds=(0.1,) * steps))


def test_compiling_is_compared_with_the_run_without_a_loader() -> None:
    finding = one("compile-never-pays", whole_run(24.5, 26.0, steps=15))
    assert finding.title == "Compiling took 24.5 s of the 26.0 s that the script ran (94 %)."
    assert "only if a step without it takes more than 1.73 s." in finding.evidence[1]
    assert finding.evidence[2] == "What a step takes without compiling was not measured."
    assert finding.kind == "hint" and finding.share.high == 0


@pytest.mark.parametrize(("seconds", "fires"), [(20.1, True), (19.9, False), (4.9, False)])
def test_compiling_for_a_fifth_of_the_run_is_reported(seconds: float, fires: bool) -> None:
    run_seconds = 20.0 if seconds < 5 else 100.0
    assert bool(found("compile-never-pays", whole_run(seconds, run_seconds))) is fires


def test_for_a_whole_run_passes_over_the_data_do_not_count() -> None:
    """Make a hundred passes over a single batch in a long run."""
    assert not found("compile-never-pays", whole_run(10.0, 100.0, batches=1))


def test_without_a_run_length_the_cost_is_in_steps() -> None:
    finding = one("compile-never-pays", trained_on(0, 245.0))
    assert finding.title == "Compiling took 245 s, as long as 2,450 compiled steps."


def tried(low: float, high: float, *, seconds: float, batches: int, kept: bool = True) -> Profile:
    speed = SpeedComparison(
        speedup=Estimate(value=(low + high) / 2, low=low, high=high, unit="x"),
        verdict="faster",
        replicates=5,
        rounds=15,
        confidence=0.95,
        noise_floor=0.01,
        smallest_detectable=0.02,
    )
    comparison = Comparison(baseline=Plan(), candidate=Plan(), speed=speed)
    verdict: Verdict = Kept(comparison=comparison) if kept else NoGain(comparison=comparison)
    outcome = Outcome(lever="compile", verdict=verdict, compile=CompileReport(seconds=seconds, graphs=1))
    return Profile(
        facts=ScriptFacts(loaders=(LoaderFacts(dataset="Digits", length=batches),)),
        account=PhaseAccount(wall=0.1, phases=(("forward", 0.1),)),
        outcomes=(outcome,),
    )


def test_a_measured_gain_gives_the_steps_to_break_even() -> None:
    """At 1.25x a step of 100 ms saves 20 ms, so 40 s are recovered after 2000 steps."""
    finding = one("compile-never-pays", tried(1.15, 1.25, seconds=40.0, batches=100))
    assert finding.title == "Compiling pays off after 2,000 steps at the earliest, 20 passes."
    assert "became 1.20 times as fast (95 % interval 1.15 to 1.25)" in finding.evidence[0]


@pytest.mark.parametrize(("batches", "fires"), [(199, True), (201, False)])
def test_compiling_that_pays_within_ten_passes_is_silent(batches: int, fires: bool) -> None:
    assert bool(found("compile-never-pays", tried(1.15, 1.25, seconds=40.0, batches=batches))) is fires


@pytest.mark.parametrize(("run_steps", "fires"), [(1999, True), (2001, False)])
def test_a_measured_gain_is_compared_with_the_whole_run(run_steps: int, fires: bool) -> None:
    profile = msgspec.structs.replace(
        tried(1.15, 1.25, seconds=40.0, batches=0),
        run_seconds=0.1 * run_steps,
        steps=Steps(wall_seconds=(0.1,) * run_steps),
    )
    findings = found("compile-never-pays", profile)
    assert bool(findings) is fires
    if fires:
        assert findings[0].title.endswith("after 2,000 steps at the earliest, the script takes 1,999.")


def test_a_gain_that_was_not_kept_is_ignored() -> None:
    assert not found("compile-never-pays", tried(1.15, 1.25, seconds=40.0, batches=10, kept=False))
    assert not found("compile-never-pays", tried(0.9, 1.0, seconds=40.0, batches=10))
