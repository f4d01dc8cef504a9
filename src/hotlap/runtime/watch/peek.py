"""Numbers of the script's tensors, read without waiting for a device."""

from __future__ import annotations

from typing import Any


class Peek:
    """The last number that is known of a scalar tensor that changes: a loss, the scale of a GradScaler.

    On a CPU it is read at once. From a CUDA device it is copied into pinned memory, in the order of the stream, and
    read once that is done; of other devices nothing is read, since that would wait.
    """

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._value: float | None = None
        self._pinned: Any = None
        self._copied: Any = None
        self.wanted = True

    def look(self, tensor: Any) -> None:
        """Note the value of a tensor with one element; only once until :meth:`value` is called."""
        if not self.wanted:
            return
        self.wanted = False
        tensor = tensor.detach()
        if tensor.is_cpu:
            self._value = float(tensor)
        elif tensor.is_cuda:
            if self._pinned is None:
                self._pinned = self._torch.empty((), dtype=self._torch.float32, pin_memory=True)
                self._copied = self._torch.cuda.Event()
            self._pinned.copy_(tensor.reshape(()), non_blocking=True)
            self._copied.record(self._torch.cuda.current_stream(tensor.device))

    def value(self) -> float | None:
        """The last known value, None without one or where it is not finite; the next tensor is wanted again."""
        if self._copied is not None and not self.wanted:
            if not self._copied.query():
                return self._finite()
            self._value = float(self._pinned)
        self.wanted = True
        return self._finite()

    def _finite(self) -> float | None:
        return self._value if self._value is not None and self._value - self._value == 0 else None
