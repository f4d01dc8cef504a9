"""What reports say about the isolation of trials."""

from __future__ import annotations

import io
from pathlib import Path

import fakes
import msgspec
import pytest
from rich.console import Console, RenderableType

from hotlap.records import FileWrite, Machine, Protection, Study
from hotlap.render.doctor import doctor
from hotlap.render.headline import headline
from hotlap.render.html.parts import Pairs
from hotlap.render.isolation import isolation_document, study_warnings
from hotlap.render.json import study_json
from hotlap.render.kinds.search import what_was_done
from hotlap.render.markdown import markdown_report
from hotlap.render.material import Material
from hotlap.render.sections import machine as machine_section
from hotlap.render.terminal import report
from hotlap.render.text import markdown


def plain(what: RenderableType, width: int = 120) -> str:
    console = Console(width=width, markup=False, highlight=False, emoji=False, color_system=None, file=io.StringIO())
    with console.capture() as capture:
        console.print(what)
    return capture.get()


def test_a_denied_write_is_not_blamed_on_the_script() -> None:
    found = headline(fakes.DENIED)
    assert found.sentence.startswith("The script failed in isolation: the kernel denied writing out/t.parquet")
    assert any("caused this, not the script" in it for it in found.details)
    assert "The script itself failed" not in what_was_done(fakes.DENIED)
    assert '"denied_path": "out/t.parquet"' in study_json(fakes.DENIED)
    assert not any("isolation" in it for it in headline(fakes.SCRIPT_FAILED).details)


def shown(study: Study) -> str:
    return " ".join(plain(report(study)).split())


@pytest.mark.parametrize(
    ("machine", "says", "gap"),
    [
        (
            fakes.MACHINE,
            "Isolation: namespaces; what the script wrote went to a layer of the run and was thrown away.",
            "",
        ),
        (
            fakes.FENCED,
            "Isolation: fence; what the script's Python code wrote went to the run and was thrown away, and the kernel "
            "denied all other writes. Trials had no network except loopback.",
            "Not protected: Programs that the script starts may change modes, owners, times and extended attributes",
        ),
        (
            fakes.UNPROTECTED,
            "Isolation: none; what the script's Python code wrote went to the run and was thrown away, and nothing "
            "kept other writes from your files.",
            "Not protected: Programs that the script starts, and libraries that write files without Python, change",
        ),
    ],
)
def test_every_report_names_the_isolation(machine: Machine, says: str, gap: str) -> None:
    study = msgspec.structs.replace(fakes.FINISHED, machine=machine)
    assert says in shown(study) and gap in shown(study)
    assert markdown(says) in markdown_report(study) and markdown(gap) in markdown_report(study)
    name, _, rest = says.partition(": ")
    blocks = machine_section.page(Material(study=study)).body
    facts = [(it.name, it.value) for block in blocks if isinstance(block, Pairs) for it in block.of]
    assert (name, rest) in facts
    assert any(f"{name}: {value}".startswith(gap) for name, value in facts)
    assert ("Not protected" in shown(study)) == bool(gap)


def test_only_trials_without_isolation_cause_a_warning() -> None:
    warned = {
        mode: [it for it in study_warnings(msgspec.structs.replace(fakes.FINISHED, machine=machine)) if "isolate" in it]
        for mode, machine in (("namespaces", fakes.MACHINE), ("fence", fakes.FENCED), ("none", fakes.UNPROTECTED))
    }
    assert [len(it) for it in warned.values()] == [0, 0, 1]
    study = msgspec.structs.replace(fakes.FINISHED, machine=fakes.UNPROTECTED)
    words = "The kernel did not isolate the trials"
    assert words in shown(study) and words in markdown_report(study)


def test_a_study_from_before_isolation_does_not_mention_it() -> None:
    study = msgspec.structs.replace(fakes.FINISHED, machine=msgspec.structs.replace(fakes.MACHINE, protection=None))
    assert "Isolation" not in shown(study)


def test_files_read_from_the_layers_are_called_unchanged() -> None:
    files = (FileWrite(path="ckpt/best.pt", redirected=True),)
    study = msgspec.structs.replace(fakes.FINISHED, files=files)
    assert "wrote or changed untouched, trials wrote to copies, which are gone: ckpt/best.pt" in shown(study)


@pytest.mark.parametrize(
    ("machine", "says"),
    [
        (fakes.MACHINE, "mode namespaces"),
        (fakes.MACHINE, "shared ~/.cache (caches, as the script uses them)"),
        (fakes.MACHINE, "processes ended by the kernel with the run"),
        (fakes.MACHINE, "network open: trials have the script's network access"),
        (fakes.FENCED, "network none: trials reach only loopback"),
        (fakes.FENCED, "not in use namespaces: Operation not permitted (unshare) EPERM"),
        (fakes.FENCED, "processes ended by hotlap one by one"),
        (fakes.UNPROTECTED, "trials are refused without `--unprotected`."),
        (fakes.UNPROTECTED, "not in use fence: the kernel has no Landlock, or it is switched off"),
    ],
)
def test_the_doctor_names_the_isolation(machine: Machine, says: str) -> None:
    assert says in " ".join(plain(doctor(machine), width=200).split())


def test_the_doctor_shows_caches_relative_to_home() -> None:
    protection = Protection(mode="namespaces", shared_folders=(f"{Path.home()}/.cache",))
    machine = msgspec.structs.replace(fakes.MACHINE, protection=protection)
    assert "~/.cache (caches" in plain(doctor(machine), width=200)
    assert str(Path.home()) not in plain(doctor(machine), width=200)


def test_the_doctor_names_the_isolation_in_json() -> None:
    document = isolation_document(fakes.FENCED)
    assert document is not None
    assert (document.mode, document.network) == ("fence", "none")
    assert document.meaning.startswith("What a trial's Python code writes goes to the run")
    assert document.reasons and document.gaps
    assert isolation_document(Machine()) is None
