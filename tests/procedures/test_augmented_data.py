"""Data that is augmented at random: what the proof of a lever that draws other random numbers launches and allows."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from fake_levers import lever, named
from fake_script import WORKLOAD, Effect, FakeScript
from test_together import QUIET, Counting

from hotlap.experiment.options import Options
from hotlap.plan import setting
from hotlap.procedures.search import tune
from hotlap.records import Assignment, ReseedAugmentation, ScriptFacts


class Augmenting(Counting):
    """A script whose loader draws random numbers, from a stream of samples or by an index."""

    streams = False

    def _facts(self, arm: Assignment) -> ScriptFacts:
        facts = super()._facts(arm)
        drawing = (msgspec.structs.replace(it, draws_random=True, iterable=self.streams) for it in facts.loaders)
        return msgspec.structs.replace(facts, loaders=tuple(drawing))


@pytest.mark.parametrize("streams", [False, True])
def test_other_augmentations_are_noise_only_where_fetches_cannot_be_aligned(streams: bool) -> None:
    script = FakeScript(effects={setting("feed"): Effect(data=0.05, loss=1.002)}, has_loader=True, **QUIET)
    executor = Augmenting(script)
    executor.streams = streams
    feed = replace(lever("feed"), changes_randomness=lambda situation, setting: True)
    tune(WORKLOAD, Options(), executor, levers=named(feed), clock=executor.clock)
    launched = [it.assignment for it in executor.launched]
    assert any(it.plan.settings for it in launched), "the lever was proved"
    assert any(it.instrument(ReseedAugmentation) is not None for it in launched) == streams
