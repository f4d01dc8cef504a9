"""Names are short, and no two names of a table look the same."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotlap.render.event_names import event_name, event_names, file_names

_ELEMENTWISE = "void at::native::vectorized_elementwise_kernel<4, at::native::"


def test_kernels_that_begin_alike_are_distinguished() -> None:
    names = [
        f"{_ELEMENTWISE}CUDAFunctor_add<float>, at::detail::Array<char*, 3>>(int, at::native::CUDAFunctor_add<float>)",
        f"{_ELEMENTWISE}CUDAFunctor_add<float>, at::detail::Array<char*, 2>>(int, at::native::CUDAFunctor_add<float>)",
        f"{_ELEMENTWISE}BinaryFunctor<float, float, at::native::MulFunctor<float>>, at::detail::Array<char*, 3>>",
        "volta_sgemm_128x32_nt",
    ]
    shown = event_names(names)
    assert len(set(shown.values())) == 4
    assert all(len(it) <= 64 for it in shown.values())
    assert "Array<char*, 3>" in shown[names[0]] and "Array<char*, 2>" in shown[names[1]]
    assert shown[names[3]] == "volta_sgemm_128x32_nt"


def test_names_that_only_look_alike_are_numbered() -> None:
    shown = event_names(["kernel\x00", "kernel"])
    assert sorted(shown.values()) == ["kernel #1", "kernel #2"]


def test_a_single_name_keeps_its_beginning() -> None:
    name = "k" * 100
    assert event_names([name]) == {name: event_name(name)}


@given(st.lists(st.text("ab<>, ", min_size=1, max_size=200), min_size=2, max_size=12, unique=True))
def test_no_two_names_look_the_same(names: list[str]) -> None:
    shown = event_names(names)
    assert len(set(shown.values())) == len(names)


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        (["runs/a.json", "runs/b.json"], ["a.json", "b.json"]),
        (["runs/0/r.json", "runs/1/r.json", "runs/1/other.json"], ["0/r.json", "1/r.json", "other.json"]),
        (["r.json"], ["r.json"]),
    ],
)
def test_files_by_the_shortest_unique_path(paths: list[str], expected: list[str]) -> None:
    assert list(file_names(paths, 40).values()) == expected
