"""The public surface: small, and changed only on purpose."""

from __future__ import annotations

import inspect
import json
import os
import pkgutil
from pathlib import Path

import fakes
import msgspec
import pytest

import hotlap
import hotlap.plan
from hotlap.errors import StudyError
from hotlap.experiment.options import Options
from hotlap.records import Run, Steps, Workload
from hotlap.study import create_study

ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1] / "src")}


def test_the_surface_is_what_it_is() -> None:
    named = {
        "HotlapError", "Limit", "Objective", "Plan", "Study", "__version__", "apply", "batch", "check", "infer",
        "lightning_callback", "lint",
        "load_study", "memory", "nan", "patch", "profile", "scale", "trace", "trainer_callback", "tune",
    }  # fmt: skip
    assert set(hotlap.__all__) == named
    assert dir(hotlap) == sorted(hotlap.__all__)
    for name in hotlap.__all__:
        assert getattr(hotlap, name) is not None


def test_other_names_do_not_exist() -> None:
    with pytest.raises(AttributeError, match="no attribute 'diagnosis'"):
        hotlap.diagnosis  # noqa: B018


@pytest.mark.parametrize(
    ("function", "parameters"),
    [
        ("apply", ["path"]),
        ("load_study", ["path"]),
        (
            "check",
            ["script", "arguments", "module", "baseline", "plan_path", "without_plan", "delta", "speed_only",
             "budget_seconds", "seed", "parity_steps", "network", "unprotected", "directory", "on_progress"],
        ),
        (
            "patch",
            ["path", "write", "prove", "again", "delta", "budget_seconds", "seed", "parity_steps", "network",
             "unprotected", "arguments", "python", "on_progress"],
        ),
        (
            "batch",
            ["script", "arguments", "module", "flag", "headroom", "most", "model_alone", "budget_seconds", "seed",
             "network", "unprotected", "directory", "on_progress"],
        ),
        (
            "infer",
            ["model", "inputs", "arguments", "goal",
                "p99_seconds",
                "slowdown",
                "quality", "metric", "lengths", "budget_seconds", "only", "skip", "allow", "accept_unverified", "delta",
             "seed", "quick", "network", "unprotected", "directory", "on_progress"],
        ),
        (
            "memory",
            ["script", "arguments", "module", "steps", "estimate", "batch_sizes", "device_memory_bytes", "ranks",
             "flag", "seed", "network", "unprotected", "directory", "on_progress"],
        ),
        ("lint", ["paths", "select", "ignore", "processes"]),
        (
            "nan",
            ["script", "arguments", "module", "steps", "seconds", "seed", "network", "unprotected", "on_progress"],
        ),
        ("trace", ["path"]),
        ("lightning_callback", ["directory"]),
        ("trainer_callback", ["directory"]),
        (
            "profile",
            ["script", "arguments", "module", "budget_seconds", "seed", "batch_sizes", "network", "unprotected",
             "directory", "on_progress"],
        ),
        (
            "scale",
            ["script", "arguments", "module", "nodes", "devices_per_node", "device", "link_bytes_per_second",
             "node_link_bytes_per_second", "link_seconds", "utilisation", "price_per_device_hour", "seed", "network",
             "unprotected", "directory", "on_progress"],
        ),
        (
            "tune",
            ["script", "arguments", "module", "objective", "budget_seconds", "only", "skip", "allow", "batch_flag",
             "accept_unverified", "delta", "seed", "parity_steps", "quick", "sample_cache_bytes",
             "network", "unprotected", "directory", "plan_path", "on_progress"],
        ),
    ],
)  # fmt: skip
def test_signatures(function: str, parameters: list[str]) -> None:
    assert list(inspect.signature(getattr(hotlap, function)).parameters) == parameters


def test_no_function_has_the_name_of_a_package() -> None:
    """Importing ``hotlap.tune.options`` put the package in the function's place, when there was one of that name."""
    packages = {it.name for it in pkgutil.iter_modules(hotlap.__path__)}
    assert not packages & set(hotlap.__all__)
    assert "faster" in (hotlap.tune.__doc__ or "") and Options.__module__ == "hotlap.experiment.options"


