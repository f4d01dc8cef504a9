"""Pages that the site makes from the code: levers, findings, lint rules, commands, functions.

A hook of MkDocs. The docstring of a lever's or rule's file is its page, and a command's help is what its own parser
says; nothing is written twice, so nothing can differ.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page as SitePage

import hotlap
from hotlap.cli.main import COMMANDS
from hotlap.diagnose.api import all_rules
from hotlap.levers.api import Parameter, levers_of_any_work
from hotlap.plan import FORMAT
from hotlap.render.rule_pages import GROUPS
from hotlap.render.schemas import NAMES, file_name, schema_of
from hotlap.source.lint.api import FixSafety
from hotlap.source.lint.api import all_rules as lint_rules

_FIXES: dict[FixSafety, str] = {
    "safe": "`--fix` writes it",
    "unsafe": "`--unsafe-fixes` writes it",
    "shown": "shown only",
    "none": "none",
}


_SEARCH_BOOST = {"levers/": 2.0, "findings/": 2.0, "lint/": 1.5, "benchmarks/": 0.5}
"""By how much the search prefers the pages of a folder; all others have 1."""

_ROOT = Path(__file__).parents[2]
_PROCESSOR = re.compile(
    r"(?:AMD|Intel)(?:\([^)\n|]*\)|[^,;.\n|(])*, \d+ cores, [^,;.\n|]*, (?:no accelerator|a simulated [^,;.\n|]*)"
)
_NAMED_PACKAGES = ("numpy", "transformers", "accelerate", "lightning", "libcst", "msgspec", "rich")
_TESTED = """# Tested versions and hardware

`make test`, which every change must pass, runs with these versions and Python 3.11 on Linux:

{table}

`make test-oldest-torch` runs the tests of what touches torch with torch {oldest}, the oldest version supported.

**Processors.** The results under [benchmarks](benchmarks/README.md) name these machines, and no other was measured:

{machines}

**Accelerators: an NVIDIA H200, twice for a quarter of an hour**, with torch 2.11 for CUDA 13 and Python 3.12. Of the 45
tests of `make test-gpu` 32 passed there, 2 failed and were mended but not run again, and the time ended before the
other 11; of levers and of switching them within a launch, 16 tests passed and none failed before the second time ended.
[Its](benchmarks/gpu.md) [figures](benchmarks/gpu-switching.md) are the only ones that were measured on a GPU; the cost
of the hooks is one of them, and is too high there. Otherwise code for NVIDIA devices is tested on a simulated device,
which verifies its correctness but not its speed. `make test-gpu` and `make bench-gpu` run the tests and benchmarks for
a real one. Code for other accelerators has never run on one.

**Frameworks.** The tests run scripts with plain loops, Lightning, Hugging Face Trainer and Accelerate.
"""


@dataclass(frozen=True, slots=True)
class Page:
    """One generated page: its path within the site's sources, and its Markdown."""

    path: str
    text: str


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages to the site (MkDocs calls this by its name)."""
    for page in (*pages(), *_schemas()):
        files.append(File.generated(config, page.path, content=page.text, inclusion=InclusionLevel.INCLUDED))
    return files


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the pages into the navigation, where a section says so by naming a folder."""
    config.nav = [_filled(entry) for entry in config.nav or ()]
    repository = os.environ.get("HOTLAP_REPOSITORY", "").rstrip("/")
    if repository:
        config.repo_url = repository
        config.repo_name = "/".join(repository.split("/")[-2:])
        config.edit_uri = "edit/main/docs/"
    return config


def on_page_markdown(markdown: str, page: SitePage, config: MkDocsConfig, files: Files) -> str:
    """Let the search prefer pages that say what to do to tables of figures (MkDocs calls this by its name)."""
    for folder, boost in _SEARCH_BOOST.items():
        if page.file.src_uri.startswith(folder):
            page.meta.setdefault("search", {"boost": boost})
    return markdown


def pages() -> Iterator[Page]:
    """All of them."""
    yield from _levers()
    yield from _findings()
    yield from _lint_rules()
    yield _commands()
    yield _python()
    yield _tested()
    yield _plan_format()


def _filled(entry: object) -> object:
    """An entry such as ``Levers: levers/`` with the pages of that folder in its place."""
    if isinstance(entry, dict):
        return {
            title: [it.path for it in pages() if it.path.startswith(target)]
            if isinstance(target, str) and target.endswith("/")
            else target
            for title, target in entry.items()
        }
    return entry


