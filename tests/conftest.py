"""What all tests share: the same surroundings wherever they run, Hypothesis without deadlines, and accelerator tests
that say why they were skipped."""

from __future__ import annotations

import compileall
import gc
import importlib.util
import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for what tests of several rooms use

import dispositions
import going_on
import surroundings
import world

if importlib.util.find_spec("hypothesis") is not None:
    from hypothesis import settings

    # A shared machine stalls at times: a deadline would test the other users. Derandomised, so that a red
    # run stays red until something is fixed.
    settings.register_profile("hotlap", deadline=None, derandomize=True)
    settings.load_profile("hotlap")


_HOME = pytest.StashKey[Path]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--world", type=int, default=0, help="which noise the executors made of arithmetic have (default: 0)"
    )
    parser.addoption(
        "--within", type=float, metavar="SECONDS", help="begin no test after that; the next run goes on there"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Before any module of tests is imported."""
    os.environ["TMPDIR"] = tempfile.tempdir = surroundings.temporary(tempfile.gettempdir())
    home = config.stash[_HOME] = Path(tempfile.mkdtemp(prefix="home-"))
    found = surroundings.neutral(os.environ, home)
    for name in os.environ.keys() - found.keys():
        del os.environ[name]
    os.environ.update(found)
    dispositions.make_usual_here()
    # Then children compile nothing: in a trial what they compile is thrown away.
    compileall.compile_dir(Path(__file__).parents[1] / "src", quiet=2)
    world.NUMBER = config.getoption("world")
    going_on.install(config)


def pytest_unconfigure(config: pytest.Config) -> None:
    shutil.rmtree(config.stash[_HOME], ignore_errors=True)


@pytest.fixture(scope="session", autouse=True)
def state_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder for hotlap's key other than the user's own."""
    with pytest.MonkeyPatch.context() as patch:
        home = tmp_path_factory.mktemp("state")
        patch.setenv("XDG_STATE_HOME", str(home))
        yield home


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collecting creates objects that stay: the garbage collector would traverse them in vain."""
    gc.disable()
    yield
    gc.freeze()
    gc.enable()


LONGEST = ("on_device",)
"""Rooms of which one file takes minutes."""


@pytest.hookimpl(trylast=True)  # after -m has deselected
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Order files for processes that share them, and skip what needs an accelerator where there is none."""
    if hasattr(config, "workerinput"):  # this is one of several processes
        _begin_with_the_longest(items)
    _skip_without_accelerator(items)


def _begin_with_the_longest(items: list[pytest.Item]) -> None:
    """So that at the end no process is left with a long file while the others have none: then files with many tests,
    whose tests are short."""
    tests = Counter(it.path for it in items)
    items.sort(key=lambda it: (it.path.parent.name not in LONGEST, -tests[it.path]))


def _skip_without_accelerator(items: list[pytest.Item]) -> None:
    """Torch is imported only when such a test was collected."""
    wanting = [item for item in items if item.get_closest_marker("gpu")]
    if not wanting:
        return
    import torch

    if torch.cuda.is_available():
        return
    for item in wanting:
        item.add_marker(pytest.mark.skip(reason="needs an accelerator that torch can use; there is none here"))
