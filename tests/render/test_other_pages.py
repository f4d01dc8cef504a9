"""The doctor, the lever pages and the live view."""

from __future__ import annotations

import errno
import io
from collections.abc import Callable
from typing import get_args

import fakes
import msgspec
import pytest
from rich.console import Console, RenderableType
from rich.live import Live

from hotlap.diagnose.api import Group
from hotlap.records import Outcome, Progress, Skipped
from hotlap.render.doctor import Remark, doctor
from hotlap.render.lever_pages import LeverPage, lever_list, lever_page
from hotlap.render.live import LiveView, State, draw, fold, line
from hotlap.render.rule_pages import GROUPS, RulePage, rule_list, rule_page

PAGE = LeverPage(
    name="loader",
    title="Workers that fetch batches",
    proof="exact",
    work=("training",),
    addresses=("loader-bound",),
    parameters=(("workers", "a whole number from 0 to 64"),),
    page="""Workers that fetch batches.

    ## What it does
    Fetches batches in other processes, so that the [step] does not wait
    for them.

    ## Before
        loader = DataLoader(images)

    ## After
        loader = DataLoader(images, num_workers=4)
    """,
)

RULE = RulePage(
    name="host-sync",
    title="The host reads from the device in every step",
    group="host",
    levers=(),
    page="""The host reads from the device in every step.

    ## What it is
    A call that needs a number which the device still [computes].

    ## What to do
    - Read the loss every hundredth step.
    - Keep it as a tensor.
    """,
)

RUNNING = Progress(
    stage="trial",
    text="mode [bold]reduce-overhead[/bold]",
    lever="compile",
    running=fakes.estimate(1.3, 0.1),
    best=fakes.estimate(2.0, 0.05),
    replicates_done=1,
    replicates_planned=3,
    peak_bytes=5 * 2**30,
    baseline_peak_bytes=8 * 2**30,
    spent_seconds=100.0,
    budget_seconds=600.0,
)


def shown(what: RenderableType, width: int = 80) -> str:
    console = Console(width=width, markup=False, highlight=False, emoji=False, color_system=None, file=io.StringIO())
    with console.capture() as capture:
        console.print(what)
    return capture.get()


def after(*told: Progress) -> State:
    state = State()
    for progress in told:
        state = fold(state, progress)
    return state


def outcomes() -> list[Progress]:
    return [Progress(stage="trial", text="", lever=it.lever, outcome=it, spent_seconds=9) for it in fakes.OUTCOMES]


def test_doctor(matches_snapshot: Callable[[str, str], bool]) -> None:
    remarks = [
        Remark("problem", "The driver is older than CUDA 13 needs", "Update it"),
        Remark("note", "Only 16 cores."),
    ]
    assert matches_snapshot("doctor", shown(doctor(fakes.MACHINE, remarks)))


def test_doctor_without_problems() -> None:
    machine = msgspec.structs.replace(fakes.MACHINE, warnings=(), accelerators=())
    text = shown(doctor(machine))
    assert "No problems found." in text
    assert "accelerator    none found" in text


def test_lever_page(matches_snapshot: Callable[[str, str], bool]) -> None:
    assert matches_snapshot("lever-page", shown(lever_page(PAGE)))


def test_lever_list(matches_snapshot: Callable[[str, str], bool]) -> None:
    other = LeverPage(
        "compile", "The model compiled", "rounding", ("training", "inference"), (), (), "The model compiled."
    )
    assert matches_snapshot("lever-list", shown(lever_list([PAGE, other])))


def test_rule_page(matches_snapshot: Callable[[str, str], bool]) -> None:
    assert matches_snapshot("rule-page", shown(rule_page(RULE)))


def test_rule_list(matches_snapshot: Callable[[str, str], bool]) -> None:
    others = [RulePage(f"a-rule-of-{group}", "A title.", group, ("loader",), "A title.") for group in GROUPS]
    assert matches_snapshot("rule-list", shown(rule_list([RULE, *others])))


def test_every_group_of_rules_has_its_heading() -> None:
    assert set(GROUPS) == set(get_args(Group))


def test_live_screen(matches_snapshot: Callable[[str, str], bool]) -> None:
    state = after(*outcomes(), RUNNING)
    assert matches_snapshot("live", shown(draw(fakes.WORKLOAD, state, waited_seconds=3.0)))


