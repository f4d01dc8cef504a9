"""Prepared samples in a memory-mapped file without a name, which forked workers share. Not a lever itself.

The file is unlinked as soon as it is open, so that nothing of it remains however the processes end. It holds bytes of
tensors and arrays, and Python's plain values by :mod:`marshal`; a process reads only what it wrote itself, or what the
process that started it wrote.
"""

from __future__ import annotations

import ctypes
import marshal
import mmap
import os
import sys
import tempfile
import weakref
from array import array
from typing import Any

_ALIGNED_TO = 64
_SHARE_OF_FREE_SPACE = 0.5
"""The most of a disk's free space that the file takes, whatever its bound."""


class TooLarge(Exception):
    """The samples do not fit into the file."""


class SampleFile:
    """Samples by index, each as a structure with the places of its values.

    ``add`` may be called until ``close``; it raises :class:`TooLarge` beyond ``most_bytes`` and where the disk is full.
    """

    def __init__(self, torch: Any, folder: str, most_bytes: int) -> None:
        self._torch = torch
        self._file: Any = tempfile.TemporaryFile(dir=folder, prefix=".hotlap-samples-")  # noqa: SIM115
        weakref.finalize(self, self._file.close)
        free = os.fstatvfs(self._file.fileno())
        self._most = min(most_bytes, int(free.f_bavail * free.f_frsize * _SHARE_OF_FREE_SPACE))
        self._forms: list[Any] = []
        self._numbers: dict[Any, int] = {}
        self._of_sample = array("L")
        self._begins = array("Q")
        self._plain_bytes = array("L")
        self._map: Any = None
        self._owner = os.getpid()

    def add(self, sample: Any) -> None:
        """Append a sample."""
        values: list[Any] = []
        pieces: list[bytes] = []
        form = self._form_of(sample, values, pieces)
        number = self._numbers.setdefault(form, len(self._forms))
        if number == len(self._forms):
            self._forms.append(form)
        plain = marshal.dumps(values)
        begins = self._file.tell()
        size = sum(_padded(len(it)) for it in (plain, *pieces))
        if begins + size > self._most:
            raise TooLarge
        try:
            for piece in (plain, *pieces):
                self._file.write(piece)
                self._file.write(bytes(_padded(len(piece)) - len(piece)))
        except OSError as error:
            raise TooLarge from error
        self._of_sample.append(number)
        self._begins.append(begins)
        self._plain_bytes.append(len(plain))

    def close(self) -> None:
        """Map what was added; nothing can be added any more. Raises :class:`TooLarge` where the disk is full."""
        try:
            self._file.flush()
        except OSError as error:
            raise TooLarge from error
        self._map = _mapped(self._file.fileno())

    def discard(self) -> None:
        """Give its space back."""
        self._file.close()

    def __len__(self) -> int:
        return len(self._begins)

    def __getitem__(self, number: int) -> Any:
        """A copy of a sample."""
        begins, size = self._begins[number], self._plain_bytes[number]
        values = iter(marshal.loads(self._map[begins : begins + size]))
        return self._sample_of(self._forms[self._of_sample[number]], values, _Reader(begins + _padded(size)))

    def __getstate__(self) -> dict[str, Any]:
        """For workers that are spawned: they open the file again, as long as this process has it."""
        left_out = ("_torch", "_map", "_file")
        return {name: it for name, it in vars(self).items() if name not in left_out} | {"_number": self._file.fileno()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        number = state.pop("_number")
        vars(self).update(state, _torch=sys.modules["torch"])
        self._file = open(f"/proc/{self._owner}/fd/{number}", "rb")  # noqa: SIM115, PTH123
        weakref.finalize(self, self._file.close)
        self._map = _mapped(self._file.fileno())

    # -- structures ---------------------------------------------------------------------------

    def _form_of(self, sample: Any, values: list[Any], pieces: list[bytes]) -> Any:
        """What a sample is but for its values, which are appended: samples of equal shapes have the same form."""
        if type(sample) in (tuple, list):
            return type(sample), tuple(self._form_of(it, values, pieces) for it in sample)
        if type(sample) is dict:
            parts = tuple(self._form_of(it, values, pieces) for it in sample.values())
            return dict, tuple((type(it), it) for it in sample), parts
        if type(sample) is self._torch.Tensor:
            copy = sample.clone()
            flat = copy.contiguous()
            pieces.append(
                ctypes.string_at(flat.data_ptr(), flat.numel() * flat.element_size()) if flat.numel() else b""
            )
            return "tensor", copy.dtype, tuple(copy.shape), copy.stride()
        if hasattr(sample, "tobytes"):
            pieces.append(sample.tobytes())
            return (
                "array",
                sample.dtype,
                sample.shape,
                hasattr(sample, "setflags") and type(sample).__name__ == "ndarray",
            )
        values.append(sample)
        return "value"

    def _sample_of(self, form: Any, values: Any, reader: _Reader) -> Any:
        if form == "value":
            return next(values)
        kind = form[0]
        if kind in (tuple, list):
            return kind(self._sample_of(it, values, reader) for it in form[1])
        if kind is dict:
            parts = (self._sample_of(it, values, reader) for it in form[2])
            return {key: part for (_, key), part in zip(form[1], parts, strict=True)}
        return self._tensor_of(form, reader) if kind == "tensor" else self._array_of(form, reader)

    def _tensor_of(self, form: Any, reader: _Reader) -> Any:
        _, dtype, shape, stride = form
        torch = self._torch
        made = torch.empty_strided(shape, stride, dtype=dtype)
        if made.numel():
            begins = reader.take(made.numel() * made.element_size())
            stored = torch.frombuffer(
                self._map, dtype=torch.uint8, count=made.numel() * made.element_size(), offset=begins
            )
            made.copy_(stored.view(dtype).reshape(shape))
        return made

    def _array_of(self, form: Any, reader: _Reader) -> Any:
        _, dtype, shape, is_array = form
        numpy = sys.modules["numpy"]
        count = 1
        for it in shape:
            count *= it
        begins = reader.take(count * dtype.itemsize)
        if not count * dtype.itemsize:
            return numpy.empty(shape, dtype)
        stored = numpy.frombuffer(self._map, dtype=dtype, count=count, offset=begins).reshape(shape)
        return stored.copy() if is_array else stored[()]


class _Reader:
    """Where the next piece of a sample begins."""

    def __init__(self, begins: int) -> None:
        self._next = begins

    def take(self, size: int) -> int:
        begins = self._next
        self._next += _padded(size)
        return begins


def _padded(size: int) -> int:
    return -(-size // _ALIGNED_TO) * _ALIGNED_TO


def _mapped(descriptor: int) -> Any:
    """Private and writable, since torch warns of memory that it may not write; nothing writes to it."""
    return mmap.mmap(descriptor, 0, access=mmap.ACCESS_COPY)
