"""Code that is there for devices although no question in the source says so, and code that no device here can run.

Each entry is a file below ``src/hotlap`` with the functions, classes (``Class``) and methods (``Class.method``) of it;
``EVERYTHING`` stands for the whole file. A name that is not there any more is an error.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

EVERYTHING = ("",)

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef

DEVICE_CODE: dict[str, tuple[str, ...]] = {
    # The step clock on streams, copies, captured graphs, and what is asked of the device between blocks.
    "runtime/captures.py": EVERYTHING,
    "runtime/clock.py": ("StepClock._follow", "StepClock._replayed", "_copy_of"),
    "runtime/copies.py": ("_timed",),
    "runtime/device_memory.py": EVERYTHING,
    "runtime/process_groups.py": ("_patient", "wait_until_forgotten"),
    "runtime/session.py": ("Session._wait_on_device",),
    "runtime/stopwatch.py": ("StreamStopwatch",),
    "runtime/watch/watcher.py": ("_device_bytes",),
    # Evidence that only a device gives.
    "runtime/evidence/batch_copies.py": ("BatchCopies._watched", "BatchCopies.copied", "BatchCopies._is_of_the_batch"),
    "runtime/evidence/datasets.py": ("_accelerator_watch",),
    "runtime/evidence/memory.py": ("MemoryWatch._training_device",),
    "runtime/evidence/syncs.py": ("SyncWatch._copying", "SyncWatch._is_masked", "_waiting"),
    "runtime/memory/allocator.py": EVERYTHING,
    # Levers, where they act on a device.
    "levers/data/device_prefetch.py": ("CudaSide", "prefetch", "_names_a_device"),
    "levers/kernels/cudnn_benchmark.py": ("install", "switch"),
    "levers/memory/expandable_segments.py": EVERYTHING,
    "levers/precision/mixed_precision.py": ("_scale_losses", "_why_no_scaling"),
    "levers/support/device_copies.py": ("answer_copies",),
    "levers/support/loss_scaler.py": EVERYTHING,
    # What the driver and torch report of devices, and the rates that they reach.
    "machine/accelerators.py": EVERYTHING,
    "machine/ceilings.py": ("_copy_rates",),
    "machine/doctor.py": ("missing_driver", "_torch_build", "_old_driver", "_not_alone", "_throttled", "_old_device",
                          "_blocking_launches"),
    "machine/facts.py": ("_confirmed_device",),
    "machine/torch_devices.py": EVERYTHING,
    # Trials: room on the device, its clock and energy, arms that leave it or wait for it.
    "experiment/room.py": EVERYTHING,
    "experiment/trials.py": ("Trials._learn_room",),
    "trial/endings.py": ("may_lack_room",),
    "trial/energy.py": EVERYTHING,
    "trial/freezing.py": ("DeviceFreezer",),
    "trial/load.py": ("Device", "_sum", "_handles", "_count", "_handle"),
    "trial/local.py": ("_waiting",),
    "trial/suspension.py": EVERYTHING,
    "trial/teardown.py": EVERYTHING,
    "trial/turns.py": ("is_cramped",),
    # Findings about a device.
    "diagnose/memory_use.py": ("device_memory",),
    "diagnose/rules/accelerator_in_dataset.py": ("check",),
    "diagnose/rules/allocator_retries.py": ("check",),
    "diagnose/rules/blocking_copies.py": ("check",),
    "diagnose/rules/data_parallel.py": ("check",),
    "diagnose/rules/fragmentation.py": ("check",),
    "diagnose/rules/host_sync.py": ("check",),
    "diagnose/rules/launch_bound.py": ("check",),
    "diagnose/rules/narrow_pcie.py": ("check",),
    "diagnose/rules/old_driver.py": ("check",),
    "diagnose/rules/pageable_copies.py": ("check",),
    "diagnose/rules/shared_device.py": ("check",),
    "diagnose/rules/tensor_on_host.py": ("check",),
    "diagnose/rules/throttled.py": ("check",),
    "diagnose/rules/unaligned_sizes.py": ("check",),
}  # fmt: skip

ELSEWHERE: dict[str, dict[str, str]] = {
    "machine/accelerators.py": {
        "_amd": "AMD: a copy of the kernel's files takes the place of the device",
        "_graphics_target": "AMD: a copy of the kernel's files takes the place of the device",
        "_numbers": "AMD: a copy of the kernel's files takes the place of the device",
        "_apple": "Apple: the platform's name takes the place of the device",
    },
}
"""Devices that cannot be simulated here, which are listed apart: what is needed is not there at all."""


def named_bodies(tree: ast.Module, names: tuple[str, ...], file: str) -> Iterator[list[ast.stmt]]:
    """The statements of these functions, and of these classes' methods. Raises :class:`LookupError` where one is not
    there."""
    there = dict(_definitions(tree))
    for name in (it for it in there if "." not in it) if names == EVERYTHING else names:
        if name not in there:
            raise LookupError(f"{file} has no {name}: correct bench/device_lines/named.py.")
        yield from bodies_of(there[name])


def bodies_of(definition: Definition) -> Iterator[list[ast.stmt]]:
    """What runs when a function is called, or the methods of a class: its own statements run when it is imported."""
    if isinstance(definition, ast.ClassDef):
        for it in definition.body:
            if isinstance(it, Definition):
                yield from bodies_of(it)
    else:
        yield definition.body


def _definitions(tree: ast.Module) -> Iterator[tuple[str, Definition]]:
    for it in tree.body:
        if isinstance(it, Definition):
            yield it.name, it
        if isinstance(it, ast.ClassDef):
            yield from ((f"{it.name}.{one.name}", one) for one in it.body if isinstance(one, Definition))
