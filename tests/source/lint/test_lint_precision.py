"""The benchmark of precision: hits that were not read do not count, and labels have a fixed form."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.lint_precision import report
from bench.lint_precision.corpus import Hit, Key, Package, hits_in
from bench.lint_precision.labels import FILE, Label, read_labels
from bench.lint_precision.recall import Planted, projects
from bench.lint_precision.report import projects_section
from bench.lint_precision.score import SAMPLE, drawn_from, drawn_of_rules, scores, total

from hotlap.errors import LintError
from hotlap.source.lint.api import all_rules
from hotlap.source.lint.configuration import withdrawn

RULES = {"HL201": "item-in-hot-loop", "HL502": "empty-cache-in-loop"}
SCRIPT = """import torch

for batch in loader:
    model(batch).mean().backward()
    optimizer.step()
    torch.cuda.empty_cache()
"""


def a_hit(code: str, number: int, package: str = "some") -> Hit:
    return Hit(Key(package, "1.0", "train.py", code, f"line {number}"), number, "It is slow.", f"around {number}")


def a_label(hit: Hit, verdict: str) -> Label:
    key = hit.key
    return Label(
        package=key.package, version=key.version, path=key.path, code=key.code, line=key.line,
        verdict=verdict, reason="read",  # type: ignore[arg-type]
    )  # fmt: skip


def test_a_hit_without_a_label_does_not_count() -> None:
    hits = [a_hit("HL201", it) for it in range(4)]
    labels = {it.key: a_label(it, verdict) for it, verdict in zip(hits, ("right", "wrong", "debatable"), strict=False)}
    score = scores(hits, labels, RULES)[0]
    assert (score.hits, score.labelled, score.right, score.wrong, score.debatable) == (4, 3, 1, 1, 1)
    assert score.unlabelled == (hits[3].key,)
    assert score.precision is not None and score.precision.value == pytest.approx(1 / 3)
    assert score.not_wrong is not None and score.not_wrong.value == pytest.approx(2 / 3)


def test_nothing_is_said_of_a_rule_without_labels() -> None:
    silent, unread = scores([a_hit("HL502", 1)], {}, RULES)
    assert silent.hits == 0 and silent.precision is None
    assert unread.hits == 1 and unread.precision is None
    assert total([silent, unread]).precision is None


def test_many_hits_are_drawn_from_and_always_the_same() -> None:
    hits = [a_hit("HL201", it) for it in range(3 * SAMPLE)]
    drawn = drawn_from(hits)
    assert len(set(drawn)) == SAMPLE
    assert drawn_from(list(reversed(hits))) == drawn
    assert drawn_of_rules(hits) == drawn
    assert len(scores(hits, {}, RULES)[0].unlabelled) == SAMPLE


def test_copies_are_one_hit(tmp_path: Path) -> None:
    packages = []
    for name in ("first", "second"):
        file = tmp_path / name / "train.py"
        file.parent.mkdir()
        file.write_text(SCRIPT)
        packages.append(Package(name, "1.0", tmp_path, (file,)))
    found, files = hits_in(packages, set())
    assert files == 2
    [hit] = [it for it in found if it.key.code == "HL502"]
    assert hit.key == Key("first", "1.0", "first/train.py", "HL502", "torch.cuda.empty_cache()")
    assert hit.number == 6


def test_the_committed_labels_are_whole() -> None:
    labels = read_labels()
    assert len(labels) > 100
    assert {it.code for it in labels if not withdrawn(it.code)} <= set(all_rules())


@pytest.mark.parametrize(
    "changed", [("right", "sure"), ('"reason":"', '"reason":""}#"'), ('{"package"', '{"packages"')]
)
def test_a_broken_label_is_a_loud_error(tmp_path: Path, changed: tuple[str, str]) -> None:
    line = '{"package":"a","version":"1","path":"p.py","code":"HL201","line":"x","verdict":"right","reason":"read"}'
    file = tmp_path / FILE.name
    file.write_text(line.replace(*changed) + "\n")
    with pytest.raises(LintError):
        read_labels(file)


def test_a_hit_is_labelled_once(tmp_path: Path) -> None:
    line = '{"package":"a","version":"1","path":"p.py","code":"HL201","line":"x","verdict":"right","reason":"read"}\n'
    file = tmp_path / FILE.name
    file.write_text(line * 2)
    with pytest.raises(LintError, match="line 2"):
        read_labels(file)


def test_the_report_names_what_is_wrong_and_what_was_not_read() -> None:
    hits = [a_hit("HL201", it) for it in range(3)]
    labels = {hits[0].key: a_label(hits[0], "right"), hits[1].key: a_label(hits[1], "wrong")}
    text = report.judgements(hits, labels)
    wrong, unread = text.split("## Not looked at")
    assert "some train.py:1" in wrong and "some train.py:0" not in text
    assert "some train.py:2" in unread
    package = Package("some", "1.0", Path("/"), ())
    section = report.corpus_section("Some code", [package], 7, scores(hits, labels, RULES))
    assert "| HL201 item-in-hot-loop | 3 | 1 | 2 | 1 | 0 | 1 | 50.0 %" in section
    assert "Without a hit, so nothing is known of them here: HL502 empty-cache-in-loop." in section


def test_what_was_planted_and_missed_is_named() -> None:
    planted = [
        Planted("HL201", "host-sync", "a.py", found=True, marked=True),
        Planted("HL201", "host-sync", "b.py", found=False, marked=True),
        Planted("HL351", "taken out", "c.py", found=True, marked=False),
    ]
    text = report.recall_section(planted)
    assert "found 1 of 2" in text and "found 1 of 1" in text
    assert text.endswith("Missed:\n\n- HL201, host-sync: b.py")


def test_labels_without_a_hit_are_counted_apart() -> None:
    there, gone = a_hit("HL201", 1), a_hit("HL201", 2)
    labels = {there.key: a_label(there, "right"), gone.key: a_label(gone, "wrong")}
    text = report.gone_section([there], labels)
    assert "Labels whose hit is gone since: 1, of which 1 wrong, 0 debatable, 0 right." in text
    assert "`line 2`" in text and "`line 1`" not in text


def test_the_projects_of_several_files_are_marked_and_clean() -> None:
    found = projects()
    assert len(found.marked) >= 15 and not found.false_alarms
    assert sum(it.found for it in found.marked) > sum(it.found_alone for it in found.marked)
    assert projects_section(found).startswith("## Recall across files")
