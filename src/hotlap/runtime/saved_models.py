"""Models that are given by a path: a folder that transformers wrote, or a program that torch.export saved."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from types import ModuleType
from typing import Any

from hotlap.levers.support.situations import PROGRAM


def model_from(torch: ModuleType, path: str) -> Any:
    """The model, ready for inference. Raises ValueError, and what transformers and torch raise."""
    return _of_transformers(Path(path)) if Path(path).is_dir() else _program(torch, path)


def operators_of(model: Any) -> list[str]:
    """The operators of an exported program, which has no layers: ``aten.linear.default``; none of other models."""
    nodes = model.graph.nodes if type(model).__name__ == PROGRAM else ()
    return [str(it.target) for it in nodes if it.op == "call_function"]


def _program(torch: ModuleType, file: str) -> Any:
    """A module that calls the exported graph. What it computes in training mode was decided when it was exported, so
    that ``train`` and ``eval``, which torch refuses there, have nothing to change."""
    module = torch.export.load(file).module()
    for name in ("train", "eval"):
        vars(module).pop(name, None)
    return module.eval()


def _of_transformers(folder: Path) -> Any:
    """The class that the folder's configuration names, with the folder's weights; no code of the folder's own runs."""
    path = folder / "config.json"
    if not path.is_file():
        raise ValueError(f"{folder} has no config.json, as the folder of a transformers model has.")
    config: dict[str, Any] = json.loads(path.read_bytes())
    names: list[str] = config.get("architectures") or []
    if config.get("auto_map") or len(names) != 1:
        raise ValueError(f"{path} does not name one class of transformers: write a function that loads the model.")
    transformers = importlib.import_module("transformers")
    made = getattr(transformers, str(names[0]), None)
    if made is None:
        raise ValueError(f"{names[0]}, which {path} names, is no class of transformers {transformers.__version__}.")
    return made.from_pretrained(folder, local_files_only=True).eval()
