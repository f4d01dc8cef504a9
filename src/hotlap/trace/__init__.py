"""Reading a profiler's trace and saying where the accelerator's time went.

:func:`read_trace` turns a Kineto file into a :class:`Timeline`; :func:`analyse` turns that into a
:class:`Breakdown`, which is all that the rest of hotlap and its users need. Nothing in here knows of trials.
"""

from hotlap.trace.breakdown import analyse
from hotlap.trace.files import trace_files
from hotlap.trace.reader import read_trace
from hotlap.trace.records import Breakdown
from hotlap.trace.timeline import Timeline

__all__ = ["Breakdown", "Timeline", "analyse", "read_trace", "trace_files"]
