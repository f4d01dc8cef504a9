"""How long the hooks take to import and install in a process that has torch already; prints seconds."""

from __future__ import annotations

import gc
import time

import torch

gc.disable()  # as hotlap does while it imports: a collection would walk through all that torch has just made
began = time.perf_counter()

from hotlap.runtime import boot, files, randomness, session  # noqa: E402, F401
from hotlap.runtime.hooks import Hooks  # noqa: E402
from hotlap.runtime.instruments import api  # noqa: E402, F401
from hotlap.runtime.interception import Interception  # noqa: E402

Interception(Hooks(torch=torch)).install()
print(time.perf_counter() - began)