def test_lint(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import torch\nmodel = torch.nn.Linear(4, 1)\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "total = 0.0\nfor batch in loader:\n    loss = model(batch)\n    loss.backward()\n"
        "    optimizer.step()\n    total += loss\n"
    )
    report = hotlap.lint(tmp_path)
    assert report.checked_files == 1
    codes = {it.code for it in report.findings}
    assert codes and not {it.code for it in hotlap.lint(tmp_path, ignore=sorted(codes)).findings}


def test_trace(tmp_path: Path) -> None:
    operator = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 0, "dur": 5}
    (tmp_path / "trace.json").write_text(json.dumps({"traceEvents": [operator]}))
    (found,) = hotlap.trace(tmp_path / "trace.json")
    assert found.coverage.events == 1
    with pytest.raises(hotlap.HotlapError):
        hotlap.trace(tmp_path / "absent.json")


def test_nan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import torch\nmodel = torch.nn.Linear(4, 1)\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "for step in range(6):\n    loss = model(torch.ones(2, 4)).mean()\n"
        "    loss = loss if step < 3 else torch.log(loss - loss)\n"
        "    optimizer.zero_grad()\n    loss.backward()\n    optimizer.step()\n"
    )
    monkeypatch.chdir(tmp_path)
    found = hotlap.nan("train.py")
    assert found.noticed is not None
    assert sorted(it.name for it in tmp_path.iterdir()) == ["train.py"]


def test_load_study(tmp_path: Path) -> None:
    with pytest.raises(hotlap.HotlapError, match="no study"):
        hotlap.load_study(tmp_path)
    workload = Workload(kind="script", target="train.py", directory=str(tmp_path), python="python")
    with create_study(tmp_path, workload, Options()) as journal:
        pass
    found = hotlap.load_study(tmp_path)
    assert isinstance(found, hotlap.Study)
    assert (found.identifier, found.workload, found.plan) == (journal.header.identifier, workload, hotlap.Plan())


def test_a_study_answers_on_demand(tmp_path: Path) -> None:
    study = fakes.FINISHED
    assert study.speedup is not None and study.verification is not None
    assert study.speedup == study.verification.speed.speedup and study.speedup.low < study.speedup.value
    disagreeing = msgspec.structs.replace(study.verification.speed, baseline_agrees=False)
    unsure = msgspec.structs.replace(study.verification, speed=disagreeing)
    assert msgspec.structs.replace(study, verification=unsure).speedup is None

    assert study.steps() == []  # without its folder, and without a first run
    steps = Steps(wall_seconds=(0.2, 0.1), phases=(("forward", (0.2, 0.1)),), loss=(2.0, None), not_finite=(1,))
    rows = msgspec.structs.replace(study, baseline=Run(steps=steps)).steps()
    assert [(it["step"], it["wall_seconds"], it["loss"]) for it in rows] == [(1, 0.2, 2.0), (2, 0.1, None)]
    assert {it["run"] for it in rows} == {"baseline"} and all(it.keys() == rows[0].keys() for it in rows)

    page, plan = tmp_path / "report.html", tmp_path / "hotlap.toml"
    study.html(page)
    study.html(page)  # its own report is replaced
    assert study.verification is not None and "3.65x" in page.read_text()
    (tmp_path / "mine.html").write_text("mine")
    with pytest.raises(hotlap.HotlapError, match="not a report"):
        study.html(tmp_path / "mine.html")
    study.plan.save(plan)
    assert hotlap.plan.read(plan) == study.plan
    with pytest.raises(hotlap.HotlapError, match="cannot be written"):
        study.plan.save(tmp_path / "absent" / "hotlap.toml")


def test_errors_have_one_root() -> None:
    assert issubclass(StudyError, hotlap.HotlapError)
