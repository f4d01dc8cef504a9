"""The levers of a plan written into the script: what they want, turned into edits at the lines that a run recorded.

One file is one kind of change; :mod:`hotlap.source.patch.make` puts them together.
"""
