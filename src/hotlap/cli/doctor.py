"""``hotlap doctor``: this machine's hardware, measured rates, isolation and problems."""

from __future__ import annotations

import os
from pathlib import Path

from hotlap import api
from hotlap.cli import screen
from hotlap.cli.arguments import Parser
from hotlap.errors import HotlapError
from hotlap.machine.doctor import advice
from hotlap.records import Isolation, Machine
from hotlap.render.doctor import Remark, doctor
from hotlap.render.isolation import isolation_document
from hotlap.trial.owned_folder import owned_folder

_DESCRIPTION = """\
Looks at this machine and measures in a few seconds how fast it multiplies and copies; says what is
wrong with it for training, how trials are isolated on it, and what to do about both."""


def parser() -> Parser:
    """The command's options."""
    made = Parser("hotlap doctor", _DESCRIPTION, usage="hotlap doctor [options]")
    made.add_argument("--json", action="store_true", help="print one JSON document")
    made.add_debug()
    return made


def main(words: list[str], engine: api.Engine) -> int:
    """Run the command. Raises :class:`hotlap.errors.HotlapError`."""
    choices = parser().parse_args(words)
    machine = _machine(engine)
    remarks = [Remark(level=it.level, text=it.text, remedy=it.remedy) for it in advice(machine)]
    if choices.json:
        document = {
            "machine": machine,
            "isolation": isolation_document(machine),
            "advice": [(it.level, it.text, it.remedy) for it in remarks],
        }
        screen.document("doctor", document)
    else:
        screen.show(doctor(machine, remarks))
    return 0


def _machine(engine: api.Engine) -> Machine:
    """Describe the machine as trials from this directory would find it."""
    here = Path.cwd()
    with owned_folder(".hotlap-doctor-", here if os.access(here, os.W_OK | os.X_OK) else None) as directory:
        try:
            return engine.executor(directory, Isolation()).machine()
        except HotlapError:
            return engine.executor(directory, Isolation(unprotected=True)).machine()
