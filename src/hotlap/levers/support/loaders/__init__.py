"""What loads an exported model, one file an engine: these files are deployed with it, and import nothing of ours.

Each has ``load(folder, threads)``, which returns a function of named arrays or tensors that returns named ones. A trial
calls the model through the same file, so that what is measured is what is deployed.
"""
