"""The sources that are linted, and every hit in them.

All Python files of the packages are read; those that do not import torch have no hits. Nothing is
imported. A hit is known by the package, its version, the file's path in it, the rule and the text of the line, so that
labels outlive lines that move. The same lines with the same lines around them in several packages or files, as in
packages that are published under two names, are one hit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from hotlap.errors import LintError
from hotlap.source.lint.api import all_rules
from hotlap.source.lint.pool import lint_many
from hotlap.source.lint.run import Options

ROOT = Path(__file__).resolve().parents[2]
INSTALLED = ("torch", "transformers", "accelerate", "lightning", "pytorch-lightning")
OURS = ("examples", "tests/workloads")
FURTHER = Path(__file__).parent / "further.txt"
HELD_OUT = Path(__file__).parent / "held_out.txt"
_AROUND = 3


@dataclass(frozen=True, slots=True)
class Package:
    """A package or folder whose files are linted. Their paths are relative to ``root``."""

    name: str
    version: str
    root: Path
    files: tuple[Path, ...]


@dataclass(frozen=True, slots=True, order=True)
class Key:
    """What a label is about."""

    package: str
    version: str
    path: str
    code: str
    line: str


@dataclass(frozen=True, slots=True)
class Hit:
    """One hit; ``number`` is its line, ``around`` the text of the lines that tell it from others."""

    key: Key
    number: int
    message: str
    around: str


def installed() -> list[Package]:
    """The packages that the tests install, and our own scripts."""
    packages = [_package(metadata.distribution(it)) for it in INSTALLED]
    files = tuple(sorted(file for folder in OURS for file in (ROOT / folder).rglob("*.py")))
    return [*packages, Package("hotlap", "", ROOT, files)]


def listed(names: Path, folder: Path) -> list[Package]:
    """The packages that a list names, unpacked into a folder. Raises :class:`LintError` for one that is not there."""
    found = {_normal(it.metadata["Name"]): it for it in metadata.distributions(path=[str(folder)])}
    packages = []
    for line in names.read_text(encoding="utf-8").splitlines():
        if not line or line.startswith("#"):
            continue
        name, _, version = line.partition("==")
        package = found.get(_normal(name))
        if package is None or package.version != version:
            raise LintError(f"{line} is not in {folder}.", remedy=f"The head of {FURTHER.name} says how to get it.")
        packages.append(_package(package))
    return packages


def hits_in(packages: Sequence[Package], seen: set[tuple[str, str]]) -> tuple[list[Hit], int]:
    """Every hit of every rule, copies once, and how many files were looked at. ``seen`` collects the hits."""
    owners = {str(file): package for package in packages for file in package.files}
    report = lint_many([Path(it) for it in owners], Options(rules=list(all_rules().values())))
    texts: dict[str, list[str]] = {}
    found: list[Hit] = []
    for finding in report.findings:
        if finding.file not in texts:
            texts[finding.file] = Path(finding.file).read_text(encoding="utf-8", errors="replace").splitlines()
        package, lines = owners[finding.file], texts[finding.file]
        hit = _hit(package, finding.file, finding.place.line, finding.code, finding.message, lines)
        mark = hit.key.code, hit.around
        if mark not in seen:
            seen.add(mark)
            found.append(hit)
    return found, report.checked_files


def _hit(package: Package, file: str, number: int, code: str, message: str, lines: Sequence[str]) -> Hit:
    path = Path(file).relative_to(package.root).as_posix()
    text = " ".join(lines[number - 1].split())
    around = "\n".join(it.strip() for it in lines[max(0, number - 1 - _AROUND) : number + _AROUND])
    return Hit(Key(package.name, package.version, path, code, text), number, message, around)


def _package(distribution: metadata.Distribution) -> Package:
    name, version = _normal(distribution.metadata["Name"]), distribution.version.partition("+")[0]
    return Package(name, version, Path(str(distribution.locate_file(""))), tuple(_sources(distribution)))


def _sources(distribution: metadata.Distribution) -> Iterator[Path]:
    for file in sorted(distribution.files or (), key=str):
        path = Path(str(distribution.locate_file(file)))
        if path.suffix == ".py" and path.is_file():
            yield path


def _normal(name: str) -> str:
    return name.lower().replace("_", "-")
