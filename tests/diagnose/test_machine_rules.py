"""The rules about the machine: only the device that trains counts, and only what was observed."""

from __future__ import annotations

import msgspec
import pytest

from hotlap.diagnose import Profile
from hotlap.diagnose.api import all_rules
from hotlap.machine.doctor import missing_driver
from hotlap.records import Accelerator, Ceilings, Finding, Machine, PhaseAccount, ScriptFacts


def found(rule: str, profile: Profile) -> list[Finding]:
    return list(all_rules()[rule].check(profile))


def device(**fields: object) -> Accelerator:
    return Accelerator(kind="cuda", name="A GPU", memory_bytes=80 << 30, **fields)  # type: ignore[arg-type]


def on(*devices: Accelerator, number: int = 0, copying: float = 0.0, **machine: object) -> Profile:
    return Profile(
        facts=ScriptFacts(device=f"cuda:{number}"),
        machine=Machine(accelerators=devices, **machine),  # type: ignore[arg-type]
        account=PhaseAccount(
            wall=0.1,
            phases=(
                ("host_to_device", copying),
                ("forward", 0.1 - copying),
            ),
        ),
    )


@pytest.mark.parametrize(
    ("rule", "fields"), [("throttled", {"throttled": ("power cap",)}), ("shared-device", {"other_processes": 2})]
)
def test_only_the_device_that_trains_counts(rule: str, fields: dict[str, object]) -> None:
    troubled, idle = device(**fields), device()
    assert found(rule, on(troubled, idle))
    assert not found(rule, on(troubled, idle, number=1))
    assert found(rule, on(idle, troubled, number=1))


def test_throttling_names_its_reasons_and_the_limit() -> None:
    (finding,) = found("throttled", on(device(throttled=("power cap", "power brake"), power_limit_watts=250.0)))
    assert finding.title == "A GPU reduces its clocks for 2 reasons: power cap."
    assert finding.evidence == ("2 reasons by its driver: power cap, power brake; its power limit is 250 W",)
    assert "power" in finding.remedy
    (finding,) = found("throttled", on(device(throttled=("temperature (driver)",))))
    assert "cooling" in finding.remedy


def test_a_shared_device_points_to_a_free_one() -> None:
    (finding,) = found("shared-device", on(device(other_processes=1), device()))
    assert finding.title == "1 other process computed on A GPU when it was checked."
    assert "CUDA_VISIBLE_DEVICES" in finding.remedy
    (finding,) = found("shared-device", on(device(other_processes=1)))
    assert "Wait for them" in finding.remedy


# ---------------------------------------------------------------------------------------------
# oversubscribed
# ---------------------------------------------------------------------------------------------


def test_oversubscription_names_the_lever_and_each_process_share() -> None:
    profile = all_rules()["oversubscribed"].fires["two ranks that each take all cores"]
    (finding,) = found("oversubscribed", profile)
    assert finding.title == "16 threads compute on 8 cores."
    assert finding.levers == ("cpu-threads",)
    assert "set_num_threads(4)" in finding.remedy


def test_a_quota_and_the_variable_are_evidence() -> None:
    profile = all_rules()["oversubscribed"].fires["a container that sees the whole machine"]
    machine = msgspec.structs.replace(profile.machine, environment=(("OMP_NUM_THREADS", "32"),))
    (finding,) = found("oversubscribed", msgspec.structs.replace(profile, machine=machine))
    assert "programs see 64 cores, but a quota lets them use 4" in finding.evidence
    assert "OMP_NUM_THREADS=32 is in the environment" in finding.evidence


# ---------------------------------------------------------------------------------------------
# narrow-pcie
# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pcie", "share"),
    [
        ("generation 3 x4", 0.5 * 0.75),
        ("generation 3 x1", 0.5 * (1 - 1 / 16)),
        ("generation 1 x16", 0.5 * (1 - 4.0 / 15.76)),
        ("generation 3 x8", None),
        ("generation 4 x4", None),
        ("generation 5 x16", None),
        ("generation 9 x1", None),
        ("generation 3 x0", None),
        ("generation 3 x4 (3 in use)", None),
        ("", None),
    ],
)
def test_the_bound_is_the_saving_of_sixteen_lanes(pcie: str, share: float | None) -> None:
    findings = found("narrow-pcie", on(device(pcie=pcie), copying=0.05))
    assert [it.share.value for it in findings] == ([] if share is None else [pytest.approx(share, rel=1e-3)])
    assert all(it.share.low == 0 for it in findings), "only a bound is known"


def test_a_measured_rate_takes_precedence_over_the_driver() -> None:
    slow = Ceilings(host_to_device_pinned_bytes_per_second=3e9)
    fast = Ceilings(host_to_device_pinned_bytes_per_second=20e9)
    assert found("narrow-pcie", on(device(pcie="generation 3 x4"), copying=0.05, ceilings=slow))
    assert not found("narrow-pcie", on(device(pcie="generation 3 x4"), copying=0.05, ceilings=fast))


# ---------------------------------------------------------------------------------------------
# old-driver
# ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("driver", "cuda", "needed"),
    [
        ("470.199.02", "12.8", 525),
        ("525.60.13", "12.8", None),
        ("570.1", "13.0", 580),
        ("440.33", "11.8", 450),
        ("470.199.02", "10.2", None),
        ("470.199.02", "", None),
        ("", "12.8", None),
        ("unknown", "12.8", None),
    ],
)
def test_a_missing_driver(driver: str, cuda: str, needed: int | None) -> None:
    assert missing_driver(device(driver=driver), cuda) == needed


def test_one_device_with_a_new_driver_is_enough() -> None:
    profile = all_rules()["old-driver"].fires["CUDA 12 with a driver for CUDA 11"]
    (finding,) = found("old-driver", profile)
    assert "needs driver 525 or newer" in finding.evidence[0]
    devices = (*profile.machine.accelerators, device(driver="550.54"))
    machine = msgspec.structs.replace(profile.machine, accelerators=devices)
    assert not found("old-driver", msgspec.structs.replace(profile, machine=machine))


def test_devices_of_other_vendors_are_silent() -> None:
    amd = Accelerator(kind="rocm", name="An AMD GPU", memory_bytes=64 << 30, driver="6.2.4")
    assert missing_driver(amd, "12.8") is None
