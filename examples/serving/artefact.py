"""A folder that ``hotlap export artefact`` wrote, as a function of many requests at once. Imports nothing of hotlap.

A request holds a list for each input of ``contract.json``, with its rows along the first dimension. Requests whose rows
have the same shape are joined to one call if the contract leaves the first dimension open, and its result is divided
again.
"""

import importlib.util
import json
from pathlib import Path

import numpy


class BadRequest(Exception):
    """A request that the model cannot be called with; the message gives the reason."""


class Artefact:
    """The model of a folder; ``joins`` says whether several requests can share a call."""

    def __init__(self, folder, threads=0):
        spec = importlib.util.spec_from_file_location("load", Path(folder) / "load.py")
        loader = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(loader)
        contract = json.loads((Path(folder) / "contract.json").read_text())
        self._model = loader.load(folder, threads)
        self._inputs = {it["name"]: it for it in contract["inputs"]}
        self._of_torch = contract["arrays"] == "torch"
        self._device = contract.get("device", "cpu")
        self.joins = all(it["shape"] and it["shape"][0] is None for it in self._inputs.values())

    def arrays(self, request):
        """The request's lists as arrays. Raises :class:`BadRequest` for other names, numbers or shapes."""
        if not isinstance(request, dict) or set(request) != set(self._inputs):
            raise BadRequest(f"A request is an object with the lists {', '.join(self._inputs)}.")
        arrays = {name: self._array(name, value) for name, value in request.items()}
        if self.joins and len({len(it) for it in arrays.values()}) > 1:
            raise BadRequest("The lists of a request must have the same number of rows.")
        return arrays

    def answers(self, requests):
        """The outputs of each request, as lists by name."""
        if not self.joins:
            return [self._lists(self._called(it)) for it in requests]
        answers = [None] * len(requests)
        for group in _alike(requests):
            joined = {name: numpy.concatenate([requests[it][name] for it in group]) for name in self._inputs}
            outputs = self._called(joined)
            rows = len(next(iter(joined.values())))
            if len(group) > 1 and any(it.ndim == 0 or len(it) != rows for it in outputs.values()):
                self.joins = False  # the first dimension is open, but does not hold rows
                return self.answers(requests)
            first = 0
            for it in group:
                last = first + len(next(iter(requests[it].values())))
                part = outputs if len(group) == 1 else {name: of[first:last] for name, of in outputs.items()}
                answers[it] = self._lists(part)
                first = last
        return answers

    def _array(self, name, value):
        wanted = self._inputs[name]
        try:
            array = numpy.asarray(value)
        except ValueError as error:
            raise BadRequest(f"{name}: rows differ in shape.") from error
        if array.dtype.kind not in "biuf":
            raise BadRequest(f"{name} holds something that is not a number.")
        shape = wanted["shape"]
        if array.ndim != len(shape) or any(n not in (None, m) for n, m in zip(shape, array.shape, strict=True)):
            sizes = ", ".join("any" if it is None else str(it) for it in shape)
            raise BadRequest(f"{name} has the shape {list(array.shape)}, and the model takes [{sizes}].")
        if array.dtype.kind == "f" and wanted["dtype"].startswith(("int", "uint")):
            raise BadRequest(f"{name} must hold integers.")
        kept = "float32" if wanted["dtype"] == "bfloat16" else wanted["dtype"]
        return array.astype(kept)

    def _called(self, arrays):
        if not self._of_torch:
            return self._model(**arrays)
        import torch

        tensors = {
            name: torch.from_numpy(it).to(self._device, getattr(torch, self._inputs[name]["dtype"]))
            for name, it in arrays.items()
        }
        found = self._model(**tensors)
        wide = {name: it.float() if it.dtype == torch.bfloat16 else it for name, it in found.items()}
        return {name: it.detach().cpu().numpy() for name, it in wide.items()}

    @staticmethod
    def _lists(outputs):
        return {name: it.tolist() for name, it in outputs.items()}


def _alike(requests):
    """The numbers of the requests whose rows have the same shape, in groups."""
    groups = {}
    for number, request in enumerate(requests):
        shapes = tuple((name, it.shape[1:]) for name, it in sorted(request.items()))
        groups.setdefault(shapes, []).append(number)
    return groups.values()
