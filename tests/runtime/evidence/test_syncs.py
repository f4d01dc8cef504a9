"""Calls that count as waits of the host, by phase and line, without any effect on the script."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from hotlap.evidence import HostSync, RunEvidence
from hotlap.records import Completed, Stopped

COUNTED = 15
"""Steps of a launch of sixteen that are counted: all but the first."""

KINDS = """
import numpy
from torch.nn.functional import mse_loss

class Noted(Dataset):
    def __len__(self): return 4000
    def __getitem__(self, index):
        data[index][0].tolist()                                  # in the data set
        return data[index]

loader = iter(DataLoader(Noted(), batch_size=8))
for step in range(10**6):
    inputs, targets = next(loader)
    optimizer.zero_grad()
    output = model(inputs)
    loss = mse_loss(output, targets)
    loss.item()                                                  # item
    float(loss), int(loss), range(3)[torch.tensor(1)]            # numbers
    output.detach().cpu()                                        # cpu
    output.detach().numpy()                                      # numpy
    numpy.asarray(output.detach())                               # array
    output.tolist()                                              # tolist
    if loss > 10**6: break                                       # bool
    1.0 in output                                                # contains
    output.nonzero()                                             # nonzero method
    torch.nonzero(output)                                        # nonzero function
    torch.where(output > 0)                                      # where, condition
    torch.where(output > 0, output, 0.0)                         # where, values
    print(loss)                                                  # printed
    f"{loss:.3f} {loss}"                                         # formatted
    str(model[0].weight)                                         # parameter
    if step % 5 == 0:
        loss.item()                                              # guarded
    loss.backward()
    optimizer.step()
"""


def rows(evidence: RunEvidence, line: int) -> list[tuple[str, str, int, int]]:
    """What was counted at a line: kind, phase, calls, steps."""
    return sorted((it.kind, it.phase, it.calls, it.steps) for it in evidence.syncs if it.site and it.site.line == line)


def test_every_kind_is_counted_at_its_line(launch: Any, line_of: Any) -> None:
    run, evidence = launch(KINDS)
    assert isinstance(run.ending, Stopped), run.ending
    assert evidence.observed_steps == COUNTED
    expected = {
        "# item": ("item", 1),
        "# numbers": ("item", 3),
        "# cpu": ("cpu", 1),
        "# numpy": ("numpy", 1),
        "# array": ("numpy", 1),
        "# tolist": ("tolist", 1),
        "# bool": ("bool", 1),
        "# contains": ("item", 1),
        "# nonzero method": ("nonzero", 1),
        "# nonzero function": ("nonzero", 1),
        "# where, condition": ("nonzero", 1),
        "# printed": ("print", 1),
        "# formatted": ("print", 2),
        "# parameter": ("print", 1),
    }
    for text, (kind, each) in expected.items():
        assert rows(evidence, line_of(text)) == [(kind, "other", each * COUNTED, COUNTED)], text
    assert rows(evidence, line_of("# where, values")) == []
    assert rows(evidence, line_of("# guarded")) == [("item", "other", 3, 3)], "steps 5, 10 and 15"
    assert rows(evidence, line_of("# in the data set")) == [("tolist", "data_wait", 8 * COUNTED, COUNTED)]
    assert not any(it.on_device for it in evidence.syncs), "there is no device here"
    assert all(0 < it.seconds < evidence.observed_seconds for it in evidence.syncs)
    assert [it.seconds for it in evidence.syncs] == sorted((it.seconds for it in evidence.syncs), reverse=True)
    item = next(it for it in evidence.syncs if it.site and it.site.line == line_of("# item"))
    assert item.site is not None
    assert (Path(item.site.file).name, item.site.function) == ("train.py", "<module>")


HOSTS_OWN = """
import math
for step, (inputs, targets) in enumerate(DataLoader(data, batch_size=32)):
    start = int(torch.randint(10, ()))
    torch.randperm(4).tolist()
    rate = torch.rand(1)
    if rate.item() > 2: break
    if torch.rand(1) < 0.5 * math.pi: pass
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets)
    if torch.rand(1) < loss.item(): pass                         # one of two
    loss.backward()
    optimizer.step()
