"""The page of an inference study speaks of calls of a model, where that of a search speaks of steps of a script."""

from __future__ import annotations

import html
import re
from pathlib import Path

import msgspec
import pytest
from inference.test_infer import ENGINES, WORKLOAD, search

from hotlap.experiment.options import Options
from hotlap.records import Study
from hotlap.render.calls import of_calls
from hotlap.render.html.page import page
from hotlap.render.material import Material


def words_of(study: Study) -> str:
    """What a reader sees, with what the charts say."""
    code = r"<style\b.*?</style>|<script(?! type=\"application/json\")\b.*?</script>"
    found = re.sub(code, "", page_of(study), flags=re.S)
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", found)).split())


def page_of(study: Study) -> str:
    pytest.importorskip("vl_convert")
    return page(Material(study=study))


def test_it_speaks_of_calls(tmp_path: Path) -> None:
    study = search(tmp_path, Options(only=("onnx-runtime", "openvino")), engines=True, factors=ENGINES, errors={})
    shown = words_of(study)
    for word in ("unmodified script", "training", "losses", "Step by step", "timed steps", "steps take turns"):
        assert word not in shown, word
    for word in ("Call by call", "unmodified model again", "the outputs agree to the last bit", "p50, p90, p99"):
        assert word in shown, word


def test_a_script_keeps_its_name() -> None:
    """`hotlap infer serve.py` runs a script, whose steps are calls."""
    said = "This study took 3 min, earned back after 37 steps of the unmodified script."
    of_model = Study(kind="inference", workload=WORKLOAD)
    of_script = msgspec.structs.replace(of_model, workload=msgspec.structs.replace(WORKLOAD, kind="script"))
    assert of_calls(of_script, said).endswith("37 calls of the unmodified script.")
    assert of_calls(of_model, said).endswith("37 calls of the unmodified model.")
    assert of_calls(msgspec.structs.replace(of_script, kind="search"), said) == said
