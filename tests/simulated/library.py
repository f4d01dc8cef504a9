"""The compiled device: built once for each version of its source and of torch, and called by ctypes."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sysconfig
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
DEVICE, DRIVER = HERE / "device", HERE / "driver"
DRIVERS_NAME = "libnvidia-ml.so.1"
_OPTIONS = ("-O1", "-g0", "-std=c++20", "-fPIC", "-w", "-DNDEBUG")


class NoCompiler(Exception):
    """There is nothing here that compiles C++."""


def compiler() -> str:
    """The compiler's command. Raises :class:`NoCompiler`."""
    found = shutil.which(os.environ.get("CXX") or "g++") or shutil.which("clang++")
    if found is None:
        raise NoCompiler("The simulated device needs a C++ compiler (g++ or clang++).")
    return found


def _torch() -> Path:
    spec = importlib.util.find_spec("torch")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent


def built(folder: Path) -> Path:
    """The folder below ``folder`` with the compiled device and driver, made if it is not there yet. Raises
    :class:`NoCompiler`."""
    sources = sorted([*DEVICE.iterdir(), *DRIVER.iterdir()])
    digest = hashlib.sha256((_torch() / "version.py").read_bytes() + " ".join(_OPTIONS).encode())
    for it in sources:
        digest.update(it.read_bytes())
    made = folder / digest.hexdigest()[:16]
    if not made.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as temporary:
            _compile([it for it in sources if it.suffix == ".cpp"], Path(temporary), folder / "objects")
            with contextlib.suppress(FileExistsError, OSError):  # another process may have been as quick
                Path(temporary, "libraries").rename(made)
    return made


def _compile(sources: list[Path], temporary: Path, kept: Path) -> None:
    """Link the sources' objects; ``kept`` has those of sources that did not change since, nor any header."""
    torch, command = _torch(), compiler()
    includes = [torch / "include", torch / "include/torch/csrc/api/include", sysconfig.get_paths()["include"]]

    kept.mkdir(exist_ok=True)
    headers = [it.read_bytes() for it in sorted([*DEVICE.glob("*.h"), *DRIVER.glob("*.h")])]
    common = b"".join([(torch / "version.py").read_bytes(), repr((command, *_OPTIONS)).encode(), *headers])

    def compiled(source: Path) -> str:
        digest = hashlib.sha256(common + source.read_bytes()).hexdigest()[:16]
        made = kept / f"{source.stem}-{digest}.o"
        if not made.exists():
            fresh = temporary / made.name
            options = [*_OPTIONS, *(f"-I{it}" for it in includes)]
            subprocess.run([command, *options, "-c", str(source), "-o", str(fresh)], check=True)
            fresh.replace(made)
        return str(made)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = dict(zip(sources, pool.map(compiled, sources), strict=True))
    libraries = temporary / "libraries"
    libraries.mkdir()
    linked = [f"-L{torch / 'lib'}", "-ltorch_cpu", "-lc10", f"-Wl,-rpath,{torch / 'lib'}"]
    for folder, name, against in ((DEVICE, "simulated.so", linked), (DRIVER, DRIVERS_NAME, [])):
        of_it = [made for source, made in objects.items() if source.parent == folder]
        subprocess.run([command, "-shared", *of_it, "-o", str(libraries / name), *against], check=True)


class Library:
    """The functions of ``api.cpp`` without their prefix."""

    def __init__(self, path: Path) -> None:
        self._functions = ctypes.CDLL(str(path / "simulated.so"), ctypes.RTLD_GLOBAL)
        for name in ("now", "ready", "free_bytes", "total_bytes"):
            self._typed(name).restype = ctypes.c_int64
        self._typed("open_context").restype = ctypes.c_char_p
        self._typed("set").argtypes = [ctypes.c_char_p, ctypes.c_double]
        self._typed("spend").argtypes = [ctypes.c_double]
        self._typed("launch").argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_char_p, ctypes.c_double]
        self._typed("multiply_on_host").argtypes = [ctypes.c_double, ctypes.c_int]
        for name in ("wait_until", "synchronize_event"):
            self._typed(name).argtypes = [ctypes.c_int64]
        self._typed("resize_storage").argtypes = [ctypes.c_int64, ctypes.c_int64]
        self._typed("stream_waits").argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64]

    def _typed(self, name: str) -> Any:
        return getattr(self._functions, f"simulated_{name}")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        function = self._typed(name)
        setattr(self, name, function)
        return function

    def configure(self, values: dict[str, float]) -> None:
        """Set the rates of the simulated machine. Raises :class:`KeyError` for an unknown one."""
        for name, value in values.items():
            if not self.set(name.encode(), float(value)):
                raise KeyError(name)
