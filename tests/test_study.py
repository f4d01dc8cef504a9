"""A study on disk."""

from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotlap.errors import StudyError
from hotlap.experiment.journaled import JournaledExecutor, request_key
from hotlap.records import (
    Assignment,
    LaunchRequest,
    Machine,
    Plan,
    Record,
    Replicate,
    Run,
    Setting,
    Study,
    SweepLoader,
    TurnRequest,
    Workload,
)
from hotlap.study import (
    FORMAT,
    JOURNAL,
    SUMMARY,
    Journal,
    LaunchAnswer,
    create_study,
    latest_study,
    load_study,
    open_study,
)
from hotlap.trial.executor import OneSlot

WORKLOAD = Workload(
    kind="script", target="train.py", arguments=("--epochs", "1"), directory="/home/ada", python="python"
)


class Choices(Record, frozen=True, kw_only=True):
    number: int = 0


class Counting(OneSlot):
    """An executor whose answers are distinguishable, and whose clock moves by three seconds a call."""

    def __init__(self) -> None:
        self.calls = 0

    def clock(self) -> float:
        return 3.0 * self.calls

    def machine(self) -> Machine:
        self.calls += 1
        return Machine(cores=8)

    def launch(self, request: LaunchRequest) -> Run:
        self.calls += 1
        return Run(seed=self.calls)

    def take_turns(self, request: TurnRequest) -> Replicate:
        self.calls += 1
        return Replicate(runs=(Run(seed=self.calls),), rounds=((0.1, 0.2),))


def launch(steps: int = 3) -> LaunchRequest:
    return LaunchRequest(assignment=Assignment(workload=WORKLOAD), steps=steps)


def answer(seed: int) -> LaunchAnswer:
    return LaunchAnswer(key=f"k{seed}", ordinal=0, elapsed_seconds=1.5, answer=Run(seed=seed))


@pytest.fixture
def journal(tmp_path: Path) -> Journal:  # type: ignore[misc]
    with create_study(tmp_path / "studies", WORKLOAD, Choices(number=7), hotlap_version="1.2") as opened:
        yield opened


def test_a_new_study_is_there_at_once(journal: Journal) -> None:
    study = load_study(journal.directory)
    assert study.identifier == journal.header.identifier == journal.directory.name
    assert study.workload == WORKLOAD and study.status == "running" and study.hotlap_version == "1.2"
    assert re.fullmatch(r"\d{8}-\d{6}-\d{3}", study.identifier)
    assert study.started and (journal.directory / "runs").is_dir()


def test_identifiers_are_unique_and_sort_by_time(tmp_path: Path) -> None:
    names = []
    for _ in range(20):
        with create_study(tmp_path, WORKLOAD, Choices()) as it:
            names.append(it.header.identifier)
    assert len(set(names)) == 20 and names == sorted(names)
    assert latest_study(tmp_path).name == names[-1]
    assert load_study(tmp_path).identifier == names[-1]


def test_options_come_back(journal: Journal) -> None:
    directory = journal.directory
    journal.close()
    with open_study(directory) as again:
        assert again.options(Choices) == Choices(number=7)
        assert again.workload == WORKLOAD

    class Others(Record, frozen=True, kw_only=True):
        number: str

    with open_study(directory) as again, pytest.raises(StudyError, match="options cannot be read"):
        again.options(Others)


def test_answers_survive(journal: Journal) -> None:
    for seed in range(3):
        journal.append(answer(seed))
    journal.close()
    with open_study(journal.directory) as again:
        assert again.answers == {(f"k{seed}", 0): answer(seed) for seed in range(3)}
        again.append(answer(3))
    with open_study(journal.directory / JOURNAL) as again:
        assert len(again.answers) == 4


@given(cut=st.integers(min_value=1, max_value=100))
def test_a_torn_last_line_is_dropped_and_written_over(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    with create_study(tmp_path_factory.mktemp("torn"), WORKLOAD, Choices()) as journal:
        journal.append(answer(0))
        journal.append(answer(1))
    path = journal.directory / JOURNAL
    path.write_bytes(path.read_bytes()[:-cut])
    with open_study(journal.directory) as again:
        assert list(again.answers) == [("k0", 0)]
        again.append(answer(2))
    with open_study(journal.directory) as again:
        assert list(again.answers) == [("k0", 0), ("k2", 0)]


def test_a_last_line_of_zeros_is_dropped(journal: Journal) -> None:
    journal.append(answer(0))
    journal.close()
    with (journal.directory / JOURNAL).open("ab") as file:
        file.write(b"\0" * 64 + b"\n")
    with open_study(journal.directory) as again:
        assert list(again.answers) == [("k0", 0)]


def test_damage_in_the_middle_is_reported(journal: Journal) -> None:
    journal.append(answer(0))
    journal.append(answer(1))
    journal.close()
    path = journal.directory / JOURNAL
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([lines[0], b"{broken\n", lines[2]]))
    with pytest.raises(StudyError, match="damaged: line 2"):
        open_study(journal.directory)
    path.write_bytes(lines[0])
    open_study(journal.directory).close()  # the failed attempt left no lock behind


