"""Explain why a script is slow: rules, one file each, turn a profile into findings with evidence."""

from hotlap.diagnose.profile import Profile
from hotlap.diagnose.rank import diagnose

__all__ = ["Profile", "diagnose"]
