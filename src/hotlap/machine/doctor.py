"""What is wrong with a machine for training, and what to do about it: pure functions of the machine's facts.

Each rule is one small function of the facts that returns advice or nothing; :data:`_RULES` is their order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

from hotlap.machine.advised import Advice, Level
from hotlap.machine.isolation import isolation_advice
from hotlap.records import Accelerator, Machine

GIBIBYTE = 1 << 30

_OLDEST_DRIVER = {11: 450, 12: 525, 13: 580}


_Rule: TypeAlias = Callable[[Machine], Iterator[Advice]]


def missing_driver(device: Accelerator, cuda: str) -> int | None:
    """The oldest Linux driver branch that runs programs built for that CUDA version (``12.8``), where the device's own
    is older; None where it is new enough, or where either is not known. Minor versions are compatible within a major
    one.

    Source: NVIDIA, "CUDA Compatibility", table "CUDA Toolkit and Minimum Required Driver Version".
    """
    needed, present = _OLDEST_DRIVER.get(_leading_number(cuda)), _leading_number(device.driver)
    return needed if device.kind == "cuda" and needed is not None and 0 < present < needed else None


def advice(machine: Machine) -> tuple[Advice, ...]:
    """All advice about the machine, problems first."""
    said = [it for rule in _RULES for it in rule(machine)]
    order: tuple[Level, ...] = ("problem", "warning", "note")
    return tuple(sorted(said, key=lambda it: order.index(it.level)))


# ---------------------------------------------------------------------------------------------
# Processor and memory
# ---------------------------------------------------------------------------------------------


def _quota_below_visible(machine: Machine) -> Iterator[Advice]:
    if machine.visible_cores > machine.cores:
        yield Advice(
            "warning",
            f"Programs see {machine.visible_cores} cores, but a quota lets them use {machine.cores}: they start too "
            "many threads, and the kernel stops all of them for part of every period.",
            f"Set OMP_NUM_THREADS={machine.cores}, or give the container more processor time.",
        )


def _few_cores(machine: Machine) -> Iterator[Advice]:
    devices = len(machine.accelerators)
    if devices and machine.cores < 4 * devices:
        yield Advice(
            "warning",
            f"{_count(machine.cores, 'core')} for {_count(devices, 'accelerator')}: preparing the data may well be "
            "slower than training on it.",
            "Request at least 4 cores for each accelerator, or prepare the data in advance.",
        )
    elif not devices and machine.cores <= 2:
        yield Advice(
            "note",
            f"Only {_count(machine.cores, 'core')}: loader workers compete with the training itself.",
            "A worker pays only where a core is left for it: `hotlap tune` tries workers with fewer threads too.",
        )


def _shared_memory(machine: Machine) -> Iterator[Advice]:
    if not machine.system.startswith("Linux") or machine.shared_memory_bytes >= GIBIBYTE:
        return
    mebibytes = machine.shared_memory_bytes >> 20
    yield Advice(
        "problem" if mebibytes <= 64 else "warning",
        f"/dev/shm holds {mebibytes} MiB; loader workers pass their batches through it, and one that finds it full is "
        "killed by a bus error.",
        "Start the container with --shm-size=8g or --ipc=host (Kubernetes: mount an emptyDir of medium Memory there).",
    )


def _huge_pages(machine: Machine) -> Iterator[Advice]:
    if machine.transparent_huge_pages == "never":
        yield Advice(
            "note",
            "Transparent huge pages are switched off: large tensors on the processor cost many address translations.",
            "As root: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
        )
    tunables = dict(machine.environment).get("GLIBC_TUNABLES", "")
    if machine.transparent_huge_pages == "madvise" and not machine.accelerators and "malloc.hugetlb" not in tunables:
        yield Advice(
            "note",
            "Only programs that request huge pages get them; torch does not by default for tensors on the processor.",
            "Try GLIBC_TUNABLES=glibc.malloc.hugetlb=1 before python, and measure.",
        )


def _thread_variables(machine: Machine) -> Iterator[Advice]:
    variables = dict(machine.environment)
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        text = variables.get(name, "")
        threads = int(text) if text.isascii() and text.isdecimal() and len(text) < 7 else 0
        if threads and threads != machine.cores:
            effect = "leaves cores idle" if threads < machine.cores else "is more than there are cores"
            yield Advice(
                "warning",
                f"{name}={threads} in the environment {effect} ({_count(machine.cores, 'core')} available).",
                f"Unset {name}, unless several training processes share the cores.",
            )


# ---------------------------------------------------------------------------------------------
# Dtypes
# ---------------------------------------------------------------------------------------------


def _why_no_bfloat16(machine: Machine) -> str:
    """Judge by the measured rates: a processor may have the instructions and gain nothing from them."""
    rates = dict(machine.ceilings.matmul_flops_per_second)
    short, full = rates.get("cpu:bfloat16"), rates.get("cpu:float32")
    if short is None or full is None:
        return "The processor has no bfloat16 products in hardware: mixed precision would be emulated, and slower."
    reached = f"Products in bfloat16 reach {short / 1e9:,.0f} GFLOP/s here, in float32 {full / 1e9:,.0f}"
    return f"{reached}: mixed precision would not pay."


def _no_bfloat16(machine: Machine) -> Iterator[Advice]:
    if not machine.accelerators:
        if "bfloat16" not in machine.native_dtypes:
            yield Advice("note", _why_no_bfloat16(machine), "Stay with float32 here.")
        return
    for device in _distinct(machine.accelerators):
        if device.native_dtypes and "bfloat16" not in device.native_dtypes:
            has_half = "float16" in device.native_dtypes
            yield Advice(
                "note",
                f"{device.name} has no bfloat16 in hardware.",
                "Use float16 with a GradScaler for mixed precision." if has_half else "Stay with float32 there.",
            )


# ---------------------------------------------------------------------------------------------
# Accelerators
# ---------------------------------------------------------------------------------------------


def _torch_build(machine: Machine) -> Iterator[Advice]:
    """Judge by what torch's build states, unless it has already computed on a device (torch calls AMD's "cuda" too)."""
    versions = dict(machine.library_versions)
    has_computed = any(key.startswith("cuda:") for key, _ in machine.ceilings.matmul_flops_per_second)
    if "torch" not in versions or has_computed:
        return
    for kind, key in (("cuda", "cuda"), ("rocm", "hip")):
        present = [it for it in machine.accelerators if it.kind == kind]
        if present and key not in versions:
            yield Advice(
                "problem",
                f"This machine has {present[0].name}, but torch {versions['torch']} was built without support for it.",
                "Install the build of torch for this device; pytorch.org/get-started shows the command.",
            )


def _old_driver(machine: Machine) -> Iterator[Advice]:
    cuda = dict(machine.library_versions).get("cuda", "")
    for device in _distinct(machine.accelerators):
        needed = missing_driver(device, cuda)
        if needed is not None:
            yield Advice(
                "problem",
                f"The driver of {device.name} is {device.driver}; torch was built for CUDA {cuda}, which needs "
                f"{needed} or newer.",
                "Update the driver, or install a torch that was built for an older CUDA.",
            )


def _not_alone(machine: Machine) -> Iterator[Advice]:
    for device in machine.accelerators:
        if device.other_processes:
            yield Advice(
                "warning",
                f"{_count(device.other_processes, 'other process', 'other processes')} on {device.name}: they take "
                "time and memory from the training, and disturb every measurement.",
                "List them with nvidia-smi; wait for them, or choose another device with CUDA_VISIBLE_DEVICES.",
            )


def _throttled(machine: Machine) -> Iterator[Advice]:
    for device in machine.accelerators:
        if device.throttled:
            limit = f" (limit {device.power_limit_watts:.0f} W)" if device.power_limit_watts else ""
            yield Advice(
                "warning",
                f"{device.name} reduces its clocks: {', '.join(device.throttled)}{limit}.",
                "Check its cooling and power limit (nvidia-smi -q -d PERFORMANCE,POWER).",
            )


def _old_device(machine: Machine) -> Iterator[Advice]:
    for device in _distinct(machine.accelerators):
        if device.kind == "cuda" and 0 < _leading_number(device.capability) < 7:
            yield Advice(
                "note",
                f"{device.name} (compute capability {device.capability}) has no tensor cores, and torch.compile "
                "cannot generate code for it.",
                "Expect gains from the data pipeline only.",
            )


def _blocking_launches(machine: Machine) -> Iterator[Advice]:
    variables = dict(machine.environment)
    if machine.accelerators and variables.get("CUDA_LAUNCH_BLOCKING") == "1":
        yield Advice(
            "problem",
            "CUDA_LAUNCH_BLOCKING=1 makes the processor wait for every single kernel.",
            "Unset it; it is for debugging.",
        )
    if machine.accelerators and variables.get("NVIDIA_TF32_OVERRIDE") == "0":
        yield Advice(
            "warning",
            "NVIDIA_TF32_OVERRIDE=0 forbids TF32 whatever the script asks for.",
            "Unset it, unless the numbers need full float32.",
        )


_RULES: tuple[_Rule, ...] = (
    _torch_build,
    _old_driver,
    _blocking_launches,
    _shared_memory,
    _quota_below_visible,
    _not_alone,
    _throttled,
    _thread_variables,
    _few_cores,
    _old_device,
    _no_bfloat16,
    _huge_pages,
    isolation_advice,
)


def _distinct(devices: tuple[Accelerator, ...]) -> Iterator[Accelerator]:
    """One device of each model: eight equal devices get one piece of advice."""
    yield from {(it.kind, it.name): it for it in reversed(devices)}.values()


def _leading_number(version: str) -> int:
    """580 of ``580.65.06``; 0 where there is no number."""
    first = version.partition(".")[0]
    return int(first) if first.isascii() and first.isdecimal() and len(first) < 9 else 0


def _count(number: int, singular: str, plural: str = "") -> str:
    return f"{number} {singular if number == 1 else plural or singular + 's'}"