def _levers() -> Iterator[Page]:
    levers = levers_of_any_work().values()
    rows = [(f"[{it.name}]({it.name}.md)", it.proof, " and ".join(it.work), it.title) for it in levers]
    yield Page(
        "levers/index.md",
        "# Levers\n\nWhat hotlap tries. Each requires a proof that results stay the same: "
        "[how it measures](../how-it-measures.md#identical-results) explains the words.\n\n"
        + _table(("lever", "proof", "for", "what it does"), rows),
    )
    for it in levers:
        findings = [f"[{name}](../findings/{name}.md)" for name in it.addresses]
        facts = [f"**Proof it owes:** {it.proof}", f"**For:** {' and '.join(it.work)}"]
        facts += [f"**Answers:** {', '.join(findings)}"] if findings else []
        facts += [f"**In a plan:** `{name}`, {_values(parameter)}" for name, parameter in it.parameters.items()]
        yield Page(f"levers/{it.name}.md", _docstring_page(it.name, it.page, facts))


def _values(parameter: Parameter) -> str:
    if parameter.choices:
        return "one of " + ", ".join(f"`{choice}`" for choice in parameter.choices)
    low, high = parameter.minimum, parameter.maximum
    kind = {int: "a whole number", bool: "true or false", str: "a text", float: "a number"}
    bounds = (f" from {low}" if low is not None else "") + (f" to {high}" if high is not None else "")
    return kind[parameter.kind] + bounds


def _findings() -> Iterator[Page]:
    rules = all_rules().values()
    parts = ["# Findings\n\nThe causes of slowness that hotlap knows, and shows only with evidence."]
    for group, heading in GROUPS.items():
        rows = [(f"[{it.name}]({it.name}.md)", it.title) for it in rules if it.group == group]
        parts += [f"## {heading}", _table(("finding", "what it says"), rows)]
    yield Page("findings/index.md", "\n\n".join(parts))
    for it in rules:
        levers = [f"[{name}](../levers/{name}.md)" for name in it.levers]
        facts = [f"**Levers that answer it:** {', '.join(levers) or 'none; see what to do'}"]
        yield Page(f"findings/{it.name}.md", _docstring_page(it.name, it.page, facts))


def _lint_rules() -> Iterator[Page]:
    rules = lint_rules().values()
    parts = ["# Lint rules\n\nWhat `hotlap lint` sees without running anything."]
    for group in dict.fromkeys(it.group for it in rules):
        rows = [(f"[{it.code}]({it.code}.md)", it.title, _FIXES[it.fix_safety]) for it in rules if it.group == group]
        parts += [f"## {group}", _table(("rule", "what it finds", "fix"), rows)]
    yield Page("lint/index.md", "\n\n".join(parts))
    for it in rules:
        facts = [f"**Name:** `{it.name}`", f"**Fix:** {_FIXES[it.fix_safety]}"]
        facts += [f"**Measured:** {it.measured}"] if it.measured else []
        yield Page(f"lint/{it.code}.md", _docstring_page(f"{it.code} {it.name}", it.page, facts))


def _commands() -> Page:
    parts = ["# Commands"]
    for name, what in COMMANDS.items():
        command = importlib.import_module(f"hotlap.cli.{name}")
        parts += [f"## hotlap {name}", f"{what[:1].upper()}{what[1:]}.", _fenced(command.parser().format_help())]
    return Page("commands.md", "\n\n".join(parts))


def _tested() -> Page:
    pinned = (_ROOT / "constraints.txt").read_text(encoding="utf-8")
    versions = dict(re.findall(r"^([\w-]+)==(\S+)$", pinned, re.MULTILINE))
    newest, oldest = re.findall(r"^(?:OLDEST_)?TORCH := torch==(\S+)$", (_ROOT / "Makefile").read_text(), re.MULTILINE)
    rows = [("torch", f"{newest}, for CPUs"), *((f"`{it}`", versions[it]) for it in _NAMED_PACKAGES)]
    table = _table(("package", "version"), rows)
    return Page("tested.md", _TESTED.format(oldest=oldest, table=table, machines=_machines()))


def _machines() -> str:
    """The processors that the results of benchmarks name, each with its results."""
    found: dict[str, list[str]] = {}
    for path in sorted((_ROOT / "docs" / "benchmarks").rglob("*.md")):
        for name in _PROCESSOR.findall(path.read_text(encoding="utf-8")):
            at = path.relative_to(_ROOT / "docs").as_posix()
            if at not in found.setdefault(name.strip(), []):
                found[name.strip()].append(at)
    return _table(
        ("processor", "results"),
        [(name, ", ".join(f"[{Path(it).stem}]({it})" for it in paths)) for name, paths in sorted(found.items())],
    )


