"""The time of operators in the profiled steps, as shares of the step. Not a rule itself.

On an accelerator an operator's time is that of its kernels, which a profiler does not change, so it is compared with
the unmodified step. On a CPU it is the operator's own time on the host, which a profiler increases, so it is compared
with the profiled step, which is longer too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from hotlap.diagnose.device_idle import idle_share, traced_device
from hotlap.diagnose.profile import Profile
from hotlap.diagnose.wording import name
from hotlap.records import CallSite, SiteRole
from hotlap.traces.inputs import SPARSE
from hotlap.traces.records import OperatorRow

WORTH_A_LOOK = 0.05
"""What could be saved at most must be this share of the step. A bound says less than a cost: as a rule only a part of
it can be had."""

_BUSY_ENOUGH = 0.5
_NANOSECONDS = 1e-9
_MOST_SHAPES_SHOWN = 3

_PRODUCT = re.compile(r"^aten::(?:linear|_addmm_activation|(?:add)?mm|(?:b?add)?bmm)$")
_CONVOLUTION = re.compile(r"^aten::\w*(?:convolution|conv(?:_transpose|_depthwise)?[123]d)\w*$")
_ATTENTION = re.compile(r"^aten::_?(?:scaled_dot_product|flash_attention|efficient_attention|cudnn_attention)\w*$")
_RECURRENT = re.compile(r"^aten::(?:_cudnn_rnn|mkldnn_rnn_layer|miopen_rnn)\w*$")
_WRAPPER = re.compile(r"^aten::(?:linear|conv(?:_transpose)?[123]d|_?convolution|scaled_dot_product_attention)$")
_LINE = re.compile(r"^(?P<file>.+)\((?P<line>\d{1,9})\)(?:: (?P<function>.*))?$", re.DOTALL)


def share_of(profile: Profile, operators: Iterable[OperatorRow]) -> float:
    """Return these operators' share of a step, between 0 and 1; 0 if not measured."""
    step = _step_seconds(profile)
    return min(1.0, seconds_per_step(profile, operators) / step) if step > 0 else 0.0


def seconds_per_step(profile: Profile, operators: Iterable[OperatorRow]) -> float:
    """Return these operators' seconds per profiled step; 0 if no steps were profiled."""
    steps = profiled_steps(profile)
    own = sum(own_nanoseconds(profile, it) for it in operators)
    return own * _NANOSECONDS / steps if steps else 0.0


def own_nanoseconds(profile: Profile, operator: OperatorRow) -> int:
    """Return an operator's own time where the script computes: on the accelerator or the host.

    On the host its longest call is replaced by the mean of the others: the system may have interrupted it, or it was
    the first.
    """
    if profile.on_accelerator:
        return operator.device_nanoseconds
    own, longest, others = operator.host_nanoseconds, operator.longest_nanoseconds, operator.calls - 1
    return own - max(0, longest - (own - longest) // others) if others else own


def profiled_steps(profile: Profile) -> int:
    """Return the number of steps in which operators were counted; 0 if none were profiled."""
    return profile.evidence.window.steps if profile.evidence.window is not None else 0


def device_busy_share(profile: Profile) -> float:
    """Return the share of the unmodified step in which the accelerator is busy; 0 if not measured.

    Without an account, as for a trace alone, it is the share of the traced step.
    """
    wall, device = _step_seconds(profile), traced_device(profile)
    if wall <= 0:
        return 0.0
    if device is None or device.in_steps is None or not device.steps:
        return share_of(profile, profile.operators)
    return min(1.0, device.in_steps.busy_nanoseconds * _NANOSECONDS / len(device.steps) / wall)


def kernels_matter(profile: Profile) -> bool:
    """Whether faster operators make the step faster.

    On a CPU they always do; on an accelerator not while it waits for the host for more than half of the step. A trace
    alone shows why the device waits; then only waiting for kernel launches makes the length of kernels irrelevant.
    """
    if not profile.on_accelerator:
        return True
    launching = idle_share(profile, "launch_bound") if profile.account.wall <= 0 else None
    return device_busy_share(profile) >= _BUSY_ENOUGH if launching is None else launching.value < _BUSY_ENOUGH


def is_product(operator: OperatorRow) -> bool:
    """Whether it is a product of dense matrices."""
    is_dense = not any(it.startswith(SPARSE) for it in operator.types)
    return is_dense and _PRODUCT.match(operator.name) is not None


def is_convolution(operator: OperatorRow) -> bool:
    """Whether it is a convolution, forward or backward, of any library."""
    return _CONVOLUTION.match(operator.name) is not None


def is_attention(operator: OperatorRow) -> bool:
    """Whether it is a fused attention, forward or backward."""
    return _ATTENTION.match(operator.name) is not None


def is_recurrent(operator: OperatorRow) -> bool:
    """Whether it is a whole recurrent layer, forward or backward."""
    return _RECURRENT.match(operator.name) is not None


def is_matrix_work(operator: OperatorRow) -> bool:
    """Whether matrix units are made for it: products, convolutions, attention, recurrent layers."""
    return any(kind(operator) for kind in (is_product, is_convolution, is_attention, is_recurrent))


def is_wrapper(operator: OperatorRow) -> bool:
    """Whether it only dispatches to the operator that computes: its own time is no arithmetic."""
    return _WRAPPER.match(operator.name) is not None


def dtype_of(operator: OperatorRow) -> str:
    """Return the dtype of all floating-point inputs; empty if they differ or were not recorded.

    It is one of ``float32``, ``bfloat16``, ``float16`` and ``float64``.
    """
    found = {_DTYPES[it] for it in operator.types if it in _DTYPES}
    return found.pop() if len(found) == 1 else ""


_DTYPES = {"float": "float32", "double": "float64", "c10::BFloat16": "bfloat16", "c10::Half": "float16"}


def in_words(operator: OperatorRow) -> str:
    """Return ``aten::mm [8192x768, 768x3072]``: the name with the shapes of its first inputs."""
    shapes = [it for it in operator.shapes if it][:_MOST_SHAPES_SHOWN]
    text = ", ".join("x".join(map(str, shape)) for shape in shapes)
    return name(f"{operator.name} [{text}]" if text else operator.name)


def is_traced_file(path: str, traced: str) -> bool:
    """Whether a trace names this file so: torch's profiler removes the import folder."""
    return path == traced or path.endswith(f"/{traced}")


def site_of(operator: OperatorRow, role: SiteRole = "model") -> CallSite | None:
    """Return the user's line that called the operator, or whose gradient it computes, if known.

    Newer traces record the line where the function begins, which is useless for a module.
    """
    found = _LINE.match(operator.forward_place or operator.place)
    if found is None or found["function"] == "<module>":
        return None
    return CallSite(role=role, file=found["file"], line=int(found["line"]), function=found["function"] or "")


def site_with(profile: Profile, *roles: SiteRole) -> CallSite | None:
    """Return the script's first line seen in one of these roles, in the order of the roles."""
    return next((it for role in roles for it in profile.facts.sites if it.role == role), None)


def _step_seconds(profile: Profile) -> float:
    window = profile.evidence.window
    if profile.on_accelerator and profile.account.wall > 0:
        return profile.account.wall
    return window.wall_seconds / window.steps if window is not None and window.steps else 0.0