@pytest.mark.parametrize("content", [b"", b"{}\n", b"nonsense\n", b'{"format_version": 1}\n', b"\xff\xfe\n"])
def test_a_journal_without_a_header_is_damaged(journal: Journal, content: bytes) -> None:
    journal.close()
    (journal.directory / JOURNAL).write_bytes(content)
    with pytest.raises(StudyError, match="damaged"):
        open_study(journal.directory)


@pytest.mark.parametrize("name", [JOURNAL, SUMMARY])
def test_a_format_from_the_future_is_refused(journal: Journal, name: str) -> None:
    journal.close()
    path = journal.directory / name
    text = path.read_bytes()
    spaced = re.sub(rb'"format_version": ?\d+', b'"format_version": 99', text)
    assert spaced != text
    path.write_bytes(spaced)
    with pytest.raises(StudyError, match="format 99"):
        if name == JOURNAL:
            open_study(journal.directory)
        else:
            load_study(journal.directory)


def test_unknown_fields_of_a_later_minor_version_are_ignored(journal: Journal) -> None:
    journal.close()
    path = journal.directory / SUMMARY
    path.write_bytes(path.read_bytes().replace(b"{", b'{"something_new": [1, 2],', 1))
    assert load_study(path).workload == WORKLOAD


def test_a_damaged_summary_is_reported(journal: Journal) -> None:
    (journal.directory / SUMMARY).write_text('{"format_version": 1, "workload": 3}')
    with pytest.raises(StudyError, match="damaged"):
        load_study(journal.directory)


def test_without_a_summary_the_journal_is_read(journal: Journal) -> None:
    (journal.directory / SUMMARY).unlink()
    assert load_study(journal.directory).workload == WORKLOAD


def test_there_is_no_study(tmp_path: Path) -> None:
    for look in (load_study, latest_study, open_study):
        with pytest.raises(StudyError, match="There is no study"):
            look(tmp_path)
        with pytest.raises(StudyError, match="There is no study"):
            look(tmp_path / "nowhere")


def test_a_study_in_use_names_the_process(journal: Journal) -> None:
    with pytest.raises(StudyError, match=rf"in use by another run \(process {os.getpid()}\)"):
        open_study(journal.directory)
    assert load_study(journal.directory).status == "running"  # reading needs no lock


def test_only_a_search_that_was_killed_is_said_to_be_resumable(tmp_path: Path) -> None:
    for kind, resumable in (("search", True), ("profile", False)):
        with create_study(tmp_path / kind, WORKLOAD, Choices()) as journal:
            journal.save(Study(workload=WORKLOAD, kind=kind, status="running"))  # type: ignore[arg-type]
        found = load_study(journal.directory)
        assert found.status == "interrupted"
        assert ("--resume" in found.status_text) is resumable


def test_an_attachment_is_read_back_and_a_damaged_one_is_none(tmp_path: Path) -> None:
    with create_study(tmp_path, WORKLOAD, Choices()) as journal:
        assert journal.attachment("machine.json", Machine) is None
        for cores in (3, 4):
            journal.attach("machine.json", Machine(cores=cores))
        assert journal.attachment("machine.json", Machine) == Machine(cores=4)
        for text in (b"", b"{", b'{"cores": "many"}', b"\xff"):
            (journal.directory / "machine.json").write_bytes(text)
            assert journal.attachment("machine.json", Machine) is None


