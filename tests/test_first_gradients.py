"""The benchmark of first gradients, on one step of its quickest network."""

from __future__ import annotations

from pathlib import Path

import msgspec
from bench.first_gradients.__main__ import FAULTS, NETWORKS, main


def test_every_planted_fault_is_counted(tmp_path: Path) -> None:
    out, name = tmp_path / "page", "transformer of patches, batches of 16"
    assert name in NETWORKS
    assert main(["--out", str(out), "--networks", name, "--steps", "2"]) == 0
    (found,) = msgspec.json.decode(out.with_suffix(".json").read_bytes())["data"]["networks"]
    assert found["failed"] == 0 and found["faults"] == 2 * len(FAULTS) and found["faults_passed"] == 0
    assert f"| {name} | 2 | 0 | 0 |" in out.with_suffix(".md").read_text(encoding="utf-8")
