"""In which format a model computes under autocast: entered around its call, or only within it.

accelerate, and with it the Trainer of transformers, wraps the model's ``forward``, and many models enter autocast in
theirs. Then it is off where the model is called and on where its layers are.
"""

from __future__ import annotations

from typing import Any

from hotlap.runtime import compile_report


def autocast_dtype(torch: Any, device: str) -> str:
    """``bfloat16``, where autocast is on right now; else empty."""
    return str(torch.get_autocast_dtype(device)).removeprefix("torch.") if torch.is_autocast_enabled(device) else ""


class AutocastWatch:
    """Watches the calls of a model's layers until autocast was seen. ``dtype`` is empty until then."""

    def __init__(self, torch: Any) -> None:
        self.dtype = ""
        self._torch = torch
        self._handles: list[Any] = []

    def around(self, device: str) -> None:
        """Record the format if autocast is on now."""
        self.dtype = self.dtype or autocast_dtype(self._torch, device)

    def within(self, root: Any, device: str) -> None:
        """Watch each layer's call, up to :meth:`forward_ends`. A hook makes a compiled graph be compiled again, so
        that nothing is watched where anything is compiled."""
        self.forward_ends()
        if self.dtype or not root.training or compile_report.anything_compiled(self._torch, root):
            return

        def look(module: Any, args: Any) -> None:
            self.around(device)

        script = self._torch.jit.ScriptModule
        layers = [it for it in root.modules() if it is not root and not isinstance(it, script)]
        self._handles = [it.register_forward_pre_hook(look) for it in layers]

    def forward_ends(self) -> None:
        """Remove the hooks."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
