"""What torch's compiler made is made once in a study: by launches that were alone, for all later ones."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from compilers import CANNOT_LINK

from hotlap.errors import HotlapError
from hotlap.records import (
    Assignment,
    Completed,
    Isolation,
    LaunchRequest,
    Plan,
    ProtectionMode,
    Setting,
    Stopped,
    TurnRequest,
    Workload,
)
from hotlap.trial import kept_code
from hotlap.trial.kept_code import KeptCode
from hotlap.trial.local import LocalExecutor

TRAINING = """\
import torch
torch.set_num_threads(1)
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(100_000):
    optimizer.zero_grad()
    model(torch.randn(8, 8)).square().mean().backward()
    optimizer.step()
"""

STORING = """\
import os
from pathlib import Path

folder = Path(os.environ["TORCHINDUCTOR_CACHE_DIR"])
found = sorted(str(it.relative_to(folder)) for it in folder.rglob("*"))
assert found == {expected}, found
(folder / "aa").mkdir(exist_ok=True)
(folder / "aa" / "graph.py").write_text("code")
(folder / "gemm.best_config").touch()
"""


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def names(folder: Path) -> list[str]:
    return sorted(str(it.relative_to(folder)) for it in folder.rglob("*") if it.is_file())


# -- the folder --------------------------------------------------------------------------------


def test_regular_files_are_kept_once_and_given_to_later_launches(tmp_path: Path) -> None:
    made, kept, given = tmp_path / "made", KeptCode(tmp_path / "kept"), tmp_path / "given"
    written(made, "aa/graph.py", "first")
    written(made, "bb/kernel.so", "code").chmod(0o755)
    written(made, "gemm.best_config", "a choice")
    written(made, "locks/graph.lock", "")
    written(made, "aa/half.py.tmp", "half")
    kept.keep(made)
    written(made, "aa/graph.py", "second")
    kept.keep(made)
    kept.give(given)
    assert names(given) == ["aa/graph.py", "bb/kernel.so"]
    assert (given / "aa/graph.py").read_text(encoding="utf-8") == "first", "what is kept stays as it was made"
    assert (given / "bb/kernel.so").stat().st_mode & 0o777 == 0o755
    written(given, "aa/graph.py", "changed")
    kept.give(tmp_path / "later")
    assert (tmp_path / "later/aa/graph.py").read_text(encoding="utf-8") == "first", "each launch has its own copy"


def test_links_of_a_script_lead_nowhere(tmp_path: Path) -> None:
    secret = written(tmp_path, "home/secret.txt", "secret")
    made = tmp_path / "made"
    written(made, "graph.py", "code")
    (made / "file.py").symlink_to(secret)
    (made / "folder").symlink_to(secret.parent)
    kept = KeptCode(tmp_path / "kept")
    kept.keep(made)
    kept.give(tmp_path / "given")
    assert names(tmp_path / "given") == ["graph.py"]


def test_nothing_made_is_nothing_kept(tmp_path: Path) -> None:
    kept = KeptCode(tmp_path / "kept")
    kept.keep(tmp_path / "never made")
    kept.give(tmp_path / "given")
    assert not (tmp_path / "given").exists()


def test_what_is_too_much_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_code, "MOST_BYTES", 10)
    made = tmp_path / "made"
    for name in ("a", "b", "c"):
        written(made, name, "six b." if name != "c" else "4 b.")
    kept = KeptCode(tmp_path / "kept")
    kept.keep(made)
    assert names(tmp_path / "kept") == ["a", "c"]


def test_no_more_files_are_read_than_a_compiler_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_code, "MOST_FILES", 2)
    for name in ("a", "b", "c"):
        written(tmp_path, f"made/{name}", "")
    KeptCode(tmp_path / "kept").keep(tmp_path / "made")
    assert names(tmp_path / "kept") == ["a", "b"]


def test_a_file_that_has_no_place_is_left_out_alone(tmp_path: Path) -> None:
    """A folder's name that an earlier launch gave to a file, and a name with no room for a suffix."""
    kept = KeptCode(tmp_path / "kept")
    written(tmp_path, "first/aa", "a file")
    kept.keep(tmp_path / "first")
    written(tmp_path, "second/aa/graph.py", "code")
    written(tmp_path, "second/" + 255 * "b", "code")
    written(tmp_path, "second/zz.py", "code")
    kept.keep(tmp_path / "second")
    assert names(tmp_path / "kept") == ["aa", "zz.py"]


