"""The watch on imports: what counts is that a module's code has run, not that it was looked up."""

from __future__ import annotations

import copy
import importlib
import importlib.util
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from hotlap.runtime.imports import ImportWatch

SOURCE = Path(__file__).parents[2] / "src"


class Watched:
    """Fake packages in a folder on the path, and what a watch on ``fake`` reported of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.announced: list[tuple[str, ModuleType]] = []
        self.missed: list[str] = []
        self.begun: list[str] = []
        self.watch = ImportWatch(
            ("fake", "fake.late"),
            lambda name, module: self.announced.append((name, module)),
            lambda name, module: self.missed.append(name),
            self.begun.append,
        )

    def give(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(textwrap.dedent(text), encoding="utf-8")
        importlib.invalidate_caches()

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.announced]


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.syspath_prepend(tmp_path)
    made = Watched(tmp_path)
    made.give("fake/__init__.py", "import fake.part\nready = True\n")
    made.give("fake/part.py", "")
    made.give("fake/late.py", "")
    made.watch.start()
    yield made
    for name in [it for it in sys.modules if it.partition(".")[0] in ("fake", "other")]:
        del sys.modules[name]


def test_an_import_is_announced_once_its_code_has_run(watched: Watched) -> None:
    seen: list[bool] = []
    watched.watch._announced = lambda name, module: seen.append(module.ready)
    import fake  # type: ignore[import-not-found]

    importlib.import_module("fake")
    assert seen == [fake.ready] == [True]
    assert watched.begun == ["fake"] and not watched.missed


def test_looking_a_module_up_changes_nothing(watched: Watched) -> None:
    for _ in range(3):
        spec = importlib.util.find_spec("fake")
        assert spec is not None and isinstance(spec.loader, SourceFileLoader)
        assert spec.loader.get_filename() == spec.origin
    assert "fake" not in sys.modules and not watched.announced
    importlib.import_module("fake")
    assert watched.names == ["fake"]


def test_looking_a_submodule_up_imports_its_parent(watched: Watched) -> None:
    assert importlib.util.find_spec("fake.late") is not None
    assert watched.names == ["fake"]
    importlib.import_module("fake.late")
    assert watched.names == ["fake", "fake.late"]


def test_the_module_is_as_it_would_be_without_a_watch(watched: Watched) -> None:
    watched.give("fake/__init__.py", "inside = (__loader__, __spec__.loader)\n")
    fake = importlib.import_module("fake")
    for loader in (fake.__loader__, fake.__spec__.loader, *fake.inside):
        assert type(loader) is SourceFileLoader
    assert fake.__spec__ == PathFinder.find_spec("fake", [str(watched.folder)])


def test_a_failed_import_leaves_the_watch_armed(watched: Watched) -> None:
    watched.give("fake/__init__.py", "raise ImportError('no accelerator')\n")
    for _ in range(2):
        with pytest.raises(ImportError, match="no accelerator"):
            importlib.import_module("fake")
    assert not watched.announced
    watched.give("fake/__init__.py", "ready = 'mended'\n")
    importlib.import_module("fake")
    assert watched.names == ["fake"] and not watched.missed


def test_a_second_try_with_the_same_spec(watched: Watched) -> None:
    watched.give("fake/__init__.py", "import builtins\nif not hasattr(builtins, 'let_fake_in'): raise ImportError\n")
    spec = importlib.util.find_spec("fake")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.raises(ImportError):
        spec.loader.exec_module(module)
    import builtins

    builtins.let_fake_in = True  # type: ignore[attr-defined]
    try:
        spec.loader.exec_module(module)
    finally:
        del builtins.let_fake_in  # type: ignore[attr-defined]
    assert watched.announced == [("fake", module)]


def test_a_module_made_from_a_spec(watched: Watched) -> None:
    spec = importlib.util.find_spec("fake")
    assert spec is not None and spec.loader is not None
    module = sys.modules["fake"] = importlib.util.module_from_spec(spec)
    watched.watch.look()
    assert not watched.announced and not watched.missed  # its code has not run
    spec.loader.exec_module(module)
    assert watched.announced == [("fake", module)]
    assert type(spec.loader) is SourceFileLoader


def lazily(name: str) -> ModuleType:
    spec = importlib.util.find_spec(name)
    assert spec is not None and spec.loader is not None
    spec.loader = importlib.util.LazyLoader(spec.loader)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_lazy_module_is_announced_when_it_runs(watched: Watched) -> None:
    module = lazily("fake")
    watched.watch.look()
    assert not watched.announced and not watched.missed
    assert module.ready
    assert watched.announced == [("fake", module)]
    watched.watch.look()
    assert not watched.missed


def test_a_module_that_was_lazy_before_the_watch_began(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "meta_path", [it for it in sys.meta_path if it is not watched.watch])
    module = lazily("fake")
    seen: list[str] = []
    ImportWatch(("fake",), lambda name, _: seen.append(name), lambda name, _: seen.append(f"missed {name}")).start()
    assert seen == []
    assert module.ready
    assert seen == ["fake"]


def test_reloading_announces_nothing_again(watched: Watched) -> None:
    fake = importlib.import_module("fake")
    assert importlib.reload(fake) is fake
    assert type(fake.__spec__.loader) is SourceFileLoader
    assert watched.names == ["fake"] and not watched.missed


def test_imports_from_several_threads(watched: Watched) -> None:
    watched.give("fake/__init__.py", "import time\ntime.sleep(0.2)\nimport fake.part\nready = True\n")
    complete: list[bool] = []
    gate = threading.Barrier(8)

    def work(number: int) -> None:
        gate.wait()
        if number % 2:
            importlib.util.find_spec("fake")
        complete.append(importlib.import_module("fake").ready)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert complete == [True] * 8
    assert watched.names == ["fake"] and not watched.missed


class Greedy(MetaPathFinder):
    """Goes first and searches the path itself, as import hooks do."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return PathFinder.find_spec(fullname, path, target)