"""


@pytest.mark.slow
def test_what_is_made_on_the_host_is_read_without_waiting(launch: Any, line_of: Any) -> None:
    _, evidence = launch(HOSTS_OWN)
    assert evidence.observed_steps
    lines = {(it.site.line, it.calls) for it in evidence.syncs if it.site and it.phase != "data_wait"}
    assert lines == {(line_of("# one of two"), evidence.observed_steps)}, "only of the loss"


READ_BY_A_LIBRARY = """
for inputs, targets in DataLoader(data, batch_size=32):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets)
    torch.distributions.Normal(targets.mean(), 1.0)              # checks its argument
    loss.item()                                                  # by itself
    loss.backward()
    optimizer.step()
"""


def test_the_function_of_a_library_that_reads_is_named(launch: Any, line_of: Any) -> None:
    _, evidence = launch(READ_BY_A_LIBRARY)
    by_line = {it.site.line: it.within for it in evidence.syncs if it.site and it.phase != "data_wait"}
    assert by_line[line_of("# by itself")] == ""
    assert by_line[line_of("# checks its argument")].startswith("torch.distributions.")


QUIET = """
for inputs, targets in DataLoader(data, batch_size=32):
    optimizer.zero_grad()
    nn.functional.mse_loss(model(inputs), targets).backward()
    optimizer.step()
"""


def test_what_hotlap_reads_itself_is_not_counted(launch: Any) -> None:
    """The clock reads the loss of every step, and other collectors look at tensors."""
    run, evidence = launch(QUIET)
    assert None not in run.steps.loss
    assert evidence.observed_steps == COUNTED
    assert [it for it in evidence.syncs if it.phase != "data_wait"] == []


PHASES = """
class Gate(nn.Module):
    def forward(self, inputs):
        if inputs.sum() > 10**6: return inputs                   # in the model
        return inputs

class Peek(torch.autograd.Function):
    @staticmethod
    def forward(context, inputs): return inputs.clone()
    @staticmethod
    def backward(context, gradient):
        gradient.sum().item()                                    # in the backward
        return gradient

model = nn.Sequential(Gate(), nn.Linear(8, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01, foreach=False)
scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
inputs, targets = data[:32]
for step in range(10**6):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(Peek.apply(model(inputs)), targets)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)      # clip
    scaler.step(optimizer)                                       # step
    scaler.update()
    scheduler.step(loss.detach())                                # scheduler
    if step % 5 == 4:
        before = loss.item()                                     # before the evaluation
        with torch.no_grad():
            for batch, _ in DataLoader(data, batch_size=2000):
                model(batch).sum().item()                        # evaluation
        after = loss.item()                                      # after the evaluation
"""


def test_phases_are_those_of_the_step(launch: Any, line_of: Any) -> None:
    run, evidence = launch(PHASES, steps=17)
    assert isinstance(run.ending, Stopped), run.ending
    assert rows(evidence, line_of("# in the model"))[0] == ("bool", "forward", 16, 16)
    assert rows(evidence, line_of("# in the backward")) == [("item", "backward", 16, 16)]
    assert rows(evidence, line_of("# clip")) == [("bool", "optimizer", 16, 16)]
    (of_step,) = rows(evidence, line_of("# step"))
    assert of_step[:2] == ("item", "optimizer") and of_step[2] >= 3 * 16 and of_step[3] == 16
    # What the user hands to a scheduler is the user's; three of the steps were followed by an evaluation.
    assert rows(evidence, line_of("# scheduler")) == [("item", "other", 13, 13), ("item", "outside", 3, 3)]
    assert rows(evidence, line_of("# evaluation")) == [("item", "outside", 6, 3)]
    for text in ("# before the evaluation", "# after the evaluation"):
        assert rows(evidence, line_of(text)) == [("item", "outside", 3, 3)], text


CLOSURES = """
optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3, max_eval=3)
inputs, targets = data[:32]

def closure():
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    loss.item()                                                  # in the closure
    return loss

class Own(torch.optim.Optimizer):
    @torch.no_grad()
    def step(self, closure=None):
        (weight,) = self.param_groups[0]["params"]
        weight.sum().item()                                      # in a step of the user's
        weight -= 0.1 * weight.grad

own = Own([torch.nn.Parameter(torch.ones(2))], {})
while True:
    own.param_groups[0]["params"][0].grad = torch.ones(2)
    own.step()
    optimizer.step(closure)                                      # step
