"""``torch.cuda`` for the simulated device: the results of its functions, and streams and events in Python."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from simulated import graphs, nccl
from simulated.library import Library
from simulated.profile import DeviceProfile

_MODES = {"default": 0, "warn": 1, "error": 2}
_ARCHITECTURES = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90")


def install(torch: Any, library: Library, profile: DeviceProfile) -> None:
    """Make torch's modules use the simulated device."""
    device = _Device(torch, library, profile)
    torch.version.cuda = "12.8"
    torch.backends.cuda.is_built = lambda: True
    stream, event = _stream_and_event(device)
    table = {**_facts(device), **_choice(device, stream), **_memory(device), **_random(device), **_debugging(device)}
    table |= {"Stream": stream, "Event": event}
    for module in (torch.cuda, torch.cuda.memory, torch.cuda.random, torch.cuda.streams, torch.cuda.graphs):
        for name, function in table.items():
            if module is torch.cuda or hasattr(module, name):
                setattr(module, name, function)
    torch.cuda.default_generators = tuple(torch.Generator(f"cuda:{it}") for it in range(profile.devices))
    for name, function in _of_the_core(device).items():
        setattr(torch._C, name, function)
    torch.Tensor.record_stream = lambda self, stream: None
    torch.UntypedStorage.resize_ = _resizing(torch.UntypedStorage.resize_, library)
    graphs.install(torch, device)
    nccl.install(torch, device)


def _resizing(on_host: Callable[[Any, int], Any], library: Library) -> Callable[[Any, int], Any]:
    """FSDP frees and takes back the memory of weights that it gathers."""

    def resize_(storage: Any, size: int) -> Any:
        if storage.device.type != "cuda":
            return on_host(storage, size)
        library.resize_storage(storage._cdata, size)
        return storage

    return resize_


class _Device:
    """What all of these functions share."""

    def __init__(self, torch: Any, library: Library, profile: DeviceProfile) -> None:
        self.torch, self.library, self.profile = torch, library, profile
        self.initialized = False
        self.debug_mode = 0
        self.capture: Any = None  # the graph that is being captured

    def initialize(self) -> None:
        self.initialized = True
        self.open_context(self.library.current_device())

    def open_context(self, index: int) -> None:
        """Raises as torch does where the device has no room, or takes no other process."""
        if refused := self.library.open_context(index):
            raise self.torch.AcceleratorError(refused.decode())

    def index(self, device: Any = None) -> int:
        """The number of a device, however it was named. Raises as torch does for one that is not there."""
        if device is None:
            return int(self.library.current_device())
        if isinstance(device, int):
            index = device
        else:
            named = self.torch.device(device)
            if named.type != "cuda":
                raise ValueError(f"Expected a cuda device, but got: {named}")
            index = self.library.current_device() if named.index is None else named.index
        if not 0 <= index < self.profile.devices:
            raise self.torch.AcceleratorError("CUDA error: invalid device ordinal")
        return int(index)

    def read(self) -> None:
        """Before the host waits, which captures forbid, and torch's debug mode if set."""
        if self.capture is not None:
            raise self.torch.AcceleratorError(graphs.NOT_PERMITTED)
        if self.debug_mode == 2:
            raise RuntimeError("called a synchronizing CUDA operation")

    def statistics(self, device: Any = None) -> dict[str, Any]:
        found: dict[str, Any] = self.torch._C._accelerator_getDeviceStats(self.index(device))
        return found


def _facts(device: _Device) -> dict[str, Callable[..., Any]]:
    profile = device.profile

    def properties(which: Any = None) -> Any:
        index = device.index(which)
        major, minor = profile.capability
        return SimpleNamespace(
            name=profile.name,
            major=major,
            minor=minor,
            total_memory=int(profile.memory_bytes),
            multi_processor_count=profile.multiprocessors,
            max_threads_per_multi_processor=2048,
            regs_per_multiprocessor=65536,
            shared_memory_per_block_optin=166_912,
            shared_memory_per_multiprocessor=167_936,
            shared_memory_per_block=49_152,
            warp_size=32,
            L2_cache_size=40 << 20,
            is_integrated=0,
            is_multi_gpu_board=0,
            gcnArchName="",
            uuid=profile.slice_uuid.removeprefix("MIG-") or f"00000000-0000-0000-0000-00000000000{index}",
            pci_bus_id=index + 1,
            pci_device_id=0,
            pci_domain_id=0,
            clock_rate=profile.clock_mhz * 1000,
        )

    def supports_bfloat16(including_emulation: bool = True) -> bool:
        return including_emulation or profile.capability >= (8, 0)

    return {
        "is_available": lambda: True,
        "_is_compiled": lambda: True,
        "is_initialized": lambda: device.initialized,
        "init": device.initialize,
        "_lazy_init": device.initialize,
        "device_count": lambda: profile.devices,
        "_device_count_nvml": lambda: profile.devices,
        "get_device_properties": properties,
        "get_device_capability": lambda which=None: profile.capability,
        "get_device_name": lambda which=None: profile.name,
        "get_arch_list": lambda: list(_ARCHITECTURES),
        "is_bf16_supported": supports_bfloat16,
        "is_tf32_supported": lambda: profile.capability >= (8, 0),
        "can_device_access_peer": lambda one, other: True,
        "_is_in_bad_fork": lambda: False,
        "is_current_stream_capturing": lambda: device.capture is not None,
        "clock_rate": lambda which=None: profile.clock_mhz,
        "utilization": lambda which=None: 50,
    }