def test_a_killed_run_leaves_no_lock_and_reads_as_interrupted(tmp_path: Path) -> None:
    program = (
        "import sys, time; from pathlib import Path\n"
        "from hotlap.study import create_study\n"
        "from hotlap.records import Workload\n"
        "w = Workload(kind='script', target='t', directory='/', python='p')\n"
        "j = create_study(Path(sys.argv[1]), w, w); print(j.header.identifier, flush=True); time.sleep(60)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", program, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as child:
        assert child.stdout is not None
        identifier = child.stdout.readline().decode().strip()
        with pytest.raises(StudyError, match=f"process {child.pid}"):
            open_study(tmp_path / identifier)
        child.kill()
    assert load_study(tmp_path).status == "interrupted"
    with open_study(tmp_path) as again:
        assert again.header.identifier == identifier


def test_a_finished_study_stays_finished(journal: Journal) -> None:
    journal.save(Study(workload=WORKLOAD, status="finished", identifier=journal.header.identifier))
    journal.close()
    study = load_study(journal.directory)
    assert study.status == "finished" and study.directory == str(journal.directory)


# -- a disk that fails ------------------------------------------------------------------------------


def fail_writes(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Half of what is written gets to the disk, then the error."""
    write = os.write

    def failing(descriptor: int, text: bytes) -> int:
        write(descriptor, bytes(text)[: len(text) // 2])
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "write", failing)


def test_a_full_disk_is_reported_and_nothing_is_lost(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    journal.append(answer(0))
    before = load_study(journal.directory)
    with monkeypatch.context() as patched:
        fail_writes(patched, errno.ENOSPC)
        with pytest.raises(StudyError, match=r"is full") as caught:
            journal.append(answer(1))
        assert "--resume" in caught.value.remedy
        with pytest.raises(StudyError, match="is full"):
            journal.save(before)
    assert load_study(journal.directory) == before
    assert {it.name for it in journal.directory.iterdir()} == {JOURNAL, SUMMARY, "lock", "runs", "signature.json"}
    journal.append(answer(2))
    journal.close()
    with open_study(journal.directory) as again:
        assert list(again.answers) == [("k0", 0), ("k2", 0)]


def test_an_interrupt_while_writing_leaves_whole_lines(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write

    def interrupted(descriptor: int, text: bytes) -> int:
        write(descriptor, bytes(text)[:10])
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", interrupted)
        with pytest.raises(KeyboardInterrupt):
            journal.append(answer(0))
    journal.append(answer(1))
    journal.close()
    with open_study(journal.directory) as again:
        assert list(again.answers) == [("k1", 0)]


def test_another_error_names_the_folder(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    fail_writes(monkeypatch, errno.EIO)
    with pytest.raises(StudyError, match="cannot be used") as caught:
        journal.append(answer(0))
    assert str(journal.directory) in caught.value.what


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StudyError, match="cannot be used"):
        create_study(tmp_path / "file" / "studies", WORKLOAD, Choices())


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(StudyError, match="Permission denied"):
        create_study(tmp_path / "studies", WORKLOAD, Choices())


# -- the executor that remembers --------------------------------------------------------------------


def test_answers_are_replayed_by_key_and_ordinal(journal: Journal) -> None:
    inner = Counting()
    executor = JournaledExecutor(inner, journal, clock=inner.clock)
    turns = TurnRequest(arms=(Assignment(workload=WORKLOAD),))
    first = (
        executor.machine(),
        executor.launch(launch()),
        executor.launch(launch()),
        executor.launch(launch(4)),
        executor.take_turns([turns]),
    )
    assert executor.spent_seconds == 15.0 and (executor.measured, executor.replayed) == (5, 0)
    assert first[1] != first[2]
    journal.close()
    with open_study(journal.directory) as again:
        later = Counting()
        resumed = JournaledExecutor(later, again, clock=later.clock)
        second = (
            resumed.machine(),
            resumed.launch(launch()),
            resumed.launch(launch()),
            resumed.launch(launch(4)),
            resumed.take_turns([turns]),
        )
        assert second == first
        assert later.calls == 0 and resumed.spent_seconds == 15.0
        resumed.launch(launch())
        assert later.calls == 1 and resumed.spent_seconds == 18.0


def test_time_between_answers_counts_once(journal: Journal) -> None:
    inner = Counting()
    now = [0.0]
    executor = JournaledExecutor(inner, journal, clock=lambda: now[0])
    now[0] = 2.0
    executor.launch(launch())
    now[0] = 5.0  # the search computes
    executor.launch(launch(4))
    assert executor.spent_seconds == 5.0
    journal.close()
    with open_study(journal.directory) as again:
        resumed = JournaledExecutor(inner, again, clock=time.monotonic)
        resumed.launch(launch())
        resumed.launch(launch(4))
        assert resumed.spent_seconds == 5.0


def test_without_a_journal_it_only_counts() -> None:
    inner = Counting()
    executor = JournaledExecutor(inner, clock=inner.clock)
    executor.launch(launch())
    executor.launch(launch())
    assert inner.calls == 2 and executor.spent_seconds == 6.0


@given(st.integers(1, 50), st.integers(1, 50), st.text(max_size=5), st.text(max_size=5))
def test_keys_are_equal_for_equal_requests_only(one: int, other: int, a: str, b: str) -> None:
    def request(steps: int, lever: str) -> LaunchRequest:
        sweep = (Setting(lever=lever),)
        return LaunchRequest(
            assignment=Assignment(workload=WORKLOAD, instruments=(SweepLoader(settings=sweep),)), steps=steps
        )

    same = (one, a) == (other, b)
    assert (request_key("launch", request(one, a)) == request_key("launch", request(other, b))) is same
    assert request_key("launch", request(one, a)) != request_key("turns", request(one, a))


def test_keys_of_earlier_studies_of_this_format_are_found() -> None:
    """The keys that these requests had when the second format began: a new field must be left out of them."""
    workload = Workload(kind="script", target="t.py", directory="/", python="python")
    assignment = Assignment(workload=workload, plan=Plan(), seed=0)
    assert request_key("launch", LaunchRequest(assignment=assignment, steps=3)) == "cb34cc66c85f0a12"
    assert request_key("launch", LaunchRequest(assignment=assignment, steps=3, loads_code=True)) == "cb34cc66c85f0a12"
    assert request_key("turns", TurnRequest(arms=(assignment,))) == "0f304e1e72b3151c"
    assert request_key("turns", TurnRequest(arms=(assignment,), compiles_all=True)) == "0f304e1e72b3151c"


def test_study_json_is_plain_json(journal: Journal) -> None:
    document = msgspec.json.decode((journal.directory / SUMMARY).read_bytes())
    assert document["workload"]["target"] == "train.py" and document["format_version"] == FORMAT