"""


@pytest.mark.slow
def test_the_users_own_lines_within_a_step_are_not_torchs(launch: Any, line_of: Any) -> None:
    _, evidence = launch(CLOSURES)
    for text in ("# in the closure", "# in a step of the user's"):
        ((kind, phase, calls, steps),) = rows(evidence, line_of(text))
        assert (kind, phase, steps) == ("item", "other", COUNTED) and calls >= COUNTED, text
    assert {phase for _, phase, _, _ in rows(evidence, line_of("# step"))} == {"optimizer"}


THREADS = """
import threading
stop, read = threading.Event(), []
def watch():
    while not stop.wait(0.0005):
        read.append(torch.ones(1).item())                        # on another thread
threading.Thread(target=watch, daemon=True).start()
for inputs, targets in DataLoader(data, batch_size=32, num_workers=1):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    loss.item()                                                  # in the training
    optimizer.step()
stop.set()
assert len(read) > 10, len(read)
"""


def test_other_threads_keep_no_step_waiting(launch: Any, line_of: Any) -> None:
    run, evidence = launch(THREADS, steps=1000)
    assert run.ending == Completed()
    assert rows(evidence, line_of("# on another thread")) == []
    assert rows(evidence, line_of("# in the training")) == [("item", "other", 124, 124)]


UNNOTICED = """
import builtins, copy, functools, gc, inspect, json, logging, pickle, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # of TorchScript, by torch

@torch.jit.script
def scripted(x):
    print("scripted")
    return torch.where(x > 0, x, torch.zeros(3)), torch.nonzero(x), x.sum().item()

class Holder:
    show, collect = print, gc.collect

class Loud(torch.Tensor):
    seen = []
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.seen.append(getattr(func, "__name__", str(func)))
        return super().__torch_function__(func, types, args, kwargs or {})

def look():
    x = torch.tensor([1.0, -1.0, 2.0])
    found = {"scripted": str(scripted(x))}
    with torch.device("meta"):
        found["device"] = str(torch.zeros(2).device)
    found["class"] = [Holder().show("held"), Holder().collect(0) >= 0]
    methods = (torch.Tensor.item, torch.Tensor.__bool__)
    for function in (print, gc.collect, torch.where, torch.nonzero, torch.cuda.synchronize, *methods):
        assert pickle.loads(pickle.dumps(function)) is function, function
        assert copy.deepcopy(function) is function, function
    found["names"] = [str(print), print.__name__, gc.collect.__doc__, torch.where.__name__, torch.Tensor.item.__name__]
    found["signature"] = str(inspect.signature(print))
    loud = torch.ones(2).as_subclass(Loud)
    loud.sum().item(), loud.tolist(), bool(loud.sum() > 0), repr(loud)
    found["loud"] = Loud.seen[:]
    Loud.seen.clear()
    graph = torch.fx.symbolic_trace(lambda x: torch.where(x > 0, x, torch.zeros(3)))
    found["graph"] = str(graph.code)
    try:
        torch.ones(2).item()
    except RuntimeError as error:
        found["error"] = str(error)
    return found

losses = []
for step, (inputs, targets) in enumerate(DataLoader(data, batch_size=32, shuffle=True)):
    if step == 20:
        break
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(nn.functional.dropout(model(inputs), 0.1), targets)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    optimizer.step()
    losses.append(loss.item())
    print(step, loss, f"{loss:.6f}", end=";\\n")
    found = look()
print(json.dumps({"losses": losses, "random": torch.get_rng_state().sum().item(), **found}))
print(json.dumps({"weights": [it.tolist() for it in model.parameters()]}))
"""


def test_the_script_notices_nothing(launch: Any) -> None:
    """Its output, to the last character: losses, weights, the random state, and the properties of torch's functions."""
    watched, evidence = launch(UNNOTICED, steps=1000)
    output = Path(watched.output_path).read_text()
    plain, _ = launch(UNNOTICED, steps=1000, instruments=())
    assert watched.ending == plain.ending == Completed(), (watched.ending, plain.ending)
    assert evidence.syncs
    assert output == Path(plain.output_path).read_text()
    (told,) = [json.loads(line) for line in output.splitlines() if line.startswith('{"losses"')]
    assert told["device"] == "meta" and len(set(told["losses"])) == 20 and "item" in told["loud"]
    assert watched.steps.loss == plain.steps.loss


