from .logs import log
from .means import Mean

__all__ = ["Mean", "log"]
