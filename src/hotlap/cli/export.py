"""``hotlap export``: write a study for other tools. Nothing is measured."""

from __future__ import annotations

import argparse
from pathlib import Path

from hotlap import api
from hotlap.cli import artefact, screen
from hotlap.cli.arguments import Parser
from hotlap.cli.named import named_study
from hotlap.errors import UsageError
from hotlap.export.csv_files import write_csv
from hotlap.export.gather import Gathered, gather
from hotlap.export.mlflow import EXPERIMENT, how_to_open, write_mlflow
from hotlap.export.tables import tables
from hotlap.export.tensorboard import write_tensorboard
from hotlap.export.wandb import PROJECT, write_wandb

ARTEFACT = "artefact"
FORMATS = ("csv", "tensorboard", "mlflow", "wandb")

_DESCRIPTION = """\
Writes a study, by default the last one, for other tools: tidy tables (csv), event files
(tensorboard), or a run of an experiment tracker (mlflow, wandb). Nothing is measured, and nothing
leaves this machine unless you name the place. `hotlap export artefact` is different: it writes the
model that a study of `hotlap infer` recommends as a folder to deploy, and examines it."""

_EXAMPLES = """\
examples:
  hotlap export csv                            tables of the last study, below hotlap-export/csv
  hotlap export tensorboard --out runs
  hotlap export mlflow --tracking-uri http://localhost:5000 .hotlap/20260131-142501-337
  hotlap export wandb                          offline; `wandb sync` sends it, if you want
  hotlap export artefact --to model            a model as files that run without hotlap

tensorboard, mlflow and wandb need the extra of that name: pip install "hotlap[tensorboard]"."""

_OPTIONS_OF = {"force": "csv", "tracking_uri": "mlflow", "experiment": "mlflow", "online": "wandb", "project": "wandb"}


def parser() -> Parser:
    """The command's options."""
    made = Parser("hotlap export", _DESCRIPTION, _EXAMPLES, usage="hotlap export [options] FORMAT [STUDY]")
    made.add_argument("format", choices=FORMATS, metavar="FORMAT", help=f"one of {', '.join(FORMATS)}, {ARTEFACT}")
    made.add_argument("study", nargs="?", type=Path, default=api.STUDIES, help="a study, or a folder of studies")
    made.add_argument("--out", type=Path, metavar="DIR", help="write to this folder (default: hotlap-export/FORMAT)")
    made.add_argument(
        "--tracking-uri", metavar="URI", help="mlflow: store the run on this tracking server instead of in a folder"
    )
    made.add_argument("--experiment", metavar="NAME", help=f"mlflow: name of the experiment (default: {EXPERIMENT})")
    made.add_argument(
        "--online", action="store_true", help="wandb: send the run to the server that you are logged in to"
    )
    made.add_argument("--project", metavar="NAME", help=f"wandb: name of the project (default: {PROJECT})")
    made.add_argument("--force", action="store_true", help="csv: replace the tables of another study")
    made.add_json("print one JSON document: what was written")
    made.add_debug()
    return made


def main(words: list[str], engine: api.Engine) -> int:
    """Run the command. Raises :class:`hotlap.errors.HotlapError`."""
    if words[:1] == [ARTEFACT]:
        return artefact.main(words[1:], engine)
    choices = parser().parse_args(words)
    _refuse_foreign(choices)
    folder = choices.out if choices.out is not None else Path("hotlap-export") / choices.format
    gathered = gather(named_study(choices.study, "answer"))
    written, advice = _write(choices, gathered, folder)
    if choices.json:
        done = {"format": choices.format, "study": gathered.study.identifier, "written": written}
        screen.document("export", done, exact=True)
        return 0
    for it in written:
        screen.say(it)
    screen.note(advice)
    return 0


def _write(choices: argparse.Namespace, gathered: Gathered, folder: Path) -> tuple[list[str], str]:
    """Write the study; return what was written, and how to open it."""
    if choices.format == "csv":
        files = write_csv(tables(gathered), folder, force=choices.force)
        return [str(it) for it in files], "columns.csv describes every column"
    if choices.format == "tensorboard":
        return [str(write_tensorboard(gathered, folder))], f"`tensorboard --logdir {folder}` shows it"
    if choices.format == "mlflow":
        experiment = choices.experiment or EXPERIMENT
        run = write_mlflow(gathered, folder, tracking_uri=choices.tracking_uri, experiment=experiment)
        there = f"the run {run.identifier} is in {choices.tracking_uri or folder}"
        return [run.identifier], there if choices.tracking_uri else f"{there}; `{how_to_open(run)}` shows it"
    name = str(write_wandb(gathered, folder, online=choices.online, project=choices.project or PROJECT))
    return [name], "sent" if choices.online else f"nothing was sent; `wandb sync {name}` would send it"


def _refuse_foreign(choices: argparse.Namespace) -> None:
    """Raise :class:`UsageError` for an option of another format."""
    for name, of in _OPTIONS_OF.items():
        if getattr(choices, name) and choices.format != of:
            flag = f"--{name.replace('_', '-')}"
            raise UsageError(f"{flag} is an option of `hotlap export {of}`.", remedy="Leave it out.")
