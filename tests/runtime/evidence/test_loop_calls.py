"""Calls that cost time and do not train, and the switches that slow every step, by the user's line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hotlap.evidence import LoopCall, RunEvidence
from hotlap.records import Completed, Stopped

COUNTED = 15
"""Steps of a launch of sixteen that are counted: all but the first."""

LOOP = """
import gc, logging, sys, time
from pathlib import Path

logging.basicConfig(stream=sys.stdout, level=logging.INFO)
log = logging.getLogger("mine")
class Slow(logging.Handler):
    def emit(self, record): time.sleep(0.002)
log.addHandler(Slow())
Path("library").mkdir(exist_ok=True)
print("before the loop")                                         # before the loop
gc.collect()

def report(loss):
    print(f"loss {loss:.3f}", flush=True)                        # in a function

for step, (inputs, targets) in enumerate(DataLoader(data, batch_size=32)):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
    report(loss)
    log.info("step %d", step)                                    # logged
    log.debug("not even formatted: %s", loss)                    # not logged
    print(loss)                                                  # a tensor
    if step % 5 == 4:
        gc.collect()                                             # collected
        torch.cuda.empty_cache()                                 # emptied
        with torch.no_grad():
            model(inputs)
            print("evaluated")                                   # in the evaluation
"""


def at(evidence: RunEvidence, line: int) -> list[LoopCall]:
    return [it for it in evidence.calls if it.site and it.site.line == line]


def test_calls_are_counted_at_their_lines(launch: Any, line_of: Any) -> None:
    run, evidence = launch(LOOP)
    assert isinstance(run.ending, Stopped), run.ending
    # The last step's end is the launch's; of the others, those followed by an evaluation show what comes after.
    expected = {
        "# in a function": ("print", "other"),
        "# logged": ("logging", "other"),
        "# a tensor": ("print", "other"),
        "# collected": ("garbage-collection", "outside"),
        "# emptied": ("empty-cache", "outside"),
        "# in the evaluation": ("print", "outside"),
    }
    for text, (kind, phase) in expected.items():
        calls = at(evidence, line_of(text))
        assert {it.kind for it in calls} == {kind}, text
        assert phase in {it.phase for it in calls}, text
        assert sum(it.calls for it in calls) == sum(it.steps for it in calls) == (3 if phase == "outside" else COUNTED)
    assert at(evidence, line_of("# before the loop")) == []
    assert at(evidence, line_of("# not logged")) == []
    (logged,) = [it for it in at(evidence, line_of("# logged")) if it.phase == "other"]
    assert logged.seconds >= 0.002 * logged.calls
    (inside,) = [it for it in at(evidence, line_of("# in a function")) if it.phase == "other"]
    assert inside.site is not None and inside.site.function == "report"
    # Where nothing waits for a device, formatting a tensor is part of what printing it takes.
    (shown,) = [it for it in at(evidence, line_of("# a tensor")) if it.phase == "other"]
    formatted = sum(it.seconds for it in evidence.syncs if it.phase == "other" and it.site == shown.site)
    assert shown.seconds > formatted > 0


def test_what_libraries_print_is_not_the_users(launch: Any, tmp_path: Path) -> None:
    """`torch.hub` prints and logs by itself, as trackers and trainers do."""
    script = """
    import types, logging
    library = types.ModuleType("library")
    code = "import logging\\ndef chat():\\n    print('chatting')\\n    logging.getLogger('library').warning('noted')\\n"
    exec(compile(code, torch.__file__.replace("__init__", "chatting"), "exec"), library.__dict__)
    for inputs, targets in DataLoader(data, batch_size=32):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()
        library.chat()
    """
    run, evidence = launch(script, steps=1000)
    assert run.ending == Completed()
    assert Path(run.output_path).read_text().count("chatting") == 125
    assert evidence.observed_steps == 124
    assert evidence.calls == ()


TRAIN = """
for inputs, targets in DataLoader(data, batch_size=32):
    optimizer.zero_grad()
    nn.functional.mse_loss(model(inputs), targets).backward()
    optimizer.step()