def _choice(device: _Device, stream: type) -> dict[str, Any]:
    library = device.library

    def current(which: Any = None) -> Any:
        index = device.index(which)
        return stream(device=index, stream_id=library.current_stream(index))

    def synchronize(which: Any = None) -> None:
        device.initialize()
        device.read()
        library.synchronize_device(device.index(which))

    def set_stream(chosen: Any) -> None:
        if chosen is not None:
            library.set_current_stream(chosen.device_index, chosen.stream_id)

    class StreamContext:
        """A class, since torch's compiler checks for instances of it."""

        def __init__(self, stream: Any) -> None:
            self.stream = stream

        def __enter__(self) -> None:
            self._before = None if self.stream is None else current(self.stream.device)
            set_stream(self.stream)

        def __exit__(self, *error: object) -> None:
            set_stream(self._before)

    return {
        "current_device": lambda: device.index(),
        "set_device": lambda which: library.set_current_device(device.index(which)),
        "current_stream": current,
        "default_stream": lambda which=None: stream(device=device.index(which), stream_id=0),
        "set_stream": set_stream,
        "stream": StreamContext,
        "StreamContext": StreamContext,
        "synchronize": synchronize,
    }


def _stream_and_event(device: _Device) -> tuple[type, type]:
    library = device.library

    class Event:
        """A moment on a stream, in nanoseconds of simulated time; None until it is recorded."""

        def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False,
                     external: bool = False) -> None:  # fmt: skip
            self._is_timed = enable_timing
            self._moment: int | None = None
            self._was_captured = False

        def record(self, stream: Any = None) -> None:
            self._was_captured = device.capture is not None
            chosen = stream if stream is not None else device.torch.cuda.current_stream()
            self._moment = max(library.ready(chosen.device_index, chosen.stream_id), library.now())

        def wait(self, stream: Any = None) -> None:
            (stream if stream is not None else device.torch.cuda.current_stream()).wait_event(self)

        def query(self) -> bool:
            return self._moment is None or self._moment <= library.now()

        def synchronize(self) -> None:
            if self._moment is not None:
                library.synchronize_event(self._moment)

        def elapsed_time(self, end: Event) -> float:
            if not (self._is_timed and end._is_timed):
                raise ValueError("Both events must be created with argument 'enable_timing=True'.")
            if self._moment is None or end._moment is None:
                raise ValueError("Both events must be recorded before calculating elapsed time.")
            if self._was_captured or end._was_captured:
                raise device.torch.AcceleratorError("CUDA error: invalid argument")
            if not (self.query() and end.query()):
                raise device.torch.AcceleratorError("CUDA error: device not ready")
            return (end._moment - self._moment) / 1e6

    class Stream:
        """A queue of the device."""

        device_type = 1

        def __init__(self, device: Any = None, priority: int = 0, *, stream_id: int | None = None) -> None:
            self.device_index = shared.index(device)
            self.device = shared.torch.device("cuda", self.device_index)
            self.stream_id = library.new_stream(self.device_index) if stream_id is None else stream_id
            self.cuda_stream, self.priority = self.stream_id, priority

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Stream) and self._key == other._key

        def __hash__(self) -> int:
            return hash(self._key)

        def __enter__(self) -> Stream:
            self._before = shared.torch.cuda.current_stream(self.device)
            shared.torch.cuda.set_stream(self)
            return self

        def __exit__(self, *raised: object) -> None:
            shared.torch.cuda.set_stream(self._before)

        @property
        def _key(self) -> tuple[int, int]:
            return self.device_index, self.stream_id

        def synchronize(self) -> None:
            shared.read()
            library.synchronize_stream(*self._key)

        def query(self) -> bool:
            return bool(library.ready(*self._key) <= library.now())

        def wait_event(self, event: Any) -> None:
            if event._moment is not None:
                library.stream_waits(*self._key, event._moment)

        def wait_stream(self, stream: Any) -> None:
            library.stream_waits(*self._key, library.ready(stream.device_index, stream.stream_id))

        def record_event(self, event: Any = None) -> Any:
            event = event if event is not None else Event()
            event.record(self)
            return event

    shared = device
    return Stream, Event


