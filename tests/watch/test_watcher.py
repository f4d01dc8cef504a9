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
from torch.utils.data.dataloader import _BaseDataLoaderIter

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


PER_STEP = ("around_fetch", "before_forward", "after_forward", "before_backward", "after_backward", "before_update")


class OfTwoReports(torch.optim.SGD):
    """Its step calls its parent's, so that torch reports both."""

    def step(self, closure: Any = None) -> Any:
        return super().step(closure)


class Training:
    """One model with one optimizer, whose steps are made by hand."""

    def __init__(self, optimizer: type[torch.optim.SGD] = torch.optim.SGD) -> None:
        torch.manual_seed(0)
        self._model = nn.Sequential(nn.Linear(8, 1))
        self.optimizer = optimizer(self._model.parameters(), lr=0.01)
        self._data = DataLoader(TensorDataset(torch.randn(64, 8)), batch_size=8)
        self._batches = iter(self._data)

    def step(self) -> None:
        try:
            (batch,) = next(self._batches)
        except StopIteration:
            self._batches = iter(self._data)
            (batch,) = next(self._batches)
        self._model(batch).pow(2).mean().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def rest(self, clock: LongRunClock) -> None:
        """Train until the clock rests."""
        clock.rest(1e-5)
        for _ in range(2 * STEPS_IN_A_ROW):
            self.step()
            if clock.resting:
                return
        raise AssertionError("the clock does not rest")


def test_its_hooks_are_gone_while_it_rests_and_return_to_their_places(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "ROW_SECONDS", math.inf)
    hooks, clock, called = watched.interception.hooks, watched.clock, []

    def first(root: Any, args: Any, kwargs: Any) -> Any:
        called.append("first")
        return args, kwargs

    def last(root: Any, args: Any, kwargs: Any) -> Any:
        called.append("last")
        return args, kwargs

    hooks.before_forward.insert(0, first)
    hooks.before_forward.append(last)
    whole = {name: list(getattr(hooks, name)) for name in PER_STEP}
    assert len(whole["before_forward"]) == 3 and all(whole.values())
    training = Training()
    for _ in range(40):
        training.step()
    for _ in range(3):
        training.rest(clock)
        assert hooks.before_forward == [first, last]
        assert not any(getattr(hooks, name) for name in PER_STEP if name != "before_forward")
        del called[:]
        training.step()
        assert called == ["first", "last"], "those of others are called in their order"
        clock.wake(within_step=False)
        assert {name: getattr(hooks, name) for name in PER_STEP} == whole
    assert not clock.resting


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, OfTwoReports])
def test_steps_that_a_lever_leaves_out_count_while_it_rests(
    optimizer: type[torch.optim.SGD], watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "ROW_SECONDS", math.inf)
    torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=0.01)  # torch reports the parent's steps too from now on
    clock, training = watched.clock, Training(optimizer)
    for _ in range(40):
        training.step()
    training.rest(clock)
    clock._rest_until = clock.all_steps + 1000
    training.step()
    before = clock.all_steps
    for _ in range(100):
        for skipped in watched.interception.hooks.update_skipped:
            skipped(training.optimizer)
    assert clock.resting and clock.all_steps == before + 100


def test_what_the_script_sees_of_torch_is_the_same_while_it_rests(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "ROW_SECONDS", math.inf)
    clock = watched.clock

    def seen() -> list[object]:
        places: list[tuple[Any, str]] = [(torch.autograd, "backward"), (torch, "save"), (nn.Module, "__call__")]
        places += [(DataLoader, "__iter__"), (_BaseDataLoaderIter, "__next__"), (nn.Sequential, "__call__")]
        return [vars(owner).get(name) for owner, name in places]

    training = Training()
    for _ in range(40):
        training.step()
    before = seen()
    training.rest(clock)
    assert seen() == before
    clock.wake(within_step=False)
    assert seen() == before