def _plan_format() -> Page:
    text = (Path(__file__).parent / "plan_format.md").read_text(encoding="utf-8")
    rows = []
    for name, lever in levers_of_any_work().items():
        keys = [f"`{key}`: {_values(it)}{'' if it.required else ' (optional)'}" for key, it in lever.parameters.items()]
        rows.append((f"[`[levers.{name}]`](levers/{name}.md)", "<br>".join(keys) or "no keys"))
    levers = _table(("table", "keys"), rows)
    return Page("plan-format.md", text.format(format=FORMAT, levers=levers, schema=file_name("plan")))


def _schemas() -> Iterator[Page]:
    for name in NAMES:
        yield Page(f"schemas/{file_name(name)}", json.dumps(schema_of(name), indent=2))


def _python() -> Page:
    functions = {name: it for name in hotlap.__all__ if inspect.isfunction(it := getattr(hotlap, name))}
    parts = [
        "# From Python\n\nEach function answers with a record; the fields of a `Study` are those of "
        "[its format](study-format.md). Errors are of type `hotlap.HotlapError`.",
        _table(
            ("function", "what it does"),
            [(f"[`{name}`](#hotlap{name})", _summary(it)) for name, it in functions.items()],
        ),
    ]
    for name, function in functions.items():
        lines = [_parameter(it) for it in inspect.signature(function).parameters.values()]
        signature = ",\n    ".join(_with_stars(lines, function))
        parts += [f"## hotlap.{name}", f"```text\nhotlap.{name}(\n    {signature},\n)\n```", _in_markdown(function)]
    for kind in (hotlap.Study, hotlap.Plan):
        members = {name: it for name, it in vars(kind).items() if inspect.isfunction(it) or isinstance(it, property)}
        public = {name: it for name, it in members.items() if not name.startswith("_")}
        parts += [f"## hotlap.{kind.__name__}", *(_member(name, it) for name, it in public.items())]
    return Page("python.md", "\n\n".join(parts))


def _member(name: str, it: Callable[..., object] | property) -> str:
    """A method or property of a record, with its docstring."""
    if isinstance(it, property):
        return f"**`{name}`**\n\n{_in_markdown(it)}"
    given = list(inspect.signature(it).parameters.values())[1:]
    return f"**`{name}({', '.join(map(_parameter, given))})`**\n\n{_in_markdown(it)}"


def _summary(function: Callable[..., object]) -> str:
    return _in_markdown(function).partition("\n\n")[0].replace("\n", " ")


def _parameter(it: inspect.Parameter) -> str:
    """``steps: int = 12``, as the source has it."""
    star = "*" if it.kind is inspect.Parameter.VAR_POSITIONAL else ""
    default = os.fspath(it.default) if isinstance(it.default, Path) else it.default
    return f"{star}{it.name}: {it.annotation}" + ("" if default is inspect.Parameter.empty else f" = {default!r}")


def _with_stars(lines: list[str], function: Callable[..., object]) -> list[str]:
    """The parameters with the star in front of those that are given by name alone."""
    kinds = [it.kind for it in inspect.signature(function).parameters.values()]
    named = [index for index, kind in enumerate(kinds) if kind is inspect.Parameter.KEYWORD_ONLY]
    if not named or inspect.Parameter.VAR_POSITIONAL in kinds:
        return lines
    return [*lines[: named[0]], "*", *lines[named[0] :]]


def _in_markdown(function: Callable[..., object] | property) -> str:
    """A function's docstring, its references and literals as code."""
    text = re.sub(r":(?:func|class|mod|data):`~?([^`]+)`", r"`\1`", inspect.getdoc(function) or "")
    return text.replace("``", "`")


def _docstring_page(name: str, docstring: str, facts: Iterable[str]) -> str:
    title, _, rest = inspect.cleandoc(docstring).partition("\n")
    return "\n\n".join((f"# {name}", title, *facts, _spaced(rest.strip())))


def _spaced(text: str) -> str:
    """Lists and indented code of a docstring with the blank line before them that Markdown wants."""
    linked = re.sub(r"(?<![<(\"`])(https://[^\s)>]+)", r"<\1>", text)
    headed = re.sub(r"^(#+ .*)\n(?!\n)", r"\1\n\n", linked, flags=re.MULTILINE)
    return re.sub(r"(^[^\n\-*| #][^\n]*\n)(?=[-*|] )", r"\1\n", headed, flags=re.MULTILINE)


def _table(header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [header, tuple("---" for _ in header), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def _fenced(text: str) -> str:
    return f"```text\n{text.rstrip()}\n```"
