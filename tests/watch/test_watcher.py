"""What watches a run from inside: every step is counted, nothing is kept, and results stay what they are."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from hotlap.records import STEP_PHASES, WATCH_ROW_BYTES, WATCH_ROWS, WatchRow
from hotlap.runtime.hooks import Hooks
from hotlap.runtime.interception import Interception
from hotlap.runtime.watch import watcher as watching
from hotlap.runtime.watch.clock import STEPS_IN_A_ROW, LongRunClock
from hotlap.runtime.watch.peek import Peek
from hotlap.runtime.watch.watcher import RowFile, Watcher
from hotlap.trial.beside import Rows


class Watched:
    """A watcher in this process whose rows are kept in a list."""

    def __init__(self) -> None:
        self.rows: list[WatchRow] = []
        self.interception = Interception(Hooks(torch=torch))
        self.interception.install()
        self.watcher = Watcher(self.interception, self.rows.append)

    @property
    def clock(self) -> LongRunClock:
        return self.watcher._clock


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(watching, "ROW_SECONDS", 0.02)
    made = Watched()
    yield made
    made.watcher.end()
    made.interception.suspend()


def train(steps: int, *, accumulate: int = 1, evaluate: bool = False) -> list[float]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 4), nn.Dropout(0.2), nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = DataLoader(TensorDataset(torch.randn(64, 8)), batch_size=8)
    losses: list[float] = []
    while len(losses) < steps:
        for number, (batch,) in enumerate(data):
            loss = model(batch).pow(2).mean()
            loss.backward()
            if (number + 1) % accumulate == 0:
                optimizer.step()
                optimizer.zero_grad()
                losses.append(loss.item())
            if len(losses) == steps:
                break
        if evaluate:
            model.eval()
            with torch.no_grad():
                model(torch.zeros(8, 8))
            model.train()
    return losses


@pytest.mark.parametrize("accumulate", [1, 4])
def test_every_step_is_counted_and_some_are_timed(watched: Watched, accumulate: int) -> None:
    train(1500, accumulate=accumulate, evaluate=True)
    watched.watcher.end()
    assert sum(it.steps for it in watched.rows) == 1500
    timed = sum(it.timed_steps for it in watched.rows)
    assert STEPS_IN_A_ROW <= timed < 1500, "steps this short are not all timed"
    assert sum(it.samples for it in watched.rows) == 8 * accumulate * timed
    for it in watched.rows:
        assert len(it.phases) == len(STEP_PHASES) and sum(it.phases) == pytest.approx(it.wall_seconds)
        assert it.timed_steps <= it.steps and it.loss is not None
    assert [it.number for it in watched.rows] == list(range(1, len(watched.rows) + 1))


def test_nothing_is_kept_of_steps_that_were_reported(watched: Watched) -> None:
    train(600)
    watched.watcher.end()
    clock = watched.clock
    assert not clock._rows and not clock._samples and not clock._losses and not clock._losses_until
    assert len(clock._watch._log) < 1000  # a step takes some twenty


def test_results_and_random_numbers_are_the_same() -> None:
    plain = train(200)
    state = torch.get_rng_state()
    made = Watched()
    try:
        assert train(200) == plain
        assert torch.equal(torch.get_rng_state(), state)
    finally:
        made.watcher.end()
        made.interception.suspend()


def test_another_optimizer_wakes_the_clock(watched: Watched) -> None:
    train(400)
    assert watched.clock.all_steps == 400
    first, second = (nn.Linear(4, 1) for _ in range(2))
    ones = [torch.optim.SGD(it.parameters(), lr=0.01) for it in (first, second)]
    for _ in range(100):
        (first(torch.ones(2, 4)).mean() + second(torch.ones(2, 4)).mean()).backward()
        for it in ones:
            it.step()
    watched.watcher.end()
    # The clock may see a few steps twice or not at all while it finds out which of the two ends a step.
    assert 490 <= sum(it.steps for it in watched.rows) <= 540


def test_a_script_without_optimizer_is_counted_by_backwards(watched: Watched) -> None:
    weight = torch.ones(4, requires_grad=True)
    for _ in range(300):
        weight.pow(2).sum().backward()
    watched.watcher.end()
    assert sum(it.steps for it in watched.rows) == 300


def test_a_loss_scale_is_seen(watched: Watched) -> None:
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for _ in range(200):
        scaler.scale(model(torch.ones(2, 4)).mean()).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    watched.watcher.end()
    assert {it.loss_scale for it in watched.rows if it.loss_scale is not None} == {1024.0}


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), RuntimeError("a device failed")])
def test_a_sink_that_fails_ends_the_watching_and_not_the_script(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(watching, "ROW_SECONDS", 0.0)
    seen: list[WatchRow] = []

    def failing(row: WatchRow) -> None:
        seen.append(row)
        raise error

    interception = Interception(Hooks(torch=torch))
    interception.install()
    try:
        Watcher(interception, failing)
        assert len(train(20)) == 20 and len(seen) == 1
    finally:
        interception.suspend()


def test_a_forked_child_reports_only_its_own_steps(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "ROW_SECONDS", math.inf)
    train(50)
    watched.clock.rest(1e-6)  # it rests when the other optimizer begins
    train(20)
    assert watched.clock.resting
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        watched.rows.clear()
        train(30)
        watched.watcher.end()
        os.write(writer, str([(sum(it.steps for it in watched.rows), watched.rows[0].process)]).encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        assert pipe.read() == str([(30, child)])


def test_a_peek_reads_once_until_asked() -> None:
    peek = Peek(torch)
    assert peek.value() is None
    peek.look(torch.tensor(2.0, requires_grad=True))
    peek.look(torch.tensor(3.0))
    assert peek.value() == 2.0
    peek.look(torch.tensor(math.nan))
    assert peek.value() is None


def rows_of(folder: Path, numbers: list[int], process: int = 7) -> None:
    write: Callable[[WatchRow], None] = RowFile(folder)
    for it in numbers:
        write(WatchRow(number=it, process=process, steps=it, phases=(0.123456789,) * 6, loss=0.123456789012345))


def test_rows_are_read_once_and_in_order(tmp_path: Path) -> None:
    rows = Rows(tmp_path)
    rows_of(tmp_path, [1, 2, 3])
    assert [it.number for it in rows.fresh()] == [1, 2, 3] and list(rows.fresh()) == []
    rows_of(tmp_path, list(range(4, 4 + WATCH_ROWS + 10)))
    assert [it.number for it in rows.fresh()] == list(range(14, 14 + WATCH_ROWS)) and rows.missed == 10
    assert (tmp_path / "7.rows").stat().st_size == WATCH_ROWS * WATCH_ROW_BYTES


@pytest.mark.parametrize("text", [b"", b"{", b"\0" * 500, b'{"number": "x"}\n', b"\xff\xfe\n", b"[" * 600])
def test_damaged_rows_are_left_out(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "8.rows").write_bytes(text)
    (tmp_path / "9.rows").symlink_to("/dev/zero")
    rows_of(tmp_path, [1])
    assert [it.process for it in Rows(tmp_path).fresh()] == [7]


def test_a_row_file_that_is_a_link_is_not_written(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "7.rows").symlink_to(tmp_path / "mine")
    with pytest.raises(OSError):
        rows_of(tmp_path, [1])
    assert (tmp_path / "mine").read_text() == "mine"


def test_the_longest_row_fits() -> None:
    long = WatchRow(
        number=2**40, process=2**22, rank=10**6, processes=10**6, at=1e9 / 3, elapsed_seconds=1e5 / 3, steps=2**40,
        timed_steps=2**40, wall_seconds=1e5 / 3, phases=(1e5 / 3,) * len(STEP_PHASES), samples=2**60, loss=-1e-300 / 3,
        loss_scale=1e300 / 3, device_bytes=2**45,
    )  # fmt: skip
    assert len(msgspec.json.encode(long)) < WATCH_ROW_BYTES
