"""What an index of packages would show of this project."""

from __future__ import annotations

import importlib.util
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

# Found in trove-classifiers 2026.9.21.13, none of them deprecated. An index refuses a package with any other.
KNOWN = {
    "Development Status :: 3 - Alpha",
    "Environment :: Console",
    "Intended Audience :: Developers",
    "Intended Audience :: Science/Research",
    "Operating System :: POSIX :: Linux",
    "Programming Language :: Python :: 3 :: Only",
    "Programming Language :: Python :: 3.11",
    "Topic :: Scientific/Engineering :: Artificial Intelligence",
    "Topic :: System :: Benchmark",
    "Typing :: Typed",
}


def test_every_classifier_exists() -> None:
    assert set(PROJECT["classifiers"]) <= KNOWN
    if importlib.util.find_spec("trove_classifiers") is not None:
        trove = importlib.import_module("trove_classifiers")
        assert trove.classifiers >= KNOWN and not KNOWN & set(trove.deprecated_classifiers)


def test_the_license_is_an_expression_and_no_classifier() -> None:
    """PEP 639: an index refuses both together."""
    assert PROJECT["license"] == "Apache-2.0"
    assert not [it for it in PROJECT["classifiers"] if it.startswith("License ::")]


def test_no_address_is_made_up() -> None:
    """The repository has no public address yet; one that is added belongs into mkdocs.yml too."""
    addresses = PROJECT.get("urls", {})
    site = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert all(it.startswith("https://") and it in site for it in addresses.values())
    assert not any(host in it for it in addresses.values() for host in ("example.", "your-", "username"))