def _memory(device: _Device) -> dict[str, Callable[..., Any]]:
    library = device.library

    def nested(which: Any = None) -> dict[str, Any]:
        return device.statistics(which) if device.initialized else {}

    def flat(which: Any = None) -> dict[str, Any]:
        return dict(sorted(_flattened(nested(which))))

    def figure(name: str) -> Callable[..., int]:
        return lambda which=None: int(flat(which).get(name, 0))

    def snapshot(mempool_id: Any = None) -> list[dict[str, Any]]:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "segments.json")
            library.memory_snapshot(str(path).encode())
            return [_segment(it) for it in json.loads(path.read_text(encoding="utf-8"))]

    def mem_get_info(which: Any = None) -> tuple[int, int]:
        index = device.index(which)
        device.open_context(index)
        return library.free_bytes(index), library.total_bytes(index)

    def empty_cache() -> None:
        if device.initialized:
            device.torch._C._accelerator_emptyCache()

    return {
        "memory_stats_as_nested_dict": nested,
        "memory_stats": flat,
        "memory_allocated": figure("allocated_bytes.all.current"),
        "max_memory_allocated": figure("allocated_bytes.all.peak"),
        "memory_reserved": figure("reserved_bytes.all.current"),
        "max_memory_reserved": figure("reserved_bytes.all.peak"),
        "reset_peak_memory_stats": lambda which=None: device.torch._C._accelerator_resetPeakStats(device.index(which)),
        "reset_accumulated_memory_stats": lambda which=None: device.torch._C._accelerator_resetAccumulatedStats(
            device.index(which)
        ),
        "mem_get_info": mem_get_info,
        "memory_snapshot": snapshot,
        "empty_cache": empty_cache,
        "ipc_collect": lambda: None,
    }


def _flattened(values: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _flattened(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def _segment(it: dict[str, Any]) -> dict[str, Any]:
    """As ``torch.cuda.memory_snapshot`` has a segment."""
    blocks = [
        {
            "address": it["address"] + offset,
            "size": size,
            "requested_size": requested,
            "state": "active_allocated" if taken else "inactive",
            "frames": [],
        }
        for offset, size, requested, taken in it["blocks"]
    ]
    active = sum(block["size"] for block in blocks if block["state"] == "active_allocated")
    return {
        "device": it["device"],
        "address": it["address"],
        "total_size": it["total_size"],
        "allocated_size": active,
        "active_size": active,
        "stream": 0,
        "segment_type": "small" if it["is_small"] else "large",
        "segment_pool_id": (0, 0),
        "is_expandable": False,
        "blocks": blocks,
    }


def _random(device: _Device) -> dict[str, Callable[..., Any]]:
    def generator(which: Any = "cuda") -> Any:
        return device.torch.cuda.default_generators[device.index(None if which == "cuda" else which)]

    def get_state(which: Any = "cuda") -> Any:
        device.read()
        return generator(which).get_state()

    def seed_all(seed: int) -> None:
        for it in device.torch.cuda.default_generators:
            it.manual_seed(int(seed))

    return {
        "manual_seed": lambda seed: generator().manual_seed(int(seed)),
        "manual_seed_all": seed_all,
        "seed": lambda: generator().seed(),
        "seed_all": lambda: seed_all(generator().seed()),
        "initial_seed": lambda: generator().initial_seed(),
        "get_rng_state": get_state,
        "set_rng_state": lambda state, which="cuda": generator(which).set_state(state),
        "get_rng_state_all": lambda: [get_state(it) for it in range(device.profile.devices)],
    }


def _debugging(device: _Device) -> dict[str, Callable[..., Any]]:
    def set_mode(mode: int | str) -> None:
        device.debug_mode = _MODES[mode] if isinstance(mode, str) else mode
        device.library.set_sync_debug_mode(device.debug_mode)

    return {"set_sync_debug_mode": set_mode, "get_sync_debug_mode": lambda: device.debug_mode}


def _of_the_core(device: _Device) -> dict[str, Callable[..., Any]]:
    """What other modules of torch use of ``torch._C``."""
    library = device.library

    def exchange(index: int) -> int:
        before = library.current_device()
        if index >= 0:
            library.set_current_device(index)
        return int(before)

    return {
        "_cuda_getDeviceCount": lambda: device.profile.devices,
        "_cuda_getDevice": lambda: int(library.current_device()),
        "_cuda_setDevice": lambda index: library.set_current_device(index),
        "_cuda_exchangeDevice": exchange,
        "_cuda_maybeExchangeDevice": exchange,
        "_cuda_getCurrentRawStream": lambda index=0: int(library.current_stream(index)),
        "_cuda_getCurrentStream": lambda index=0: (int(library.current_stream(index)), index, 1),
        "_cuda_isCurrentStreamCapturing": lambda: device.capture is not None,
    }
