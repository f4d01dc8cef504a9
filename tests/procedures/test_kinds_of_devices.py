"""A whole search on each kind of device that the tests simulate, with rates and memory of its profile: what is tried,
what is kept, and how many arms are alive at once. `tests/on_device` does the same with real launches."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from fake_script import WORKLOAD, Effect, FakeExecutor, FakeScript
from simulated.profile import DeviceProfile, read_profile

from hotlap.experiment.options import Options
from hotlap.levers.api import find
from hotlap.levers.support.situations import make_setting
from hotlap.machine.accelerators import claimed_dtypes
from hotlap.procedures.search import tune
from hotlap.records import (
    Accelerator,
    Assignment,
    Ceilings,
    Machine,
    Replicate,
    Run,
    ScriptFacts,
    Setting,
    Skipped,
    Study,
    TurnRequest,
)

HALF = {it: make_setting("mixed-precision", dtype=it) for it in ("bfloat16", "float16")}
TF32 = make_setting("matmul-precision", precision="high")
LEVERS = {it: find(it) for it in ("mixed-precision", "matmul-precision")}


def effects_on(device: DeviceProfile) -> dict[Setting, Effect]:
    """Products take the time that the device's rates give."""
    plain = device.rates["float32_flops"]
    half = {it: Effect(compute=plain / device.rates[f"{name}_flops"]) for name, it in HALF.items()}
    return half | {TF32: Effect(compute=plain / device.rates["tf32_flops"])}


class OnDevice(FakeExecutor):
    """The fake script on a device of a profile, of whose memory it takes ``peak_bytes``."""

    def __init__(self, device: DeviceProfile, peak_bytes: int) -> None:
        super().__init__(FakeScript(effects=effects_on(device)))
        self._device = device
        self._device_peak_bytes = peak_bytes
        self.interleaved: set[bool] = set()

    def machine(self) -> Machine:
        formats = claimed_dtypes(self._device.capability)
        accelerator = Accelerator(
            kind="cuda",
            name=self._device.name,
            memory_bytes=int(self._device.memory_bytes),
            capability=".".join(map(str, self._device.capability)),
            native_dtypes=formats,
        )
        rates = {f"cuda:{it}": self._device.rates[f"{it}_flops"] for it in formats if it != "float8"}
        ceilings = Ceilings(matmul_flops_per_second=tuple(rates.items()))
        return msgspec.structs.replace(super().machine(), accelerators=(accelerator,), ceilings=ceilings)

    def take_turns(self, request: TurnRequest) -> Replicate:
        self.interleaved.add(request.interleaved)
        return super().take_turns(request)

    def _run(self, *given: Any) -> Run:
        return msgspec.structs.replace(super()._run(*given), device_peak_bytes=self._device_peak_bytes)

    def _facts(self, arm: Assignment) -> ScriptFacts:
        return msgspec.structs.replace(super()._facts(arm), device="cuda")


def tuned(kind: str, peak_bytes: int = 1 << 28) -> tuple[Study, OnDevice]:
    executor = OnDevice(read_profile(kind), peak_bytes)
    return tune(WORKLOAD, Options(), executor, levers=LEVERS, clock=executor.clock), executor


@pytest.mark.parametrize(
    ("kind", "dtype"), [("t4", "float16"), ("a100", "bfloat16"), ("h100", "bfloat16"), ("laptop", "bfloat16")]
)
def test_each_is_given_the_format_that_it_multiplies_fastest(kind: str, dtype: str) -> None:
    study, executor = tuned(kind)
    assert study.status == "finished" and study.verification is not None
    kept = {it.lever: it for it in study.plan.settings}
    assert kept["mixed-precision"] == HALF[dtype]
    least = executor.script.speedup(study.plan)
    assert study.verification.speed.speedup.high < 1.1 * least


def test_a_device_without_tf32_is_not_offered_it() -> None:
    study, _ = tuned("t4")
    (verdict,) = (it.verdict for it in study.outcomes if it.lever == "matmul-precision")
    assert isinstance(verdict, Skipped) and "no faster unit for float32" in verdict.reason


@pytest.mark.parametrize(("kind", "together"), [("t4", True), ("a100", True), ("h100", True), ("laptop", False)])
def test_arms_are_alive_together_where_the_devices_memory_holds_them(kind: str, together: bool) -> None:
    """Three arms of 3 GB fit into all but the laptop's 8.6 GB."""
    study, executor = tuned(kind, 3 * 10**9)
    assert study.status == "finished"
    assert executor.interleaved == {together}
