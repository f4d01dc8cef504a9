"""A study for other tools: tidy tables in CSV, and runs for TensorBoard, MLflow and Weights & Biases.

:mod:`hotlap.export.gather` reads what there is, :mod:`hotlap.export.tables` and :mod:`hotlap.export.tracked` say what
is told, and one file a format writes it. The trackers' own libraries are imported where they are used, in this process
only, and none of them talks to a network unless the user named the place.
"""
