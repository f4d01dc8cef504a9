"""``hotlap report --html``, ``--open`` and ``--markdown``: which files appear, and which are left alone."""

from __future__ import annotations

import hashlib
import re
import webbrowser
from pathlib import Path

import fakes
import msgspec
import pytest

from hotlap import api
from hotlap.cli import arguments
from hotlap.cli.main import main
from hotlap.diagnose.profile import Profile
from hotlap.evidence import MemoryTimeline, RunEvidence
from hotlap.experiment.options import BatchChoices, EstimateChoices, Options
from hotlap.objective import for_inference
from hotlap.records import FileDigest, Patch, PatchedFile, PatchProof, ScriptFacts, Study, StudyKind
from hotlap.study import PATCH, PROFILE, attach_to, create_study


@pytest.fixture
def study(work: Path) -> Path:
    """Make the folder of a finished study with unusual options."""
    options = Options(seed=7, budget_seconds=840.0, skip=("compile",), delta=0.02)
    return _study(work / ".hotlap", fakes.FINISHED, options)


def _study(root: Path, what: Study, options: Options) -> Path:
    with create_study(root, what.workload, options, hotlap_version="0.1.0") as journal:
        identity = {"identifier": journal.header.identifier, "directory": str(journal.directory)}
        journal.save(msgspec.structs.replace(what, **identity))
        memory = MemoryTimeline(host_bytes=(2**30,) * 5)
        journal.attach("profile.json", Profile(evidence=RunEvidence(memory=memory)))
    return journal.directory


def test_the_default_page_is_hotlap_report_html(
    study: Path, work: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webbrowser, "open", lambda url: pytest.fail("no browser was asked for"))
    assert main(["report", "--html"]) == 0
    assert capsys.readouterr().out == "hotlap-report.html\n"
    text = (work / "hotlap-report.html").read_text(encoding="utf-8")
    assert "3.65x faster (95 % interval 3.58 to 3.72)" in text
    assert "hotlap tune --budget 840s --seed 7 --skip compile --delta 0.02 train.py --epochs 1" in text
    assert '<section id="memory">' in text, "read from the study's folder"
    assert sorted(it.name for it in work.iterdir()) == [".hotlap", "hotlap-report.html", "train.py"]


@pytest.mark.parametrize(
    ("folder", "kind", "said"),
    [
        ("lab", "search", "hotlap lab --seed 7 --delta 0.02 train.py --epochs 1"),
        ("profile", "profile", "hotlap profile --seed 7 train.py --epochs 1"),
        ("check", "check", "hotlap check --seed 7 --delta 0.02 train.py --epochs 1"),
    ],
)
def test_a_page_names_the_command_that_made_the_study(work: Path, folder: str, kind: StudyKind, said: str) -> None:
    """The command has only the options that it accepts."""
    made = msgspec.structs.replace(fakes.FINISHED, kind=kind)
    directory = _study(work / ".hotlap" / folder, made, Options(seed=7, delta=0.02))
    assert main(["report", str(directory), "--html", "a.html"]) == 0
    assert f"<dd>{said}</dd>" in (work / "a.html").read_text(encoding="utf-8")


def test_options_that_were_typed_are_named_as_they_were(work: Path) -> None:
    options = Options(seed=7, budget_seconds=90.0, network="none", repeated=("--seed=7", "--network", "none"))
    made = msgspec.structs.replace(fakes.FINISHED, repeated_options=options.repeated)
    directory = _study(work / ".hotlap", made, options)
    assert main(["report", str(directory), "--html", "a.html"]) == 0
    said = "hotlap tune --budget 90s --seed=7 --network none train.py --epochs 1"
    assert f"<dd>{said}</dd>" in (work / "a.html").read_text(encoding="utf-8")


