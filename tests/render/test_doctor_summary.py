"""The short answers of ``hotlap doctor``: one machine, and the nodes of a cluster."""

from __future__ import annotations

from collections.abc import Callable

import fakes
import msgspec
import pytest

from hotlap.records import Ceilings, CollectiveRate, CollectiveRates, Machine
from hotlap.render.brief import MOST_LINES, Brief, brief_lines
from hotlap.render.doctor import Remark
from hotlap.render.doctor_summary import cluster_summary, doctor_summary
from hotlap.render.lines import Paper, cell_width

REMARKS = [
    Remark("problem", "The driver is older than CUDA 13 needs", "Update it"),
    Remark("note", "Only 16 cores."),
]
HOST = msgspec.structs.replace(
    fakes.MACHINE,
    accelerators=(),
    warnings=(),
    ceilings=Ceilings(
        matmul_flops_per_second=(("cpu:bfloat16", 482e9), ("cpu:float16", 6.5e9), ("cpu:float32", 109e9)),
    ),
)
RATES = CollectiveRates(
    rates=(
        CollectiveRate(
            name="all-reduce", backend="gloo", processes=2, latency_seconds=1e-4, bytes_per_second=2**30,
            bandwidth_error=0.02,
        ),
    )
)  # fmt: skip


def shown(brief: Brief, width: int = 80) -> str:
    lines = brief_lines(brief, Paper(width=width))
    assert len(lines) <= MOST_LINES and all(cell_width(it) <= width for it in lines)
    return "\n".join(lines) + "\n"


def said(brief: Brief) -> str:
    return " ".join(shown(brief, 100).split())


@pytest.mark.parametrize(
    ("name", "brief"),
    [
        ("doctor-short", doctor_summary(fakes.MACHINE, REMARKS)),
        ("doctor-short-no-isolation", doctor_summary(fakes.UNPROTECTED)),
        ("doctor-short-host", doctor_summary(HOST, (), RATES)),
    ],
)
def test_the_short_answer(name: str, brief: Brief, matches_snapshot: Callable[[str, str], bool]) -> None:
    assert matches_snapshot(name, shown(brief))


def test_a_machine_with_much_to_say_still_fits_a_screen() -> None:
    many = [Remark("problem", f"Cause {number} {'of much delay ' * 20}", "Do it. " * 9) for number in range(30)]
    brief = doctor_summary(fakes.MACHINE, many, RATES)
    for width in (40, 60, 80, 120):
        lines = shown(brief, width)
        assert "Solve 30" in lines and "hotlap doctor --full --processes 2" in " ".join(lines.split())


def test_without_torch_the_answer_says_where_scripts_can_run() -> None:
    answer = said(doctor_summary(msgspec.structs.replace(HOST, library_versions=())))
    assert "no torch" in answer and "`--python PATH` names one" in answer


def test_a_number_format_that_gains_nothing_is_among_what_the_machine_cannot() -> None:
    brief = doctor_summary(HOST)
    can, cannot = (next(it for it in brief.rows if it.label == label).items for label in ("Can", "Cannot"))
    assert any("bfloat16" in it and "4.4 times" in it for it in can)
    assert any("gain from float16" in it for it in cannot) and not any("bfloat16" in it for it in cannot)


@pytest.mark.parametrize(("load", "is_named"), [(0.1, False), (1.3, True)])
def test_rates_that_other_programs_disturbed_are_doubted(load: float, is_named: bool) -> None:
    ceilings = msgspec.structs.replace(HOST.ceilings, other_load=load)
    answer = said(doctor_summary(msgspec.structs.replace(HOST, ceilings=ceilings)))
    assert ("Other programs kept 1.3 cores busy" in answer) == is_named == ("1 warning" in answer)


def node(speed: float, *, cores: int = 8) -> Machine:
    ceilings = Ceilings(matmul_flops_per_second=(("cpu:float32", 100 * speed),), memory_bytes_per_second=10.0)
    return Machine(processor="one", cores=cores, ceilings=ceilings)


def test_the_nodes_of_a_cluster_in_short(matches_snapshot: Callable[[str, str], bool]) -> None:
    nodes = [("a", node(1.0)), ("b", node(1.02)), ("c", node(0.7, cores=4))]
    assert matches_snapshot("cluster-short", shown(cluster_summary(nodes, "host:6379")))


def test_nodes_that_are_alike_have_nothing_in_the_way() -> None:
    answer = said(cluster_summary([("a", node(1.0)), ("b", node(0.95))]))
    assert "All nodes are alike" in answer and "In the way" not in answer
    assert "nothing to compare" in said(cluster_summary([("a", node(1.0))]))
    assert len(shown(cluster_summary([(f"node-{it}", node(1.0)) for it in range(200)])).splitlines()) <= MOST_LINES
