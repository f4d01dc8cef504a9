"""Plans of an older format, as somebody may have committed them."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from hotlap import plan
from hotlap.errors import PlanError
from hotlap.records import Estimate, Plan, RecordedGain

FIRST = """\
[hotlap]
format = 1
torch = "2.13.0"

[levers.loader]
persistent-workers = true
pin-memory = true
prefetch-factor = 2
workers = 4

[levers.mixed-precision]
dtype = "bfloat16"
"""
NOW = Plan(
    settings=(
        plan.setting("loader", num_workers=4, pin_memory=True, persistent_workers=True, prefetch_factor=2),
        plan.setting("mixed-precision", dtype="bfloat16"),
    )
)
GAIN = RecordedGain(speedup=Estimate(value=1.6, low=1.5, high=1.7, unit="x"), confidence=0.95, replicates=5)


def test_a_plan_of_the_first_format_is_read() -> None:
    assert plan.from_toml(FIRST) == NOW


def test_a_plan_is_written_with_the_names_that_torch_has() -> None:
    text = plan.to_toml(NOW)
    assert "num_workers = 4" in text and "pin_memory = true" in text and "format = 3" in text
    assert plan.from_toml(text) == NOW


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (FIRST.replace("format = 1", "format = 2"), "has no key 'persistent-workers'"),
        (FIRST.replace("format = 1\n", ""), "has no key 'persistent-workers'"),
        (FIRST.replace("format = 1", "format = 4"), "reads formats up to 3"),
        (FIRST.replace("format = 1", "format = 0"), "reads formats up to 3"),
        (FIRST.replace("format = 1", 'format = "1"'), "reads formats up to 3"),
    ],
)
def test_names_belong_to_their_format(text: str, said: str) -> None:
    with pytest.raises(PlanError, match=said):
        plan.from_toml(text)


def test_the_gain_of_an_old_plan_still_belongs_to_it(tmp_path: Path) -> None:
    """It names its plan by a key, which was made of the old names."""
    old = Plan(
        settings=tuple(
            msgspec.structs.replace(
                it, values=tuple(sorted((_OLD.get(name, name), value) for name, value in it.values))
            )
            for it in NOW.settings
        )
    )
    path = tmp_path / "hotlap.toml"
    head = (
        plan.to_toml(old, gain=GAIN)
        .partition("[levers.")[0]
        .replace("format = 3", "format = 1")
        .replace("replicates", "sets")
    )
    path.write_text(head + FIRST.partition("\n\n")[2])
    found = plan.read_gain(path)
    assert found is not None and found.speedup == GAIN.speedup
    path.write_text(head + FIRST.partition("\n\n")[2].replace("workers = 4", "workers = 8"))
    assert plan.read_gain(path) is None, "it was edited since"


def test_a_gain_of_the_second_format_counts_sets(tmp_path: Path) -> None:
    path = tmp_path / "hotlap.toml"
    text = plan.to_toml(NOW, gain=GAIN)
    assert "replicates = 5" in text
    second = text.replace("format = 3", "format = 2").replace("replicates = 5", "sets = 5")
    path.write_text(second)
    found = plan.read_gain(path)
    assert found is not None and found.replicates == GAIN.replicates
    path.write_text(second.replace("format = 2", "format = 3"))
    with pytest.raises(PlanError, match="gain recorded in the plan is invalid"):
        plan.read_gain(path)


_OLD = {
    "num_workers": "workers",
    "pin_memory": "pin-memory",
    "persistent_workers": "persistent-workers",
    "prefetch_factor": "prefetch-factor",
}