COMPILED = """
import logging
logging.getLogger("torch._dynamo").setLevel(logging.ERROR)

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 1)
    def forward(self, inputs):
        if inputs.sum() > 10**6:
            return inputs
        scale = inputs.mean().item()
        print("in the model")
        return self.layer(torch.where(inputs > 0, inputs, torch.zeros(8)) * scale)

model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
def convert(x):
    return torch.where(x > 0, x, torch.arange(8.0)).cpu().to(torch.float64)
whole = torch.compile(convert, backend="eager", fullgraph=True)
model.compile(backend="eager")
for inputs, targets in DataLoader(data, batch_size=32):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets)
    whole(inputs)
    loss.backward()
    optimizer.step()
"""


@pytest.mark.slow
def test_compiled_code_has_the_same_graphs_and_breaks(launch: Any, line_of: Any) -> None:
    watched, evidence = launch(COMPILED, steps=12)
    plain, _ = launch(COMPILED, steps=12, instruments=())
    assert isinstance(watched.ending, Stopped) and isinstance(plain.ending, Stopped), (watched.ending, plain.ending)
    assert plain.compile.graphs > 1 and plain.compile.graph_breaks
    assert watched.compile.graphs == plain.compile.graphs
    for found in ("graph_breaks", "recompiles", "fallbacks"):
        assert Counter(getattr(watched.compile, found)) == Counter(getattr(plain.compile, found)), found
    # Between the graphs calls are normal.
    assert rows(evidence, line_of("inputs.mean().item()")) == [("item", "forward", 11, 11)]


# ---------------------------------------------------------------------------------------------
# On a device
# ---------------------------------------------------------------------------------------------

ON_DEVICE = """
data = TensorDataset(torch.randn(4000, 1024), torch.randn(4000, 1))
model = nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 1)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
event = torch.cuda.Event()
for inputs, targets in DataLoader(data, batch_size=32):
    inputs, targets = inputs.to("cuda"), targets.cuda()          # batch
    mask = torch.ones(32, 1).to("cuda")                          # made on the host
    inputs.new_ones(3).to("cuda")                                # on the device already
    optimizer.zero_grad()
    output = model(inputs) * mask
    loss = nn.functional.mse_loss(output, targets)
    loss.backward()
    optimizer.step()
    loss.item()                                                  # item
    output.to("cpu")                                             # to cpu
    output.detach().cpu().numpy()                                # numpy
    output.to("cpu", non_blocking=True)                          # not waited for
    output[output > 0]                                           # mask
    output[0]                                                    # index
    torch.cuda.synchronize()                                     # synchronize
    event.record(); event.synchronize()                          # event
    print(loss)                                                  # print
"""


@pytest.mark.gpu
def test_waits_for_a_device(launch: Any, line_of: Any) -> None:
    run, evidence = launch(ON_DEVICE, steps=16)
    assert isinstance(run.ending, Stopped), run.ending

    def at(text: str) -> list[HostSync]:
        return [it for it in evidence.syncs if it.site and it.site.line == line_of(text)]

    waits = {
        "# batch": ["copy-to-device"],
        "# item": ["item"],
        "# to cpu": ["cpu"],
        "# mask": ["nonzero"],
        "# synchronize": ["synchronize"],
        "# event": ["synchronize"],
        "# print": ["print"],
    }
    for text, kinds in waits.items():
        assert [it.kind for it in at(text)] == kinds, text
        assert all(it.on_device and it.steps == COUNTED for it in at(text)), text
    assert sorted((it.kind, it.on_device) for it in at("# numpy")) == [("cpu", True), ("numpy", False)]
    for text in ("# made on the host", "# on the device already", "# not waited for", "# index"):
        assert at(text) == [], text
    (made,) = [it for it in evidence.calls if it.kind == "tensor-on-host"]
    assert made.site is not None and made.site.line == line_of("# made on the host")
    assert (made.calls, made.steps, made.bytes) == (COUNTED, COUNTED, COUNTED * 32 * 4)
    (printed,) = [it for it in evidence.calls if it.kind == "print"]
    (waited,) = at("# print")
    assert printed.seconds < waited.seconds, "the wait is the sync's"
