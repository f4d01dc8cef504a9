"""Trials, their costs and the study in progress: the building blocks of every procedure."""
