"""The documentation's examples (a lever, a rule, an instrument) pass the conformance suite of their kind."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from docs_blocks import DOCS, blocks

REPOSITORY = DOCS.parent
SUITES = {
    "lever": ("levers/host", "tests/levers/test_levers_conform.py"),
    "rule": ("diagnose/rules", "tests/diagnose/test_rules.py"),
    "section": ("render/sections", "tests/render/html/test_sections_conform.py"),
    "chart": ("render/html/charts", "tests/render/html/test_charts_conform.py"),
    "metric": ("measure/metrics", "tests/measure/test_metrics_conform.py"),
    "lint-rule": ("source/lint/rules", "tests/source/lint/test_rules.py"),
    "instrument": ("runtime/instruments", "tests/runtime/test_instruments.py"),
}


@pytest.mark.parametrize("kind", SUITES)
def test_what_the_documentation_makes_conforms(kind: str, tmp_path: Path) -> None:
    room, suite = SUITES[kind]
    sources = tmp_path / "src"
    shutil.copytree(REPOSITORY / "src", sources, ignore=shutil.ignore_patterns("__pycache__"))
    page = list(blocks(DOCS / "extending" / f"{kind}.md"))
    made = next(it for it in page if it.file)
    target = sources / "hotlap" / room / made.file
    assert not target.exists()
    target.write_text(made.text, encoding="utf-8")
    if kind == "instrument":
        add_record(sources / "hotlap" / "records" / "instruments.py", page[0].text)
    plain = kind in ("section", "chart", "metric", "instrument")
    name = target.stem if plain else target.stem.replace("_", "-")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", f"pythonpath={sources}"]
    done = subprocess.run(
        [*command, "-k", name, str(REPOSITORY / suite)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed and int(passed[1]) >= 3, done.stdout


def add_record(path: Path, text: str) -> None:
    """Put an instrument's record into the file of all, and its name into ``Instrument``."""
    _, _, record = text.partition("\n\n\n")
    (name,) = re.findall(r"^class (\w+)", record, re.MULTILINE)
    before, union, after = path.read_text(encoding="utf-8").partition("Instrument: TypeAlias = (\n")
    assert union and "|" in after
    path.write_text(f"{before}{record}\n\n{union}    {name} |\n{after}", encoding="utf-8")
