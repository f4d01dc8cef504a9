"""The options for clusters, and the comparison of nodes."""

from __future__ import annotations

import pytest

from hotlap.cli.main import main
from hotlap.records import Ceilings, Machine
from hotlap.render.cluster import remarks_on


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--nodes", "2"], "--nodes is for trials on a cluster."),
        (["--address", "auto"], "--address is for trials on a cluster."),
        (["--executor", "ray", "--slurm", "partition=gpu"], "--slurm is for jobs of Slurm."),
        (["--executor", "slurm", "--slurm", "gpu"], "'gpu' is not NAME=VALUE"),
        (["--executor", "ray", "--resume"], "--executor cannot be given with --resume."),
    ],
)
def test_options_that_do_not_fit_are_refused(
    words: list[str], said: str, tmp_path: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    script = [] if "--resume" in words else [__file__]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "200")
        assert main(["tune", *words, *script]) == 2
    assert said in capsys.readouterr().err


def node(speed: float, *, cores: int = 8) -> Machine:
    ceilings = Ceilings(matmul_flops_per_second=(("cpu:float32", 100 * speed),), memory_bytes_per_second=10.0)
    return Machine(processor="one", cores=cores, ceilings=ceilings)


def test_the_slow_node_is_named() -> None:
    nodes = [("a", node(1.0)), ("b", node(1.02)), ("c", node(0.7))]
    assert list(remarks_on(nodes)) == ["c is slow: products (cpu:float32) 30 % below the median of all nodes."]


def test_a_node_of_another_kind_is_named() -> None:
    (said,) = remarks_on([("a", node(1.0)), ("b", node(1.0, cores=4))])
    assert said == "b differs from a: cores 4 instead of 8. One study uses nodes of one kind only."


def test_nodes_that_are_alike_are_left_in_peace() -> None:
    assert list(remarks_on([("a", node(1.0)), ("b", node(0.95))])) == ["All nodes are alike, and none is slow."]
