"""The example that serves an exported model: requests that share a call, those that are refused, and a real server."""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bench.serve.load import drive, poisson_times
from bench.serve.server import serving
from inference.conftest import Target
from inference.test_artefact import loaded, setting, write

EXAMPLE = Path(__file__).parents[2] / "examples" / "serving" / "artefact.py"

LOADER = """
import numpy

calls = []


def load(folder, threads=0):
    def call(**arrays):
        calls.append({name: it.shape for name, it in arrays.items()})
        return MODEL(**arrays)

    return call


def MODEL(x):
    return {"sum": x.sum(1), "twice": 2 * x}
"""


def example() -> Any:
    spec = importlib.util.spec_from_file_location("served_artefact", EXAMPLE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


served = example()


def artefact(folder: Path, shape: list[int | None], dtype: str = "float32", model: str = "") -> Any:
    contract = {"inputs": [{"name": "x", "dtype": dtype, "shape": shape}], "arrays": "numpy", "threads": 0}
    (folder / "contract.json").write_text(json.dumps(contract))
    (folder / "load.py").write_text(LOADER + model)
    return served.Artefact(folder)


def calls_of(found: Any) -> Any:
    return found._model.__globals__["calls"]


def test_requests_of_one_shape_share_a_call(tmp_path: Path) -> None:
    found = artefact(tmp_path, [None, None])
    asked = [[[1.0, 2.0]], [[3.0, 4.0], [5.0, 6.0]], [[1.0, 2.0, 3.0]]]
    answers = found.answers([found.arrays({"x": it}) for it in asked])
    assert answers == [
        {"sum": [3.0], "twice": [[2.0, 4.0]]},
        {"sum": [7.0, 11.0], "twice": [[6.0, 8.0], [10.0, 12.0]]},
        {"sum": [6.0], "twice": [[2.0, 4.0, 6.0]]},
    ]
    assert calls_of(found) == [{"x": (3, 2)}, {"x": (1, 3)}]


def test_a_model_of_one_size_is_called_for_each_request(tmp_path: Path) -> None:
    found = artefact(tmp_path, [1, 2])
    assert not found.joins
    answers = found.answers([found.arrays({"x": [[it, it]]}) for it in (1.0, 2.0)])
    assert [it["sum"] for it in answers] == [[2.0], [4.0]] and len(calls_of(found)) == 2


def test_outputs_without_rows_end_the_sharing(tmp_path: Path) -> None:
    """The first dimension is open, but the model returns one figure for all of it."""
    found = artefact(tmp_path, [None, 2], model="\n\ndef MODEL(x):\n    return {'all': x.sum()}\n")
    requests = [found.arrays({"x": [[it, it]]}) for it in (1.0, 2.0)]
    assert found.answers(requests) == [{"all": 2.0}, {"all": 4.0}] and not found.joins
    assert found.answers(requests) == [{"all": 2.0}, {"all": 4.0}]
    assert [it["x"] for it in calls_of(found)] == [(2, 2), (1, 2), (1, 2), (1, 2), (1, 2)]


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        ({"y": [[1.0, 2.0]]}, "an object with the lists x"),
        ([1.0], "an object with the lists x"),
        ({"x": [[1.0, 2.0], [3.0]]}, "rows differ in shape"),
        ({"x": [["a", "b"]]}, "not a number"),
        ({"x": [1.0, 2.0]}, r"the shape \[2\], and the model takes \[any, 2\]"),
        ({"x": [[1.0, 2.0, 3.0]]}, r"the model takes \[any, 2\]"),
    ],
)
def test_bad_requests_are_refused_with_a_reason(tmp_path: Path, request_: Any, said: str) -> None:
    found = artefact(tmp_path, [None, 2])
    with pytest.raises(served.BadRequest, match=said):
        found.arrays(request_)


def test_token_numbers_stay_integers(tmp_path: Path) -> None:
    found = artefact(tmp_path, [None, 2], dtype="int64")
    assert found.arrays({"x": [[1, 2]]})["x"].dtype == np.int64
    with pytest.raises(served.BadRequest, match="must hold integers"):
        found.arrays({"x": [[1.5, 2]]})


@pytest.mark.slow
def test_a_served_model_answers_as_its_files_do(target: Target, tmp_path: Path) -> None:
    """At two rates, over loopback; ``serving`` fails if a process of the server is left."""
    pytest.importorskip("litserve")
    write(target, tmp_path, "nested", "rows_of_all_lengths", 3, setting("inference-mode"))
    folder = tmp_path / "model"
    rows = np.random.default_rng(0).normal(size=(12, 1, 16)).astype(np.float32)
    requests = [{"rows": it.tolist()} for it in rows]
    requests[7] = {"rows": [[1.0]]}
    with serving(folder, tmp_path / "log", "--batch", "4", "--wait", "2") as port:
        slow = drive(port, requests, poisson_times(20, 2.0, 1), keep_outputs=True)
        fast = drive(port, requests, poisson_times(200, 2.0, 2), keep_outputs=True)
    import torch

    model = loaded(folder)
    expected = [model(rows=torch.from_numpy(it)) for it in rows]
    assert len(slow) > 10 and len(fast) > 200
    for answer in (*slow, *fast):
        number = answer.number % len(rows)
        if number == 7:
            assert "status 422" in answer.failure and "the model takes" in answer.failure
            continue
        assert not answer.failure, (tmp_path / "log").read_text()
        assert set(answer.outputs) == set(expected[number])
        for name, found in answer.outputs.items():
            np.testing.assert_allclose(found, expected[number][name].numpy(), rtol=1e-5, atol=1e-6)
    shutil.rmtree(folder)
