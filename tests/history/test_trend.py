"""The trend of checks: which checks are compared, what they amount to, and how it is shown."""

from __future__ import annotations

import json
from pathlib import Path

import fakes
import msgspec
import pytest
from json_documents import assert_valid

from hotlap.cli.main import main
from hotlap.experiment.options import Options
from hotlap.history import Entry, history_of, trends_of
from hotlap.records import Against, Check, CheckVerdict, Estimate, Source, SpeedCheck, Workload
from hotlap.render.trend import sparkline
from hotlap.study import CHECKS, create_study

A, B, C, D = ("a" * 40, "b" * 40, "c" * 40, "d" * 40)


def check(
    day: int,
    commit: str,
    against: str,
    ratio: float,
    *,
    modified: bool = False,
    noise: float = 0.01,
    confidence: float = 0.95,
) -> Entry:
    return Entry(
        directory=f"/project/.hotlap/check/{day}",
        identifier=str(day),
        sort="check",
        kind="check",
        started=f"2026-02-{day:02d}T10:00:00+00:00",
        status="finished",
        workload=fakes.WORKLOAD,
        source=Source(git_revision=commit, git_modified=modified),
        speedup=Estimate(value=ratio, low=ratio * 0.98, high=ratio * 1.02, unit="x"),
        confidence=confidence,
        check="passed",
        against=Against(kind="revision", name="HEAD~1", commit=against),
        noise_floor=noise,
        machine="one machine",
        torch_version="2.13.0",
    )


def test_checks_of_consecutive_commits_multiply() -> None:
    (trend,) = trends_of([check(1, B, A, 0.97), check(2, C, B, 0.97), check(3, D, C, 0.97)])
    since = [it.since_first for it in trend.points]
    assert [it.value for it in since if it is not None] == pytest.approx([0.97, 0.97**2, 0.97**3])
    last = since[-1]
    assert last is not None
    # Three independent errors of 2 % each are together sqrt(3) times as large, not three times.
    assert last.high / last.value == pytest.approx(1.02**3**0.5)
    assert last.low / last.value == pytest.approx(0.98**3**0.5)
    assert last.high < 1, "a slow drift that no single check could show"


def test_checks_against_the_same_commit_are_not_multiplied() -> None:
    (trend,) = trends_of([check(1, B, A, 0.97), check(2, C, A, 0.95)])
    assert [it.since_first for it in trend.points] == [it.speedup for it in trend.points]


@pytest.mark.parametrize(
    "second",
    [
        check(2, D, C, 0.9),  # C was never checked
        check(2, D, B, 0.9, confidence=0.99),  # intervals that mean different things
    ],
)
def test_what_is_not_connected_is_unknown(second: Entry) -> None:
    (trend,) = trends_of([check(1, B, A, 0.97), second])
    assert trend.points[1].since_first is None


def test_a_tree_with_changes_is_not_its_commit() -> None:
    (trend,) = trends_of([check(1, B, A, 0.97, modified=True), check(2, C, B, 0.97)])
    assert trend.points[1].since_first is None


@pytest.mark.parametrize(
    "changes",
    [
        {"machine": "another machine"},
        {"torch_version": "2.6.0"},
        {"workload": msgspec.structs.replace(fakes.WORKLOAD, arguments=("--epochs", "2"))},
        {"against": Against(kind="revision", name="main", commit=B)},
        {"against": Against(kind="plan", name="HEAD~1")},
        {"against": None},
        {"check": None},
        {"speedup": None},
        {"speedup": Estimate(value=0.0, low=0.0, high=1.0)},
    ],
    ids=str,
)
def test_only_comparable_checks_make_a_trend(changes: dict[str, object]) -> None:
    second = msgspec.structs.replace(check(2, C, B, 0.97), **changes)
    assert trends_of([check(1, B, A, 0.97), second]) == ()


