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
from hotlap.render.blocks import Table
from hotlap.render.calls import chart_of_calls, of_calls
from hotlap.render.html.page import page
from hotlap.render.html.parts import Chart
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


def test_names_of_the_user_stay() -> None:
    """A metric may be called `accuracy of the step`."""
    study = Study(kind="inference", workload=WORKLOAD)
    named = {
        "title": "timed step",
        "data": {"values": [{"arm": "unmodified script", "metric": "accuracy of the step"}]},
    }
    chart = Chart(
        name="one",
        title="Step by step",
        description="",
        drawn=named,
        table=Table(headings=("step",), rows=(("accuracy of the step",),)),
    )
    found = chart_of_calls(study, chart)
    assert found.title == "Call by call" and found.table.headings == ("call",)
    assert found.table.rows == (("accuracy of the step",),)
    values = [{"arm": "unmodified model", "metric": "accuracy of the step"}]
    assert found.drawn == {"title": "timed call", "data": {"values": values}}