def test_an_inference_search_is_named_with_its_goal(work: Path) -> None:
    options = Options(quality=0.999, objective=for_inference("latency", p99_seconds=0.02))
    made = msgspec.structs.replace(fakes.FINISHED, kind="inference", objective=options.objective)
    directory = _study(work / ".hotlap" / "infer", made, options)
    assert main(["report", str(directory), "--html", "a.html"]) == 0
    said = "hotlap infer --goal latency --p99 20ms --quality 0.999 train.py --epochs 1"
    assert f"<dd>{said}</dd>" in (work / "a.html").read_text(encoding="utf-8")


def test_a_search_for_the_batch_size_is_named_with_its_options(work: Path) -> None:
    options = Options(batch=BatchChoices(flag="--bs", headroom=0.2, most=256, model_alone=True))
    made = msgspec.structs.replace(fakes.FINISHED, kind="batch")
    directory = _study(work / ".hotlap" / "batch", made, options)
    assert main(["report", str(directory), "--html", "a.html"]) == 0
    said = "hotlap batch --batch-flag=--bs --headroom 0.2 --max-batch-size 256 --model-alone train.py --epochs 1"
    assert f"<dd>{said}</dd>" in (work / "a.html").read_text(encoding="utf-8")


def test_an_estimate_is_named_with_its_options(work: Path) -> None:
    choices = EstimateChoices(batch_sizes=(64, 128), device_memory_bytes=arguments.size("1.5GiB"), ranks=4)
    made = msgspec.structs.replace(fakes.FINISHED, kind="memory")
    directory = _study(work / ".hotlap" / "memory", made, Options(memory_steps=20, estimate=choices))
    assert main(["report", str(directory), "--html", "a.html"]) == 0
    said = "hotlap memory --steps 20 --estimate --batch-size 64 --batch-size 128 --device-memory 1610612736B --ranks 4"
    assert f"<dd>{said} train.py --epochs 1</dd>" in (work / "a.html").read_text(encoding="utf-8")
    assert arguments.size("1610612736B") == choices.device_memory_bytes


@pytest.mark.parametrize("name", ["hotlap.toml", ".hotlap/demo.toml"])
def test_a_page_names_the_plan_of_its_own_study(work: Path, name: str) -> None:
    directory = _study(work / ".hotlap", fakes.FINISHED, Options())
    other = msgspec.structs.replace(fakes.FINISHED, identifier="20250101-000000-000")
    for it in ("hotlap.toml", ".hotlap/demo.toml"):
        api.write_plan(api.load_study(directory) if it == name else other, work / it)
    assert main(["report", str(directory), "--html", "a.html"]) == 0
    assert f"<code>hotlap run --plan {name} train.py --epochs 1</code>" in (work / "a.html").read_text(encoding="utf-8")


def test_findings_show_their_line_while_the_file_is_what_was_measured(work: Path) -> None:
    source = "import torch\n" * 11 + "    loader = DataLoader(data, token='hf_" + 34 * "a" + "')  # <b>\n"
    (work / "train.py").write_text(source, encoding="utf-8")
    workload = msgspec.structs.replace(fakes.WORKLOAD, directory=str(work))
    study = msgspec.structs.replace(fakes.FINISHED, workload=workload)
    directory = _study(work / ".hotlap", study, Options())
    digest = FileDigest(file="train.py", sha256=hashlib.sha256(source.encode()).hexdigest())
    attach_to(directory, PROFILE, Profile(facts=ScriptFacts(files=(digest,))))
    assert main(["report", str(directory), "--html", "a.html"]) == 0
    (line,) = re.findall('aria-label="The line">(.*)</pre>', (work / "a.html").read_text(encoding="utf-8"))
    assert line.startswith("loader = DataLoader(data, token=") and line.endswith("# &lt;b&gt;") and "aaaa" not in line
    (work / "train.py").write_text(source + "\n", encoding="utf-8")
    assert main(["report", str(directory), "--html", "a.html"]) == 0
    assert 'aria-label="The line"' not in (work / "a.html").read_text(encoding="utf-8")


