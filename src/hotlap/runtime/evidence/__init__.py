"""Watching for the causes of slowness, inside the user's process and only in launches that request it.

One file is one collector; :mod:`hotlap.runtime.evidence.recorder` makes them all and writes what they found.
"""