def test_a_finder_that_goes_to_the_front_later(watched: Watched) -> None:
    greedy = Greedy()
    sys.meta_path.insert(0, greedy)
    assert sys.meta_path[0] is greedy
    importlib.import_module("fake")
    assert watched.names == ["fake"] and not watched.missed
    assert sys.meta_path.pop(0) is greedy


@pytest.mark.parametrize("order", ["plus", "unpacked"])
def test_a_new_list_of_finders(watched: Watched, monkeypatch: pytest.MonkeyPatch, order: str) -> None:
    added = [Greedy()] + sys.meta_path if order == "plus" else [Greedy(), *sys.meta_path]  # noqa: RUF005
    monkeypatch.setattr(sys, "meta_path", [PassesOn(), *added[1:]])
    watched.give("other.py", "")
    importlib.import_module("other")  # any look-up that gets past the first
    sys.meta_path.insert(0, Greedy())
    importlib.import_module("fake")
    assert watched.names == ["fake"] and not watched.missed


class PassesOn(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return None


class Chained(MetaPathFinder):
    """Calls the whole import system again, and wraps the loader that it gets, as wrapt does."""

    def __init__(self) -> None:
        self.inside = False
        self.loaded: list[str] = []

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != "fake" or self.inside:
            return None
        self.inside = True
        try:
            found = importlib.util.find_spec(fullname)
        finally:
            self.inside = False
        assert found is not None and found.loader is not None
        chained: Any = ChainedLoader(found.loader, self.loaded)
        return importlib.util.spec_from_loader(fullname, chained, origin=found.origin)


class ChainedLoader:
    def __init__(self, loader: object, loaded: list[str]) -> None:
        self.loader, self.loaded = loader, loaded

    def is_package(self, name: str) -> bool:
        return True

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        module.__path__ = [str(Path(self.loader.get_filename()).parent)]  # type: ignore[attr-defined]
        self.loader.exec_module(module)  # type: ignore[attr-defined]
        self.loaded.append(module.__name__)


def test_a_finder_that_calls_all_finders_again(watched: Watched) -> None:
    chained = Chained()
    sys.meta_path.insert(0, chained)
    importlib.import_module("fake")
    assert watched.names == ["fake"] and chained.loaded == ["fake"] and not watched.missed


def test_two_watches(watched: Watched) -> None:
    second: list[str] = []
    ImportWatch(("fake",), lambda name, _: second.append(name), lambda name, _: second.append("missed")).start()
    assert importlib.util.find_spec("fake") is not None
    fake = importlib.import_module("fake")
    assert watched.names == second == ["fake"] and not watched.missed
    assert type(fake.__spec__.loader) is SourceFileLoader


def around_the_watch(folder: Path) -> ModuleType:
    path = folder / "fake" / "__init__.py"
    spec = importlib.util.spec_from_file_location("fake", path, submodule_search_locations=[str(path.parent)])
    assert spec is not None and spec.loader is not None
    module = sys.modules["fake"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_module_loaded_around_the_watch_is_noticed_at_its_first_submodule(watched: Watched) -> None:
    around_the_watch(watched.folder)  # imports fake.part
    assert watched.missed == ["fake"] and not watched.announced


def test_a_module_loaded_around_the_watch_is_noticed_at_any_lookup(watched: Watched) -> None:
    watched.give("fake/__init__.py", "")
    watched.give("other.py", "")
    around_the_watch(watched.folder)
    assert not watched.missed
    importlib.import_module("other")
    importlib.reload(sys.modules["other"])
    assert watched.missed == ["fake"] and not watched.announced


def test_a_module_loaded_around_the_watch_is_noticed_later(watched: Watched) -> None:
    watched.give("fake/__init__.py", "")
    around_the_watch(watched.folder)
    watched.watch.look()
    assert watched.missed == ["fake"] and not watched.announced


@pytest.mark.parametrize("stub", [None, ModuleType("fake")], ids=["blocked", "stub"])
def test_stubs_are_no_modules(watched: Watched, monkeypatch: pytest.MonkeyPatch, stub: ModuleType | None) -> None:
    monkeypatch.setitem(sys.modules, "fake", stub)
    watched.watch.look()
    assert not watched.announced and not watched.missed
    monkeypatch.delitem(sys.modules, "fake")
    importlib.import_module("fake")
    assert watched.names == ["fake"]


def test_a_module_that_imports_itself_under_its_own_name(watched: Watched) -> None:
    """As cv2 does, whose package puts a native module of the same name in its place for a moment."""
    watched.give("inner/fake.py", "native = True\n")
    watched.give(
        "fake/__init__.py",
        """
        import importlib, os, sys
        here = sys.modules.pop("fake")
        sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(__file__)), "inner"))
        native = importlib.import_module("fake").native
        del sys.path[0]
        sys.modules["fake"] = here
        """,
    )
    fake = importlib.import_module("fake")
    assert fake.native and watched.announced == [("fake", fake)]


def test_what_is_imported_already_is_announced_at_the_start(watched: Watched) -> None:
    fake = importlib.import_module("fake")
    seen: list[object] = []
    ImportWatch(("fake",), lambda name, module: seen.append(module), lambda name, _: seen.append("missed")).start()
    assert seen == [fake]


def test_a_wrapped_loader_can_be_copied(watched: Watched) -> None:
    spec = importlib.util.find_spec("fake")
    assert spec is not None
    assert copy.copy(spec.loader).get_filename() == spec.origin  # type: ignore[union-attr]


LIBRARIES = {
    "transformers": "import transformers; from transformers import AutoModel, Trainer",
    "accelerate": "import accelerate",
    "lightning": "import lightning",
    "looked up": "import importlib.util; assert importlib.util.find_spec('torch')",
}
PRINTS = """
from hotlap.runtime.imports import ImportWatch
def announced(name, torch):
    print("announced", name, torch.__version__ is not None, torch.nn.Linear is not None)
def missed(name, module):
    print("missed", name)
watch = ImportWatch(("torch",), announced, missed)
watch.start()
"""


@pytest.mark.parametrize(
    "library", [pytest.param(it, marks=[pytest.mark.slow] if it == "lightning" else []) for it in LIBRARIES]
)
def test_torch_is_announced_once_after_libraries_that_look_it_up(library: str, tmp_path: Path) -> None:
    code = f"{PRINTS}\n{LIBRARIES[library]}\nimport torch, torch.distributed\nwatch.look()\n"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stdout.splitlines() if line.startswith(("announced", "missed"))] == [
        "announced torch True True"
    ]
