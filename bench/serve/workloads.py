"""The models that are served, as ``hotlap infer`` takes them, and what their requests hold. ``real_models`` is that of
``tests/inference``; both modules are copied into one folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import real_models
import torch

ROWS = (1, 2, 4, 8)
"""The numbers of rows of inputs, so that the exported model takes any number."""

_LENGTH = 64
"""All sentences are padded to this many tokens."""


def cnn() -> torch.nn.Module:
    return real_models.cnn()


def cnn_inputs() -> list[torch.Tensor]:
    return list(_parts(torch.cat(real_models.digits())))


def minilm() -> torch.nn.Module:
    return real_models.minilm()


def minilm_inputs() -> list[dict[str, torch.Tensor]]:
    rows = [_padded(it) for it in real_models.tokenized_batches(1)]
    joined = {name: torch.cat([it[name] for it in rows]) for name in rows[0]}
    parts = {name: list(_parts(it)) for name, it in joined.items()}
    return [dict(zip(parts, row, strict=True)) for row in zip(*parts.values(), strict=True)]


def requests(name: str, count: int = 64) -> list[dict[str, Any]]:
    """Requests of one row each, with the names of an exported model's inputs."""
    if name == "cnn":
        images = torch.cat(real_models.digits())[:count]
        return [{"images": it[None].tolist()} for it in images]
    rows = [_padded(it) for it in real_models.tokenized_batches(1)[:count]]
    return [{key: it.tolist() for key, it in row.items()} for row in rows]


def eager(name: str) -> Callable[..., dict[str, torch.Tensor]]:
    """The unmodified model, with the names of the exported one's inputs and outputs."""
    model = {"cnn": cnn, "minilm": minilm}[name]()

    def call(**tensors: torch.Tensor) -> dict[str, torch.Tensor]:
        with torch.no_grad():
            found = model(**tensors)
        if isinstance(found, torch.Tensor):
            return {"output": found}
        return {f"output_{key}": it for key, it in found.items()}

    return call


LOADER = """import json
import sys
from pathlib import Path

import torch

sys.path.insert(0, {folder!r})
import workloads


def load(folder=Path(__file__).parent, threads=0):
    if threads:
        torch.set_num_threads(threads)
    return workloads.eager({name!r})
"""


def write_unmodified(name: str, exported: Path, folder: Path, modules: Path) -> None:
    """A folder like that of the exported model, which loads the unmodified one."""
    import json

    contract = json.loads((exported / "contract.json").read_text()) | {"arrays": "torch", "device": "cpu"}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "contract.json").write_text(json.dumps(contract))
    (folder / "load.py").write_text(LOADER.format(folder=str(modules), name=name))


def _padded(tokens: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    cut = {name: it[:, :_LENGTH] for name, it in tokens.items()}
    return {name: torch.nn.functional.pad(it, (0, _LENGTH - it.shape[1])) for name, it in cut.items()}


def _parts(rows: torch.Tensor) -> Iterator[torch.Tensor]:
    """Rows one by one, then two at a time, and so on, for as long as there are some."""
    first = 0
    while True:
        for size in ROWS:
            if first + size > len(rows):
                return
            yield rows[first : first + size]
            first += size
