"""Linting files: reading, notebooks, comments that silence, configuration, fixes that are written."""

from __future__ import annotations

import ast
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from hotlap.errors import LintError
from hotlap.source.lint.api import FixSafety
from hotlap.source.lint.configuration import chosen_rules, codes_of, configuration_for
from hotlap.source.lint.documents import LARGEST_SCRIPT_BYTES
from hotlap.source.lint.fix import fix
from hotlap.source.lint.folders import files_of
from hotlap.source.lint.notebooks import Notebook
from hotlap.source.lint.pool import lint_many
from hotlap.source.lint.records import LintReport
from hotlap.source.lint.run import Options, lint_files

LOOP = """\
import torch

total = 0.0
for batch in loader:
    loss = model(batch.cuda()).mean()
    loss.backward()
    optimizer.step()
    total += loss{total}
    torch.cuda.empty_cache(){cache}
"""
BAD = LOOP.format(total="", cache="")
MINE = ("HL501", "HL502")


def options(
    select: Sequence[str] = MINE, *, folder: Path | None = None, grades: Sequence[FixSafety] = (), write: bool = False
) -> Options:
    configuration = configuration_for(folder) if folder is not None else configuration_for(Path("/"))
    return Options(
        rules=chosen_rules(select, configuration.ignore),
        configuration=configuration,
        grades=frozenset(grades),
        write=write,
    )


def lint(path: Path, **given: object) -> LintReport:
    chosen = options(**given)  # type: ignore[arg-type]
    return lint_files(files_of([path], chosen.configuration), chosen)


def codes(report: LintReport) -> list[str]:
    return [it.code for it in report.findings]


# -- what is found ------------------------------------------------------------------------------------


