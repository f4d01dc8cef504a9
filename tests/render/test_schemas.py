"""The JSON Schemas of documents and plans are valid, and reject what is wrong. Documents are compared with them where
commands print them: `tests/cli/test_quiet_and_json.py` and the tests of each command."""

from __future__ import annotations

import copy
import json
import tomllib
from typing import Any

import fakes
import pytest
from json_documents import assert_valid
from jsonschema import Draft202012Validator, ValidationError

from hotlap.cli.main import main
from hotlap.plan import EMPTY, setting, to_toml, with_setting
from hotlap.records import Estimate, RecordedGain
from hotlap.render.json import VERSIONS, study_json
from hotlap.render.schemas import NAMES, file_name, schema_of

GAIN = RecordedGain(
    speedup=Estimate(value=1.5, low=1.4, high=1.6, unit="x"), confidence=0.95, replicates=5, machine="a machine"
)
PLAN = with_setting(
    with_setting(EMPTY, setting("loader", num_workers=4, pin_memory=True)), setting("mixed-precision", dtype="bfloat16")
)


@pytest.mark.parametrize("name", NAMES)
def test_a_schema_is_printed_and_valid(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", name]) == 0
    schema = json.loads(capsys.readouterr().out)
    Draft202012Validator.check_schema(schema)
    assert schema == json.loads(json.dumps(schema_of(name)))
    assert schema["$id"].startswith(f"urn:hotlap:hotlap-{name}:")


def test_the_list_names_each_schema_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines] == [[name, file_name(name)] for name in NAMES]
    assert set(VERSIONS) < set(NAMES)


def test_an_unknown_name_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", "hotlap-studdy"]) == 2
    assert "'study'" in capsys.readouterr().err


def test_the_name_may_be_that_of_the_document(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", "hotlap-study"]) == 0
    assert json.loads(capsys.readouterr().out)["title"] == "hotlap-study"


def test_a_schema_rejects_a_wrong_type_and_allows_an_unknown_field() -> None:
    document = json.loads(study_json(fakes.FINISHED))
    assert_valid(document)
    validator = Draft202012Validator(schema_of("study"))
    validator.validate(document | {"a_field_to_come": 1})
    with pytest.raises(ValidationError):
        validator.validate(document | {"spent_seconds": "long"})
    with pytest.raises(ValidationError):
        validator.validate({key: it for key, it in document.items() if key != "document_version"})
    changed = copy.deepcopy(document)
    changed["machine"]["physical_cores"] = "two"
    with pytest.raises(ValidationError):
        validator.validate(changed)


def test_a_written_plan_matches_its_schema() -> None:
    written = to_toml(PLAN, torch_version="2.13.0", study="20260101-000000-001", gain=GAIN)
    plan_validator().validate(tomllib.loads(written))


@pytest.mark.parametrize(
    "levers",
    [
        {"loader": {"num_workers": "four", "pin_memory": True}},
        {"loader": {"num_workers": 4, "pin_memory": True, "workers": 4}},
        {"mixed-precision": {"dtype": "float8"}},
        {"mixed-precision": {}},
        {"warp-drive": {}},
    ],
)
def test_the_schema_of_plans_rejects_what_hotlap_rejects(levers: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        plan_validator().validate({"levers": levers})


def plan_validator() -> Draft202012Validator:
    return Draft202012Validator(schema_of("plan"))
