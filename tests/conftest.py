"""What all tests share: Hypothesis without deadlines, and accelerator tests that say why they were skipped."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for what tests of several rooms use

if importlib.util.find_spec("hypothesis") is not None:
    from hypothesis import settings

    # A shared machine stalls now and then: a deadline would test the neighbours. Derandomised, so that a red
    # run stays red until something is mended.
    settings.register_profile("hotlap", deadline=None, derandomize=True)
    settings.load_profile("hotlap")


@pytest.fixture(scope="session", autouse=True)
def state_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A place for hotlap's key other than the one of whoever runs the tests."""
    with pytest.MonkeyPatch.context() as patch:
        home = tmp_path_factory.mktemp("state")
        patch.setenv("XDG_STATE_HOME", str(home))
        yield home


@pytest.hookimpl(trylast=True)  # after -m has deselected
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs an accelerator where there is none; torch is imported only when such a test was collected."""
    wanting = [item for item in items if item.get_closest_marker("gpu")]
    if not wanting:
        return
    import torch

    if torch.cuda.is_available():
        return
    for item in wanting:
        item.add_marker(pytest.mark.skip(reason="needs an accelerator that torch can use; there is none here"))
