"""Pages that tests share, and the browser that opens them."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

TESTS = Path(__file__).parents[2]
sys.path[:0] = [str(Path(__file__).parent), str(TESTS), str(TESTS / "traces")]

NAMES = ("chromium", "chromium-browser", "google-chrome")
# root cannot use the sandbox, and the browser makes no requests.
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Start a headless browser; if none is installed, skip, or fail if HOTLAP_NEEDS_BROWSER is set."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        text = "No chromium is installed, so nothing was tested in a browser: `make browser` installs it for root."
        pytest.fail(text) if os.environ.get("HOTLAP_NEEDS_BROWSER") else pytest.skip(text)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=found, args=FLAGS)
        yield launched
        launched.close()


@pytest.fixture(scope="session")
def full_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a page in which everything was measured."""
    from materials import full_material

    from hotlap.render.html.page import page

    path = tmp_path_factory.mktemp("full") / "report.html"
    path.write_text(page(full_material(path.parent)), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def hostile_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a page in which every foreign text is an attack."""
    from materials import hostile_material

    from hotlap.render.html.page import page

    path = tmp_path_factory.mktemp("hostile") / "report.html"
    path.write_text(page(hostile_material(path.parent)), encoding="utf-8")
    return path
