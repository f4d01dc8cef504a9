"""What hotlap gives Ray when it connects; Ray itself is a stand-in."""

from __future__ import annotations

import copy
import sys
from types import ModuleType
from typing import Any

import pytest

from hotlap.cluster import ray_nodes
from hotlap.records import TrialCluster


def test_a_second_cluster_gets_the_code_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray writes where it uploaded the code into what it was given: an address within the first cluster."""
    given: list[dict[str, Any]] = []

    def init(*, runtime_env: dict[str, Any], **options: Any) -> None:
        given.append(copy.deepcopy(runtime_env))
        runtime_env["py_modules"] = ["gcs://of-this-cluster.zip"]

    ray = ModuleType("ray")
    ray.init, ray.is_initialized = init, lambda: False  # type: ignore[attr-defined]
    for name in ("ray", "ray.util", "ray.util.scheduling_strategies"):
        monkeypatch.setitem(sys.modules, name, ray)
    for _ in range(2):
        ray_nodes._connected(TrialCluster(kind="ray"), ray_nodes._HOTLAP)
    assert given[0] == given[1] and not given[1]["py_modules"][0].startswith("gcs:")
