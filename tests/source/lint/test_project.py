"""Linting across the files of a project: what a file alone does not show."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from hotlap.render.lines import Paper
from hotlap.render.lint import lint_report
from hotlap.render.lint_formats import as_sarif
from hotlap.source.lint.api import all_rules
from hotlap.source.lint.configuration import chosen_rules, codes_of
from hotlap.source.lint.pool import lint_many
from hotlap.source.lint.project import Project
from hotlap.source.lint.records import LintReport
from hotlap.source.lint.run import Options, lint_files

OPTIONS = Options(rules=list(all_rules().values()))
LOOP = """
    import torch
    from torch import nn
    IMPORTS

    model = nn.Linear(8, 2).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    for x, y in loader:
        optimizer.zero_grad()
        STEP
        optimizer.step()
    """


def loop(imports: str, *step: str) -> str:
    return LOOP.replace("IMPORTS", imports).replace("STEP", "\n        ".join(step))


def written(folder: Path, files: dict[str, str]) -> list[Path]:
    paths = []
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text).lstrip("\n"))
        paths.append(path)
    return paths


def found(folder: Path, files: dict[str, str]) -> list[tuple[str, str, str]]:
    """File, code and line of each finding."""
    report = lint_files(written(folder, files), OPTIONS)
    assert not report.problems
    return [(Path(it.file).name, it.code, it.source.strip()) for it in report.findings]


METER = """
    class Meter:
        def __init__(self):
            self.total = 0.0

        def update(self, value):
            self.total += value.item()
    """


def test_a_loss_that_a_function_of_another_file_gives_back(tmp_path: Path) -> None:
    losses = """
        import torch.nn.functional as F

        def smooth(model, x, y):
            return F.cross_entropy(model(x), y)
        """
    train = loop("from losses import smooth", "loss = smooth(model, x.cuda(), y.cuda())", "loss.backward()",
                 "other = smooth(model, x.cuda(), y.cuda())", "print(other.item())")  # fmt: skip
    assert found(tmp_path, {"losses.py": losses, "train.py": train}) == [("train.py", "HL201", "print(other.item())")]


@pytest.mark.parametrize(
    ("imports", "make"),
    [
        ("from meters import Meter", "Meter()"),
        ("from meters import Meter as M", "M()"),
        ("import meters", "meters.Meter()"),
        ("import meters as m", "m.Meter()"),
    ],
)
def test_a_class_without_torch_that_a_training_loop_uses(tmp_path: Path, imports: str, make: str) -> None:
    train = loop(f"{imports}\n    meter = {make}", "loss = model(x).mean()", "loss.backward()", "meter.update(loss)")
    files = {"meters.py": METER, "train.py": train}
    assert found(tmp_path, files) == [("meters.py", "HL201", "self.total += value.item()")]
    (tmp_path / "train.py").write_text((tmp_path / "train.py").read_text().replace("loss.backward()", "pass"))
    assert not lint_files([tmp_path / it for it in files], OPTIONS).findings


@pytest.mark.parametrize("again", ["from .meters import Meter", "from .meters import (\n    Meter,\n)"])
def test_names_that_a_package_passes_on(tmp_path: Path, again: str) -> None:
    train = loop("from project.tools import Meter\n    meter = Meter()", "loss = model(x).mean()", "loss.backward()",
                 "meter.update(loss)")  # fmt: skip
    files = {"project/tools/__init__.py": again, "project/tools/meters.py": METER, "project/train.py": train}
    assert found(tmp_path, files) == [("meters.py", "HL201", "self.total += value.item()")]


def test_a_model_that_is_a_constructors_argument(tmp_path: Path) -> None:
    trainer = """
        class Trainer:
            def __init__(self, net, optimizer):
                self.net, self.optimizer = net, optimizer
                self.model = net

            def fit(self, loader):
                for x, y in loader:
                    loss = self.train_step(x, y)
                    right = (self.model(x).argmax(1) == y).sum().item()
                    self.log(loss.item(), right)

            def train_step(self, x, y):
                loss = self._loss(x, y)
                loss.backward()
                self.optimizer.step()
                return loss

            def _loss(self, x, y):
                return self.model(x, y)
        """
    main = """
        import torch
        from torch import nn

        from trainer import Trainer

        class Net(nn.Module):
            def forward(self, x, y):
                return nn.functional.cross_entropy(x, y)

        net = Net().cuda()
        Trainer(net, torch.optim.AdamW(net.parameters(), fused=True)).fit(loader)
        """
    lines = [line for file, code, line in found(tmp_path, {"main.py": main, "trainer.py": trainer}) if code == "HL201"]
    assert lines == ["right = (self.model(x).argmax(1) == y).sum().item()", "self.log(loss.item(), right)"]


def test_a_step_in_another_file_makes_the_loop_around_its_call_one_that_trains(tmp_path: Path) -> None:
    engine = """
        import torch

        def advance(model, optimizer, batch):
            loss = model(batch.cuda()).mean()
            loss.backward()
            optimizer.step()
            torch.cuda.empty_cache()
            return loss
        """
    train = """
        import torch

        from engine import advance

        history = []
        for batch in loader:
            loss = advance(model, optimizer, batch)
            history.append(loss)
            if torch.isnan(loss):
                break
        """
    assert found(tmp_path, {"src/engine.py": engine, "src/train.py": train}) == [
        ("engine.py", "HL502", "torch.cuda.empty_cache()"),
        ("train.py", "HL501", "history.append(loss)"),
        ("train.py", "HL207", "if torch.isnan(loss):"),
    ]


def test_what_is_missing_in_a_file_may_be_in_another(tmp_path: Path) -> None:
    """Rules about something missing see only the file, and report nothing that another file may decide."""
    base = """
        class Base:
            def begin(self):
                self.optimizer.zero_grad()
        """
    trainer = """
        import torch
        from base import Base

        class Trainer(Base):
            def __init__(self, model, optimizer):
                self.model, self.optimizer = model, optimizer

            def fit(self, loader):
                for batch in loader:
                    self.begin()
                    self.model(batch).mean().backward()
                    self.optimizer.step()
        """
    main = """
        import torch
        from trainer import Trainer

        model = torch.nn.Linear(2, 2)
        Trainer(model, torch.optim.AdamW(model.parameters(), fused=True)).fit(loader)
        """
    assert not found(tmp_path, {"base.py": base, "trainer.py": trainer, "main.py": main})


def reported(tmp_path: Path) -> LintReport:
    train = loop("from meters import Meter\n    meter = Meter()", "loss = model(x).mean()", "loss.backward()",
                 "meter.update(loss)")  # fmt: skip
    return lint_files(written(tmp_path, {"meters.py": METER, "train.py": train}), OPTIONS)


def test_a_note_names_its_file(tmp_path: Path) -> None:
    report = reported(tmp_path)
    (note,) = report.findings[0].notes
    assert (note.file, note.place.line) == (str(tmp_path / "train.py"), 12)
    assert f"{tmp_path / 'train.py'}:12:5: the training loop calls it here" in lint_report(report, Paper(width=100))
    assert str(tmp_path / "train.py").lstrip("/") in as_sarif(report)


def test_several_processes_find_the_same(tmp_path: Path) -> None:
    report = reported(tmp_path)
    assert lint_many(sorted(tmp_path.glob("*.py")), OPTIONS, processes=2).findings == report.findings


def test_fixes_of_what_another_file_shows(tmp_path: Path) -> None:
    engine = "def advance(model, batch):\n    loss = model(batch).mean()\n    loss.backward()\n    return loss\n"
    train = "import torch\nfrom engine import advance\nlosses = []\nfor batch in loader:\n"
    train += "    loss = advance(model, batch)\n    losses.append(loss)\n"
    paths = written(tmp_path, {"engine.py": engine, "train.py": train})
    options = Options(rules=OPTIONS.rules, grades=frozenset({"safe", "unsafe"}), write=True)
    assert not lint_files(paths, options).findings
    assert paths[1].read_text() == train.replace("append(loss)", "append(loss.detach())")
    assert paths[0].read_text() == engine


def test_files_that_cannot_be_parsed_or_import_each_other(tmp_path: Path) -> None:
    files = {
        "broken.py": "def (:\n",
        "one.py": "import torch\nimport two, broken, one, missing\nfrom . import three\nloss.backward()\n",
        "two.py": "import one\nfrom two import two\nfrom one import *\n",
    }
    report = lint_files(written(tmp_path, files), OPTIONS)
    assert not report.findings and not report.problems


def test_what_is_read_is_bounded(tmp_path: Path) -> None:
    files = {"hub.py": "import torch\nloss.backward()\n"}
    files |= {f"user{number}.py": "import hub\nfloat(x)\n" + "x = 1\n" * number for number in range(60)}
    files["large.py"] = "import hub\nfloat(x)\n" + "x = 1\n" * 100_000
    paths = written(tmp_path, files)
    project = Project(paths)
    for path in paths:
        assert len(project.around(path)) <= 8
        assert sum(it.stat().st_size for it in project.around(path)) <= 200_000
    assert project.around(tmp_path / "user1.py")[0] == tmp_path / "hub.py"


def test_projects_where_nothing_trains_are_not_joined(tmp_path: Path) -> None:
    paths = written(tmp_path, {"one.py": "import two\n", "two.py": "import torch\n"})
    assert not any(Project(paths).around(it) for it in paths)


def test_a_withdrawn_rule_may_still_be_named() -> None:
    assert codes_of("HL651") == codes_of("deterministic-algorithms") == frozenset()
    assert len(chosen_rules([], ["HL651"])) == len(all_rules())
    assert not chosen_rules(["HL651"], [])
