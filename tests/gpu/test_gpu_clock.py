"""The step clock on a device's events: its times are right, and it never waits for the device."""

from __future__ import annotations

from statistics import median

import pytest

from hotlap.records import STEP_PHASES, Completed, LaunchRequest, Run

pytestmark = pytest.mark.gpu

SETTLED = slice(10, None)


def milliseconds(run: Run, phase: str) -> float:
    """The median over the steps after warm-up, of a phase or of the whole step (`wall`)."""
    seconds = run.steps.wall_seconds if phase == "wall" else run.steps.seconds_in(phase)
    return 1e3 * median(seconds[SETTLED])


def test_phases_add_up_to_the_step_and_steps_to_the_block(lab) -> None:
    run = lab.launch("--busy", "0.005", steps=60)
    for row, wall in enumerate(run.steps.wall_seconds):
        assert sum(run.steps.seconds_in(phase)[row] for phase in STEP_PHASES) == pytest.approx(wall)
    assert min(min(run.steps.seconds_in(phase)) for phase in STEP_PHASES) >= 0
    (block,) = run.blocks
    assert block.steps == 59
    assert sum(run.steps.wall_seconds[1:]) == pytest.approx(block.wall_seconds, rel=0.05, abs=2e-3)


def test_kernels_of_known_length_are_booked_as_forward(lab, told) -> None:
    run = lab.launch("--busy", "0.03", "--pinned", steps=60)
    busy = 1e3 * told(run)["busy"]
    assert milliseconds(run, "forward") == pytest.approx(busy, rel=0.2)
    assert milliseconds(run, "wall") == pytest.approx(busy, rel=0.3)


def test_a_wait_for_data_shows_when_the_device_has_nothing_else_to_do(lab) -> None:
    run = lab.launch("--sleep", "0.03", "--pinned", steps=60)
    assert milliseconds(run, "data_wait") > 25
    assert milliseconds(run, "data_wait") > 0.7 * milliseconds(run, "wall")


def test_a_wait_for_data_that_hides_behind_kernels_costs_nothing(lab) -> None:
    """The processor sleeps as long as in the test above, but the device has more to do than that."""
    run = lab.launch("--sleep", "0.03", "--busy", "0.09", "--pinned", steps=60)
    assert milliseconds(run, "data_wait") < 5
    assert milliseconds(run, "forward") > 60


def test_copies_to_the_device_have_a_phase_of_their_own(lab) -> None:
    run = lab.launch(steps=60)
    assert milliseconds(run, "host_to_device") > 0
    for phase in ("forward", "backward", "optimizer"):
        assert milliseconds(run, phase) > 0


def test_nothing_waits_for_the_device_within_a_block(lab, told) -> None:
    """torch itself raises in every operation that waits, in the middle of the block: a clock that read a loss or an
    event there would end the trainer."""
    run = lab.launch("--forbid-waiting", "--pinned", steps=40)
    assert told(run)["would_notice"] is True
    assert None not in run.steps.loss


@pytest.mark.parametrize("mode", ["", "default", "reduce-overhead"])
def test_losses_are_the_scripts_own(lab, told, lever, mode: str) -> None:
    """Also those of a CUDA graph, which writes each loss over the one before."""
    plan = (lever("compile", mode=mode),) if mode else ()
    assignment = lab.assignment("--steps", "30", plan=type(lab.assignment().plan)(settings=plan))
    run = lab.executor.launch(LaunchRequest(assignment=assignment, steps=10**6))
    assert run.ending == Completed()
    assert list(run.steps.loss) == told(run)["losses"]
    assert len(set(run.steps.loss)) > 20
    if mode:
        assert run.compile.graphs > 0


def test_the_devices_peak_is_what_was_held(lab) -> None:
    held = 300 * 2**20
    run = lab.launch("--hold", str(held))
    assert held < run.device_peak_bytes < held + 200 * 2**20
    assert lab.launch().device_peak_bytes < 200 * 2**20