def test_noise_is_not_drawn_as_a_trend() -> None:
    (flat,) = trends_of([check(1, B, A, 1.01, noise=0.05), check(2, C, A, 0.99, noise=0.05)])
    assert sparkline(flat.points, ascii_only=False) == "▅▅"
    (falling,) = trends_of([check(1, B, A, 1.0), check(2, C, A, 0.9), check(3, D, A, 0.8)])
    line = sparkline(falling.points, ascii_only=False)
    assert list(line) == sorted(line, reverse=True) and len(set(line)) == 3
    assert sparkline(falling.points, ascii_only=True).isascii()


# -- as the command shows it --------------------------------------------------------------------------


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / ".hotlap"


def keep(
    root: Path,
    day: int,
    commit: str,
    against: str,
    ratio: float,
    *,
    verdict: CheckVerdict = "passed",
    workload: Workload = fakes.WORKLOAD,
    name: str = "HEAD~1",
    noise: float = 0.01,
) -> None:
    """Write a check's study with its answer, as the command does."""
    other = Against(kind="revision", name=name, commit=against)
    speed = msgspec.structs.replace(fakes.speed(ratio), noise_floor=noise)
    with create_study(root / CHECKS, workload, Options()) as journal:
        study = msgspec.structs.replace(
            fakes.FINISHED,
            identifier=journal.header.identifier,
            kind="check",
            started=f"2026-02-{day:02d}T10:00:00+00:00",
            workload=workload,
            source=Source(git_revision=commit, git_modified=False),
            check_verdict=verdict,
            verification=fakes.comparison((), speed),
        )
        journal.save(study)
    answer = Check(
        verdict=verdict,
        text="",
        workload=workload,
        against=other,
        speed=SpeedCheck(verdict=verdict, text="", limit=0.95, comparison=speed),
        delta=0.05,
    )
    (journal.directory / "check.json").write_bytes(msgspec.json.encode(answer))


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["history", *words]) == 0
    return capsys.readouterr().out


def test_the_page_shows_each_check_with_its_noise(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep(root, 1, B, A, 1.0, noise=0.1)
    keep(root, 2, C, B, 0.8, verdict="failed")
    page = shown(capsys)
    assert "Trend of checks against HEAD~1" in page
    assert "speed since the first check: 0.80x (" in page
    first, second = (it for it in page.splitlines() if it.startswith("  2026-02-0"))
    assert "bbbbbbbbb" in first and "░" in first and "passed" in first
    assert "ccccccccc" in second and "0.80x (" in second and "failed" in second
    assert second.index("●") < first.index("●")


def test_the_document_has_the_trend(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep(root, 1, B, A, 1.0)
    keep(root, 2, C, B, 0.8)
    document = json.loads(shown(capsys, "--json"))
    assert_valid(document)
    (trend,) = document["trends"]
    assert [it["commit"] for it in trend["points"]] == [B, C]
    assert trend["points"][1]["since_first"]["value"] == pytest.approx(0.8)
    assert trend["points"][0]["noise_floor"] == 0.01


def test_a_single_check_has_no_trend(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep(root, 1, B, A, 1.0)
    assert "Trend" not in shown(capsys)


def test_an_answer_that_cannot_be_read_leaves_the_check_in_the_table(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keep(root, 1, B, A, 1.0)
    keep(root, 2, C, B, 0.8)
    for it in (root / CHECKS).glob("*/check.json"):
        it.write_text("{")
    page = shown(capsys)
    assert page.count("the speed (") == 2 and "Trend" not in page
    assert history_of(root).trends == ()


def test_only_the_last_checks_are_listed(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for day in range(1, 23):
        keep(root, day, f"{day:040x}", A, 1.0)
    page = shown(capsys)
    assert "2 older checks are not listed" in page
    assert len([it for it in page.splitlines() if it.startswith("  2026-02-")]) == 20


def test_foreign_text_stays_text(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = fakes.HOSTILE_TEXT.replace("\0", "")
    workload = msgspec.structs.replace(fakes.WORKLOAD, target=bad, arguments=(bad,))
    for day in (1, 2):
        keep(root, day, bad, bad, 1.0, workload=workload, name=bad)
    page = shown(capsys)
    assert "Trend of checks" in page
    assert not [it for it in page if it in "\x1b\x07\r\x00\u202e\u2066"]
