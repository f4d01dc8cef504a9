"""Load a deployed model in a process without hotlap, and keep what it returns. Imports nothing of ours.

``python artefact_program.py FOLDER INPUTS OUTPUTS``: calls the model with each input of the archive ``INPUTS``, and
writes the archive ``OUTPUTS``: outputs as ``0/logits`` and so on, the seconds of loading, the bytes that the process
then holds, and the seconds of each call.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy

_FEWEST_CALLS = 20


def main(folder: Path, inputs: Path, outputs: Path) -> None:
    """Raise what the loader and the model raise."""
    contract = json.loads((folder / "contract.json").read_text())
    rows = _rows(inputs, contract)
    began = time.perf_counter()
    spec = importlib.util.spec_from_file_location("load", folder / "load.py")
    assert spec is not None and spec.loader is not None
    loader = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loader)
    model = loader.load()
    found: dict[str, Any] = {"load_seconds": time.perf_counter() - began, "resting_bytes": _resident_bytes()}
    for number, row in enumerate(rows):
        found.update({f"{number}/{name}": _array(it) for name, it in model(**row).items()})
    seconds = []
    for number in range(max(_FEWEST_CALLS, len(rows))):
        began = time.perf_counter()
        kept = [_array(it) for it in model(**rows[number % len(rows)]).values()]
        seconds.append(time.perf_counter() - began)
        del kept
    numpy.savez(outputs, **found, call_seconds=seconds)


def _resident_bytes() -> int:
    """What this process holds of the host's memory; 0 if that is unknown."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def _rows(path: Path, contract: dict[str, Any]) -> list[dict[str, Any]]:
    """Each input by name, as the contract wants it."""
    rows: dict[int, dict[str, Any]] = {}
    dtypes = {it["name"]: it["dtype"] for it in contract["inputs"]}
    with numpy.load(path, allow_pickle=False) as archive:
        for key in archive.files:
            number, _, name = key.partition("/")
            rows.setdefault(int(number), {})[name] = _given(archive[key], dtypes[name], contract)
    return [rows[number] for number in sorted(rows)]


def _given(array: Any, dtype: str, contract: dict[str, Any]) -> Any:
    if contract["arrays"] == "numpy":
        return array
    import torch

    return torch.from_numpy(array).to(device=contract["device"], dtype=getattr(torch, dtype))


def _array(value: Any) -> Any:
    """As numpy has it: 16-bit formats that it lacks as float32."""
    if isinstance(value, numpy.ndarray):
        return value
    held = value.detach().cpu()
    return (held.float() if "float16" in str(held.dtype) else held).numpy()


if __name__ == "__main__":
    # An import of hotlap fails, wherever it is installed: where the model is deployed there is none.
    sys.modules["hotlap"] = None  # type: ignore[assignment]
    main(*map(Path, sys.argv[1:]))
