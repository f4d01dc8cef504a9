"""What torch's compiler needs."""

from __future__ import annotations

import pytest
import torch

CANNOT_LINK = pytest.mark.skipif(
    " " in torch.__path__[0], reason="torch's compiler passes no linker a path with a space, and torch is in one"
)
