"""Time by module and source line, on the page of a trace and in its document."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from layers_in_traces import backward, module, two_layers
from trace_writer import TraceWriter

from hotlap.cli.main import main


def page(writer: TraceWriter, folder: Path, capsys: pytest.CaptureFixture[str], *options: str) -> str:
    assert main(["trace", "--full", *options, str(writer.write(folder / "trace.json"))]) == 0
    return capsys.readouterr().out


def test_the_page_shows_modules_as_a_tree(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    writer = TraceWriter()
    two_layers(writer)
    backward(writer, 10, 600, 2000, 100)
    shown = page(writer, tmp_path, capsys)
    table = shown[shown.index("Device time by module") :].splitlines()
    assert table[2].split() == ["module", "self", "total", "forward", "backward", "of", "the", "trace"]
    assert table[3].startswith("  Net  ")
    assert table[4].startswith("    Linear (2)  ")
    assert table[4].split()[2:] == ["220", "us", "220", "us", "120", "us", "100", "us", "20", "%"]
    assert "Device time by function of your code" in shown
    assert "not recorded" not in shown


def test_more_rows_on_request(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    writer = TraceWriter()
    for number in range(12):
        module(writer, f"Layer{number}_0", number * 100, 50)
        writer.host("operator", "aten::mm", number * 100 + 5, 10)
        writer.launch("gemm", number * 100 + 6, 5000 + 100 * number, 20 + number)
    shown = page(writer, tmp_path, capsys)
    assert "2 more (--rows)" in shown
    assert "Layer1 " not in shown
    shown = page(writer, tmp_path, capsys, "--rows", "12")
    assert "more (--rows)" not in shown
    assert "Layer1 " in shown


def test_one_sentence_where_nothing_was_recorded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    writer = TraceWriter()
    writer.host("operator", "aten::mm", 0, 10)
    writer.launch("gemm", 5, 100, 20)
    shown = page(writer, tmp_path, capsys)
    assert shown.count("Time by module and source line was not recorded: pass `with_stack=True`") == 1
    assert "by module\n" not in shown


def test_the_document_has_them_in_seconds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    writer = TraceWriter()
    two_layers(writer)
    document = json.loads(page(writer, tmp_path, capsys, "--json"))
    code = document["traces"][0]["code"]
    (net, linear) = code["modules"]
    assert (net["path"], linear["path"], linear["instances"]) == (["Net"], ["Net", "Linear"], 2)
    assert linear["device"]["forward_self_seconds"] == pytest.approx(120e-6)
    assert code["lines"][0]["place"] == "model.py(9): forward"


def test_a_row_for_each_instance(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    writer = TraceWriter()
    two_layers(writer)
    document = json.loads(page(writer, tmp_path, capsys, "--json", "--instances"))
    found = {
        "/".join(it["path"]): (it["instances"], it["device"]["forward_seconds"])
        for it in document["traces"][0]["code"]["modules"]
    }
    assert found == {
        "Net_0": (1, pytest.approx(125e-6)),
        "Net_0/Linear_1": (1, pytest.approx(70e-6)),
        "Net_0/Linear_0": (1, pytest.approx(50e-6)),
    }


def test_control_characters_in_module_names_are_removed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    writer = TraceWriter()
    module(writer, "\x1b[2J\u202eEvil\nName_0", 0, 100)
    writer.host("operator", "aten::mm", 10, 10)
    writer.launch("gemm", 15, 200, 20)
    shown = page(writer, tmp_path, capsys)
    assert "Evil Name" in shown
    assert "\x1b" not in shown
    assert "\u202e" not in shown