def test_a_file_that_cannot_be_copied_whole_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = tmp_path / "made"
    written(made, "a.py", "code")
    written(made, "b.py", "code")

    def full(source: Path, target: Path, **options: object) -> None:
        target.write_text("co", encoding="utf-8")
        raise OSError(28, "No space left on device")

    kept = KeptCode(tmp_path / "kept")
    with monkeypatch.context() as disk:
        disk.setattr(kept_code.shutil, "copyfile", full)
        kept.keep(made)
        assert names(tmp_path / "kept") == []
    kept.keep(made)
    assert names(tmp_path / "kept") == ["a.py", "b.py"]


# -- launches ----------------------------------------------------------------------------------


def assignment(script: Path, plan: Plan = Plan()) -> Assignment:  # noqa: B008
    workload = Workload(kind="script", target=str(script), directory=str(script.parent), python=sys.executable)
    return Assignment(workload=workload, plan=plan)


@pytest.mark.parametrize("mode", ["namespaces", "fence", "none"])
def test_a_launch_begins_with_an_empty_folder_unless_it_takes_turns_or_loads_code(
    tmp_path: Path, mode: ProtectionMode
) -> None:
    """The first launches of a study say what compiling costs. An arm that starts beside others keeps nothing."""
    script = written(tmp_path, "project/train.py", STORING.format(expected=[]))
    executor = LocalExecutor(tmp_path / "runs", isolation=Isolation(mode=mode, unprotected=mode == "none"))
    try:
        for _ in range(2):
            (run,) = executor.take_turns(TurnRequest(arms=(assignment(script),))).runs
            assert isinstance(run.ending, Completed), run
        runs = [executor.launch(LaunchRequest(assignment=assignment(script), steps=1)) for _ in range(2)]
    except HotlapError as error:
        pytest.skip(str(error))
    assert [it.ending for it in runs] == [Completed(), Completed()], runs
    script.write_text(STORING.format(expected=["aa", "aa/graph.py"]), encoding="utf-8")
    for arms, one_launch in ((1, False), (2, True)):
        taken = executor.take_turns(TurnRequest(arms=(assignment(script),) * arms, one_launch=one_launch))
        assert all(isinstance(it.ending, Completed) for it in taken.runs), taken.runs
    loading = LaunchRequest(assignment=assignment(script), steps=1, loads_code=True)
    loaded = [executor.launch(loading), *executor.launch_together([loading, loading])]
    assert all(it.ending == Completed() for it in loaded), loaded
    script.write_text(STORING.format(expected=[]), encoding="utf-8")
    taken = executor.take_turns(TurnRequest(arms=(assignment(script),), compiles_all=True))
    assert isinstance(taken.runs[0].ending, Completed), taken.runs


@CANNOT_LINK
def test_later_launches_load_what_a_launch_alone_compiled(tmp_path: Path) -> None:
    compiled = Plan(settings=(Setting(lever="compile", values=(("dynamic", False), ("mode", "default"))),))
    arm = assignment(written(tmp_path, "project/train.py", TRAINING), compiled)
    executor = LocalExecutor(tmp_path / "runs")

    alone = executor.launch(LaunchRequest(assignment=arm, steps=5))
    assert alone.compile.graphs and not alone.compile.loaded
    (later,) = executor.take_turns(TurnRequest(arms=(arm,), rounds=2, block_seconds=0.05)).runs
    assert isinstance(later.ending, Stopped) and later.compile.loaded, later
    assert later.compile.seconds < alone.compile.seconds
    assert later.steps.loss[:5] == alone.steps.loss[:5]
    loading = LaunchRequest(assignment=arm, steps=5, loads_code=True)
    for it in executor.launch_together([loading, loading]):
        assert it.compile.loaded and it.steps.loss[:5] == alone.steps.loss[:5], "as in the runs of a proof"
