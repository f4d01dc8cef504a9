"""The benchmark of findings: what it counts, and that a script which fails is not a measurement."""

from __future__ import annotations

from pathlib import Path

import msgspec
import psutil
import pytest
from bench.findings import __main__ as findings_of
from bench.findings import report, truth
from bench.findings.claims import Comparison
from bench.findings.planted import Cure, Edit, Planted
from bench.findings.score import Claim, Score, failed, judged_again, score
from bench.findings.truth import Truth, measure
from bench.findings.turns import active_moments
from bench.findings.variants import both_copies
from bench.report import machine_line

from hotlap.records import CallSite, Estimate, Finding

SCRIPT = """\
import torch

weight = torch.nn.Parameter(torch.ones(4))
optimizer = torch.optim.SGD([weight], lr=0.1)
for step in range(20):
    weight.sum().backward()  # planted: slow-matmul-precision
    optimizer.step()
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text(SCRIPT)
    return folder


def planted(folder: Path, *, first: str = "slow-matmul-precision", also: tuple[str, ...] = ()) -> Planted:
    return Planted(first=first, also=also, name=folder.name, folder=str(folder), script="train.py")


def cost(rule: str, share: float, line: int = 6) -> Finding:
    site = CallSite(role="call", file="train.py", line=line)
    return Finding(
        rule=rule, share=Estimate(value=share, low=share, high=share, unit="of the step"), title="", site=site
    )


def totals(*known: tuple[Planted, Score]) -> str:
    return report.markdown(known, ())


def test_an_earlier_result_is_judged_by_todays_description(project: Path) -> None:
    found = [cost("slow-matmul-precision", 0.5), cost("loader-bound", 0.1)]
    earlier = score(planted(project, also=("no-workers",)), found)
    assert (earlier.missed, earlier.false) == (("no-workers",), ("loader-bound",))
    today = planted(project)
    again = judged_again(today, earlier)
    assert (again.wanted, again.missed, again.false) == (("slow-matmul-precision",), (), ("loader-bound",))
    assert judged_again(today, failed(today, "it crashed")).missed == ("slow-matmul-precision",)


def test_what_could_not_be_profiled_counts_as_missed(project: Path) -> None:
    sick = planted(project, also=("no-workers",))
    text = totals((sick, failed(sick, "it crashed")))
    assert "recall: 0 of 2" in text and "ranked first: 0 of 1" in text and "right line: 0 of 1" in text
    clean = planted(project, first="")
    assert "without a false finding: 0 of 1" in totals((clean, failed(clean, "it crashed")))


def test_right_lines_are_counted_where_a_line_is_marked(project: Path, tmp_path: Path) -> None:
    unmarked = tmp_path / "unmarked"
    unmarked.mkdir()
    (unmarked / "train.py").write_text("")
    findings = [cost("slow-matmul-precision", 0.5)]
    known = [(it, score(it, findings)) for it in (planted(project), planted(unmarked))]
    assert "right line: 1 of 1" in totals(*known)
    elsewhere = planted(project), score(planted(project), [cost("slow-matmul-precision", 0.5, line=1)])
    assert "right line: 0 of 1" in totals(elsewhere)


def test_hits_and_false_alarms_are_counted_by_rule(project: Path) -> None:
    both = planted(project, also=("no-workers",))
    missed = score(both, [cost("slow-matmul-precision", 0.5), cost("host-sync", 0.1)])
    true = msgspec.structs.replace(planted(project), true=("host-sync",))
    known = (both, missed), (true, score(true, [cost("slow-matmul-precision", 0.5), cost("host-sync", 0.1)]))
    text = totals(*known)
    assert "| `slow-matmul-precision` | 2 | 2 | - | - |" in text
    assert "| `no-workers` | 1 | - | - | - |" in text
    assert "| `host-sync` | - | - | 1 | 1 |" in text


def test_what_a_simulated_device_shows_is_said_to_be_logic(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    it = planted(project), score(planted(project), [cost("slow-matmul-precision", 0.5)])
    assert "proves logic, never speed" in report.markdown([it], (), simulated=True)
    assert "simulated" not in totals(it)
    monkeypatch.setenv("SIMULATED_DEVICE", "a100")
    assert machine_line().endswith("a simulated no accelerator: there is no such device")


def test_what_should_rank_first_is_named_where_it_does_not(project: Path) -> None:
    it = planted(project, also=("anomaly-detection",))
    found = score(it, [cost("anomaly-detection", 0.5), cost("slow-matmul-precision", 0.1)])
    assert found.in_words() == "not first: slow-matmul-precision"


@pytest.mark.parametrize(
    ("share", "is_bound", "low", "high", "expected"),
    [
        (0.4, False, 0.30, 0.50, True),
        (0.4, False, 0.16, 0.50, True),
        (0.4, False, -0.90, 0.80, None),
        (0.4, False, 0.00, 0.10, False),
        (0.4, True, 0.10, 0.44, True),
        (0.4, True, -0.90, 0.80, None),
        (0.4, True, 0.50, 0.60, False),
    ],
)
def test_claims_are_judged_where_the_interval_allows_one_answer(
    share: float, is_bound: bool, low: float, high: float, expected: bool | None
) -> None:
    saving = Truth("project", ("no-workers",), "step", 1.0, 0.7, (low + high) / 2, low, high)
    assert Comparison("project", Claim("no-workers", share, is_bound, "of the step"), saving).is_borne_out is expected


@pytest.mark.slow
@pytest.mark.parametrize("end", ["raise ValueError('the cure is wrong')", "raise SystemExit('the cure is wrong')"])
def test_a_cure_that_fails_saves_nothing(project: Path, end: str) -> None:
    cure = Cure(
        rules=("slow-matmul-precision",),
        edits=(Edit(old="    optimizer.step()\n", new=f"    optimizer.step()\n    if step == 9:\n        {end}\n"),),
        measure="finite",
    )
    found = measure(planted(project), cure)
    assert found.trouble.startswith("with it: ") and "the cure is wrong" in found.trouble
    assert not found.is_true


@pytest.mark.slow
def test_ranks_that_hang_are_ended(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(truth, "_LONGEST_SECONDS", 25.0)
    (project / "train.py").write_text("import os, time\nopen(f'{__file__}.{os.getpid()}', 'w')\ntime.sleep(600)\n")
    ranks = msgspec.structs.replace(planted(project), need="two-processes")
    script = project / "train.py"
    monkeypatch.setattr(truth, "both_copies", lambda planted, cure, folder: (script, script))
    found = measure(ranks, Cure(rules=("straggler",), edits=(), measure="run"))
    assert "it ran for more than 25 s" in found.trouble
    started = [int(it.suffix[1:]) for it in project.iterdir() if it.suffix != ".py"]
    assert len(started) == 4 and not any(map(psutil.pid_exists, started))


@pytest.mark.slow
def test_a_script_may_end_itself(project: Path) -> None:
    cure = Cure(rules=("slow-matmul-precision",), edits=(Edit(old="lr=0.1", new="lr=0.2"),), measure="finite")
    (project / "train.py").write_text(SCRIPT + "raise SystemExit\n")
    found = measure(planted(project), cure)
    assert (found.trouble, found.before, found.after) == ("", 1.0, 1.0)


def test_only_moments_within_turns_count_and_only_the_time_that_a_side_ran() -> None:
    stamps = [9.9, 10.1, 10.4, 11.0, 12.2, 12.4]
    assert active_moments(stamps, [(10.0, 10.5), (12.0, 12.5)]) == pytest.approx([0.1, 0.4, 0.7, 0.9])
    assert active_moments(stamps, []) == []


def test_a_cure_may_change_both_sides(project: Path, tmp_path: Path) -> None:
    both, edit = Edit(old="lr=0.1", new="lr=0.2"), Edit(old="range(20)", new="range(10)")
    cure = Cure(rules=("slow-matmul-precision",), edits=(edit,), both=(both,))
    plain, cured = (it.read_text() for it in both_copies(planted(project), cure, tmp_path / "copies"))
    assert plain == SCRIPT.replace("lr=0.1", "lr=0.2")
    assert cured == plain.replace("range(20)", "range(10)")


@pytest.mark.parametrize(
    ("before", "after", "shown"), [(1e6, 1e3, True), (1e6, 2e5, False), (5000, 400, True), (3000, 0, False)]
)
def test_a_leak_is_shown_where_next_to_nothing_is_left_of_it(before: float, after: float, shown: bool) -> None:
    assert Truth("project", ("memory-growth",), "growth", before, after).is_true is shown


BUSY = """\
import time
import torch

