"""A study for other tools: tidy tables in CSV, and runs for TensorBoard, MLflow and Weights & Biases.

:mod:`hotlap.export.gather` reads the study's folder, :mod:`hotlap.export.tables` and :mod:`hotlap.export.tracked`
select what is exported, and each format is written by one file. The trackers' own libraries are imported where they are
used, in this process only, and none of them uses the network unless the user named an address.
"""