def test_live_screen_before_any_result() -> None:
    assert "starting" in shown(draw(fakes.WORKLOAD, State()))


def test_lines_for_pipes() -> None:
    state = after(RUNNING)
    assert line(state) == (
        "[1 min 40 s] trying compile, replicate 2 of 3: mode [bold]reduce-overhead[/bold] "
        "(so far 1.30x, 1.18 to 1.44; best plan 2.00x, 1.90 to 2.10; memory 5.0 GiB (-3.0 GiB))"
    )
    kept = line(after(outcomes()[0]))
    assert kept == "[9 s] trying: loader 1.91x  1.86 to 1.96 kept: Fewest workers within 2 % of the best."


def test_a_later_outcome_of_a_lever_replaces_an_earlier_one() -> None:
    first, second = outcomes()[0], outcomes()[3]
    assert second.outcome is not None
    again = msgspec.structs.replace(second, outcome=msgspec.structs.replace(second.outcome, lever="loader"))
    state = after(first, again)
    assert [it.lever for it in state.outcomes] == ["loader"]
    assert state.outcomes[0].verdict == second.outcome.verdict


def test_the_best_plan_is_remembered() -> None:
    state = after(RUNNING, Progress(stage="parity", text="comparing losses"))
    assert "best plan 2.00x" in line(state)


def test_plain_view_prints_each_event_once() -> None:
    stream = io.StringIO()
    console = Console(file=stream, width=60, markup=False, highlight=False)
    with LiveView(console, fakes.WORKLOAD, interactive=False) as view:
        view.update(RUNNING)
        view.update(msgspec.structs.replace(RUNNING, spent_seconds=101.0))
        view.update(msgspec.structs.replace(RUNNING, replicates_done=2))
    lines = stream.getvalue().splitlines()
    assert [it.count("replicate 2 of 3") for it in lines] == [1, 0]
    assert "replicate 3 of 3" in lines[1]


def test_live_view_updates_the_time_and_clears_itself() -> None:
    now = 50.0
    stream = io.StringIO()
    console = Console(file=stream, width=80, force_terminal=True, markup=False, highlight=False)
    passed_over = Outcome(lever="no-sync", verdict=Skipped(reason="One process trains."))
    for ending in ((), (RUNNING,)):
        stream.seek(0)
        stream.truncate()
        with LiveView(console, fakes.WORKLOAD, interactive=False) as view:
            for name in ("no-sync", "compile", "loader"):
                outcome = msgspec.structs.replace(passed_over, lever=name)
                view.update(Progress(stage="screening", text="", lever=name, outcome=outcome, spent_seconds=76))
            for it in ending:
                view.update(it)
        lines = stream.getvalue().splitlines()
        assert lines[0].endswith("] 3 levers not worth a trial here") and len(lines) == 1 + len(ending)

    with LiveView(console, fakes.WORKLOAD, interactive=True, monotonic=lambda: now) as view:
        view.update(RUNNING)
        now = 57.0
    assert "1 min 47 s, 8 min 13 s left" in stream.getvalue()
    assert stream.getvalue().endswith("\x1b[1A\x1b[2K")


@pytest.mark.parametrize("during", ["refresh", "_disable_redirect_io"])
def test_an_interrupt_of_the_live_view_restores_the_cursor(during: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(live: Live) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Live, during, interrupted)
    stream = io.StringIO()
    console = Console(file=stream, width=80, force_terminal=True)
    with pytest.raises(KeyboardInterrupt), LiveView(console, fakes.WORKLOAD, interactive=True):
        pass
    assert "\x1b[?25l" in stream.getvalue()
    assert stream.getvalue().rindex("\x1b[?25h") > stream.getvalue().rindex("\x1b[?25l")


def test_a_live_view_survives_a_closed_terminal() -> None:
    class Closed(io.StringIO):
        error = errno.EIO

        def write(self, text: str) -> int:
            raise OSError(self.error, "")

    stream = Closed()
    with LiveView(Console(file=stream), fakes.WORKLOAD, interactive=False) as view:
        view.update(RUNNING)
        stream.error = errno.ENOSPC
        with pytest.raises(OSError):
            view.update(msgspec.structs.replace(RUNNING, text="more"))
