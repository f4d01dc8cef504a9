"""Write a plan's levers into the script: turn their changes into edits at the call sites that a run recorded.

Each file is one kind of change; :mod:`hotlap.source.patch.make` combines them.
"""
