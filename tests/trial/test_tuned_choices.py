"""What torch's compiler measured to be fastest, in one launch of many, stays with that launch."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from hotlap.errors import HotlapError
from hotlap.records import Assignment, Completed, Isolation, LaunchRequest, ProtectionMode, Workload
from hotlap.trial.local import LocalExecutor

CHOOSING = """\
import os
from pathlib import Path

folder = Path(os.environ["TORCHINDUCTOR_CACHE_DIR"])
(folder / "gemm.best_config").touch(exist_ok=False)
assert not (folder / "old.best_config").exists()
"""


@pytest.mark.parametrize("mode", ["namespaces", "fence", "none"])
def test_a_choice_reaches_neither_the_next_launch_nor_the_users_cache(tmp_path: Path, mode: ProtectionMode) -> None:
    """The user's own choices are not read either: arms would otherwise differ by who made them."""
    cache = tmp_path / "cache" / "inductor"
    cache.mkdir(parents=True)
    (cache / "old.best_config").touch()
    script = tmp_path / "project" / "train.py"
    script.parent.mkdir()
    script.write_text(CHOOSING, encoding="utf-8")
    workload = Workload(kind="script", target=str(script), directory=str(script.parent), python=sys.executable)
    isolation = Isolation(mode=mode, unprotected=mode == "none")
    executor = LocalExecutor(
        tmp_path / "runs", environment={"TORCHINDUCTOR_CACHE_DIR": str(cache)}, isolation=isolation
    )
    try:
        runs = [executor.launch(LaunchRequest(assignment=Assignment(workload=workload), steps=1)) for _ in range(2)]
    except HotlapError as error:
        pytest.skip(str(error))
    assert [it.ending for it in runs] == [Completed(), Completed()], runs
    assert [it.name for it in cache.iterdir()] == ["old.best_config"]