def test_a_file(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(BAD)
    report = lint(tmp_path)
    first, second = report.findings
    assert (first.code, first.place.line, first.place.column, first.place.end_column) == ("HL501", 8, 5, 18)
    assert first.source == "    total += loss"
    assert first.fix == "unsafe"
    assert (second.code, second.place.line) == ("HL502", 9)
    assert report.checked_files == 1 and not report.problems


def test_columns_are_characters(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        BAD.replace("    total += loss", "    naïve = 'ä'; total += loss"), encoding="utf-8"
    )
    finding = lint(tmp_path, select=["HL501"]).findings[0]
    assert finding.source[finding.place.column - 1 : finding.place.end_column - 1] == "total += loss"


def test_silent_without_torch(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(BAD.replace("import torch", "import other as torch  # not torch"))
    assert codes(lint(tmp_path)) == []


@pytest.mark.parametrize(
    ("total", "cache", "left"),
    [
        ("  # noqa", "", ["HL502"]),
        ("  # noqa: HL501", "", ["HL502"]),
        ("  # noqa: HL502", "", ["HL501", "HL502"]),
        ("  # noqa: E501, HL501", "", ["HL502"]),
        ("  # NOQA:HL501,E501", "", ["HL502"]),
        ("  # noqa: E501", "", ["HL501", "HL502"]),
        ("  # noqa: because", "", ["HL501", "HL502"]),
        ("  # see: # noqa", "", ["HL502"]),
        ("  # hotlap: ignore[HL501]", "  # hotlap: ignore", []),
        ("  # hotlap: ignore[HL5]", "", ["HL502"]),
        ("  # hotlap: ignore[HL501, HL502]", "", ["HL502"]),
        ("  # hotlap: ignore-file", "", []),
        ("  # hotlap: ignore-file[HL502]", "", ["HL501"]),
        ("\n    text = '# noqa: HL502'", "", ["HL501", "HL502"]),
    ],
)
def test_comments_that_silence(tmp_path: Path, total: str, cache: str, left: list[str]) -> None:
    (tmp_path / "train.py").write_text(LOOP.format(total=total, cache=cache))
    assert codes(lint(tmp_path)) == left


def test_a_comment_on_any_line_of_the_statement(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(BAD.replace("total += loss", "total += (\n        loss  # noqa: HL501\n    )"))
    assert codes(lint(tmp_path)) == ["HL502"]


def test_a_comment_in_a_body_says_nothing_of_its_loop(tmp_path: Path) -> None:
    text = "import torch\ndef f(x: torch.Tensor):\n    total = 0\n    for v in x:\n        total += v * 2  # noqa\n"
    (tmp_path / "train.py").write_text(text)
    assert codes(lint(tmp_path, select=["HL204"])) == ["HL204"]


# -- files that are not what they should be -----------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "said", "line"),
    [
        (b"import torch\ndef f(:\n", "cannot be parsed as Python", 2),
        (b"import torch\n\0", "null bytes", 0),
        (b"# coding: no-such-thing\nimport torch\n", "encoding is unknown", 0),
        (b"import torch\nx = '\xff'\n", "byte 18 cannot be decoded", 0),
        (b"import torch\nx = " + b"(" * 3000 + b")" * 3000, "", 0),
        (b"import torch\nx = " + b"-" * 100_000 + b"1", "nested too deeply", 0),
        (b"import torch\n" + b"#" * LARGEST_SCRIPT_BYTES, "larger than 5 MB", 0),
    ],
)
def test_a_file_that_cannot_be_checked_stops_no_other(tmp_path: Path, content: bytes, said: str, line: int) -> None:
    (tmp_path / "a.py").write_bytes(content)
    (tmp_path / "b.py").write_text(BAD)
    report = lint(tmp_path)
    (problem,) = report.problems
    assert said in problem.what and problem.file.endswith("a.py")
    assert problem.what.endswith(".") and "\n" not in problem.what
    assert not line or problem.line == line
    assert codes(report) == ["HL501", "HL502"]


def test_a_long_sum_is_no_trouble(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(BAD + "x = " + " + ".join(["loss"] * 900) + "\n")
    assert codes(lint(tmp_path)) == ["HL501", "HL502"]


def test_other_encodings(tmp_path: Path) -> None:
    text = "# -*- coding: latin-1 -*-\n# Größe\n" + BAD
    (tmp_path / "train.py").write_bytes(text.encode("latin-1"))
    report = lint(tmp_path, grades=("unsafe",), write=True)
    assert codes(report) == [] and not report.problems
    assert "Größe" in (tmp_path / "train.py").read_bytes().decode("latin-1")


def test_a_byte_order_mark_and_line_ends_stay(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_bytes(b"\xef\xbb\xbf" + BAD.replace("\n", "\r\n").encode())
    lint(tmp_path, grades=("unsafe",), write=True)
    written = file.read_bytes()
    assert written.startswith(b"\xef\xbb\xbfimport torch\r\n")
    assert b"total += loss.detach()\r\n" in written
    assert written.count(b"\n") == written.count(b"\r\n")


def test_what_is_not_a_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.py")
    report = lint(tmp_path)
    assert [it.what for it in report.problems] == ["It is not a regular file."]
    with pytest.raises(LintError, match="no such file"):
        lint(tmp_path / "absent")


def test_folders_that_are_left_out(tmp_path: Path) -> None:
    for name in (".venv/lib", "build", "package", ".git", "environment"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "train.py").write_text(BAD)
    (tmp_path / "environment" / "pyvenv.cfg").write_text("")
    (tmp_path / "package" / "notes.txt").write_text("import torch")
    assert [Path(it).parent.name for it in sorted({it.file for it in lint(tmp_path).findings})] == ["package"]
    assert len(lint(tmp_path / "build").findings) == 2, "what is named is looked into"
    assert len(files_of([tmp_path, tmp_path / "package" / "train.py"], configuration_for(tmp_path))) == 1


# -- configuration ------------------------------------------------------------------------------------


def configured(folder: Path, table: str) -> None:
    (folder / "pyproject.toml").write_text(table)


def test_configuration(tmp_path: Path) -> None:
    configured(
        tmp_path,
        """
        [tool.hotlap.lint]
        ignore = ["empty-cache-in-loop"]
        exclude = ["third_party", "old/*.py"]
        [tool.hotlap.lint.per-file-ignores]
        "tests/*" = ["HL5"]
        """,
    )
    for name in ("a.py", "third_party/deep/a.py", "old/a.py", "tests/a.py", "old/kept/b.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(BAD)
    report = lint(tmp_path, select=(), folder=tmp_path)
    assert {(it.code, Path(it.file).name) for it in report.findings if it.code in MINE} == {("HL501", "a.py")}
    assert {Path(it.file).parent for it in report.findings if it.code in MINE} == {tmp_path}


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("[tool.hotlap.lint]\nselekt = []", r"no key 'selekt'.*Did you mean 'select'"),
        ("[tool.hotlap.lint]\nselect = 'HL1'", "not a list of strings"),
        ("[tool.hotlap.lint]\nselect = [1]", "not a list of strings"),
        ("[tool.hotlap.lint]\nignore = ['HL999']", "no lint rule 'HL999'"),
        ("[tool.hotlap.lint]\nignore = ['item-in-hot-lop']", "Did you mean 'item-in-hot-loop'"),
        ("[tool.hotlap.lint.per-file-ignores]\n'*' = 'HL1'", "not a list of strings"),
        ("[tool.hotlap]\nlint = 3", "'lint' is not a table"),
        ("[tool.hotlap.lint\n", "cannot be read"),
    ],
)
def test_wrong_configuration(tmp_path: Path, table: str, said: str) -> None:
    configured(tmp_path, table)
    with pytest.raises(LintError, match=said):
        configuration_for(tmp_path / "package")


def test_the_nearest_configuration_counts(tmp_path: Path) -> None:
    configured(tmp_path, "[tool.hotlap.lint]\nignore = ['HL501']")
    inner = tmp_path / "inner"
    inner.mkdir()
    assert configuration_for(inner).ignore == ("HL501",)
    configured(inner, "[tool.other]\nx = 1")
    assert configuration_for(inner).ignore == ()


def test_selectors() -> None:
    assert codes_of("HL501") == {"HL501"}
    assert codes_of("hl5") >= {"HL501", "HL502", "HL503"}
    assert codes_of("item-in-hot-loop") == {"HL201"}
    assert {it.code for it in chosen_rules(["HL5"], ["HL502"])} == codes_of("HL5") - {"HL502"}
    assert {it.code for it in chosen_rules([], [])} == codes_of("HL")


# -- fixes --------------------------------------------------------------------------------------------


def test_fixes_are_written_by_grade(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(BAD)
    file.chmod(0o640)
    assert lint(tmp_path, grades=("safe",), write=True).fixed == ()
    assert file.read_text() == BAD
    report = lint(tmp_path, grades=("safe", "unsafe"), write=True)
    assert report.fixed == (("HL501", 1), ("HL502", 1)) and report.fixed_files == 1
    assert codes(report) == []
    assert file.read_text() == BAD.replace("total += loss", "total += loss.detach()").replace(
        "    torch.cuda.empty_cache()\n", ""
    )
    assert file.stat().st_mode & 0o777 == 0o640
    assert [it.name for it in tmp_path.iterdir()] == ["train.py"], "nothing else is left behind"


def test_a_diff_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(BAD)
    report = lint(tmp_path, grades=("unsafe",))
    assert file.read_text() == BAD
    (diff,) = report.diffs
    assert "-    total += loss\n" in diff and "+    total += loss.detach()\n" in diff


def test_suppressed_places_are_not_fixed(tmp_path: Path) -> None:
    text = LOOP.format(total="  # noqa: HL501", cache="")
    fixed = fix(text, chosen_rules(MINE, []), {"unsafe"})
    assert "total += loss  # noqa: HL501" in fixed.text and "empty_cache" not in fixed.text


def test_fixes_of_one_statement_do_not_drop_each_other() -> None:
    text = "import torch\n\nlosses = []\ntotal = 0\nfor b in loader:\n    loss = model(b).mean()\n    loss.backward()\n"
    text += "    losses.append(loss); total += loss\n"
    fixed = fix(text, chosen_rules(["HL501"], []), {"unsafe"})
    assert "losses.append(loss.detach()); total += loss.detach()" in fixed.text
    assert fixed.counts == {"HL501": 2}


def test_a_file_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train.py").write_text(BAD)

    def refuse(self: Path, target: Path) -> Path:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "replace", refuse)
    report = lint(tmp_path, grades=("unsafe",), write=True)
    assert [it.what for it in report.problems] == ["The fixed file cannot be written: Permission denied."]
    assert (tmp_path / "train.py").read_text() == BAD
    assert len(list(tmp_path.iterdir())) == 1


# -- notebooks ----------------------------------------------------------------------------------------

CELLS = [
    "%matplotlib inline\nimport torch\n!pip install torch",
    "# Größe\ntotal = 0.0",
    "%%time\nfor batch in loader:\n    loss = model(batch.cuda()).mean()\n    loss.backward()\n    optimizer.step()\n"
    "    total += loss\n    torch.cuda.empty_cache()",
    "%%bash\nls *.py | for x in y; do",
    "files = !ls\nloader?",
]


def notebook(
    cells: Sequence[str] = CELLS, *, indent: int | None = 1, ascii_only: bool = False, lines: bool = True
) -> str:
    def cell(source: str) -> dict[str, object]:
        outputs = [{"output_type": "stream", "name": "stdout", "text": ['{"source": [1]}\n']}]
        split: object = source.splitlines(keepends=True) if lines else source
        return {"cell_type": "code", "execution_count": 3, "metadata": {}, "outputs": outputs, "source": split}

    text = {"cell_type": "markdown", "metadata": {}, "source": ["import torch\n", "not code ("]}
    content = {
        "cells": [text, *map(cell, cells)],
        "metadata": {"language_info": {"name": "python"}, "other": [1.50, "é"]},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(content, indent=indent, ensure_ascii=ascii_only) + "\n"


def test_findings_in_a_notebook(tmp_path: Path) -> None:
    (tmp_path / "train.ipynb").write_text(notebook())
    report = lint(tmp_path)
    assert not report.problems
    places = [(it.code, it.place.cell, it.place.line, it.place.column) for it in report.findings]
    assert places == [("HL501", 4, 6, 5), ("HL502", 4, 7, 5)]


@pytest.mark.parametrize("indent", [None, 1, 4])
@pytest.mark.parametrize("ascii_only", [False, True])
@pytest.mark.parametrize("lines", [True, False])
def test_a_fixed_notebook_keeps_all_else(tmp_path: Path, indent: int | None, ascii_only: bool, lines: bool) -> None:
    file = tmp_path / "train.ipynb"
    file.write_text(notebook(indent=indent, ascii_only=ascii_only, lines=lines))
    report = lint(tmp_path, grades=("unsafe",), write=True)
    assert codes(report) == [] and not report.problems
    cells = list(CELLS)
    cells[2] = cells[2].replace("total += loss", "total += loss.detach()").replace("\n    torch.cuda.empty_cache()", "")
    assert file.read_text() == notebook(cells, indent=indent, ascii_only=ascii_only, lines=lines)


def test_a_notebook_as_text_parses_and_goes_back() -> None:
    source = notebook().encode()
    made = Notebook(source)
    ast.parse(made.text)
    assert made.rewritten(made.text) == source


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"torch", "It is not a notebook, which is JSON"),
        (b'["torch"]', "no list of cells"),
        (b'{"worksheets": [], "x": "torch"}', "no list of cells"),
        (b'{"cells": [{"cell_type": "code", "source": [1, "torch"]}]}', "source of cell 1 is no text"),
        (b'{"x": "torch", "y": ' + b"[" * 100_000, "JSON"),
    ],
)
def test_what_is_not_a_notebook(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "x.ipynb").write_bytes(content)
    (problem,) = lint(tmp_path).problems
    assert said in problem.what


def test_a_notebook_of_another_language_is_silent(tmp_path: Path) -> None:
    text = notebook().replace('"name": "python"', '"name": "julia"')
    (tmp_path / "x.ipynb").write_text(text)
    report = lint(tmp_path)
    assert codes(report) == [] and not report.problems


def test_a_syntax_error_names_its_cell(tmp_path: Path) -> None:
    (tmp_path / "x.ipynb").write_text(notebook(["import torch", "x = 1\ny = ("]))
    (problem,) = lint(tmp_path).problems
    assert (problem.cell, problem.line) == (3, 2)


# -- many files ---------------------------------------------------------------------------------------


def test_several_processes_find_the_same(tmp_path: Path) -> None:
    for number in range(6):
        (tmp_path / f"train{number}.py").write_text(BAD if number % 2 else "import torch\n")
    (tmp_path / "broken.py").write_text("import torch (")
    chosen = options(folder=tmp_path)
    files = files_of([tmp_path], chosen.configuration)
    assert lint_many(files, chosen, processes=2) == lint_files(files, chosen)
    assert len(lint_many(files, chosen, processes=2).findings) == 6


LINTS_FOR_LONG = """
import sys
from pathlib import Path

from hotlap.source.lint.configuration import chosen_rules, configuration_for
from hotlap.source.lint.pool import lint_many
from hotlap.source.lint.run import Options

if __name__ == "__main__":
    configuration = configuration_for(Path("/"))
    options = Options(
        rules=chosen_rules(("HL501",), configuration.ignore),
        configuration=configuration,
        grades=frozenset(),
        write=False,
    )
    files = [Path(sys.argv[1])] * 100_000
    lint_many(files, options, processes=2)
"""


def test_processes_end_with_the_one_that_started_them(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(BAD)
    script = tmp_path / "lints.py"
    script.write_text(LINTS_FOR_LONG)
    parent = psutil.Popen([sys.executable, str(script), str(tmp_path / "train.py")])
    try:
        workers = _eventually(lambda: [it for it in parent.children() if "spawn_main" in " ".join(it.cmdline())])
        # Killed once they work: one that is still starting reads from its parent, and notices by that.
        assert _eventually(lambda: all(it.cpu_times().user > 0.5 for it in workers))
    finally:
        parent.kill()
        parent.wait()
    _gone, alive = psutil.wait_procs(workers, timeout=30)
    assert not alive


def _eventually(seen: Callable[[], Any], seconds: float = 60.0) -> Any:
    until = time.monotonic() + seconds
    while not (found := seen()) and time.monotonic() < until:
        time.sleep(0.05)
    return found
