"""The page as text: its content and order, its size, all kinds of studies, and attacks."""

from __future__ import annotations

import builtins
import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import fakes
import msgspec
import pytest
from materials import ATTACK, full_material, hostile_material

from hotlap.errors import MissingPackageError
from hotlap.objective import for_memory
from hotlap.records import Estimate, Finding, Plan, Study
from hotlap.render.headline import headline
from hotlap.render.html import drawing
from hotlap.render.html.charts.api import charts_of as charts
from hotlap.render.html.embedding import code, embedded_json
from hotlap.render.html.page import page
from hotlap.render.material import Material

LARGEST_BYTES = 2_100_000
SECTIONS = (
    "evidence", "losses", "step", "watch", "metrics", "levers", "strategies", "candidates", "padding", "ceilings",
    "loader", "memory-estimate", "memory-account", "batch-search", "batch-sizes", "scale", "processes", "findings",
    "timeline", "loss-scale", "memory", "costs", "patch", "files", "hosts", "warnings", "machine", "next", "words",
)  # fmt: skip


def sections(text: str) -> tuple[str, ...]:
    return tuple(re.findall(r'<section id="([^"]+)">', text))


def without_scripts(text: str) -> str:
    return re.sub(r"<script\b.*?</script>", "", text, flags=re.DOTALL)


def test_a_chart_without_a_section_gets_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    material = full_material(tmp_path)
    new = dataclasses.replace(next(charts(material)), name="new-chart", title="A chart of next year")
    monkeypatch.setattr("hotlap.render.html.page.charts_of", lambda material: [*charts(material), new])
    text = page(material)
    assert sections(text)[sections(text).index("memory") + 1] == "new-chart"
    assert text.count('id="drawn-new-chart"') == 1 and "A chart of next year" in without_scripts(text)
    assert all(text.count(f'id="drawn-{it.name}"') == 1 for it in charts(material))


def test_all_sections_are_there_in_order(full_page: Path) -> None:
    text = full_page.read_text(encoding="utf-8")
    assert sections(text) == SECTIONS
    words = without_scripts(text)
    for it in (
        "3.65x faster (95 % interval 3.58 to 3.72)",
        "A million samples cost 4.60 EUR before and 1.26 EUR",
        "1.91x (1.86 to 1.96)",
        "The model has no convolution.",
        "CUDA out of memory. Tried to allocate 2.00 GiB",
        "train.py:12",
        "Fetch batches in worker processes",
        "ui.perfetto.dev",
        "window.json.gz",
        "num_workers=4",
        "[levers.mixed-precision]",
        "hotlap tune --seed 3 train.py --epochs 1",
        "AMD EPYC 7742",
        "2.13.0",
        "Another process used 12 % of the processor.",
        "The processor&#x27;s governor is powersave.",
        "checkpoints/last.pt",
    ):
        assert it in words, it


def test_the_first_screen_says_what_changed_and_what_to_run_next(tmp_path: Path) -> None:
    material = dataclasses.replace(full_material(tmp_path), plan_path="plans/a10.toml")
    first = page(material).partition("<nav")[0]
    changed = re.findall(r"<li><code>([^<]+)</code>(?: <span class=\"gain\">([^<]+)</span>)?", first)
    assert changed == [
        ("loader: num_workers=4, persistent_workers=True, pin_memory=True", "1.91x (1.86 to 1.96)"),
        ("mixed-precision: dtype=&#34;bfloat16&#34;", "1.62x (1.58 to 1.66)"),
        ("compile: dynamic=False, mode=&#34;default&#34;", "1.18x (1.13 to 1.23)"),
    ]
    assert "<code>hotlap run --plan plans/a10.toml train.py --epochs 1</code>" in first
    assert first.index("What changed") < first.index("Mean step") < first.index("hotlap run")


def test_a_plan_that_was_not_written_is_written_first() -> None:
    first = page(Material(study=fakes.FINISHED, plan_path="")).partition("<nav")[0]
    assert "<code>hotlap report --plan-out hotlap.toml .hotlap/20260131-142501-337</code>" in first


def test_nothing_changed_where_no_lever_was_kept() -> None:
    assert "What changed" not in page(Material(study=fakes.NOTHING))


def test_the_commands_of_an_inference_study_name_it() -> None:
    study = msgspec.structs.replace(fakes.FINISHED, kind="inference")
    assert "<code>hotlap report --json .hotlap/20260131-142501-337</code>" in page(Material(study=study))