def test_a_page_names_the_plan_that_was_just_written(study: Path, work: Path) -> None:
    assert main(["report", str(study), "--html", "a.html", "--plan-out", "mine.toml"]) == 0
    assert "<code>hotlap run --plan mine.toml train.py" in (work / "a.html").read_text(encoding="utf-8")
    (work / "mine.toml").unlink()
    assert main(["report", str(study), "--html", "b.html"]) == 0
    assert "--plan-out hotlap.toml" in (work / "b.html").read_text(encoding="utf-8")


def test_a_report_is_replaced_by_a_newer_one(study: Path, work: Path) -> None:
    assert main(["report", str(study), "--html", "a.html"]) == 0
    first = (work / "a.html").read_bytes()
    assert main(["report", str(study), "--html", "a.html", "--price", "2.50EUR"]) == 0
    assert (work / "a.html").read_bytes() != first
    assert "EUR" in (work / "a.html").read_text(encoding="utf-8")


def test_other_files_are_left_alone(study: Path, work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (work / "train.py").read_bytes()
    assert main(["report", "--html", "train.py"]) == 2
    assert "not a report of hotlap" in capsys.readouterr().err
    assert (work / "train.py").read_bytes() == before
    assert main(["report", str(study), "--html", str(study)]) == 2
    assert "Name the study first" in capsys.readouterr().err
    assert main(["report", "--html", "no/such/folder.html"]) == 2
    assert "cannot be written" in capsys.readouterr().err


def test_a_study_may_follow_the_option(study: Path, work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "--html", str(study)]) == 0
    assert capsys.readouterr().out == "hotlap-report.html\n"
    assert (work / "hotlap-report.html").exists()


@pytest.mark.parametrize("answers", [True, False])
def test_the_browser_opens_on_request(
    answers: bool, study: Path, work: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []

    def open_url(url: str) -> bool:
        opened.append(url)
        return answers

    monkeypatch.setattr(webbrowser, "open", open_url)
    assert main(["report", "--open"]) == 0
    assert opened == [(work / "hotlap-report.html").as_uri()]
    assert ("No browser could be started" in capsys.readouterr().err) is not answers


def test_report_refuses_several_output_formats(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "--html", "--json"]) == 2
    assert main(["report", "--markdown", "--open"]) == 2
    assert "--open" in capsys.readouterr().err


def test_a_profile_and_a_lab_are_named_after_their_commands(work: Path) -> None:
    for folder, what, command in (
        ("profile", fakes.PROFILED, "hotlap profile --seed 1 train.py"),
        ("lab", fakes.FINISHED, "hotlap lab --seed 1 train.py"),
    ):
        made = _study(work / ".hotlap" / folder, what, Options(seed=1))
        assert main(["report", str(made), "--html", f"{folder}.html"]) == 0
        assert command in (work / f"{folder}.html").read_text(encoding="utf-8")


def test_the_page_shows_the_patch_or_the_command_for_it(study: Path, work: Path) -> None:
    assert main(["report", "--html"]) == 0
    command = f"<code>hotlap patch .hotlap/{study.name}</code>"
    assert command in (work / "hotlap-report.html").read_text(encoding="utf-8")
    file = PatchedFile(path=str(work / "train.py"), before="workers = 0\n", after="workers = 4\n", sha256="0")
    attach_to(study, PATCH, Patch(directory=str(work), files=(file,), proof=PatchProof(text="It is as fast.")))
    assert main(["report", "--html"]) == 0
    text = (work / "hotlap-report.html").read_text(encoding="utf-8")
    assert '<span class="added">+workers = 4\n</span>' in text
    assert "It is as fast." in text
    assert command not in text


def test_a_page_can_be_made_from_the_summary_alone(work: Path) -> None:
    """Use a study.json without its folder."""
    (work / "passed-on.json").write_bytes(msgspec.json.encode(fakes.FINISHED))
    assert main(["report", "passed-on.json", "--html", "a.html"]) == 0
    assert "3.65x faster" in (work / "a.html").read_text(encoding="utf-8")


def test_markdown_goes_to_standard_output(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "--markdown"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("### hotlap: `train.py --epochs 1`\n")
    assert out.endswith("</details>\n\n")
