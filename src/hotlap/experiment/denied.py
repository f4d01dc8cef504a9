"""Explain a failure that the isolation of a trial caused, instead of blaming the script."""

from __future__ import annotations

from collections.abc import Mapping

from hotlap.records import Crashed
from hotlap.trial.denials import UNNAMED, Denial, denial_of

_DOCTOR = "`hotlap doctor` shows whether this machine can"
_FENCE_WAY_OUT = (
    f"Isolated by namespaces, trials could write there; {_DOCTOR}, and how. `--unprotected` runs trials without the "
    "kernel's fence: then programs that the script starts, and libraries that write without Python, change your files."
)
_WAYS_OUT: Mapping[Denial, str] = {
    "denied": _FENCE_WAY_OUT,
    "unseen": _FENCE_WAY_OUT,
    "foreign": (
        "It belongs to another user or group, so it cannot be copied in a user namespace. Give it to yourself (chown, "
        "chgrp), have the script write elsewhere, or run hotlap as root."
    ),
    "read-only": "No layer of the run can cover that path. Have the script write elsewhere.",
    "rename": (
        "In a user namespace, a folder that was there before the run cannot be renamed. Have the script write to a "
        "new folder, or run hotlap as root."
    ),
}
_MODES: Mapping[Denial, str] = {
    "denied": "mode fence: what Python code writes goes to the run, all other writes are denied",
    "unseen": "mode fence: only Python code sees what Python code wrote",
    "foreign": "mode namespaces",
    "read-only": "mode namespaces",
    "rename": "mode namespaces",
}


def failure_of(crash: Crashed, when: str) -> str:
    """What happened, as a sentence with the error; ``when`` follows the verb, as in `` after 5 training steps``."""
    error = crash.error or f"exit code {crash.exit_code}"
    if not crash.denied_path:
        return f"The script failed{when}: {error}"
    kind = _kind(crash)
    what = {
        "unseen": f"another program or library looked for {crash.denied_path}",
        "rename": f"the kernel denied renaming {crash.denied_path}",
    }.get(kind, f"the kernel denied writing {crash.denied_path}")
    sure = "" if crash.denied_path != UNNAMED else "probably "
    return f"The script failed in isolation{when}: {sure}{what} ({_MODES[kind]}). {error}"


def way_out(crash: Crashed) -> str:
    """What to do about a denied write; empty if none was denied."""
    return _WAYS_OUT[_kind(crash)] if crash.denied_path else ""


def _kind(crash: Crashed) -> Denial:
    return denial_of(f"{crash.output_tail}\n{crash.error}")
