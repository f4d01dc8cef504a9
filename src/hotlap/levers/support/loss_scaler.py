"""Dynamic loss scaling for float16. Not a lever itself.

Source: Micikevicius et al., "Mixed Precision Training" (2018), section 3.2, with the growth and back-off of PyTorch's
``GradScaler``. It differs in one point: gradients carry the scale during the backward pass only. They are unscaled
right after it, so whatever the script does with them next (clipping, logging, several optimizers at different cadences)
sees true values, and a second backward that accumulates is scaled up first. And the first scale is not found by
skipping the first steps, since then training would see other batches than a run without scaling: the first backward
pass is repeated with half the scale until its gradients are finite.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any
from weakref import WeakSet

FIRST_SCALE = 2.0**16
GROWTH = 2.0
BACK_OFF = 0.5
STEPS_BETWEEN_GROWTH = 2000


class LossScaler:
    """The scale, and the gradients of all optimizers that were told to it. Scales are powers of two, so scaling up and
    down again rounds nothing."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._optimizers: WeakSet[Any] = WeakSet()
        self._overflown: WeakSet[Any] = WeakSet()
        self._good_steps = 0
        self._settled = False
        self.scale = FIRST_SCALE

    def add(self, optimizer: Any) -> None:
        """Manage this optimizer's gradients from now on."""
        self._optimizers.add(optimizer)

    def settle(self, losses: Any) -> None:
        """Before the first backward pass: halve the scale until no gradient of these losses overflows.

        Their graph is kept for the backward pass proper. The first scale stays where a graph allows only one pass, as
        those of compiled models do, and where the gradients are not finite even without a scale.
        """
        if self._settled:
            return
        self._settled = True
        parameters = [it for it in self._parameters() if it.requires_grad]
        outputs = [it for it in losses if it.requires_grad] if isinstance(losses, (tuple, list)) else [losses]
        while parameters and outputs and self.scale >= 1.0:
            try:
                found = self._torch.autograd.grad(
                    [self.scaled(it) for it in outputs], parameters, retain_graph=True, allow_unused=True
                )
            except RuntimeError:
                return
            values = [it._values() if it.is_sparse else it for it in found if it is not None]
            if all(bool(it.isfinite().all()) for it in values):
                return
            self.scale *= BACK_OFF
        self.scale = FIRST_SCALE

    def begin_backward(self) -> None:
        """Scale the existing gradients, so that new ones can be added to them."""
        for _, gradients in self._gradients():
            self._torch._foreach_mul_(gradients, self.scale)

    def scaled(self, loss: Any) -> Any:
        """Return the loss to start the backward pass from."""
        return (loss.float() if loss.dtype is self._torch.float16 else loss) * self.scale

    def unscale(self) -> None:
        """After the backward pass: true gradients again, and note which optimizers' are not finite."""
        found: list[tuple[Any, Any]] = []
        for optimizer, gradients in self._gradients():
            device = gradients[0].device
            not_finite = self._torch.zeros(1, device=device)
            inverse = self._torch.full((1,), 1.0 / self.scale, device=device)
            self._torch._amp_foreach_non_finite_check_and_unscale_(gradients, not_finite, inverse)
            found.append((optimizer, not_finite))
        for optimizer, not_finite in found:  # read only after everything is queued, since reading waits for the device
            if not_finite.item():
                self._overflown.add(optimizer)

    def overflown(self, optimizer: Any) -> bool:
        """Whether a backward since this optimizer's last step overflowed; asking ends the step's account and adjusts
        the scale."""
        if optimizer in self._overflown:
            self._overflown.discard(optimizer)
            self._good_steps = 0
            self.scale *= BACK_OFF
            return True
        self._good_steps += 1
        if self._good_steps >= STEPS_BETWEEN_GROWTH:
            self._good_steps = 0
            self.scale *= GROWTH
        return False

    def _parameters(self) -> list[Any]:
        every = (it for optimizer in self._optimizers for group in optimizer.param_groups for it in group["params"])
        return list({id(it): it for it in every}.values())

    def _gradients(self) -> Iterator[tuple[Any, list[Any]]]:
        """Each optimizer with its gradients in lists of one device and dtype; what two of them share comes once."""
        seen: set[int] = set()
        for optimizer in self._optimizers:
            lists: dict[tuple[Any, Any], list[Any]] = defaultdict(list)
            for parameter in (it for group in optimizer.param_groups for it in group["params"]):
                if parameter.grad is None or id(parameter) in seen:
                    continue
                seen.add(id(parameter))
                values = parameter.grad._values() if parameter.grad.is_sparse else parameter.grad
                lists[values.device, values.dtype].append(values)
            for gradients in lists.values():
                yield optimizer, gradients
