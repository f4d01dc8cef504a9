"""The loaders of exported models, one file per engine: they are deployed with the model, and import nothing of hotlap.

Each has ``load(folder, threads)``, which returns a function from named arrays or tensors to named ones. A trial calls
the model through the same file, so the measured code is the deployed code.
"""