def test_compiled_code_is_not_compiled_again(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "ROW_SECONDS", math.inf)
    clock, graphs = watched.clock, []

    def backend(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    torch._dynamo.reset()
    inner = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
    compiled = torch.compile(inner, backend=backend)
    loss_of = torch.compile(lambda batch: inner(batch).pow(2).mean(), backend=backend)
    optimizer = torch.optim.SGD(inner.parameters(), lr=0.01)

    def steps(count: int) -> None:
        for _ in range(count):
            (compiled(torch.ones(2, 4)).mean() + loss_of(torch.ones(2, 4))).backward()
            optimizer.step()
            optimizer.zero_grad()

    steps(60)
    known = len(graphs)
    clock.rest(1e-5)
    changes, was = 0, clock.resting
    for _ in range(200):
        steps(1)
        if clock.resting and clock.all_steps % 10 == 0:
            clock.wake(within_step=False)
        changes, was = changes + (clock.resting is not was), clock.resting
    torch._dynamo.reset()
    assert known >= 2 and len(graphs) == known and changes >= 4


def test_a_step_that_calls_that_of_its_parent_counts_once(watched: Watched) -> None:
    model = nn.Linear(4, 1)
    optimizer = OfTwoReports(model.parameters(), lr=0.01)
    torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=0.01)  # torch reports the parent's steps too from now on
    for _ in range(1500):
        model(torch.ones(2, 4)).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    watched.watcher.end()
    assert sum(it.steps for it in watched.rows) == 1500
    assert sum(it.timed_steps for it in watched.rows) < 1500


def test_timed_steps_are_whole(watched: Watched) -> None:
    train(1500)
    watched.watcher.end()
    parts = [STEP_PHASES.index(it) for it in ("data_wait", "forward", "backward", "optimizer")]
    rows = [it for it in watched.rows if it.timed_steps]
    assert rows and all(it.phases[part] > 0 for it in rows for part in parts)


def test_a_script_without_optimizer_is_counted_by_backwards(watched: Watched) -> None:
    weight = torch.ones(4, requires_grad=True)
    for _ in range(300):
        weight.pow(2).sum().backward()
    watched.watcher.end()
    assert sum(it.steps for it in watched.rows) == 300


def train_scaled(steps: int) -> None:
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for _ in range(steps):
        scaler.scale(model(torch.ones(2, 4)).mean()).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()


def test_a_loss_scale_is_seen(watched: Watched) -> None:
    train_scaled(200)
    watched.watcher.end()
    assert {it.loss_scale for it in watched.rows if it.loss_scale is not None} == {1024.0}


@pytest.mark.parametrize("fused", [False, True])
def test_skipped_steps_are_all_counted(watched: Watched, fused: bool) -> None:
    """A fused optimizer is called for skipped steps too, so that calls alone do not show them."""
    model = nn.Linear(4, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, fused=fused)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=10**6)
    for step in range(300):
        inputs = torch.full((2, 4), float("inf") if step % 30 == 7 else 1.0)
        scaler.scale(model(inputs).mean()).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    watched.watcher.end()
    assert sum(it.scaled_steps for it in watched.rows) == 300
    assert sum(it.skipped_steps for it in watched.rows) == 10
    scales = [it.loss_scale for it in watched.rows if it.loss_scale is not None]
    assert scales == sorted(scales, reverse=True) and set(scales) <= {2.0**it for it in range(11)}


def test_the_update_after_the_last_row_is_counted(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "ROW_SECONDS", 0.0)  # a row at the end of each step, before the scaler is updated
    train_scaled(40)
    watched.watcher.end()
    assert sum(it.scaled_steps for it in watched.rows) == sum(it.steps for it in watched.rows) == 40


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
    train_scaled(10)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        watched.rows.clear()
        train(30)
        watched.watcher.end()
        told = [(it.steps, it.scaled_steps, it.process) for it in watched.rows]
        os.write(writer, str(told).encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        assert pipe.read() == str([(30, 0, child)])


def test_a_forked_child_that_makes_no_steps_reports_nothing(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "ROW_SECONDS", math.inf)
    train_scaled(10)
    watched.rows.clear()
    child = os.fork()
    if child == 0:
        watched.watcher.end()
        os._exit(len(watched.rows))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    watched.watcher.end()
    assert [(it.steps, it.scaled_steps) for it in watched.rows] == [(10, 10)]


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
        loss_scale=1e300 / 3, scaled_steps=2**40, skipped_steps=2**40, device_bytes=2**45,
    )  # fmt: skip
    assert len(msgspec.json.encode(long)) < WATCH_ROW_BYTES