def test_a_table_does_not_repeat_the_title_of_its_section(full_page: Path) -> None:
    words = without_scripts(full_page.read_text(encoding="utf-8"))
    assert re.findall("<(?:h2|caption)>(Metrics)<", words) == ["Metrics"]
    assert '<caption class="unseen">Metrics</caption>' in words


def test_figures_are_grouped_alike(full_page: Path) -> None:
    """Thousands are separated by commas, never by spaces."""
    words = re.sub("<[^>]+>", " ", without_scripts(full_page.read_text(encoding="utf-8")))
    assert re.findall(r"\d,\d{3}\b", words) and not re.findall(r"\d[ \u00a0\u2009\u202f]\d{3}\b", words)


def test_a_busy_machine_is_mentioned_next_to_its_figures() -> None:
    words = " ".join(without_scripts(page(Material(study=fakes.BUSY))).split())
    for it in (
        "the largest costs 48 % of a step, while others used 1.3 of 2 cores; "
        "other processes may have caused these shares.",
        "A step took 212 ms; its largest part is data wait",
        "Measured while others used 1.3 of 2 cores; on a quiet machine the step may be shorter",
        "it may differ on a quiet machine",
        "Measured while others used 1.3 of 2 cores; other processes may have caused this share.",
        "The machine was busy while hotlap measured the time of a step, the loader alone and the profiled steps",
    ):
        assert it in words, it


@pytest.mark.parametrize(("unit", "badge"), [("of the run", "4.9 % of the run"), ("of the step", "4.9 % of a step")])
def test_a_finding_names_the_whole_of_its_share(unit: str, badge: str) -> None:
    share = Estimate(value=0.049, low=0.049, high=0.049, unit=unit)
    finding = Finding(rule="evaluation-cost", share=share, title="Evaluation takes long.")
    words = without_scripts(page(Material(study=msgspec.structs.replace(fakes.FINISHED, findings=(finding,)))))
    assert re.findall(r'<span class="badge [a-z]+">([^<]+)</span> Evaluation', words) == [badge]
    assert words.count("4.9 %") == 1 and f"<span>{unit}</span>" not in words


def test_the_page_is_one_file_below_two_megabytes(full_page: Path) -> None:
    text = full_page.read_text(encoding="utf-8")
    assert full_page.stat().st_size < LARGEST_BYTES
    ours = text.replace(drawing.drawing_code(), "")
    assert not re.findall(r"<(?:link|script|img|iframe|object|embed|source)[^>]+(?:src|href)=\"(?!data:)", ours)
    assert not re.findall(r"@import|url\((?!#)", without_scripts(text))


def test_the_page_stays_small_for_any_trace(tmp_path: Path) -> None:
    """Draw the largest number of spans, with long names, next to all other sections."""
    material = full_material(tmp_path)
    assert material.lanes is not None
    lane = material.lanes.lanes[0]
    spans = tuple(
        lane.spans[0]._replace(start=it * 1000, end=it * 1000 + 900, name=f"{it:05}" + 85 * "<") for it in range(2400)
    )
    lanes = material.lanes._replace(lanes=(lane._replace(spans=spans),), length=2_400_000)
    made = page(Material(study=material.study, profile=material.profile, lanes=lanes, patch="+x\n" * 200_000))
    assert len(made.encode()) < LARGEST_BYTES


@pytest.mark.parametrize("name", fakes.STUDIES)
def test_every_study_has_a_page(name: str) -> None:
    study = fakes.STUDIES[name]
    text = page(Material(study=study))
    words = without_scripts(text)
    assert sections(text) == tuple(it for it in SECTIONS if it in sections(text))
    assert len(re.findall("<h1", words)) == 1
    assert code(headline(study).sentence).replace("&#34;", '"')[:30] in words.replace("&#34;", '"')
    assert not {"evidence", "losses", "loader", "costs"} & (set(sections(text)) - {"costs"})


def test_a_profile_states_that_nothing_was_changed() -> None:
    words = without_scripts(page(Material(study=fakes.PROFILED)))
    assert "Nothing was changed." in words
    assert "Levers kept" not in words
    assert 'id="levers"' not in words
    assert "The levers loader address it." not in words


def test_a_profile_without_findings_is_reported_as_such() -> None:
    assert "No known cause of lost time was found." in page(Material(study=fakes.CLEAN))


def test_an_empty_study_has_a_page() -> None:
    text = page(Material(study=Study(workload=fakes.WORKLOAD)))
    assert sections(text) == ("machine", "next", "words")
    assert "<script>" not in text


