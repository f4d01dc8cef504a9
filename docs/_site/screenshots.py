"""The pictures of a report in the documentation, taken of the page that the sources make of a study.

``python docs/_site/screenshots.py STUDY`` writes them again; STUDY is the folder of a real study. It drives the
chromium that the tests use. The text next to a picture names the script and the machine.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from playwright.sync_api import sync_playwright

from hotlap.cli.main import main as hotlap

IMAGES = Path(__file__).parents[1] / "images"


@dataclass(frozen=True, slots=True)
class View:
    """One picture: its file, the window in CSS pixels, and the theme."""

    name: str
    width: int
    height: int
    theme: Literal["light", "dark"] = "light"


VIEWS = (
    View("report.png", 1280, 860),
    View("report-dark.png", 1280, 860, "dark"),
    View("report-phone.png", 390, 844),
)


def take(study: Path, folder: Path) -> list[Path]:
    """Write the pictures of the study's page into the folder."""
    chromium = next((it for it in map(shutil.which, ("chromium", "chromium-browser", "google-chrome")) if it), None)
    if chromium is None:
        raise SystemExit("There is no chromium; `make browser` installs it where it may.")
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as drivers:
        page_file = Path(scratch) / "report.html"
        if hotlap(["report", "--quiet", "--html", str(page_file), str(study)]) != 0:
            raise SystemExit(f"{study} has no report.")
        browser = drivers.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for it in VIEWS:
            page = browser.new_page(viewport={"width": it.width, "height": it.height}, color_scheme=it.theme)
            page.goto(page_file.as_uri())
            page.wait_for_load_state("networkidle")
            page.screenshot(path=folder / it.name)
            page.close()
        browser.close()
    return [folder / it.name for it in VIEWS]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Take the documentation's pictures of a real study's report.")
    parser.add_argument("study", type=Path)
    parser.add_argument("--to", type=Path, default=IMAGES, help="the folder (default: docs/images)")
    choices = parser.parse_args()
    for path in take(choices.study, choices.to):
        print(path)
