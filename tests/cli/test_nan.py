"""``hotlap nan`` from its command line to its page, with an executor that returns given runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import fakes
import msgspec
import pytest
from json_documents import assert_valid

from hotlap.api import Engine
from hotlap.cli.main import main
from hotlap.records import (
    BadNumber,
    CallSite,
    CompileReport,
    Completed,
    Crashed,
    LaunchRequest,
    Machine,
    NumberOrigin,
    NumberRange,
    NumbersHunt,
    NumberSource,
    OutOfMemory,
    Replicate,
    Run,
    ScriptFacts,
    Steps,
    Stopped,
    TimedOut,
    TurnRequest,
    WatchNumbers,
)
from hotlap.render.nan_summary import nan_summary
from hotlap.trial import sweeping
from hotlap.trial.executor import OneSlot
from hotlap.trial.guard import guard

SITE = CallSite(role="operation", file="model.py", line=41, function="forward", what="return torch.log(x)")
LOG = NumberOrigin(
    source="operation",
    phase="forward",
    step=17,
    operation="log",
    inputs=(NumberRange(name="self", dtype="float32", shape=(32, 8), numbers=256, low=-0.021, high=3.2),),
    outputs=(NumberRange(dtype="float32", shape=(32, 8), numbers=256, nan=3, low=-7.4, high=1.16, rows=(0, 7)),),
    module="head.score (Score)",
    site=SITE,
)
NOTICED = BadNumber(step=17, noticed_in="loss", nan=True)
FOUND = msgspec.structs.replace(NOTICED, origin=LOG)


def run(steps: int, bad: BadNumber | None = None, **fields: object) -> Run:
    """Make a run of this many finite steps, of 10 ms each unless a field overrides it."""
    return msgspec.structs.replace(Run(steps=account(steps), bad_number=bad, wall_seconds=3.0), **fields)


def account(steps: int, seconds: float = 0.01, loss: float | None = 1.0) -> Steps:
    return Steps(wall_seconds=(seconds,) * steps, loss=(loss,) * steps)


class Answers(OneSlot):
    """Return these runs one after the other, and record the requests."""

    def __init__(self, *runs: Run) -> None:
        self._runs = list(runs)
        self.requests: list[LaunchRequest] = []

    def machine(self) -> Machine:
        return fakes.MACHINE

    def launch(self, request: LaunchRequest) -> Run:
        self.requests.append(request)
        return self._runs.pop(0)

    def take_turns(self, request: TurnRequest) -> Replicate:
        raise AssertionError("a hunt compares nothing")

    @property
    def starts(self) -> list[int | None]:
        """Return the step from which each run checked operations."""
        return [watch.check_from for it in self.requests for watch in it.assignment.instruments]


def hunt(answers: Answers, *options: str) -> int:
    return main(["nan", "--full", *options, "train.py"], engine=Engine(executor=lambda directory, isolation: answers))


def shown(capsys: pytest.CaptureFixture[str]) -> str:
    return " ".join(capsys.readouterr().out.split())


@pytest.fixture(autouse=True)
def wide(work: Path, nan_answers_fit_a_screen: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")


def test_nothing_to_find(capsys: pytest.CaptureFixture[str]) -> None:
    answers = Answers(run(200, ending=Completed()))
    assert hunt(answers) == 0
    page = shown(capsys)
    assert "Everything was finite for 200 steps: losses, gradients and weights." in page
    assert "The script ended by itself." in page
    assert "could not be read" not in page
    (request,) = answers.requests
    assert request.assignment.instruments == (WatchNumbers(),)
    assert request.seconds == 600


def test_after_a_whole_run_another_seed_is_offered() -> None:
    commands = nan_summary(NumbersHunt(workload=fakes.WORKLOAD, finite_steps=300, ending=Completed(), seed=4)).commands
    assert [it.command for it in commands] == ["hotlap nan --seed 5 train.py --epochs 1"]
    commands = nan_summary(NumbersHunt(workload=fakes.WORKLOAD, finite_steps=300, seed=4)).commands
    assert [it.command for it in commands] == ["hotlap nan --steps 600 --seed 4 train.py --epochs 1"]


def test_losses_that_could_not_be_read_are_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert hunt(Answers(msgspec.structs.replace(run(20), steps=account(20, loss=None)))) == 0
    page = shown(capsys)
    assert "In 20 of them the loss could not be read" in page
    assert "The limit was reached." in page


def test_a_nan_is_found(capsys: pytest.CaptureFixture[str]) -> None:
    answers = Answers(run(17, NOTICED), run(17, FOUND))
    assert hunt(answers, "--seed", "5") == 1
    page = shown(capsys)
    for piece in (
        "In step 18 the loss was NaN.",
        "It came from log, which made 3 NaN in the forward pass.",
        "line model.py:41 in forward return torch.log(x)",
        "layer head.score (Score)",
        "given self float32 (32, 8) from -0.021 to 3.2",
        "made float32 (32, 8) from -7.4 to 1.16, 3 NaN of 256, in rows 0, 7",
        "Its smallest input is -0.021: clamp it",
        "checked every operation from step 16 on",
    ):
        assert piece in page
    assert answers.starts == [None, 15]
    assert [it.assignment.seed for it in answers.requests] == [5, 5]
    assert answers.requests[1].steps >= 18, "the repetition runs at least as many steps"


def test_the_plan_is_said_before_each_launch_and_what_it_came_to_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    assert hunt(Answers(run(17, NOTICED), run(17, FOUND)), "--steps", "500") == 1
    said = " ".join(capsys.readouterr().err.split())
    first = "1 launch is planned to watch 500 steps, for at most 10 min, and more only if a number is not finite"
    revised = (
        "Now about 2 launches in 4 s are planned in all, instead of 1 launch: 1 launch in 4 s with every operation"
    )
    assert said.index(first) < said.index("watching loss") < said.index(revised) < said.index("the same steps again")
    assert said.endswith("2 launches in 0 s were made; about 2 launches in 4 s were planned")


def test_json_reads_back(capsys: pytest.CaptureFixture[str]) -> None:
    assert hunt(Answers(run(17, NOTICED), run(17, FOUND)), "--json", "--quiet") == 1
    out, err = capsys.readouterr()
    found = msgspec.json.decode(out, type=NumbersHunt)
    assert (found.noticed, found.repeated, found.finite_steps, found.checked_from) == (NOTICED, FOUND, 17, 15)
    assert_valid(json.loads(out))
    assert json.loads(out)["repeated"]["origin"]["operation"] == "log"
    assert err == ""


def test_the_limits_are_passed_on() -> None:
    answers = Answers(run(50))
    assert hunt(answers, "--steps", "50", "--seconds", "90s", "--startup-limit", "20s") == 0
    (request,) = answers.requests
    assert (request.steps, request.seconds, request.assignment.startup_limit_seconds) == (50, 90, 20)


def test_a_nan_that_does_not_recur(capsys: pytest.CaptureFixture[str]) -> None:
    assert hunt(Answers(run(17, NOTICED), run(21))) == 1
    page = shown(capsys)
    assert "It did not recur: in a second run with seed 0 everything was finite for 21 steps." in page
    assert "is therefore not reproducible" in page


def test_a_nan_of_a_compiled_model_that_does_not_recur(capsys: pytest.CaptureFixture[str]) -> None:
    first = run(17, NOTICED, compile=CompileReport(graphs=1))
    assert hunt(Answers(first, run(21))) == 1
    page = shown(capsys)
    assert "The second run did not use torch.compile, so compiled code may be the cause" in page
    assert "is therefore not reproducible" not in page


def test_a_repetition_that_fails(capsys: pytest.CaptureFixture[str]) -> None:
    failed = run(3, ending=OutOfMemory(error="CUDA out of memory."))
    assert hunt(Answers(run(17, NOTICED), failed)) == 1
    assert "ended before step 18. CUDA out of memory." in shown(capsys)


@pytest.mark.parametrize(
    ("source", "operation", "launches"),
    [("batch", "", 2), ("batch", "tensor", 2), ("batch", "stack", 3), ("state", "addmm", 3), ("operation", "log", 2)],
)
def test_values_damaged_before_the_check_start_another_run(source: NumberSource, operation: str, launches: int) -> None:
    it = NumberOrigin(source=source, phase="data", step=17, operation=operation)
    last = run(17, msgspec.structs.replace(NOTICED, origin=it))
    answers = Answers(run(17, NOTICED), last, last)
    assert hunt(answers) == 1
    assert len(answers.requests) == launches


OLDER = msgspec.structs.replace(
    NOTICED, origin=NumberOrigin(source="entered", phase="forward", step=17, operation="addmm")
)


def test_a_nan_older_than_the_check_is_searched_from_the_start(capsys: pytest.CaptureFixture[str]) -> None:
    normalised = msgspec.structs.replace(LOG, operation="div", phase="setup", step=0, module="")
    whole = msgspec.structs.replace(NOTICED, origin=normalised)
    answers = Answers(run(17, NOTICED), run(17, OLDER), run(17, whole))
    assert hunt(answers) == 1
    assert answers.starts == [None, 15, 0]
    page = shown(capsys)
    assert "It came from div, which made 3 NaN before the first step." in page
    assert "checked every operation from the script's first line on" in page


def test_the_search_from_the_start_is_skipped_if_it_takes_long(capsys: pytest.CaptureFixture[str]) -> None:
    slow = msgspec.structs.replace(run(17, OLDER), steps=account(17, seconds=60.0))
    answers = Answers(run(17, NOTICED), slow)
    assert hunt(answers) == 1
    assert answers.starts == [None, 15]
    assert "addmm was the first to read" in shown(capsys)


def test_runs_that_differ(capsys: pytest.CaptureFixture[str]) -> None:
    """If the second run meets the NaN before its check begins, the third checks earlier."""
    early = msgspec.structs.replace(NOTICED, step=9)
    answers = Answers(run(17, NOTICED), run(9, early), run(9, msgspec.structs.replace(FOUND, step=9)))
    assert hunt(answers) == 1
    assert answers.starts == [None, 15, 7]
    assert "The run that checks differed. In step 10 the loss was NaN." in shown(capsys)


def test_an_infinity_that_becomes_nan_and_a_mask(capsys: pytest.CaptureFixture[str]) -> None:
    range_of = NumberRange(dtype="float32", shape=(4,), numbers=4, infinite=4)
    written = NumberOrigin(
        source="written", phase="forward", step=17, operation="masked_fill", arguments=("value=-inf",), site=SITE
    )
    first = msgspec.structs.replace(LOG, operation="_softmax", outputs=(range_of,), site=None)
    bad = msgspec.structs.replace(NOTICED, origin=first, first_nan=LOG, written=written)
    assert hunt(Answers(run(17, NOTICED), run(17, bad))) == 1
    page = shown(capsys)
    assert "It came from softmax, which made 4 infinities in the forward pass." in page
    assert "line not in your code" in page
    assert "Then log made 3 NaN of it in the forward pass, model.py:41 in forward." in page
    assert "infinities that the script wrote with masked_fill(value=-inf), model.py:41 in forward." in page
    assert "A row is masked throughout" in page


def test_an_overflow_of_what_stood_for_infinities(capsys: pytest.CaptureFixture[str]) -> None:
    hides = NumberRange(dtype="float32", shape=(4,), numbers=4, low=-3.4028e38, high=1.5)
    infinite = NumberRange(dtype="float32", shape=(4,), numbers=4, infinite=2)
    bad = msgspec.structs.replace(
        FOUND,
        replaced=msgspec.structs.replace(LOG, operation="nan_to_num", outputs=(hides,)),
        overflow=msgspec.structs.replace(LOG, operation="pow", outputs=(infinite,), site=None),
    )
    assert hunt(Answers(run(17, NOTICED), run(17, bad))) == 1
    page = shown(capsys)
    assert "It came from log, which made 3 NaN in the forward pass." in page
    assert "nan_to_num made finite numbers of it, from -3.403e+38 to 1.5, model.py:41 in forward." in page
    assert "Then pow made 2 infinities of these in the forward pass." in page
    assert "Its smallest input is -0.021" in page


@pytest.mark.parametrize(
    ("origin", "says"),
    [
        (
            NumberOrigin(source="batch", phase="data", step=17, name="Pictures", outputs=LOG.outputs, site=SITE),
            ["The batch of Pictures for step 18 already held 3 NaN.", "held float32", "in rows 0, 7", "or replace"],
        ),
        (
            NumberOrigin(source="state", phase="forward", step=17, name="bn.running_var", inputs=LOG.outputs),
            ["It came from bn.running_var, which already held 3 NaN when the check began.", "a checkpoint"],
        ),
        (
            NumberOrigin(source="uninitialised", phase="setup", step=0, operation="empty", name="scale", site=SITE),
            ["It came from empty: nothing was written to its memory", "when before the first step", "torch.zeros"],
        ),
        (
            NumberOrigin(source="written", phase="forward", step=17, operation="full", arguments=("fill_value=inf",)),
            ["The script itself wrote numbers that are not finite with full(fill_value=inf)", "must not be a target"],
        ),
        (
            NumberOrigin(
                source="operation", phase="backward", step=17, operation="div", autograd_node="SqrtBackward0", site=SITE
            ),
            ["in the backward pass", "forward line model.py:41", "autograd node SqrtBackward0", "slope"],
        ),
        (
            NumberOrigin(
                source="operation", phase="optimizer", step=17, operation="_foreach_add_", arguments=("alpha=-inf",),
                name="fc.weight",
            ),
            ["in the optimizer's update of fc.weight", "given alpha=-inf: check the learning rate"],
        ),
        (None, ["No operation visible to torch produced it"]),
    ],
    ids=lambda it: it.source if isinstance(it, NumberOrigin) else None,
)  # fmt: skip
def test_every_kind_of_origin(
    origin: NumberOrigin | None, says: Sequence[str], capsys: pytest.CaptureFixture[str]
) -> None:
    bad = msgspec.structs.replace(NOTICED, origin=origin)
    last = run(17, bad)
    assert hunt(Answers(run(17, NOTICED), last, last)) == 1
    page = shown(capsys)
    for piece in says:
        assert piece in page


@pytest.mark.parametrize(
    ("noticed_in", "says"),
    [
        ("gradients", "In step 18 the gradient of fc.weight was NaN, and the optimizer used it."),
        ("weights", "In step 18 the weights of fc.weight were NaN after the update."),
    ],
)
def test_the_place_where_a_nan_was_noticed(noticed_in: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    bad = msgspec.structs.replace(NOTICED, noticed_in=noticed_in, name="fc.weight")
    assert hunt(Answers(run(17, bad), run(20))) == 1
    assert says in shown(capsys)


def test_a_script_that_exits_because_of_a_nan(capsys: pytest.CaptureFixture[str]) -> None:
    crash = Crashed(exit_code=1, error="Loss is nan, stopping training", steps_done=17)
    seen = msgspec.structs.replace(FOUND, noticed_in="script")
    answers = Answers(run(17, ending=crash), run(17, seen))
    assert hunt(answers) == 1
    assert answers.starts == [None, 15]
    page = shown(capsys)
    assert "In step 18 the script read a number that was NaN, and ended." in page
    assert "It came from log" in page


def test_a_nan_that_only_the_script_tested_is_not_reported(capsys: pytest.CaptureFixture[str]) -> None:
    """Tests by the script are recorded only by the check, and do not explain a NaN in the loss."""
    seen = msgspec.structs.replace(FOUND, noticed_in="script", step=20)
    assert hunt(Answers(run(17, NOTICED), run(21, seen, ending=Completed()))) == 1
    assert "It did not recur" in shown(capsys)


@pytest.mark.parametrize(
    ("ending", "done", "code", "says", "launches"),
    [
        (
            Crashed(exit_code=3, error="ValueError: no data"),
            0,
            3,
            "failed before its first training step was done: Val",
            1,
        ),
        (Crashed(exit_code=3, error="ValueError: no data"), 4, 3, "failed after 4 training steps: ValueError", 2),
        (Completed(exit_code=4), 4, 4, "exit code 4 after 4 training steps", 1),
        (OutOfMemory(error="CUDA out of memory."), 4, 1, "ran out of memory after 4", 1),
        (TimedOut(limit_seconds=300.0, during="block"), 4, 1, "hung after 4", 1),
    ],
)
def test_a_script_that_fails_for_another_reason(
    ending: Crashed, done: int, code: int, says: str, launches: int, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = Answers(run(done, ending=ending), run(done, ending=ending))
    assert hunt(answers) == code
    assert says in capsys.readouterr().err
    assert len(answers.requests) == launches


def test_a_write_denied_by_the_isolation_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    crash = Crashed(exit_code=1, error="cp: cannot create 'b.pt': Permission denied", steps_done=5, denied_path="b.pt")
    answers = Answers(run(5, ending=crash))
    assert hunt(answers) == 1
    assert answers.starts == [None]
    said = capsys.readouterr().err
    assert "failed in isolation after 5 training steps: the kernel denied writing b.pt (mode fence" in said
    assert "`--unprotected` runs trials without the kernel's fence" in said and "by itself" not in said


def test_steps_of_a_script_that_could_not_report_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    crash = Crashed(exit_code=-11, error="The process was ended by signal SIGSEGV.", steps_done=5)
    answers = Answers(run(0, ending=crash), run(0, ending=crash))
    assert hunt(answers) == 128 + 11
    assert "failed after 5 training steps: The process was ended by signal SIGSEGV." in capsys.readouterr().err
    assert answers.starts == [None, 3]


def test_a_script_that_was_killed_from_outside_is_run_again(capsys: pytest.CaptureFixture[str]) -> None:
    killed = Crashed(exit_code=-9, error="The process was killed.", steps_done=5, killed_from_outside=True)
    answers = Answers(run(0, ending=killed), run(30, ending=Completed()))
    assert hunt(answers) == 0
    assert answers.starts == [None, None]
    assert "killed from outside (SIGKILL); running it again" in capsys.readouterr().err


def test_a_hang_names_the_option_that_raises_the_limit(capsys: pytest.CaptureFixture[str]) -> None:
    hang = TimedOut(limit_seconds=4.0, during="block", steps_done=5)
    assert hunt(Answers(run(0, ending=hang)), "--block-limit", "4s") == 1
    said = capsys.readouterr().err
    assert "hung after 5 training steps: It made no progress for 4 s during block." in said
    assert "--block-limit" in said
    assert hunt(Answers(run(0, ending=TimedOut(limit_seconds=9.0, during="startup")))) == 1
    assert "--startup-limit" in capsys.readouterr().err


def test_a_single_step_may_take_as_long_as_a_block_may() -> None:
    answers = Answers(run(17, NOTICED), run(18, FOUND))
    assert hunt(answers, "--block-limit", "4s") == 1
    assert [it.assignment.step_limit_seconds for it in answers.requests] == [4.0, 40.0]


@pytest.mark.parametrize("words", [["nan", "train.py"], ["doctor"]])
def test_the_run_folder_is_removed_even_after_a_kill(words: list[str], work: Path) -> None:
    """The watchdog and a later run of hotlap can find and remove it."""
    seen: list[Path] = []

    def executor(directory: Path, isolation: object) -> Answers:
        assert (directory / sweeping.OWNER).exists()
        assert str(directory) in guard()._roots
        seen.append(directory)
        return Answers(run(30, ending=Completed()))

    assert main(words, engine=Engine(executor=executor)) == 0
    assert [it.exists() for it in seen] == [False]
    assert str(seen[0]) not in guard()._roots


def test_a_script_that_never_trains(capsys: pytest.CaptureFixture[str]) -> None:
    untrained = run(0, ending=Completed(), facts=ScriptFacts(backwards_per_step=0.0))
    assert hunt(Answers(untrained)) == 1
    assert "no training step was seen" in capsys.readouterr().err


def test_without_a_torch_optimizer_backwards_are_counted() -> None:
    uncounted = run(0, ending=Completed(), facts=ScriptFacts(backwards_per_step=30.0))
    answers = Answers(uncounted, run(30, ending=Stopped()))
    assert hunt(answers) == 0
    assert [it.assignment.step_source for it in answers.requests] == ["auto", "backward"]


def test_foreign_text_is_cleaned(capsys: pytest.CaptureFixture[str]) -> None:
    site = CallSite(
        role="operation", file=fakes.HOSTILE_TEXT, line=1, function=fakes.HOSTILE_TEXT, what=fakes.HOSTILE_TEXT
    )
    range_of = NumberRange(name=fakes.HOSTILE_TEXT, dtype=fakes.HOSTILE_TEXT, shape=(1,), numbers=1, nan=1)
    origin = NumberOrigin(
        source="operation",
        phase="backward",
        step=17,
        operation=fakes.HOSTILE_TEXT,
        arguments=(fakes.HOSTILE_TEXT,),
        inputs=(range_of,),
        outputs=(range_of,),
        name=fakes.HOSTILE_TEXT,
        module=fakes.HOSTILE_TEXT,
        autograd_node=fakes.HOSTILE_TEXT,
        site=site,
    )
    bad = BadNumber(
        step=17,
        noticed_in="weights",
        nan=True,
        name=fakes.HOSTILE_TEXT,
        origin=origin,
        first_nan=origin,
        written=origin,
        replaced=origin,
        overflow=origin,
    )
    assert hunt(Answers(run(17, bad), run(17, bad))) == 1
    out = capsys.readouterr().out
    assert not [it for it in out if it in "\x1b\x07\r\x00\u202e\u2066"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["nan"], "No script was given."),
        (["nan", "nope.py"], "There is no script 'nope.py'"),
        (["nan", "--steps", "0", "train.py"], "'0' is not a whole number of at least 1"),
        (["nan", "--seconds", "soon", "train.py"], "'soon' is not a time above zero"),
        (["nan", "--sceonds", "3", "train.py"], "Did you mean '--seconds'?"),
    ],
)
def test_bad_arguments_are_refused(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words, engine=Engine(executor=lambda directory, isolation: Answers())) == 2
    assert says in capsys.readouterr().err


def test_the_help_lists_the_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nan", "--help"]) == 0
    assert "1 when a number was not" in capsys.readouterr().out
