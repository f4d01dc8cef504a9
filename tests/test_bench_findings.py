"""The benchmark of findings: what it counts, and that a script which fails is no measurement."""

from __future__ import annotations

from pathlib import Path

import msgspec
import psutil
import pytest
from bench.findings import report, truth
from bench.findings.claims import Comparison
from bench.findings.planted import Cure, Edit, Planted
from bench.findings.score import Claim, Score, failed, score
from bench.findings.truth import Truth, measure

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
