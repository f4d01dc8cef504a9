"""Gradients of models that two real ranks share: each saves the whole ones, under the same names, however it shares."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy
import pytest
from two_ranks import on_ranks

PROGRAM = Path(__file__).with_name("gradients_on_ranks.py")
SIZES = {"body.0.weight": 42, "body.0.bias": 7, "body.2.weight": 35, "body.2.bias": 5, "head.weight": 5, "head.bias": 1}
Saved = dict[str, Any]


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Saved]]:
    """By rank and way: the arrays of the file."""
    folder = tmp_path_factory.mktemp("gradients")
    found = on_ranks(PROGRAM, b"", folder, 2, str(folder))
    return [{way: _read(path) for way, path in json.loads(it).items()} for it in found]


def _read(path: str) -> Saved:
    with numpy.load(path) as archive:
        return {name.removeprefix("gradient/0."): archive[name] for name in archive.files if name != "loss"}


@pytest.mark.parametrize("way", ["ddp", "compiled", "fsdp2", "fsdp1"])
def test_each_rank_saves_the_whole_gradients_by_the_names_of_the_model(ranks: list[dict[str, Saved]], way: str) -> None:
    for rank in ranks:
        assert {name.replace("_orig_mod.", ""): it.size for name, it in rank[way].items()} == SIZES
        for name, gradient in rank[way].items():
            assert numpy.array_equal(gradient, ranks[0][way][name]), name
            numpy.testing.assert_allclose(gradient, rank["ddp"][name], rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("way", ["fsdp2", "fsdp1"])
def test_a_reference_in_float64_with_nudged_weights_is_the_same_however_it_is_shared(ranks, way: str) -> None:
    for rank in ranks:
        for name, gradient in rank["ddp wide"].items():
            assert gradient.dtype == rank[f"{way} wide"][name].dtype == numpy.float64
            numpy.testing.assert_allclose(rank[f"{way} wide"][name], gradient, rtol=1e-10, atol=1e-13)
            assert not numpy.array_equal(gradient, rank["ddp"][name]), "neither wide nor nudged"


def test_of_flat_weights_the_part_of_the_rank_is_saved(ranks: list[dict[str, Saved]]) -> None:
    parts = [rank["flat"] for rank in ranks]
    assert [list(it) for it in parts] == [["_flat_param"]] * 2
    assert sum(it["_flat_param"].size for it in parts) >= sum(SIZES.values())
