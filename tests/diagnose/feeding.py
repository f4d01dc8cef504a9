"""Helpers for tests of rules about data and copies: a loader's line, and a step that waits or copies."""

from __future__ import annotations

from hotlap.records import CallSite, PhaseAccount

LOADER = CallSite(role="loader", file="/home/ada/train.py", line=20)


def account(data_wait: float = 0.0, host_to_device: float = 0.0) -> PhaseAccount:
    """Make the account of a step of 0.1 s with ten samples from shares."""
    rest = 1 - data_wait - host_to_device
    return PhaseAccount(
        wall=0.1,
        phases=(
            ("data_wait", 0.1 * data_wait),
            ("host_to_device", 0.1 * host_to_device),
            ("forward", 0.1 * rest),
        ),
        samples_per_step=10,
    )
