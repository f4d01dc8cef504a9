"""The site builds from the repository, with warnings as errors, and has all pages."""

from __future__ import annotations

import inspect
import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from docs_blocks import ROOT
from mkdocs.config.defaults import MkDocsConfig

import hotlap
from hotlap.cli.main import COMMANDS
from hotlap.diagnose.api import all_rules
from hotlap.levers.api import levers_of_any_work
from hotlap.render.schemas import NAMES, file_name, schema_of
from hotlap.source.lint.api import all_rules as lint_rules


class _Loudest(logging.Handler):
    """Record the warnings of MkDocs; it counts warnings in strict mode only when its own command starts it."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    folder = tmp_path_factory.mktemp("site")
    heard = _Loudest()
    logging.getLogger("mkdocs").addHandler(heard)
    try:
        build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(folder)))
    finally:
        logging.getLogger("mkdocs").removeHandler(heard)
    assert not heard.said
    yield folder


def test_every_lever_finding_and_lint_rule_has_a_page(site: Path) -> None:
    assert {it.stem for it in (site / "levers").glob("*.html")} == {"index", *levers_of_any_work()}
    assert {it.stem for it in (site / "findings").glob("*.html")} == {"index", *all_rules()}
    assert {it.stem for it in (site / "lint").glob("*.html")} == {"index", *lint_rules()}


def test_every_command_is_described(site: Path) -> None:
    text = (site / "commands.html").read_text(encoding="utf-8")
    for name in COMMANDS:
        assert f"usage: hotlap {name}" in text


def test_every_function_is_described_with_its_arguments(site: Path) -> None:
    text = (site / "python.html").read_text(encoding="utf-8")
    functions = {name: it for name in hotlap.__all__ if inspect.isfunction(it := getattr(hotlap, name))}
    assert {"tune", "batch", "infer", "memory"} <= functions.keys()
    for name, function in functions.items():
        assert f'id="hotlap{name}"' in text and all(it in text for it in inspect.signature(function).parameters)
    assert ":func:" not in text


def test_every_schema_is_published(site: Path) -> None:
    found = {it.name: json.loads(it.read_text(encoding="utf-8")) for it in (site / "schemas").iterdir()}
    assert found == {file_name(name): json.loads(json.dumps(schema_of(name))) for name in NAMES}


def test_the_page_of_plans_lists_each_key_of_each_lever(site: Path) -> None:
    text = (site / "plan-format.html").read_text(encoding="utf-8")
    for name, lever in levers_of_any_work().items():
        assert f"[levers.{name}]" in text and all(f"<code>{key}</code>" in text for key in lever.parameters)


def test_the_search_prefers_levers_and_findings_to_benchmarks(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    boost = {it["location"]: it.get("boost", 1.0) for it in index["docs"] if "#" not in it["location"]}
    assert boost["levers/loader.html"] == boost["findings/loader-bound.html"] == 2.0
    assert boost["tour.html"] == 1.0 and boost["benchmarks/aa.html"] == 0.5


def test_the_machines_are_those_that_the_results_name(site: Path) -> None:
    text = (site / "tested.html").read_text(encoding="utf-8")
    table = text[text.index("Processors") : text.index("Accelerators")]
    named = {it.stem for it in (ROOT / "docs" / "benchmarks").glob("*.md") if " cores, 24 GiB, " in it.read_text()}
    assert len(named) >= 10 and not [it for it in named if f">{it}</a>" not in table]
    assert "a simulated NVIDIA" in table


def test_links_to_the_repository_are_those_of_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    from mkdocs.config import load_config

    def configured() -> MkDocsConfig:
        config = load_config(str(ROOT / "mkdocs.yml"))
        return config.plugins.on_config(config)

    monkeypatch.delenv("HOTLAP_REPOSITORY", raising=False)
    assert not configured().repo_url
    monkeypatch.setenv("HOTLAP_REPOSITORY", "https://example.org/owner/hotlap/")
    config = configured()
    assert (config.repo_url, config.repo_name) == ("https://example.org/owner/hotlap", "owner/hotlap")
    assert config.edit_uri == "edit/main/docs/"


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert 'src="http' not in text and "fonts.googleapis" not in text, page
