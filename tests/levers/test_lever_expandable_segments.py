"""Segments that grow: set by the environment, next to what it sets already."""

from __future__ import annotations

import pytest

from hotlap.levers.api import find
from hotlap.levers.support.situations import make_setting
from hotlap.records import Machine, ScriptFacts, Situation

LEVER = find("expandable-segments")
SETTING = make_setting("expandable-segments")
OLD, NEW = "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"


@pytest.fixture(autouse=True)
def no_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (OLD, NEW):
        monkeypatch.delenv(name, raising=False)


def on_gpu(**variables: str) -> Situation:
    return Situation(facts=ScriptFacts(device="cuda:0"), machine=Machine(environment=tuple(variables.items())))


def test_it_is_set_next_to_what_the_environment_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    assert LEVER.environment(SETTING) == {OLD: "expandable_segments:True"}
    monkeypatch.setenv(OLD, "max_split_size_mb:128,expandable_segments:False")
    assert LEVER.environment(SETTING) == {OLD: "max_split_size_mb:128,expandable_segments:True"}
    monkeypatch.setenv(NEW, "garbage_collection_threshold:0.8")
    assert LEVER.environment(SETTING) == {NEW: "garbage_collection_threshold:0.8,expandable_segments:True"}


@pytest.mark.parametrize(
    ("situation", "said"),
    [
        (Situation(), "NVIDIA"),
        (on_gpu(PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True"), "already"),
        (on_gpu(PYTORCH_ALLOC_CONF="max_split_size_mb:64, expandable_segments:False"), "explicitly disables"),
        (on_gpu(PYTORCH_CUDA_ALLOC_CONF="backend:cudaMallocAsync"), "another allocator"),
    ],
)
def test_it_is_not_tried_without_such_a_device_or_against_the_environment(situation: Situation, said: str) -> None:
    refused = LEVER.obstacle(situation)
    assert refused is not None and said in refused.reason
    assert refused.already is (said == "already")


def test_other_options_are_no_reason_against_it() -> None:
    assert LEVER.obstacle(on_gpu(PYTORCH_CUDA_ALLOC_CONF="max_split_size_mb:128,backend:native")) is None


def test_it_says_when_it_comes_too_late(driver, monkeypatch: pytest.MonkeyPatch) -> None:
    driver.install(SETTING)
    assert "before Python starts" in driver.hooks.notes[0]
    driver.hooks.notes.clear()
    monkeypatch.setenv(OLD, "expandable_segments:True")
    driver.install(SETTING)
    assert driver.hooks.notes == []
