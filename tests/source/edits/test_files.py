"""Source files: encodings, line ends, and writing all or none."""

from __future__ import annotations

import ast
import codecs
from pathlib import Path

import pytest

from hotlap.source.edits.apply import apply_changes
from hotlap.source.edits.files import read_source, write_all
from hotlap.source.edits.kinds import Code, SetKeyword, Span
from hotlap.source.edits.refusals import CannotEdit

SOURCE = "# -*- coding: {} -*-\nname = 'é'; y = f(name)\n"


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1", "cp1252"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_bytes_that_no_edit_touches_stay(tmp_path: Path, encoding: str, newline: str) -> None:
    path = tmp_path / "a.py"
    data = SOURCE.format(encoding).replace("\n", newline).encode(encoding)
    path.write_bytes(data)
    source = read_source(path)
    assert source.encoded(source.text) == data
    call = next(it for it in ast.walk(ast.parse(source.text)) if isinstance(it, ast.Call))
    new = apply_changes(source.text, [(SetKeyword(Span.of(call), "a", Code("1")),)]).text
    assert source.encoded(new) == data.replace(b"f(name)", b"f(name, a=1)")


def test_a_byte_order_mark_stays(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_bytes(codecs.BOM_UTF8 + b"x = f()\n")
    source = read_source(path)
    call = next(it for it in ast.walk(ast.parse(source.text)) if isinstance(it, ast.Call))
    new = apply_changes(source.text, [(SetKeyword(Span.of(call), "a", Code("1")),)]).text
    assert source.encoded(new) == codecs.BOM_UTF8 + b"x = f(a=1)\n"


def test_what_an_encoding_cannot_express(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_bytes(b"# coding: ascii\nx = 1\n")
    with pytest.raises(CannotEdit):
        read_source(path).encoded("x = 'é'\n")


@pytest.mark.parametrize("data", [b"x = '\xff'\n", b"# coding: klingon\n"])
def test_files_that_cannot_be_decoded(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "a.py"
    path.write_bytes(data)
    with pytest.raises(CannotEdit) as error:
        read_source(path)
    assert error.value.kind == "not-parsable"


def test_all_files_are_written(tmp_path: Path) -> None:
    one, two = tmp_path / "one.py", tmp_path / "two.py"
    one.write_text("1")
    one.chmod(0o750)
    two.write_text("2")
    link = tmp_path / "link.py"
    link.symlink_to(two)
    write_all({one: b"11", link: b"22"})
    assert (one.read_text(), two.read_text()) == ("11", "22")
    assert link.is_symlink()
    assert one.stat().st_mode & 0o777 == 0o750
    assert sorted(it.name for it in tmp_path.iterdir()) == ["link.py", "one.py", "two.py"]


def test_when_one_file_cannot_be_written_none_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = tmp_path / "one.py", tmp_path / "two.py"
    one.write_text("1")
    two.write_text("2")
    replace = Path.replace

    def failing(self: Path, target: Path) -> Path:
        if Path(target).name == "two.py":
            raise OSError(28, "No space left on device")
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", failing)
    with pytest.raises(OSError, match="No space"):
        write_all({one: b"11", two: b"22"})
    assert (one.read_text(), two.read_text()) == ("1", "2")
    assert len(list(tmp_path.iterdir())) == 2


def test_a_file_that_is_gone_stops_all(tmp_path: Path) -> None:
    one = tmp_path / "one.py"
    one.write_text("1")
    with pytest.raises(OSError):
        write_all({one: b"11", tmp_path / "gone.py": b""})
    assert one.read_text() == "1"
