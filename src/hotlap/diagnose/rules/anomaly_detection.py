"""Autograd's anomaly detection is switched on.

## What it is
`torch.autograd.set_detect_anomaly(True)`, or training inside `detect_anomaly()`: a tool for finding the operation that
produces NaN.

## Why it is slow
Every operation of the forward pass records its Python call stack, and the backward pass checks the result of every
operation for NaN. On a device each check waits for the device.

## How to see it
torch reports whether it is on; the observed steps ran with it. The cost depends on the model and was not measured, so
no share is given.

## What to do
Remove it once the cause is found. To look for one, enable it for a few steps only.

## When it is fine
While looking for NaN.
"""

from __future__ import annotations

from collections.abc import Iterator

from hotlap.diagnose.api import Group
from hotlap.diagnose.profile import Profile
from hotlap.diagnose.shares import exactly
from hotlap.diagnose.wording import count, levers_for, place
from hotlap.evidence import RunEvidence
from hotlap.records import CallSite, Finding

title = "Autograd's anomaly detection is switched on"
group: Group = "host"

_NAME = "anomaly-detection"


def check(profile: Profile) -> Iterator[Finding]:
    """Yield one finding if it was on in the observed steps."""
    evidence = profile.evidence
    if not evidence.anomaly_detection or not evidence.observed_steps:
        return
    yield Finding(
        rule=_NAME,
        kind="hint",
        share=exactly(0.0),
        title=f"Anomaly detection was on for {count(evidence.observed_steps, 'observed step')}.",
        evidence=(f"switched on at {place(evidence.anomaly_site)}; {count(evidence.observed_steps, 'step')} observed",),
        remedy="Remove set_detect_anomaly or detect_anomaly, unless you are looking for NaN.",
        site=evidence.anomaly_site,
        levers=levers_for(_NAME),
    )


fires = {
    "switched on by the script": Profile(
        evidence=RunEvidence(
            observed_steps=40,
            anomaly_detection=True,
            anomaly_site=CallSite(role="backward", file="/home/ada/train.py", line=9),
        )
    ),
    "on, at an unknown place": Profile(evidence=RunEvidence(observed_steps=1, anomaly_detection=True)),
}
silent = {
    "nothing measured": Profile(),
    "off": Profile(evidence=RunEvidence(observed_steps=40)),
    "on, but no step was seen": Profile(evidence=RunEvidence(anomaly_detection=True)),
}
