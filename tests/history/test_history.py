"""``hotlap history``: every study in a row, none hidden by another, and a plot whose marks lie where they should."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from xml.etree import ElementTree

import fakes
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotlap.cli.main import main
from hotlap.errors import StudyError
from hotlap.experiment.options import Options
from hotlap.history import History, history_of
from hotlap.records import Estimate, Plan, Source, Study
from hotlap.render.history import result
from hotlap.render.history_svg import history_svg
from hotlap.render.ratio_plot import Span, place, plot_lines, scale_of
from hotlap.study import LABS, PROFILES, create_study


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / ".hotlap"


def keep(root: Path, found: Study, day: int, **fields: object) -> Path:
    """Write a study as its command would have on that day of February 2026."""
    with create_study(root, found.workload, Options()) as journal:
        started = f"2026-02-{day:02d}T10:00:00+00:00"
        named = {"identifier": journal.header.identifier, "started": started, **fields}
        journal.save(msgspec.structs.replace(found, **named))
    return journal.directory


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["history", *words]) == 0
    return capsys.readouterr().out


def test_all_sorts_of_studies(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep(root, fakes.FINISHED, 3, source=Source(git_revision="ab" * 20, git_modified=True))
    keep(root / LABS, fakes.NOTHING, 1)
    keep(root / PROFILES, fakes.PROFILED, 2)
    keep(root, fakes.SCRIPT_FAILED, 4)
    keep(root, fakes.DISTURBED, 5)
    keep(root, fakes.NOT_CONFIRMED, 6)
    keep(root, fakes.INTERRUPTED, 7)
    cut = {"plan": Plan(settings=(fakes.LOADER,)), "outcomes": fakes.OUTCOMES[:1]}
    keep(root, msgspec.structs.replace(fakes.INTERRUPTED, **cut), 8)  # its only trial was against the unmodified script
    keep(root, msgspec.structs.replace(fakes.FINISHED, plan=Plan()), 9)
    keep(root, fakes.QUICK_LOOK, 10)
    page = shown(capsys)
    rows = [line.split("  ") for line in page.splitlines() if line.startswith("2026-")]
    cells = [[it.strip() for it in row if it.strip()] for row in rows]
    assert cells == [
        ["2026-02-01 10:00", "lab", "nothing faster"],
        ["2026-02-02 10:00", "profile", "3 causes, up to 48 % of a step"],
        ["2026-02-03 10:00", "tune", "3.65x (3.58 to 3.72)", "no difference"],
        ["2026-02-04 10:00", "tune", "the script failed"],
        ["2026-02-05 10:00", "tune", "no claim: disturbed", "no difference"],
        ["2026-02-06 10:00", "tune", "no gain shown (0.98 to 1.06)"],
        ["2026-02-07 10:00", "tune", "interrupted"],
        ["2026-02-08 10:00", "tune", "interrupted"],
        ["2026-02-09 10:00", "tune", "no claim: the plan was dropped", "no difference"],
        ["2026-02-10 10:00", "tune", "quick look, nothing proved"],
    ]
    for piece in (
        "train.py --epochs 1",
        "loader, mixed-precision, compile",
        "torch 2.13.0, AMD EPYC 7742, 16 cores, NVIDIA A10, git ababababa with changes",
    ):
        assert piece in page
    assert "\x1b" not in page


def test_one_that_cannot_be_read_hides_no_other(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep(root, fakes.FINISHED, 1)
    broken = {name: keep(root, fakes.FINISHED, 2) / "study.json" for name in ("torn", "new", "pipe", "deep", "huge")}
    broken["torn"].write_bytes(broken["torn"].read_bytes()[:500])
    broken["new"].write_text('{"format_version": 99}')
    broken["pipe"].unlink()
    os.mkfifo(broken["pipe"])
    broken["deep"].write_text('{"format_version": 1, "x":' + "[" * 100_000)
    with broken["huge"].open("wb") as file:
        file.truncate(2**40)  # it takes no room on the disk
    page = " ".join(shown(capsys).split())
    assert "3.65x (3.58 to 3.72)" in page
    assert page.count("2026-02-") == 2, "the row and the line of the plot of the one that can be read"
    for piece in ("has format 99", "is not a regular file", "recursion depth", "at most", "damaged"):
        assert piece in page
    found = history_of(root)
    assert (len(found.entries), len(found.unreadable)) == (1, 5)


def test_only_studies_that_cannot_be_read(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (keep(root, fakes.FINISHED, 1) / "study.json").write_text("{")
    page = shown(capsys)
    assert "Not read" in page and "Speedup" not in page


def test_no_study_at_all(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["history"]) == 2
    assert "There is no study under .hotlap" in capsys.readouterr().err
    with pytest.raises(StudyError):
        history_of(root)


def test_json_reads_back(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep(root, fakes.FINISHED, 1, source=Source(git_revision="ab" * 20, git_modified=False, script_sha256="cd" * 32))
    keep(root / PROFILES, fakes.PROFILED, 2)
    out = shown(capsys, "--json")
    found = msgspec.json.decode(out, type=History)
    assert found == history_of(Path(".hotlap"))
    first, second = found.entries
    assert (first.sort, first.quality, first.levers) == ("tune", "within", ("loader", "mixed-precision", "compile"))
    assert first.source.script_sha256 == "cd" * 32
    assert (second.sort, second.findings, second.speedup) == ("profile", 3, None)
    assert json.loads(out)["entries"][0]["speedup"]["value"] == pytest.approx(3.65)


def test_another_folder_and_a_plot(root: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    keep(tmp_path / "elsewhere", fakes.FINISHED, 1)
    keep(tmp_path / "elsewhere", fakes.DISTURBED, 2)
    page = shown(capsys, "--plot", "a.txt", "elsewhere")
    lines = Path("a.txt").read_text().splitlines()
    assert len(lines) == 3 and "3.65x" in lines[0] and "┤" in lines[0] and "┊" in lines[1]
    assert "3.65x" in page
    shown(capsys, "--plot", "a.svg", "elsewhere")
    drawing = ElementTree.parse("a.svg").getroot()
    space = "{http://www.w3.org/2000/svg}"
    assert len(drawing.findall(f"{space}g")) == 2
    assert [it.attrib.get("class") for it in drawing.findall(f"{space}g")] == [None, "unclaimed"]
    assert any("3.65x (3.58 to 3.72)" in (it.text or "") for it in drawing.iter(f"{space}text"))


@pytest.mark.parametrize(("name", "says"), [("a.png", "neither .svg nor .txt"), ("no/where.svg", "cannot be written")])
def test_a_plot_that_cannot_be_written(root: Path, capsys: pytest.CaptureFixture[str], name: str, says: str) -> None:
    keep(root, fakes.FINISHED, 1)
    assert main(["history", "--plot", name]) == 2
    assert says in capsys.readouterr().err


def test_foreign_text_stays_text(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = f"{fakes.HOSTILE_TEXT}</svg><script>alert(1)</script>"
    workload = msgspec.structs.replace(fakes.WORKLOAD, target=bad, arguments=(bad,))
    machine = msgspec.structs.replace(fakes.MACHINE, processor=bad, library_versions=(("torch", bad),))
    keep(
        root,
        fakes.FINISHED,
        1,
        started=bad,
        workload=workload,
        machine=machine,
        source=Source(git_revision=bad),
        plan=Plan(settings=(msgspec.structs.replace(fakes.LOADER, lever=bad),)),
    )
    page = shown(capsys, "--plot", "a.svg")
    assert not [it for it in page if it in "\x1b\x07\r\x00\u202e\u2066"]
    drawing = Path("a.svg").read_text()
    assert "<script>" not in drawing and drawing.count("</svg>") == 1
    ElementTree.fromstring(drawing)


@pytest.mark.parametrize("value", [0.0, -1.0, 1e-9, 1e300])
def test_ratios_that_make_no_sense_are_not_drawn(root: Path, capsys: pytest.CaptureFixture[str], value: float) -> None:
    keep(root, fakes.FINISHED, 1)
    bad = msgspec.structs.replace(fakes.speed(2.0), speedup=Estimate(value=value, low=value, high=value))
    keep(root, fakes.FINISHED, 2, verification=fakes.comparison((fakes.LOADER,), bad))
    page = shown(capsys, "--plot", "a.svg")
    assert len([it for it in page.splitlines() if "┤" in it]) == 1
    assert Path("a.svg").read_text().count("<g") == 1


def test_nothing_to_draw(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep(root / PROFILES, fakes.PROFILED, 2)
    assert "Speedup" not in shown(capsys, "--plot", "a.svg")
    assert "No study has a speedup yet." in Path("a.svg").read_text()
    shown(capsys, "--plot", "a.txt")
    assert Path("a.txt").read_text() == ""


def test_a_study_from_before_there_was_a_source(root: Path) -> None:
    directory = keep(root, fakes.FINISHED, 1)
    path = directory / "study.json"
    document = json.loads(path.read_text())
    del document["source"]
    path.write_text(json.dumps(document))
    (entry,) = history_of(root).entries
    assert entry.source == Source()


# -- the plot ---------------------------------------------------------------------------------------

ratios = st.floats(min_value=0.01, max_value=100.0)


def spans_from(triples: list[tuple[float, float, float]]) -> list[Span]:
    ordered = [sorted(it) for it in triples]
    return [Span(f"day {i}", Estimate(value=b, low=a, high=c), True) for i, (a, b, c) in enumerate(ordered)]


@given(
    triples=st.lists(st.tuples(ratios, ratios, ratios), min_size=1, max_size=6),
    width=st.integers(min_value=30, max_value=160),
    ascii_only=st.booleans(),
)
def test_marks_are_placed_by_the_scale(triples: list[tuple[float, float, float]], width: int, ascii_only: bool) -> None:
    spans = spans_from(triples)
    *lines, ticks = [line for line, _ in plot_lines(spans, width, ascii_only=ascii_only)]
    left, dot, right = "[o]" if ascii_only else "├●┤"
    low, high = scale_of(spans)
    assert low < 1 < high
    names = max(len(it.name) for it in spans)
    cells = max(10, width - names - max(len(it.split()[-1]) for it in lines) - 6)
    for span, line in zip(spans, lines, strict=True):
        drawn = line[names + 4 : names + 4 + cells]
        assert drawn.index(dot) == round(place(span.of.value, low, high) * (cells - 1))
        if left in drawn:
            assert drawn.index(left) == round(place(span.of.low, low, high) * (cells - 1))
        if right in drawn:
            assert drawn.rindex(right) == round(place(span.of.high, low, high) * (cells - 1))
        assert len(line) <= max(width, names + cells + 12)
    assert "x" in ticks
    if ascii_only:
        assert all(it.isascii() for it in (*lines, ticks))


@given(a=ratios, b=ratios)
def test_the_scale_is_logarithmic(a: float, b: float) -> None:
    halves = place(math.sqrt(a * b), min(a, b) / 2, max(a, b) * 2)
    assert halves == pytest.approx(0.5)


def test_a_result_never_comes_without_its_interval(root: Path) -> None:
    keep(root, fakes.FINISHED, 1)
    (entry,) = history_of(root).entries
    assert result(entry) == "3.65x (3.58 to 3.72)"
    assert "(" in history_svg(history_of(root))
