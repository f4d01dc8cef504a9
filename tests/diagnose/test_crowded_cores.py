"""Workers that take cores from the training, at the thresholds of the rule."""

from __future__ import annotations

import pytest
from feeding import LOADER, account

from hotlap.diagnose.profile import Profile
from hotlap.diagnose.rules import crowded_cores
from hotlap.records import Ceiling, LoaderFacts, Machine, ScriptFacts


def crowded(*, workers: int = 1, threads: int = 2, cores: int = 2, speedup: float = 2.0, processes: int = 1) -> Profile:
    """Make a step of 0.1 s that waits for 10 ms of it, and is ``speedup`` times as fast with a batch from memory."""
    loaders = (LoaderFacts(dataset="Images", workers=workers, site=LOADER),)
    alone = Ceiling(name="model-alone", bound_speedup=speedup, bound_interval=(speedup * 0.99, speedup * 1.01))
    return Profile(
        account=account(0.1),
        facts=ScriptFacts(device="cpu", threads=threads, processes=processes, loaders=loaders),
        machine=Machine(cores=cores, physical_cores=cores),
        ceilings=(alone,),
    )


def test_crowded_cores_cost_what_the_wait_does_not_explain() -> None:
    (found,) = crowded_cores.check(crowded())
    assert found.share.value == pytest.approx(0.4) and found.site == LOADER
    assert found.title == "Workers take cores from the training, which costs 40 % of the step."
    assert found.evidence == (
        "a step computes for 90.0 ms beside its loader, and for 50.0 ms with a batch from memory",
        "DataLoader over Images: 1 worker, beside 2 threads of torch on 2 cores",
    )
    assert "torch.set_num_threads(1)" in found.remedy


@pytest.mark.parametrize(
    ("workers", "threads", "cores", "processes", "fires"),
    [(1, 2, 2, 1, True), (1, 1, 2, 1, False), (4, 4, 8, 1, False), (4, 4, 8, 2, True), (0, 8, 2, 1, False)],
)
def test_crowded_cores_are_fewer_than_workers_and_threads(
    workers: int, threads: int, cores: int, processes: int, fires: bool
) -> None:
    profile = crowded(workers=workers, threads=threads, cores=cores, processes=processes)
    assert bool(list(crowded_cores.check(profile))) is fires


def test_crowded_cores_with_more_workers_than_cores_need_fewer_of_them() -> None:
    (found,) = crowded_cores.check(crowded(workers=16))
    assert "fewer workers" in found.remedy and "set_num_threads" not in found.remedy


@pytest.mark.parametrize(("speedup", "fires"), [(1.111, False), (1.14, False), (1.18, True)])
def test_crowded_cores_must_cost_clearly_more_than_the_wait(speedup: float, fires: bool) -> None:
    assert bool(list(crowded_cores.check(crowded(speedup=speedup)))) is fires
