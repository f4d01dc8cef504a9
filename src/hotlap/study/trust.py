"""Decide whether this user made a study here, and so whether its command may be run without confirmation.

A study contains signatures of its header and its summary (``signature.json``), made with a key that only this user can
read (``$XDG_STATE_HOME/hotlap/key``, by default below ``~/.local/state``). A study from elsewhere cannot contain them:
without a signature, or with one by another key, it is foreign.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import stat
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import msgspec

from hotlap import files
from hotlap.errors import StudyError, UsageError
from hotlap.records import Record, Workload
from hotlap.redact import is_redacted, redacted
from hotlap.study.files import read_bounded, replace
from hotlap.study.layout import SIGNATURE, SUMMARY, SUMMARY_LIMIT_BYTES

_KEY_BYTES = 32
_SIGNATURE_LIMIT_BYTES = 4096


class Opening(Record, frozen=True, kw_only=True):
    """A study that is about to be run again.

    ``workload`` is the command to run. ``ours`` is true if this user made the study here; otherwise ``why_foreign`` is
    the reason.
    """

    directory: str
    workload: Workload
    ours: bool
    why_foreign: str = ""


Approve: TypeAlias = Callable[[Opening], object]
"""Called before a study's command is run; raises to prevent that."""


class Signatures(Record, frozen=True, kw_only=True):
    """HMAC-SHA256 of the journal's first line and of ``study.json``, in hexadecimal digits."""

    header: str
    summary: str = ""


class Signer:
    """Signs a study of ours whenever it changes.

    Without a key it does nothing, and the study is foreign to everyone.
    """

    def __init__(self, directory: Path, header_line: bytes) -> None:
        self._path = directory / SIGNATURE
        self._key = _key(create=True)
        self._header = _signature(self._key, "header", header_line) if self._key is not None else ""

    def sign(self, summary: bytes) -> None:
        """Sign the header and this summary. Raises :class:`StudyError` if the file cannot be written."""
        if self._key is None:
            return
        found = Signatures(header=self._header, summary=_signature(self._key, "summary", summary))
        replace(self._path, msgspec.json.encode(found), durable=False)


def why_foreign(directory: Path, header_line: bytes, *, summary: bool = False) -> str:
    """Return why a study is foreign; empty if this user made it here.

    With ``summary``, ``study.json`` must be unchanged too.
    """
    try:
        if not files.is_own(directory.stat()):
            return "its folder belongs to another user"
    except OSError as error:
        return f"its folder cannot be examined: {error.strerror or error}"
    key = _key(create=False)
    if key is None:
        return f"you have no key in {_key_path()}"
    try:
        found = msgspec.json.decode(read_bounded(directory / SIGNATURE, _SIGNATURE_LIMIT_BYTES), type=Signatures)
        changed = summary and read_bounded(directory / SUMMARY, SUMMARY_LIMIT_BYTES)
    except (StudyError, msgspec.MsgspecError, UnicodeDecodeError):
        return "it is not signed"
    if not hmac.compare_digest(found.header.encode(), _signature(key, "header", header_line).encode()):
        return "someone else signed it, or it has changed since"
    if changed and not hmac.compare_digest(found.summary.encode(), _signature(key, "summary", changed).encode()):
        return f"its {SUMMARY} changed since it was signed"
    return ""


def refuse_foreign(opening: Opening) -> None:
    """Raise :class:`UsageError` for a study that this user did not make here."""
    if not opening.ours:
        raise UsageError(
            f"The study {opening.directory} was not made here by you ({opening.why_foreign}); continuing "
            "would run the command that it contains.",
            remedy="Check the command, then run it again in a terminal and confirm, or give --yes.",
        )


def completed(stored: Workload, given: Workload | None) -> Workload:
    """Return the command that a study runs: its own, or the one given again with secrets.

    Raises :class:`UsageError` if a secret is missing or another command was given.
    """
    if given is None:
        if is_redacted(stored):
            raise UsageError(
                "The study does not store the secrets among the script's arguments, so it cannot run the script.",
                remedy="Give the whole command again after the study, as in `hotlap tune --resume STUDY train.py "
                "--wandb-key KEY`.",
            )
        return stored
    one, other = redacted(given), redacted(stored)
    options = one.interpreter_options == other.interpreter_options
    if (one.kind, one.target, one.arguments) != (other.kind, other.target, other.arguments) or not options:
        raise UsageError(
            "The study was made with another command.",
            remedy="Give the command that it was made with, or start a new study.",
        )
    if one.directory != other.directory:
        raise UsageError(
            f"The study was made in {other.directory}, but the command was given in {one.directory}.",
            remedy="Run it again from there.",
        )
    return msgspec.structs.replace(stored, arguments=given.arguments)


def _signature(key: bytes, part: str, text: bytes) -> str:
    return hmac.new(key, part.encode() + b"\0" + text, hashlib.sha256).hexdigest()


# -- the key ----------------------------------------------------------------------------------------


def _key_path() -> Path:
    state = Path(os.environ.get("XDG_STATE_HOME", ""))
    if not state.is_absolute():
        home = files.home_directory()
        state = (home if home is not None else Path("/nonexistent")) / ".local" / "state"
    return state / "hotlap" / "key"


def _key(*, create: bool) -> bytes | None:
    """Return this user's key.

    None if there is none, if it cannot be stored, or if others might know it.
    """
    path = _key_path()
    try:
        return _read_key(path)
    except FileNotFoundError:
        if not create:
            return None
    except OSError:
        return None
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _make_key(path)
        return _read_key(path)
    except OSError:
        return None


def _make_key(path: Path) -> None:
    """Write a new key unless another process just did. Raises :class:`OSError`."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    files.replace(temporary, secrets.token_bytes(_KEY_BYTES), mode=0o600)
    try:
        os.link(temporary, path)  # unlike a rename, a link never replaces a key
    except FileExistsError:
        pass
    finally:
        temporary.unlink(missing_ok=True)


def _read_key(path: Path) -> bytes | None:
    """Return the key; None if others can read it or may have written it. Raises :class:`OSError`."""
    with files.open_regular(path, _KEY_BYTES, follow=False) as file:
        status = os.fstat(file.fileno())
        key = file.read(_KEY_BYTES)
    private = files.is_own(status) and not status.st_mode & (stat.S_IRWXG | stat.S_IRWXO)
    return key if private and len(key) == _KEY_BYTES else None
