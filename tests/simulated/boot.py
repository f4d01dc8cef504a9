"""Put the simulated device into a process, before its script imports torch.

``SIMULATED_DEVICE`` names a profile (``h100``, ``a100``, ``t4``, ``laptop``) or a file of that form;
``SIMULATED_DEVICES`` is how many there are, ``SIMULATED_SCENARIO`` a file of values that differ from the profile's,
``SIMULATED_STATE`` the file by which processes on the device know of each other, and ``SIMULATED_BUILD`` the folder of
what was compiled.
"""

from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from simulated import clock
from simulated.library import Library, built
from simulated.profile import DeviceProfile, chosen_profile

BUILD = "SIMULATED_BUILD"
STATE = "SIMULATED_STATE"


def boot() -> None:
    """Wait for the imports of torch and of psutil: a process that never imports them is not affected."""
    sys.meta_path.insert(0, _Finder())


def load_device(profile: DeviceProfile) -> Library:
    """The compiled device, as the profile has it."""
    default = Path(tempfile.gettempdir(), f"simulated-device-{os.getuid()}")
    library = Library(built(Path(os.environ.get(BUILD) or default)))
    library.configure(profile.values())
    if state := os.environ.get(STATE):
        library.share(os.fsencode(state))
    return library


class _Finder(importlib.abc.MetaPathFinder):
    """Find modules as usual, and intercept some."""

    def __init__(self) -> None:
        self._awaited = {
            "torch": _execute_torch,
            "psutil": _execute_psutil,
            "torch._inductor.compile_fx": _execute_inductor,
        }

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        run = self._awaited.pop(name, None)
        if run is None:
            return None
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            loader: Any = spec.loader
            loader.exec_module = functools.partial(run, loader.exec_module)
        return spec


def _execute_torch(execute: Callable[[ModuleType], None], module: ModuleType) -> None:
    profile = chosen_profile()
    library = load_device(profile)  # torch checks only once whether there is a device
    execute(module)
    from simulated import cuda, host, loaders, profiler

    cuda.install(module, library, profile)
    profiler.install(module, library, profile)
    loaders.install(module, library)
    if host.is_the_test(sys.orig_argv):
        host.install(module, library)
    if not _is_controller():
        clock.install(library)


def _execute_psutil(execute: Callable[[ModuleType], None], module: ModuleType) -> None:
    """No other process computes on the simulated machine, however busy the real one is."""
    execute(module)
    changing: Any = module
    changing.cpu_times = functools.cache(changing.cpu_times)


def _execute_inductor(execute: Callable[[ModuleType], None], module: ModuleType) -> None:
    """There is no Triton for the simulated device: what Dynamo captures is differentiated and run operator by operator,
    in every mode."""
    execute(module)
    from torch._dynamo.backends.debugging import aot_eager

    def compile_fx(graph: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        return aot_eager(graph, inputs)

    changing: Any = module
    changing.compile_fx = compile_fx


def _is_controller() -> bool:
    """Whether this is hotlap itself, which waits for real processes by a real clock."""
    if os.environ.get("HOTLAP_ASSIGNMENT"):
        return False
    names = [Path(it).name for it in sys.orig_argv[:4]]
    return any(it in ("hotlap", "pytest") or it.startswith("bench.") for it in names)