weight = torch.nn.Parameter(torch.ones(4))
optimizer = torch.optim.SGD([weight], lr=0.1)
while True:
    until = time.process_time() + 0.01
    while time.process_time() < until:
        pass
    weight.sum().backward()
    optimizer.step()
"""


@pytest.mark.slow
def test_steps_are_timed_in_turns(project: Path) -> None:
    """Of ten milliseconds a cure leaves six; and neither side pays for the time of the other."""
    (project / "train.py").write_text(BUSY)
    cure = Cure(rules=("slow-matmul-precision",), edits=(Edit(old="0.01", new="0.006"),))
    found = measure(planted(project), cure)
    assert found.is_true and found.saved == pytest.approx(0.4, abs=0.1)
    assert found.before == pytest.approx(0.01, rel=0.3)


@pytest.mark.slow
def test_a_side_that_is_over_too_soon_is_run_as_a_whole(project: Path) -> None:
    cure = Cure(rules=("slow-matmul-precision",), edits=(Edit(old="lr=0.1", new="lr=0.2"),))
    found = measure(planted(project), cure)
    assert found.trouble == "" and found.before > 0 and found.saved is not None


@pytest.mark.slow
def test_a_side_that_fails_in_its_turns_is_trouble(project: Path) -> None:
    (project / "train.py").write_text(BUSY)
    cure = Cure(
        rules=("slow-matmul-precision",), edits=(Edit(old="weight.sum()", new="(1 / (until < 0), weight.sum())[1]"),)
    )
    assert "division" in measure(planted(project), cure).trouble


@pytest.mark.slow
def test_parameters_without_a_gradient_are_counted(project: Path) -> None:
    (project / "train.py").write_text(
        "import torch\n"
        "weights = [torch.nn.Parameter(torch.ones(4)) for _ in range(3)]\n"
        "optimizer = torch.optim.SGD(weights, lr=0.1)\n"
        "for _ in range(20):\n"
        "    (weights[0].sum() + weights[1].sum() + 0 * weights[2].sum()).backward()\n"
        "    optimizer.step()\n"
    )
    cure = Cure(rules=("bias-before-norm",), edits=(Edit(old="0 * ", new=""),), measure="idle")
    found = measure(planted(project), cure)
    assert (found.before, found.after, found.is_true) == (1.0, 0.0, True)


def test_a_run_that_was_cut_goes_on_with_what_it_lacks(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripts = [msgspec.structs.replace(planted(project), name=name) for name in ("first", "second", "third")]
    measured: list[str] = []

    def measure_one(it: Planted, directory: Path, *, busy: bool, machine: object) -> Score:
        measured.append(it.name)
        return score(it, [cost("slow-matmul-precision", 0.5)])

    monkeypatch.setattr(findings_of, "all_planted", lambda: scripts)
    monkeypatch.setattr(findings_of, "measure", measure_one)
    out = tmp_path / "findings"
    findings_of.main(["--out", str(out), "--only", "second"])
    findings_of.main(["--out", str(out), "--rest"])
    assert measured == ["second", "first", "third"]
    assert [it.name for it in findings_of.kept_scores(out, keep=True)] == ["first", "second", "third"]
    findings_of.main(["--out", str(out), "--rest"])
    assert len(measured) == 3


def test_some_causes_are_true_on_busy_cores_alone(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cures = [
        Cure(rules=("slow-matmul-precision",), edits=(), measure="finite"),
        Cure(rules=("loader-bound",), edits=(), measure="finite", busy=True),
    ]
    it = msgspec.structs.replace(planted(project), busy=("loader-bound",), cures=tuple(cures))
    found = [cost("slow-matmul-precision", 0.5), cost("loader-bound", 0.1)]
    assert score(it, found).false == ("loader-bound",) and score(it, found, busy=True).false == ()
    assert judged_again(it, score(it, found), busy=True).false == ()
    assert judged_again(it, score(it, found, busy=True)).false == ("loader-bound",)

    measured: list[Cure] = []

    def measure_one(it: Planted, cure: Cure, pairs: int) -> Truth:
        measured.append(cure)
        return Truth(it.name, cure.rules, cure.measure, 0.5, 1.0)

    monkeypatch.setattr(truth, "all_planted", lambda: [it])
    monkeypatch.setattr(truth.signal, "signal", lambda number, handler: None)  # it would outlast this test
    monkeypatch.setattr(truth, "measure", measure_one)
    out = project.parent / "truth"
    assert truth.main(["--out", str(out)]) == 0 and measured == cures[:1]
    assert truth.main(["--out", str(out), "--busy", "1"]) == 0 and measured == cures
    assert "while other work keeps 1 core busy" in out.with_suffix(".md").read_text()
