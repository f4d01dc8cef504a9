"""The devices as torch sees them, in CUDA's own order.

Runs in the child process of :mod:`hotlap.machine.ceilings`, since the query initialises CUDA. Torch decides what
training uses: the management library counts devices in another order, reports a whole device where torch has a slice of
it (MIG), and is missing in containers that were started without the driver's "utility" capability.
"""

from __future__ import annotations

from hotlap.records import TorchDevice


def devices_of_torch() -> tuple[TorchDevice, ...]:
    """None where this torch can use no CUDA or ROCm device."""
    import torch

    if not torch.cuda.is_available():
        return ()
    is_amd = torch.version.hip is not None
    found = []
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        capability = getattr(properties, "gcnArchName", "") if is_amd else f"{properties.major}.{properties.minor}"
        found.append(
            TorchDevice(
                kind="rocm" if is_amd else "cuda",
                name=properties.name,
                memory_bytes=int(properties.total_memory),
                capability=capability.partition(":")[0],
                uuid=str(getattr(properties, "uuid", "")),
            )
        )
    return tuple(found)
