"""Whether a script that runs in a copy of its source tree imported modules from the original tree nevertheless."""

from __future__ import annotations

import sys

from hotlap.records import Checkout

_MOST_NAMES = 20
_INSTALLED = ("/site-packages/", "/dist-packages/")


def imported_from_original(checkout: Checkout | None) -> tuple[str, ...]:
    """The names of such modules, where the copy shows an earlier commit: what they do is not what they did then."""
    if checkout is None or not checkout.revision:
        return ()
    original, copy = f"{checkout.original}/", f"{checkout.copy}/"
    interpreters = tuple(f"{it}/" for it in (sys.prefix, sys.base_prefix) if it.startswith(original))
    found = []
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__dict__", {}).get("__file__")
        if not isinstance(file, str) or not file.startswith(original) or file.startswith((copy, *interpreters)):
            continue
        if not any(it in file for it in _INSTALLED) and name.partition(".")[0] not in ("hotlap", "sitecustomize"):
            found.append(name)
    return tuple(sorted(found)[:_MOST_NAMES])
