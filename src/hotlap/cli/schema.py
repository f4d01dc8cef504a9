"""``hotlap schema``: the JSON Schemas of what hotlap prints and reads."""

from __future__ import annotations

import json

from hotlap import api
from hotlap.cli import screen
from hotlap.cli.arguments import Parser, nearest
from hotlap.errors import UsageError
from hotlap.render.schemas import NAMES, file_name, schema_of

_DESCRIPTION = """\
Lists the JSON documents that commands print, or shows the JSON Schema of one. `plan` is the schema of
plan files, with which editors complete and check their TOML."""

_EXAMPLES = """\
examples:
  hotlap schema                                lists them
  hotlap schema check > check.schema.json      of what `hotlap check --json` prints
  hotlap schema plan > plan.schema.json        of hotlap.toml"""


def parser() -> Parser:
    """The command's options."""
    made = Parser("hotlap schema", _DESCRIPTION, _EXAMPLES, usage="hotlap schema [options] [NAME]")
    made.add_argument("name", nargs="?", help="print the schema of this document")
    made.add_debug()
    return made


def main(words: list[str], engine: api.Engine) -> int:
    """Run the command. Raises :class:`hotlap.errors.HotlapError`."""
    choices = parser().parse_args(words)
    if choices.name is None:
        for it in NAMES:
            screen.say(f"{it:<{max(map(len, NAMES))}}  {file_name(it)}")
        screen.note("`hotlap schema NAME` prints one.")
        return 0
    name = choices.name.removeprefix("hotlap-")
    if name not in NAMES:
        raise UsageError(
            f"There is no document named {choices.name!r}.", remedy=f"{nearest(name, NAMES)}`hotlap schema` lists them."
        )
    screen.say(json.dumps(schema_of(name), indent=2))
    return 0