def test_a_failed_script_shows_its_last_output() -> None:
    assert "ValueError: data/train.bin is empty" in without_scripts(page(Material(study=fakes.SCRIPT_FAILED)))


def test_without_a_gain_no_plan_is_shown() -> None:
    words = without_scripts(page(Material(study=fakes.NOTHING)))
    assert "levers]" not in words
    assert 'class="arrow"' not in words


def test_the_account_of_an_abandoned_plan_is_not_called_after() -> None:
    study = msgspec.structs.replace(fakes.NOT_CONFIRMED, plan=Plan(), status_text="The plan was given up.")
    words = without_scripts(page(Material(study=study)))
    assert "given up" in words
    assert 'class="arrow"' not in words


def test_an_unstable_baseline_is_not_compared() -> None:
    words = without_scripts(page(Material(study=fakes.DISTURBED)))
    assert 'class="arrow"' not in words
    assert "all together, not confirmed" in words
    assert "all together, verified" not in words


@pytest.mark.parametrize(
    ("study", "said"),
    [
        (fakes.FINISHED, "tried what may make its training faster. Promising changes were compared"),
        (msgspec.structs.replace(fakes.FINISHED, objective=for_memory()), "improve the peak memory of its training"),
        (fakes.SCRIPT_FAILED, "so nothing was tried"),
        (fakes.DENIED, "The isolation of the trial denied it a write"),
        (Study(workload=fakes.WORKLOAD), "No change was tried yet."),
        (fakes.PROFILED, "Nothing was changed."),
    ],
)
def test_the_page_states_what_was_done(study: Study, said: str) -> None:
    assert said in page(Material(study=study))


def test_attacks_are_shown_as_text(hostile_page: Path) -> None:
    text = hostile_page.read_text(encoding="utf-8")
    assert "<img" not in text.replace(drawing.drawing_code(), "")
    assert "49" not in re.findall(r"\{\{.*?\}\}|7\*7", text)
    for poison in ("\u2028", "\u202e"):
        assert poison not in without_scripts(text)
    assert text.count("</script>") == len(re.findall(r"<script\b", text.replace("&lt;script", "")))
    bodies = re.findall(r"<script[^>]*>(.*?)</script>", text, flags=re.DOTALL)
    assert all("<!--" not in it and "<script" not in it for it in bodies)
    drawn = [json.loads(it) for it in re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', text)]
    assert drawn


def test_scripts_of_the_page_match_their_digests(full_page: Path) -> None:
    text = full_page.read_text(encoding="utf-8")
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]+)"', text)
    assert policy is not None
    words = policy[1].replace("&#39;", "'")
    assert words.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe-eval" not in words
    assert words.count("'sha256-") == len(re.findall(r"<script>", text)) == 2


def test_json_reads_back_and_cannot_end_a_script() -> None:
    document: dict[str, Any] = {"a": [ATTACK, "\u2028\u2029<!--]]>&", 1.5, None], ATTACK: True}
    text = str(embedded_json(document))
    assert json.loads(text) == document
    assert not set("<>&\u2028\u2029") & set(text)


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("pass `fused=True` to it", "pass <code>fused=True</code> to it"),
        ("a ` alone <b>", "a ` alone &lt;b&gt;"),
        ("`<b>`", "<code>&lt;b&gt;</code>"),
        ("", ""),
    ],
)
def test_code_in_sentences_is_marked_up(words: str, shown: str) -> None:
    assert code(words) == shown


def test_charts_have_their_figures_in_a_table(tmp_path: Path) -> None:
    for material in (full_material(tmp_path), hostile_material(tmp_path)):
        found = list(charts(material))
        assert len({it.name for it in found}) == len(found)
        for it in found:
            assert it.table.rows, it.name
            assert all(len(row) == len(it.table.headings) for row in it.table.rows), it.name
            assert it.description.endswith("."), it.name


def test_static_images_do_not_share_identifiers(full_page: Path) -> None:
    found = re.findall(r'\bid="([^"]+)"', without_scripts(full_page.read_text(encoding="utf-8")))
    assert len(found) == len(set(found))


@pytest.mark.parametrize("package", ["vl_convert", "jinja2"])
def test_missing_packages_are_named_with_the_remedy(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def refuse(name: str, *rest: Any) -> Any:
        if name.partition(".")[0] == package:
            raise ImportError(name)
        return real(name, *rest)

    drawing.drawing_code.cache_clear()
    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(MissingPackageError, match="not installed") as caught:
        page(Material(study=fakes.FINISHED))
    assert "hotlap[report]" in caught.value.remedy
