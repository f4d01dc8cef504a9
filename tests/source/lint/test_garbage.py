"""A file's model leaves no reference cycle."""

from __future__ import annotations

import gc
import weakref

from hotlap.source.lint.api import all_rules
from hotlap.source.lint.check import check


def test_a_files_model_is_gone_without_the_collector() -> None:
    """The command runs without the collector, so a ring of garbage in each file would fill the memory."""
    texts = [text for rule in all_rules().values() for text in rule.bad.values()]
    gc.collect()
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        trees = []
        for text in texts:
            context, hits = check(text, list(all_rules().values()))
            trees.append(weakref.ref(context.tree))
            del context, hits
        left = [it for it in trees if it() is not None]
    finally:
        if was_enabled:
            gc.enable()
    assert left == []
