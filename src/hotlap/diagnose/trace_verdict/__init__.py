"""What a trace alone comes to: its main causes of slowness in the order of what they cost, each with what to do.

The rules judge a profile that is made of the trace (:mod:`.profile`). What a trace shows and no rule without a time
account says is added: why the device was idle (:mod:`.idle`), what its kernels show (:mod:`.kernels`) and how they
fill it (:mod:`.small_grids`), what the host did where there is no device (:mod:`.host`), how fast products of each size
ran (:mod:`.products`), which part of the device's peak the steps reached (:mod:`.utilisation`), and how several ranks
wait for one another (:mod:`.ranks`).
"""

from __future__ import annotations

from hotlap.diagnose.trace_verdict.products import ProductRate
from hotlap.diagnose.trace_verdict.ranks import verdict_of_ranks
from hotlap.diagnose.trace_verdict.utilisation import DtypeWork, StepWork
from hotlap.diagnose.trace_verdict.verdict import TraceVerdict, verdict_of

__all__ = ["DtypeWork", "ProductRate", "StepWork", "TraceVerdict", "verdict_of", "verdict_of_ranks"]
