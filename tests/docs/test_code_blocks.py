"""The commands in the documentation are correct: every block is read, every command known, every page runs.

A page's blocks form one story: they run in order, in one fresh folder. A block under ``<!-- file: NAME -->`` is saved
there, a Python block is run, and of a console block what follows ``$``. Running trains for real, so that is slow; pages
that only look at a study run always, as does the check that options exist and sources compile.
"""

from __future__ import annotations

import importlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from textwrap import indent

import pytest
import yaml
from docs_blocks import DOCS, ROOT, Block, blocks, pages

from hotlap.cli.main import COMMANDS

ALL = [block for page in pages() for block in blocks(page)]
SITE = [page for page in pages() if page.is_relative_to(DOCS)]
STORIES = [page for page in SITE if any(it.file for it in blocks(page))]
LOOKS = [page for page in SITE if any(it.given_study for it in blocks(page))]
KNOWN = {"", "bash", "console", "diff", "json", "python", "text", "toml", "yaml"}
STUDY = ROOT / "tests" / "study" / "format-1"
ELSEWHERE = {"pip", "python", "bash", "make", "git"}
"""Programs in console blocks that are not ours."""


def of(language: str) -> list[Block]:
    return [it for it in ALL if it.language == language]


def test_there_is_something_to_check() -> None:
    assert len(STORIES) >= 8 and len(of("console")) >= 10 and len(of("python")) >= 10


def test_every_language_is_known() -> None:
    assert {it.language for it in ALL} <= KNOWN


@pytest.mark.parametrize("block", of("python"), ids=str)
def test_python_compiles(block: Block) -> None:
    """On pages without a story a block may be a fragment of a function."""
    text = block.text if block.page in STORIES else f"def fragment():\n{indent(block.text, '    ')}"
    compile(text, str(block), "exec")


@pytest.mark.parametrize("block", of("toml"), ids=str)
def test_toml_reads(block: Block) -> None:
    assert tomllib.loads(block.text)


def test_yaml_reads() -> None:
    for block in of("yaml"):
        assert yaml.safe_load(block.text), block


@pytest.mark.parametrize("block", of("console"), ids=str)
def test_commands_exist(block: Block) -> None:
    commands = list(block.commands())
    assert commands, "a console block shows what is typed, behind `$ `"
    for command in commands:
        _assert_known(shlex.split(command, comments=True))


def test_commands_that_are_listed_exist() -> None:
    """The README's overview: one command a line, with a comment."""
    listed = [line for it in ALL if it.language in ("", "bash") for line in it.text.splitlines() if "hotlap " in line]
    typed = [line for line in listed if re.match(r"hotlap [a-z]", line)]
    assert len(typed) >= 10
    for line in typed:
        assert shlex.split(line, comments=True)[1] in COMMANDS, line


def _assert_known(words: list[str]) -> None:
    if words[0] != "hotlap":
        assert words[0] in ELSEWHERE, words
        return
    assert words[1] in COMMANDS, words
    parser = importlib.import_module(f"hotlap.cli.{words[1]}").parser()
    own, _ = parser.split(words[2:])  # raises for an unknown option
    assert all(not it.startswith("--") or it.partition("=")[0] in parser.format_help() for it in own)


def test_what_is_not_executed_is_what_would_install() -> None:
    """On the site every command and every line of Python belongs to a page that runs."""
    skipped = [it for it in ALL if not it.executed]
    assert [line for it in skipped for line in it.commands()] == ["pip install ."]
    idle = set(SITE) - {*STORIES, *LOOKS}
    assert not [str(it) for it in ALL if it.page in idle and it.language in ("console", "python", "bash")]


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("page", STORIES, ids=lambda page: str(page.relative_to(DOCS)))
def test_a_page_runs(page: Path, tmp_path: Path) -> None:
    _run_page(page, tmp_path)


@pytest.mark.parametrize("page", LOOKS, ids=lambda page: str(page.relative_to(DOCS)))
def test_a_page_about_a_study_runs(page: Path, tmp_path: Path) -> None:
    assert page not in STORIES
    _run_page(page, tmp_path)


def _run_page(page: Path, scratch: Path) -> None:
    environment = _environment(scratch / "bin")
    folder = scratch / "project"
    folder.mkdir()
    for block in blocks(page):
        if not block.executed:
            continue
        if block.given_study and not (folder / ".hotlap").exists():
            shutil.copytree(STUDY, folder / ".hotlap" / "20260131-142501-337")
        if block.needs:
            environment = _with_packages(environment, block, scratch / "packages")
        if block.file:
            (folder / block.file).write_text(block.text, encoding="utf-8")
        elif block.language == "python":
            _run([sys.executable, "-c", block.text], folder, environment, block)
        elif block.language == "console":
            for command in block.commands():
                _run(["bash", "-e", "-c", command], folder, environment, block)


def _run(command: list[str], folder: Path, environment: dict[str, str], block: Block) -> None:
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, f"{block}: {command[-1]}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"


def _with_packages(environment: dict[str, str], block: Block, folder: Path) -> dict[str, str]:
    """Next to the environment of the tests, which other tests need unchanged."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(folder), *block.needs]
    _run(command, folder.parent, environment, block)
    return {**environment, "PYTHONPATH": os.pathsep.join((environment["PYTHONPATH"], str(folder)))}


def _environment(programs: Path) -> dict[str, str]:
    """A ``hotlap`` on the path that runs these sources, whether they are installed or not, and a browser that does
    nothing."""
    programs.mkdir()
    hotlap = programs / "hotlap"
    hotlap.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m hotlap "$@"\n', encoding="utf-8")
    hotlap.chmod(0o755)
    path = os.pathsep.join((str(programs), str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    sources = os.pathsep.join(filter(None, (str(ROOT / "src"), os.environ.get("PYTHONPATH", ""))))
    return {**os.environ, "PATH": path, "PYTHONPATH": sources, "BROWSER": "true"}
