"""Studies of older formats, of newer ones, and malicious ones."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotlap.cli.main import main
from hotlap.diagnose.profile import Profile
from hotlap.errors import StudyError
from hotlap.evidence import RunEvidence
from hotlap.records import (
    Check,
    Completed,
    Kept,
    OutOfMemory,
    Parity,
    Patch,
    QualityLost,
    Study,
    TaskQuality,
    TimedOut,
)
from hotlap.study import (
    FORMAT,
    JOURNAL,
    PATCH,
    PROFILE,
    SUMMARY,
    LaunchAnswer,
    MachineAnswer,
    TurnAnswer,
    attachment_of,
    layout,
    load_study,
    migrations,
    open_study,
    reading,
)
from hotlap.study.migrations import Document, Part, Step, migrated

FROZEN = Path(__file__).with_name("format-1")
"""A study as the first format has it. It is never changed: when the format changes, it must still be read."""

ROOT = Path(__file__).parents[2]


@pytest.fixture
def frozen(tmp_path: Path) -> Path:
    """A copy of the frozen study."""
    return Path(shutil.copytree(FROZEN, tmp_path / "20260131-142501-337"))


# -- the first format -------------------------------------------------------------------------------


def test_the_frozen_study_is_read(frozen: Path) -> None:
    study = load_study(frozen)
    assert (study.identifier, study.status, study.workload.target) == ("20260131-142501-337", "finished", "train.py")
    assert study.source.git_modified is True and study.source.git_revision.startswith("0123456789")
    assert [it.lever for it in study.plan.settings] == ["loader", "mixed-precision", "compile"]
    assert len({type(it.verdict) for it in study.outcomes}) == 6, "every kind of verdict"
    assert isinstance(study.outcomes[0].verdict, Kept)
    assert study.verification is not None
    assert study.verification.speed.speedup.value == pytest.approx(3.65)
    assert study.machine.accelerators[0].name == "NVIDIA A10"
    assert study.baseline is not None and study.baseline.bad_number is not None
    assert study.directory == str(frozen)


def test_its_journal_is_continued(frozen: Path) -> None:
    with open_study(frozen) as journal:
        kinds = [type(it) for it in journal.answers.values()]
        assert kinds == [MachineAnswer, LaunchAnswer, TurnAnswer, TurnAnswer]
        turns = journal.answers[("00000000000000a3", 1)]
        assert isinstance(turns, TurnAnswer) and turns.elapsed_seconds == 31.5
        endings = [type(run.ending) for run in turns.answer.runs]
        assert endings == [Completed, TimedOut, OutOfMemory]
        assert [len(it) for it in turns.answer.rounds] == [3, 3, 3]
        assert journal.header.source.script_sha256 == "ab" * 32
    present = (frozen / JOURNAL).read_bytes()
    with open_study(frozen) as again:
        assert again.answers == journal.answers
    assert (frozen / JOURNAL).read_bytes() == present, "a journal of the present format is not written again"


def test_its_profile_is_read(frozen: Path) -> None:
    profile = attachment_of(frozen, PROFILE, Profile)
    assert profile is not None and profile.evidence != RunEvidence()


def test_it_is_shown(frozen: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(frozen)]) == 0
    assert "3.65x faster (95 % interval 3.58 to 3.72)" in capsys.readouterr().out


def held_by(whole: Any, part: Any, where: str = "") -> list[str]:
    """The places at which ``whole`` lacks what ``part`` has."""
    if isinstance(part, dict):
        return [it for key in part for it in held_by(whole.get(key, "(missing)"), part[key], f"{where}.{key}")]
    if isinstance(part, list) and isinstance(whole, list) and len(whole) == len(part):
        pairs = zip(whole, part, strict=True)
        return [it for index, (one, other) in enumerate(pairs) for it in held_by(one, other, f"{where}[{index}]")]
    return [] if whole == part else [f"{where}: {whole!r} instead of {part!r}"]


@pytest.mark.parametrize("written_in", [1, 2, 3])
def test_nothing_of_it_is_lost(written_in: int) -> None:
    """Every value of the frozen files, migrated, comes back from the records: a field that was renamed or dropped fails
    here, and needs a step in migrations.py and a new format."""
    folder = FROZEN.with_name(f"format-{written_in}")
    lines = (folder / JOURNAL).read_bytes().splitlines()
    kinds = {it.__struct_config__.tag: it for it in (reading.Header, MachineAnswer, LaunchAnswer, TurnAnswer)}
    texts: list[tuple[bytes, Any, Part]] = [
        (text, kinds[json.loads(text)["type"]], "answer" if number else "header") for number, text in enumerate(lines)
    ]
    texts += [((folder / SUMMARY).read_bytes(), Study, "summary")]
    attached = ((PROFILE, Profile), (PATCH, Patch), (layout.CHECK, Check))
    texts += [((folder / name).read_bytes(), kind, "attachment") for name, kind in attached if (folder / name).exists()]
    for text, kind, part in texts:
        present = migrated(part, json.loads(text), written_in)
        again = json.loads(msgspec.json.encode(msgspec.json.decode(msgspec.json.encode(present), type=kind)))
        assert held_by(again, present) == []


def test_the_second_format_calls_what_a_loader_is_given_as_torch_does(frozen: Path) -> None:
    study = load_study(frozen)
    assert dict(study.plan.settings[0].values)["num_workers"] == 4 and study.format_version == FORMAT
    profile = attachment_of(frozen, PROFILE, Profile)
    assert profile is not None
    names = {name for it in profile.loader_rates for name, _ in it.setting.values}
    assert names <= {"num_workers", "pin_memory", "persistent_workers", "prefetch_factor"}
    with open_study(frozen):
        pass
    old = ("pin-memory", "persistent-workers", "prefetch-factor")
    assert any(it in (FROZEN / JOURNAL).read_text() for it in old), "the frozen journal has the old names"
    assert not any(it in (frozen / JOURNAL).read_text() for it in old)


@pytest.mark.parametrize(
    "name", [f"format-1/{PROFILE}", f"format-2/{PATCH}", f"format-2/{layout.CHECK}", f"format-3/{layout.CHECK}"]
)
def test_what_is_of_the_present_format_already_is_left_unchanged(name: str) -> None:
    """An attachment does not record its format."""
    once = migrated("attachment", json.loads((FROZEN.parent / name).read_text()), 1)
    assert migrated("attachment", once, 1) == once


# -- the second format ------------------------------------------------------------------------------


def test_the_third_format_separates_outputs_from_losses(capsys: pytest.CaptureFixture[str]) -> None:
    second = FROZEN.with_name("format-2")
    study = load_study(second)
    assert study.verification is not None
    quality = study.verification.quality
    assert isinstance(quality, TaskQuality) and (quality.verdict, quality.compared) == ("within", 1)
    assert [it.name for it in quality.outputs] == ["output"] and quality.text.startswith("output, 1 input:")
    lost = [it.lever for it in study.outcomes if isinstance(it.verdict, QualityLost)]
    assert lost == ["mixed-precision"]
    patch, check = attachment_of(second, PATCH, Patch), attachment_of(second, layout.CHECK, Check)
    assert patch is not None and patch.proof is not None and isinstance(patch.proof.numbers, Parity)
    assert check is not None and check.numbers is not None and isinstance(check.numbers.quality, Parity)
    assert (patch.proof.numbers.verdict, check.numbers.quality.verdict) == ("within", "exact")
    assert study.account_before is not None and study.baseline is not None
    assert study.account_before.seconds_in("forward") == pytest.approx(study.account_before.wall)
    steps = study.baseline.steps
    assert steps.seconds_in("forward") == steps.wall_seconds and steps.wall_seconds
    assert main(["report", str(second)]) == 0
    assert "outputs keep a quality of 0.99 on 1 input" in capsys.readouterr().out


# -- the third format -------------------------------------------------------------------------------


def test_the_fourth_format_counts_replicates(frozen: Path) -> None:
    third = json.loads((FROZEN.with_name("format-3") / SUMMARY).read_text())
    speed = third["verification"]["speed"]
    study = load_study(FROZEN.with_name("format-3"))
    assert study.verification is not None
    assert study.verification.speed.replicates == speed["sets"] == 5
    assert study == msgspec.structs.replace(load_study(frozen), directory=study.directory)


# -- steps from one format to the next --------------------------------------------------------------


def test_there_is_a_step_from_every_format_to_the_next() -> None:
    assert sorted(migrations.STEPS) == list(range(1, FORMAT))
    assert Study(workload=load_study(FROZEN).workload).format_version == FORMAT


def second(part: Part, document: Document) -> Document:
    """In the second format of this test the script is called ``script``, and answers took ``milliseconds``."""
    if part in ("summary", "header"):
        document["workload"]["target"] = document["workload"].pop("script")
    return document


def first(part: Part, document: Document) -> Document:
    if part == "answer":
        document["elapsed_seconds"] = document.pop("milliseconds") / 1000
    return document


@pytest.fixture
def third(monkeypatch: pytest.MonkeyPatch) -> Mapping[int, Step]:
    """The present format is the third."""
    steps = {1: first, 2: second}
    monkeypatch.setattr(migrations.migrated, "__defaults__", (steps,))
    monkeypatch.setattr(reading, "FORMAT", 3)
    monkeypatch.setattr("hotlap.study.journal.FORMAT", 3)
    return steps


def as_first(directory: Path) -> None:
    """Make of the frozen study one of the first of three formats."""
    texts = (directory / JOURNAL).read_text().splitlines()
    lines = [migrated("answer", json.loads(it), 1, migrations.STEPS) for it in texts]
    study = migrated("summary", json.loads((directory / SUMMARY).read_text()), 1, migrations.STEPS)
    for it in (lines[0], study):
        it["workload"]["script"] = it["workload"].pop("target")
    for it in lines[1:]:
        it["milliseconds"] = 1000 * it.pop("elapsed_seconds")
    (directory / JOURNAL).write_text("".join(f"{json.dumps(it)}\n" for it in lines))
    (directory / SUMMARY).write_text(json.dumps(study))


def test_an_old_study_is_read_through_all_steps(frozen: Path, third: Mapping[int, Step]) -> None:
    as_first(frozen)
    before = {it: it.read_bytes() for it in frozen.iterdir()}
    study = load_study(frozen)
    assert (study.workload.target, study.format_version) == ("train.py", 3)
    (frozen / SUMMARY).unlink()
    assert load_study(frozen).workload.target == "train.py"
    assert all(it.read_bytes() == text for it, text in before.items() if it.name != SUMMARY), "reading changes nothing"


def test_an_old_journal_is_rewritten(frozen: Path, third: Mapping[int, Step]) -> None:
    as_first(frozen)
    with open_study(frozen) as journal:
        assert journal.header.format_version == 3 and journal.workload.target == "train.py"
        seconds = [it.elapsed_seconds for it in journal.answers.values()]
        assert seconds == [3.5, 7.25, 30.5, 31.5]
        journal.append(MachineAnswer(key="new", ordinal=0, elapsed_seconds=1.0, answer=load_study(frozen).machine))
    lines = [json.loads(it) for it in (frozen / JOURNAL).read_text().splitlines()]
    assert lines[0]["format_version"] == 3 and lines[0]["workload"]["target"] == "train.py"
    assert [it["elapsed_seconds"] for it in lines[1:]] == [*seconds, 1.0]
    with open_study(frozen) as journal:
        assert len(journal.answers) == 5


@given(written_in=st.integers(min_value=1, max_value=9), last=st.integers(min_value=1, max_value=9))
def test_each_step_is_taken_once_and_in_order(written_in: int, last: int) -> None:
    def step(number: int) -> Step:
        def taken(part: Part, document: Document) -> Document:
            return {"taken": [*document.get("taken", []), number]}

        return taken

    steps = {number: step(number) for number in reversed(range(1, last))}
    found = migrated("summary", {}, written_in, steps)
    assert found.get("taken", []) == list(range(written_in, last))


@pytest.mark.parametrize("change", ["workload", "script"])
def test_a_study_that_is_not_of_its_format_is_damaged(frozen: Path, third: Mapping[int, Step], change: str) -> None:
    as_first(frozen)
    document = json.loads((frozen / SUMMARY).read_text())
    if change == "workload":
        document["workload"] = 3
    else:
        del document["workload"]["script"]
    (frozen / SUMMARY).write_text(json.dumps(document))
    with pytest.raises(StudyError, match="damaged: it does not match its format 1"):
        load_study(frozen)


# -- harm -------------------------------------------------------------------------------------------


def spoil(path: Path, text: bytes) -> None:
    path.unlink()
    path.write_bytes(text)


DEEP = b'{"format_version":1,"workload":' + b'{"a":' * 50_000
HARM: dict[str, Callable[[Path], object]] = {
    "cut": lambda path: spoil(path, path.read_bytes()[:-40].rstrip()),
    "empty": lambda path: spoil(path, b""),
    "not JSON": lambda path: spoil(path, b"\x80\x04pickle"),
    "a list": lambda path: spoil(path, b"[1]\n"),
    "deep": lambda path: spoil(path, DEEP + b"\n"),
    "deep in what is ignored": lambda path: spoil(path, b'{"format_version":1,"other":' + b"[" * 100_000 + b"\n"),
    "version 0": lambda path: spoil(path, b'{"format_version":0}\n'),
    "version -1": lambda path: spoil(path, b'{"format_version":-1}\n'),
    "a version of many digits": lambda path: spoil(path, b'{"format_version":' + b"9" * 10_000 + b"}\n"),
    "a version that is text": lambda path: spoil(path, b'{"format_version":"1"}\n'),
    "no UTF-8": lambda path: spoil(path, b'{"format_version":1,"identifier":"\xff\xfe"}\n'),
    "half a character": lambda path: spoil(path, b'{"format_version":1,"identifier":"\\ud800"}\n'),
    "a pipe": lambda path: (path.unlink(), os.mkfifo(path)),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
    "a device": lambda path: (path.unlink(), path.symlink_to("/dev/zero")),
    "itself": lambda path: (path.unlink(), path.symlink_to(path.name)),
    "very large": lambda path: os.truncate(path, 2**40),
    "one endless line": lambda path: (path.unlink(), path.touch(), os.truncate(path, 2**20)),
}


@pytest.mark.timeout(30)
@pytest.mark.parametrize("harm", HARM)
def test_a_damaged_summary_is_reported_in_one_sentence(
    frozen: Path, harm: str, capsys: pytest.CaptureFixture[str]
) -> None:
    HARM[harm](frozen / SUMMARY)
    if not (frozen / SUMMARY).exists():  # a link that leads nowhere: the journal is read
        assert load_study(frozen).workload.target == "train.py"
        return
    with pytest.raises(StudyError) as caught:
        load_study(frozen)
    assert "\n" not in caught.value.what and len(caught.value.what) < 700
    assert main(["report", str(frozen)]) == 2
    out, err = capsys.readouterr()
    assert out == "" and "Traceback" not in err and err.startswith("hotlap: The study")


@pytest.mark.timeout(30)
@pytest.mark.parametrize("harm", [it for it in HARM if it not in ("cut", "a pipe", "a folder", "a device", "itself")])
def test_a_damaged_journal_is_reported_in_one_sentence(frozen: Path, harm: str) -> None:
    (frozen / SUMMARY).unlink()
    HARM[harm](frozen / JOURNAL)
    for read in (load_study, open_study):
        with pytest.raises(StudyError) as caught:
            read(frozen)
        assert "\n" not in caught.value.what and len(caught.value.what) < 700


@pytest.mark.timeout(30)
@pytest.mark.parametrize("harm", HARM)
def test_a_damaged_attachment_is_treated_as_none(frozen: Path, harm: str) -> None:
    HARM[harm](frozen / PROFILE)
    found = attachment_of(frozen, PROFILE, Profile)
    assert found is None or found == Profile() or harm in ("version 0", "version -1", "a version of many digits")


def test_a_lock_that_is_a_pipe_does_not_block(frozen: Path) -> None:
    os.mkfifo(frozen / "lock")
    path = frozen / SUMMARY
    path.write_text(path.read_text().replace('"finished"', '"running"', 1))
    assert load_study(frozen).status == "interrupted"


def test_a_line_that_is_too_long_is_reported(frozen: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "LINE_LIMIT_BYTES", 2000)
    with pytest.raises(StudyError, match="line 3 is longer than 2000 bytes"):
        open_study(frozen)


@pytest.mark.slow
def test_memory_stays_within_bounds(frozen: Path) -> None:
    """A summary of the largest size that is read, of what takes most memory: short numbers."""
    numbers = b"1," * (layout.SUMMARY_LIMIT_BYTES // 2 - 1000)
    steps = b'{"steps":{"loss":[' + numbers + b"1]}}"
    head = b'{"format_version":1,"workload":{"kind":"script","target":"t","directory":"/","python":"p"},"baseline":'
    (frozen / SUMMARY).write_bytes(head + steps + b"}")
    program = (
        "import resource, sys; from pathlib import Path; from hotlap.study import load_study\n"
        "study = load_study(Path(sys.argv[1])); assert len(study.baseline.steps.loss) > 10**7\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", program, str(frozen)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert int(done.stdout) * 1024 < 2**30


# -- the page ---------------------------------------------------------------------------------------


def generator() -> Any:
    spec = importlib.util.spec_from_file_location("study_format", ROOT / "docs" / "_site" / "study_format.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_says_what_the_records_are() -> None:
    pages = generator()
    assert pages.PAGE.read_text(encoding="utf-8") == pages.written_page(), "run `python docs/_site/study_format.py`"


def test_the_page_has_every_field_of_every_record() -> None:
    pages = generator()
    text = pages.tables()
    for record in pages.reachable():
        section = re.search(rf"^### {record.__name__}\n(.*?)(?=^#|\Z)", text, re.MULTILINE | re.DOTALL)
        assert section is not None, record
        assert section[1].strip().split("|")[0].strip(), f"{record.__name__} has no docstring"
        for field in record.__struct_encode_fields__:
            assert f"| `{field}` |" in section[1]


def test_the_page_names_every_file(frozen: Path) -> None:
    text = (ROOT / "docs" / "study-format.md").read_text(encoding="utf-8")
    named = ("assignment.json", "output.txt", "gradients.npz", "evidence.json", "window.json.gz", "trackers/")
    folders = (layout.RUNS, layout.LABS, layout.PROFILES, f"{layout.CHECKS}/")
    for name in (JOURNAL, SUMMARY, PROFILE, layout.CHECK, layout.LOCK, *folders, *named):
        assert name in text
    assert f"`format_version` is {FORMAT}" in text
    for limit, unit in ((layout.SUMMARY_LIMIT_BYTES, 2**20), (layout.ATTACHMENT_LIMIT_BYTES, 2**20)):
        assert f"{limit // unit} MiB" in text
    assert layout.JOURNAL_LIMIT_BYTES == 2**30 and "`journal.jsonl` 1 GiB" in text
    assert f"lines up to {layout.LINE_LIMIT_BYTES // 2**20} MiB" in text