"""


def test_switches_have_their_lines(launch: Any, line_of: Any) -> None:
    switches = "torch.autograd.set_detect_anomaly(True)  # on\nmodel = nn.DataParallel(model)  # wrapped\n"
    _, evidence = launch(switches + TRAIN)
    assert evidence.anomaly_detection and evidence.data_parallel
    assert evidence.anomaly_site is not None and evidence.anomaly_site.line == line_of("# on")
    assert evidence.data_parallel_site is not None and evidence.data_parallel_site.line == line_of("# wrapped")


def test_anomaly_detection_around_the_backward(launch: Any, line_of: Any) -> None:
    script = """
    for inputs, targets in DataLoader(data, batch_size=32):
        optimizer.zero_grad()
        with torch.autograd.detect_anomaly():                    # on
            nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()
    """
    run, evidence = launch(script)
    assert evidence.anomaly_detection
    assert evidence.anomaly_site is not None and evidence.anomaly_site.line == line_of("# on")
    # torch's own warning still names the user's line.
    assert f"train.py:{line_of('# on')}: UserWarning: Anomaly Detection" in Path(run.output_path).read_text()


@pytest.mark.slow
def test_anomaly_detection_that_was_switched_off_slows_nothing(launch: Any) -> None:
    script = """
    torch.autograd.set_detect_anomaly(True)
    for step, (inputs, targets) in enumerate(DataLoader(data, batch_size=32)):
        if step == 4:
            torch.autograd.set_detect_anomaly(False)
        optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()
    """
    _, evidence = launch(script)
    assert not evidence.anomaly_detection and evidence.anomaly_site is None
    assert not evidence.data_parallel and evidence.data_parallel_site is None
    assert evidence.calls == ()


REPORTING = """
import csv, json, os
import pandas
from torch.utils.tensorboard import SummaryWriter
from tqdm import tqdm

tracker = types.ModuleType("wandb")
class Run: pass
tracker.run = Run()
tracker.run.log = tracker.log = lambda values: None
sys.modules["wandb"] = tracker

writer = SummaryWriter("runs")
table = open("table.csv", "w", newline="")
rows = csv.DictWriter(table, ["loss"])
bar = tqdm(total=100)
for step, (inputs, targets) in enumerate(tqdm(DataLoader(data, batch_size=32))):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
    value = loss.detach()
    writer.add_scalar("loss", value, step)                       # summary
    tracker.log({"loss": value})                                 # tracked
    tracker.run.log({"loss": value})                             # tracked by the run
    bar.set_postfix(step=step)                                   # bar
    rows.writerow({"loss": step})                                # row
    os.fsync(table.fileno())                                     # synced
    pandas.DataFrame({"loss": [step]}).to_csv("frame.csv")       # frame
    json.dump({"step": step}, table)                             # dumped
    Path("library").exists()
"""


def test_what_reports_in_every_step_is_counted_at_its_line(launch: Any, line_of: Any) -> None:
    run, evidence = launch("import sys, types\nfrom pathlib import Path\n" + REPORTING)
    assert isinstance(run.ending, Stopped), run.ending
    expected = {
        "# summary": "tensorboard",
        "# tracked": "tracker",
        "# tracked by the run": "tracker",
        "# bar": "progress-bar",
        "# row": "file-write",
        "# synced": "file-write",
        "# frame": "file-write",
        "# dumped": "file-write",
    }
    for text, kind in expected.items():
        calls = at(evidence, line_of(text))
        assert {it.kind for it in calls} == {kind}, text
        assert sum(it.calls for it in calls) == sum(it.steps for it in calls) == COUNTED, text
    # `writerow` flushes nothing, so what the bar, the frame and the summary write is not counted twice.
    assert len([it for it in evidence.calls if it.kind != "progress-bar"]) == len(expected) - 1
