"""The documentation's pictures can be taken again by their script."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from docs_blocks import ROOT
from PIL import Image

STUDY = ROOT / "tests" / "study" / "format-1"
SIZES = {"report.png": (1280, 860), "report-dark.png": (1280, 860), "report-phone.png": (390, 844)}


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("chromium") is None, reason="there is no chromium")
def test_the_pictures_are_taken_of_a_study(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "docs" / "_site" / "screenshots.py"), str(STUDY), "--to", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert {it.name for it in tmp_path.iterdir()} == SIZES.keys()
    shades = {}
    for name, size in SIZES.items():
        with Image.open(tmp_path / name) as picture:
            assert picture.size == size and len(set(picture.convert("L").tobytes())) > 20, f"{name} is empty"
            shades[name] = picture.convert("L").getpixel((2, size[1] // 2))
    light, dark = shades["report.png"], shades["report-dark.png"]
    assert isinstance(light, int) and isinstance(dark, int) and light > 200 > 60 > dark
