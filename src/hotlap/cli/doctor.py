"""``hotlap doctor``: what this machine is, what it reaches, and what is wrong with it."""

from __future__ import annotations

import msgspec

from hotlap import api
from hotlap.cli import screen
from hotlap.cli.arguments import Parser
from hotlap.machine.doctor import advice
from hotlap.records import Isolation
from hotlap.render.doctor import Remark, doctor
from hotlap.trial.owned_folder import owned_folder

_DESCRIPTION = """\
Looks at this machine and measures in a few seconds how fast it multiplies and copies; says what is
wrong with it for training, and what to do about it."""


def parser() -> Parser:
    """The command's options."""
    made = Parser("hotlap doctor", _DESCRIPTION, usage="hotlap doctor [options]")
    made.add_argument("--json", action="store_true", help="print one JSON document")
    made.add_debug()
    return made


def main(words: list[str], engine: api.Engine) -> int:
    """Run the command. Raises :class:`hotlap.errors.HotlapError`."""
    choices = parser().parse_args(words)
    with owned_folder("hotlap-doctor-") as directory:
        machine = engine.executor(directory, Isolation()).machine()
    remarks = [Remark(level=it.level, text=it.text, remedy=it.remedy) for it in advice(machine)]
    if choices.json:
        document = {"machine": machine, "advice": [(it.level, it.text, it.remedy) for it in remarks]}
        screen.say(msgspec.json.format(msgspec.json.encode(document), indent=2).decode())
    else:
        screen.show(doctor(machine, remarks))
    return 0
