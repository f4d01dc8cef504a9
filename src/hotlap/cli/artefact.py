"""``hotlap export artefact``: the recommended form of a model as a folder that runs without hotlap."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import msgspec

from hotlap import api
from hotlap.api.artefacts import deploy
from hotlap.cli import screen
from hotlap.cli.arguments import Parser
from hotlap.cli.named import named_study
from hotlap.cli.options import (
    add_budget_option,
    add_isolation_options,
    add_limit_options,
    add_seed_option,
    launch_options,
)
from hotlap.cli.trust import add_trust_option, approval
from hotlap.cli.watching import watched
from hotlap.render.artefact import artefact_lines
from hotlap.study import INFERENCES

_DESCRIPTION = """\
Writes the recommended form of a model, from a study of `hotlap infer`, as a folder that runs without
hotlap: the model's files, load.py, requirements.txt, contract.json (names, dtypes and shapes of inputs
and outputs) and proof.json (quality and speed with intervals). A fresh process then loads the folder
without hotlap and must return what the study's form returns, and both take turns to compare their speed."""

_EXAMPLES = """\
examples:
  hotlap export artefact                       of the last study, into hotlap-export/artefact
  hotlap export artefact --to model .hotlap/infer/20260131-142501-337
  hotlap export artefact --to model --force    replaces an earlier one

To use it:  from load import load;  model = load();  outputs = model(input=array)

exit code: 0 if the folder was written; 1 if the model cannot be written, or its files return something
else; 2 for bad usage; 130 after Ctrl-C. After an error the folder is as it was."""


_DELTA = 0.05
"""The smallest difference in speed between the folder and the study's form that is looked for, as a share: both run the
same engine, so the comparison is a check that nothing was lost, not a search for a gain."""


def parser() -> Parser:
    """The command's options."""
    made = Parser(
        "hotlap export artefact", _DESCRIPTION, _EXAMPLES, usage="hotlap export artefact [options] [STUDY] --to DIR"
    )
    made.add_argument(
        "study", nargs="?", type=Path, default=api.STUDIES / INFERENCES, help="a study, or a folder of studies"
    )
    made.add_argument(
        "--to", type=Path, default=Path("hotlap-export") / "artefact", metavar="DIR",
        help="write to this folder (default: hotlap-export/artefact)",
    )  # fmt: skip
    made.add_argument("--force", action="store_true", help="replace an earlier model in that folder")
    made.add_argument(
        "--untimed", action="store_true", help="do not compare the speed of the written model with the study's"
    )
    group = made.add_argument_group("the comparison")
    add_budget_option(group)
    add_seed_option(group)
    add_isolation_options(made)
    add_limit_options(made, of_calls=True)
    add_trust_option(made)
    made.add_json("print one JSON document: the proof")
    made.add_argument("--show-output", action="store_true", help="show what the model's program prints")
    made.add_debug()
    return made


def main(words: list[str], engine: api.Engine) -> int:
    """Run the command. Raises :class:`hotlap.errors.HotlapError`."""
    choices = parser().parse_args(words)
    found = named_study(choices.study, "plan")
    options = msgspec.structs.replace(launch_options(choices), delta=_DELTA)
    proof = deploy(
        found,
        choices.to,
        options,
        engine.executor,
        partial(watched, choices, found),
        force=choices.force,
        timed=not choices.untimed,
        approve=approval(choices),
    )
    if choices.json:
        screen.document("artefact", proof, exact=True)
        return 0
    for it in artefact_lines(proof, str(choices.to)):
        screen.say(it)
    return 0
