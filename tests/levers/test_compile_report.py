"""torch.compile for real, in a process of its own, and what the report says about it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import msgspec
import pytest

from hotlap.records import CompileReport

SOURCE = Path(__file__).parents[2] / "src"

HEAD = """
import sys
import msgspec, torch
from hotlap.runtime import compile_report

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(8, 8), torch.nn.Linear(8, 2)

    def forward(self, x, way="plain"):
        x = self.first(x)
        if way == "branch" and x.sum() > 0:  # the branch
            x = x + 1
        if way == "print":
            print("hello", file=sys.stderr)  # the call
        if way == "loop":
            for _ in range(2):
                with torch.no_grad():
                    torch._dynamo.graph_break()  # in a loop
        return self.second(x).relu()

def train(model, *way, size=4):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.randn(size, 8), *way).sum().backward()
    optimizer.step()

def tell():
    sys.stdout.buffer.write(msgspec.json.encode(compile_report.collect(torch)))

model = Net()
"""


def report_of(tmp_path: Path, body: str) -> tuple[CompileReport, str]:
    """Run a script with that body; its report and its text."""
    script = tmp_path / "train.py"
    script.write_text(HEAD + textwrap.dedent(body))
    done = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        env={"PYTHONPATH": str(SOURCE), "PATH": "/usr/bin:/bin", "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache")},
        timeout=240,
    )
    assert done.returncode == 0, done.stderr.decode()
    return msgspec.json.decode(done.stdout, type=CompileReport), script.read_text()


def line_of(text: str, mark: str) -> int:
    return next(number for number, line in enumerate(text.splitlines(), start=1) if mark in line)


def test_nothing_was_compiled_and_nothing_heavy_was_imported(tmp_path: Path) -> None:
    report, _ = report_of(
        tmp_path,
        """
        compile_report.start(torch)
        tell()
        assert "torch._dynamo" not in sys.modules
        """,
    )
    assert report == CompileReport()


def test_graph_breaks_name_their_reason_and_their_line(tmp_path: Path) -> None:
    report, text = report_of(
        tmp_path,
        """
        model.compile(backend="aot_eager")
        compile_report.start(torch)
        train(model, "branch")
        train(model, "print")
        tell()
        """,
    )
    assert report.seconds > 0
    assert report.graphs >= 3
    broken = {it.line: it for it in report.graph_breaks}
    assert set(broken) == {line_of(text, "# the branch"), line_of(text, "# the call")}
    assert broken[line_of(text, "# the branch")].reason == "A branch depends on the value of a tensor."
    assert "print" in broken[line_of(text, "# the call")].reason
    assert all(Path(it.file).name == "train.py" for it in broken.values())
    assert report.fallbacks == ()


def test_a_model_that_silently_stays_eager_is_reported(tmp_path: Path) -> None:
    report, text = report_of(
        tmp_path,
        """
        model.compile(backend="aot_eager")
        train(model, "loop")
        tell()
        """,
    )
    assert report.graphs == 0
    assert [it.line for it in report.fallbacks] == [line_of(text, "# in a loop")]
    assert report.fallbacks[0].reason


def test_recompilations_and_their_limit_are_reported(tmp_path: Path) -> None:
    report, _ = report_of(
        tmp_path,
        """
        torch._dynamo.config.recompile_limit = 3
        model.compile(backend="aot_eager", dynamic=False)
        for size in range(2, 8):
            train(model, size=size)
        tell()
        """,
    )
    assert sum(it.count for it in report.recompiles) == 2
    assert "size" in report.recompiles[0].reason
    assert any("limit" in it.reason for it in report.fallbacks)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("c++") is None and shutil.which("g++") is None, reason="needs a C++ compiler")
def test_the_lever_really_compiles_through_the_real_interception(tmp_path: Path) -> None:
    report, _ = report_of(
        tmp_path,
        """
        from hotlap.levers.api import find
        from hotlap.levers.support.situations import make_setting
        from hotlap.runtime.hooks import Hooks
        from hotlap.runtime.interception import Interception

        interception = Interception(Hooks(torch=torch))
        interception.install()
        find("compile").install(interception.hooks, make_setting("compile", mode="default", dynamic=False))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(14):
            optimizer.zero_grad()
            model(torch.randn(4, 8)).sum().backward()
            optimizer.step()
        assert type(model) is Net and set(model.state_dict()) == set(Net().state_dict())
        tell()
        """,
    )
    assert report.graphs == 1
    assert report.seconds > 0
    assert report.graph_breaks == report.recompiles == report.fallbacks == ()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("c++") is None and shutil.which("g++") is None, reason="needs a C++ compiler")
def test_the_blocks_of_a_model_share_what_was_generated_for_the_first(tmp_path: Path) -> None:
    report, _ = report_of(
        tmp_path,
        """
        from hotlap.levers.api import find
        from hotlap.levers.support.situations import make_setting
        from hotlap.runtime.hooks import Hooks
        from hotlap.runtime.interception import Interception

        class Stack(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.embed = torch.nn.Linear(8, 8)
                block = lambda: torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU(), torch.nn.Dropout(0.1))
                self.layers = torch.nn.ModuleList([block() for _ in range(6)])

            def forward(self, x):
                x = self.embed(x)
                for layer in self.layers:
                    x = x + layer(x)
                return x

        interception = Interception(Hooks(torch=torch))
        interception.install()
        find("compile").install(interception.hooks, make_setting("compile", mode="default", dynamic=False, blocks=True))
        stack = Stack()
        names = list(stack.state_dict())
        optimizer = torch.optim.AdamW(stack.parameters())
        for _ in range(4):
            optimizer.zero_grad()
            stack(torch.randn(4, 8)).square().sum().backward()
            optimizer.step()
        assert list(stack.state_dict()) == names
        assert all(it._compiled_call_impl is not None for it in stack.layers)
        tell()
        """,
    )
    assert report.graphs == 1
    assert report.graph_breaks == report.recompiles == report.fallbacks == ()
