"""The lever that preloads another allocator: where libraries are found, and that one is really loaded."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hotlap import allocators
from hotlap.levers.host import memory_allocator
from hotlap.levers.support.situations import make_setting
from hotlap.records import Machine, ScriptFacts, Situation

JEMALLOC = make_setting("memory-allocator", library="jemalloc")


def on(device: str = "cpu", **facts: Any) -> Situation:
    return Situation(facts=ScriptFacts(device=device), machine=Machine(**facts))


def reason(situation: Situation) -> str:
    skipped = memory_allocator.obstacle(situation)
    return skipped.reason if skipped is not None else ""


def test_it_needs_a_library_that_is_not_in_use_yet() -> None:
    assert "is installed" in reason(on())
    assert not reason(on(allocators=("tcmalloc",)))
    assert "accelerator" in reason(on("cuda:0", allocators=("jemalloc",)))
    loaded = memory_allocator.obstacle(
        on(allocators=("jemalloc",), environment=(("LD_PRELOAD", "/opt/libmimalloc.so"),))
    )
    assert loaded is not None and loaded.already
    found = memory_allocator.candidates(on(allocators=("tcmalloc", "jemalloc")))
    assert [dict(it.values)["library"] for it in found] == ["jemalloc", "tcmalloc"]


def test_libraries_are_found_in_the_folders_of_the_system(tmp_path: Path) -> None:
    assert allocators.installed(tmp_path) == {}
    of_debian = tmp_path / "usr/lib/x86_64-linux-gnu"
    of_fedora = tmp_path / "usr/lib64"
    for folder in (of_debian, of_fedora):
        folder.mkdir(parents=True)
    (of_debian / "libjemalloc.so.2").write_bytes(b"")
    (of_fedora / "libtcmalloc.so.4").write_bytes(b"")
    (of_fedora / "libjemalloc.so.1").write_bytes(b"")
    expected = {"jemalloc": str(of_debian / "libjemalloc.so.2"), "tcmalloc": str(of_fedora / "libtcmalloc.so.4")}
    assert allocators.installed(tmp_path) == expected
    (of_debian / "libtcmalloc_minimal.so.4").write_bytes(b"")
    assert allocators.installed(tmp_path)["tcmalloc"] == str(of_debian / "libtcmalloc_minimal.so.4")


@pytest.mark.parametrize(
    ("present", "then"),
    [(None, "/a/libjemalloc.so.2"), ("/b/x.so /a/libjemalloc.so.2", "/a/libjemalloc.so.2:/b/x.so")],
)
def test_what_is_preloaded_already_stays(monkeypatch: pytest.MonkeyPatch, present: str | None, then: str) -> None:
    monkeypatch.setattr(memory_allocator, "installed", lambda: {"jemalloc": "/a/libjemalloc.so.2"})
    monkeypatch.delenv("LD_PRELOAD", raising=False)
    if present is not None:
        monkeypatch.setenv("LD_PRELOAD", present)
    assert memory_allocator.environment(JEMALLOC) == {"LD_PRELOAD": then}
    monkeypatch.setattr(memory_allocator, "installed", dict)
    assert memory_allocator.environment(JEMALLOC) == {}


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc is Linux's")
def test_the_process_has_the_library_or_a_note_says_that_it_has_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy of a library that every process has stands for the allocator."""
    mapped = Path("/proc/self/maps").read_text(encoding="utf-8").split()
    library = tmp_path / "libjemalloc.so.2"
    shutil.copy(next(it for it in mapped if Path(it).name.startswith(("libm.so", "libm-"))), library)
    monkeypatch.setattr(memory_allocator, "installed", lambda: {"jemalloc": str(library)})
    code = (
        "from types import SimpleNamespace; from hotlap.levers.host import memory_allocator as lever;"
        "from hotlap.levers.support.situations import make_setting;"
        "notes = []; setting = make_setting('memory-allocator', library='jemalloc');"
        "lever.install(SimpleNamespace(note=notes.append), setting); print(notes)"
    )

    def notes(**variables: str) -> str:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(it for it in sys.path if it), **variables}
        done = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True, timeout=300
        )
        return done.stdout.strip()

    assert notes(**memory_allocator.environment(JEMALLOC)) == "[]"
    assert "before Python starts" in notes()
