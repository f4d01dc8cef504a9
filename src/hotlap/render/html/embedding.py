"""Embed code and data in a page so that data never runs, and no other code does."""

from __future__ import annotations

import base64
import hashlib
import html
import json

from hotlap.render.html.parts import Specification

# Within a script element only these matter: what ends it, what opens a comment, and two line ends of old JavaScript.
_IN_SCRIPT = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"})


def embedded_json(document: Specification | str) -> str:
    """JSON for a ``<script type="application/json">``; it reads back as the same document."""
    compact = json.dumps(document, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return compact.translate(_IN_SCRIPT)


def code(words: str) -> str:
    """Escaped HTML of a text, with parts in backticks marked as code."""
    parts = html.escape(words).split("`")
    if len(parts) % 2 == 0:  # an unpaired backtick
        return "`".join(parts)
    return "".join(f"<code>{it}</code>" if number % 2 else it for number, it in enumerate(parts))


def policy(*scripts: str) -> str:
    """The Content-Security-Policy of a page that runs exactly these scripts and cannot fetch anything.

    Inline styles are allowed, since Vega sets them.
    """
    hashes = " ".join(f"'sha256-{_digest(it)}'" for it in scripts)
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")
