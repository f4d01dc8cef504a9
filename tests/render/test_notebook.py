"""A study in a notebook: its HTML fragment, and a real kernel that shows one."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path

import fakes
import msgspec
import pytest

from hotlap.records import Crashed, PhaseAccount, Study
from hotlap.render.json import study_json
from hotlap.render.notebook import fragment, mime_bundle, summary

VOID = {"br", "hr", "img"}


class Reader(HTMLParser):
    """Collect tags, attributes and text; fail on a tag that is not closed in order."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def test_the_answer_the_bars_and_the_levers_are_shown() -> None:
    page = Reader(fragment(fakes.FINISHED))
    assert "3.65x faster (95 % interval 3.58 to 3.72), no difference found within 0.1 % over 300 steps." in page.text
    before, after = (it["aria-label"] for it in page.all("div") if it.get("role") == "img")
    assert before is not None and before.startswith("before: data wait 101 ms,")
    assert after is not None and after.startswith("after: data wait 1.20 ms,")
    assert "✓ loader (num_workers 4, persistent_workers, pin_memory)" in page.text
    assert "Graph break at train.py:41 (2 times): data-dependent branch on a tensor." in page.text
    assert "steps.." not in page.text
    assert "3 levers not tried" in page.text and "The model has no convolution." in page.text
    assert "A step of 212 ms waits 101 ms for its batch." in page.text
    assert [it.get("scope") for it in page.all("th")].count("row") > 10


@pytest.mark.parametrize("name", sorted(fakes.STUDIES))
def test_every_study_is_a_static_safe_fragment(name: str) -> None:
    html = fragment(fakes.STUDIES[name])
    page = Reader(html)
    assert html.startswith("<div ") and html.endswith("</div>")
    allowed = {"div", "p", "pre", "span", "table", "thead", "tbody", "tr", "th", "td", "details", "summary", "ul", "li"}
    assert {tag for tag, _ in page.tags} <= allowed
    assert {key for _, attributes in page.tags for key in attributes} <= {
        "style",
        "role",
        "aria-label",
        "title",
        "scope",
    }
    assert "url(" not in html and "http" not in html
    assert len(html) < 100_000


def test_foreign_text_is_escaped() -> None:
    nasty = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>&lt;b&gt; \x1b[31m"
    study = msgspec.structs.replace(
        fakes.FINISHED,
        workload=msgspec.structs.replace(fakes.WORKLOAD, target=nasty),
        directory=nasty,
        machine=msgspec.structs.replace(fakes.MACHINE, processor=nasty),
        findings=(msgspec.structs.replace(fakes.FINDINGS[0], title=nasty, remedy=nasty),),
        outcomes=(
            msgspec.structs.replace(fakes.OUTCOMES[0], lever=nasty),
            msgspec.structs.replace(fakes.OUTCOMES[-1], lever=nasty),
        ),
    )
    html = fragment(study)
    page = Reader(html)
    assert not page.all("script") and not page.all("img") and "\x1b" not in html
    assert page.text.count("<script>alert(1)</script>") >= 6
    assert "&lt;b&gt;" in page.text


@pytest.mark.parametrize(
    "account",
    [
        PhaseAccount(),
        PhaseAccount(wall=0.1, phases=(("other", -0.1),)),
        PhaseAccount(wall=0.1, phases=(("forward", 9.0),)),
    ],
)
def test_accounts_that_do_not_add_up_are_still_drawn(account: PhaseAccount) -> None:
    Reader(fragment(msgspec.structs.replace(fakes.FINISHED, account_before=account)))


@pytest.mark.parametrize("name", sorted(fakes.STUDIES))
def test_the_text_fits_a_screen(name: str) -> None:
    shown = summary(fakes.STUDIES[name])
    assert shown.startswith("hotlap  ") and "\x1b" not in shown
    lines = shown.split("\n")
    assert len(lines) <= 24 and max(map(len, lines)) <= 100
    assert "study.html(" in lines[-1]


def test_the_text_has_the_answer_and_the_plan() -> None:
    shown = summary(fakes.FINISHED)
    assert "3.65x faster (95 % interval 3.58 to 3.72)" in shown and "In the plan: loader" in shown


def test_a_long_answer_is_cut_before_its_last_line() -> None:
    failed = next(it for it in fakes.STUDIES.values() if it.status == "script-failed" and it.baseline is not None)
    assert failed.baseline is not None
    ending = Crashed(exit_code=1, error="boom", output_tail="\n".join(f"line {it} " + "x" * 150 for it in range(40)))
    long = msgspec.structs.replace(failed, baseline=msgspec.structs.replace(failed.baseline, ending=ending))
    lines = summary(long).split("\n")
    assert len(lines) == 24 and lines[-2] == "  ..."


def test_what_is_long_is_folded() -> None:
    html = fragment(fakes.FINISHED)
    assert html.index("<details") > html.index("whole step")
    assert html.index("Levers (") > html.index("<details")


def test_a_study_has_a_notebook_representation() -> None:
    bundle = fakes.FINISHED._repr_mimebundle_()
    assert bundle == mime_bundle(fakes.FINISHED)
    assert fakes.FINISHED._repr_html_() == bundle["text/html"]
    assert set(bundle) == {"text/plain", "text/html"}


def test_the_repr_of_a_study_is_one_line() -> None:
    shown = repr(fakes.FINISHED)
    assert len(shown) < 300 and "\n" not in shown
    assert fakes.FINISHED.identifier in shown and fakes.FINISHED.plan.settings[0].lever in shown


def test_notebook_methods_are_not_part_of_the_record() -> None:
    assert msgspec.json.decode(study_json(fakes.FINISHED), type=Study) == fakes.FINISHED
    assert not [it.name for it in msgspec.structs.fields(Study) if it.name.startswith("_")]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # the kernel's own libraries issue warnings
def test_a_real_notebook_kernel_shows_a_study(tmp_path: Path) -> None:
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    (tmp_path / "study.json").write_text(study_json(fakes.FINISHED), encoding="utf-8")
    source = Path(__file__).parents[2] / "src"
    code = f"import sys; sys.path.insert(0, {str(source)!r})\nimport hotlap\nhotlap.load_study('study.json')"
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
    done = nbclient.NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
    (output,) = (it for it in done.cells[0].outputs if it.output_type == "execute_result")
    assert output.data["text/html"] == fragment(fakes.FINISHED)
    assert output.data["text/plain"] == summary(fakes.FINISHED)
    json.dumps(done)
