"""Secrets in arguments, variables and output: found by name and by shape, and shown as ``***``.

Only copies for people and files are redacted; what is run keeps its own arguments. Redacting twice changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from hotlap.records import Assignment, LaunchRequest, Machine, Record, TurnRequest, Workload

HIDDEN = "***"

_T = TypeVar("_T")

# -- names ------------------------------------------------------------------------------------------

_SECRET_WORDS = frozenset(
    [
        "password",
        "passwd",
        "passphrase",
        "passcode",
        "secret",
        "secrets",
        "credential",
        "credentials",
        "apikey",
        "authtoken",
        "accesstoken",
        "secretkey",
        "accesskey",
        "privatekey",
        "authorization",
    ]
)
_OWNERS = frozenset(
    [
        "access",
        "account",
        "admin",
        "anthropic",
        "api",
        "app",
        "auth",
        "aws",
        "azure",
        "bot",
        "clearml",
        "client",
        "cohere",
        "comet",
        "deploy",
        "discord",
        "encryption",
        "fernet",
        "gcp",
        "gh",
        "git",
        "github",
        "gitlab",
        "google",
        "hf",
        "hub",
        "huggingface",
        "huggingfacehub",
        "jwt",
        "kaggle",
        "license",
        "login",
        "master",
        "mlflow",
        "neptune",
        "ngc",
        "npm",
        "nvidia",
        "oauth",
        "openai",
        "personal",
        "private",
        "pypi",
        "refresh",
        "registry",
        "replicate",
        "secret",
        "security",
        "sentry",
        "service",
        "session",
        "shared",
        "signing",
        "slack",
        "smtp",
        "ssh",
        "storage",
        "subscription",
        "swanlab",
        "telegram",
        "together",
        "user",
        "wandb",
        "webhook",
        "write",
    ]
)
"""What a ``key`` or ``token`` belongs to when it is a credential: ``wandb-key``, ``HF_TOKEN``."""

_PASSWORD_OWNERS = frozenset(
    [
        "admin",
        "db",
        "database",
        "ftp",
        "mongo",
        "mysql",
        "pg",
        "postgres",
        "redis",
        "root",
        "smtp",
        "user",
        "http",
        "proxy",
    ]
)
_WORDS = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+")
_SCHEMES = frozenset({"Basic", "Bearer", "Digest", "Token"})
_QUERY_WORDS = frozenset({"sig", "signature"})

_TRIVIAL = re.compile(
    r"|true|false|yes|no|none|null|on|off|auto|[-+]?(?:\d[\d_]*\.?\d*|\.\d+)(?:e[-+]?\d+)?|\$\{[^}]*\}|\$[A-Z_]+"
    r"|<[^>]*>|\[[^\]]*\]|\*+",
    re.IGNORECASE,
)
"""Values that no secret has: numbers, booleans, references to variables, special tokens such as ``<pad>``."""

_HEXADECIMAL = re.compile(r"(?=[a-z]*\d)(?=\d*[a-z])[0-9a-f]{24,}")
_RANDOM = re.compile(r"(?=.*[a-z])(?=.*[A-Z])(?=.*\d)[A-Za-z0-9+/_=.-]{16,}")
_PATH = re.compile(r"(?:[~.]{0,2}/).*")

# -- shapes -----------------------------------------------------------------------------------------

_SHAPES = re.compile(
    r"(?<![A-Za-z0-9])(?:"
    r"hf_(?=[a-z]*[A-Z0-9])[A-Za-z0-9]{16,}|api_org_[A-Za-z0-9]{16,}"
    r"|gh[pousr]_[A-Za-z0-9]{16,}|github_pat_\w{16,}|glpat-[\w-]{16,}"
    r"|sk-(?=[A-Za-z_-]*\d)[\w-]{20,}|[sr]k_(?:live|test)_[A-Za-z0-9]{16,}|gsk_[A-Za-z0-9]{20,}|r8_[A-Za-z0-9]{20,}"
    r"|(?:AKIA|ASIA)[0-9A-Z]{16}(?![0-9A-Za-z])|AIza[\w-]{30,}|ya29\.[\w-]{20,}"
    r"|xox[abeoprs]-[\w-]{10,}|nvapi-[\w-]{20,}|npm_[A-Za-z0-9]{30,}|pypi-[\w-]{30,}|wandb_v1_\w{16,}"
    r"|eyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)?"
    r")"
)
_PRIVATE_KEY = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL)
_URL_PASSWORD = re.compile(
    r"(?<![A-Za-z0-9+.-])([A-Za-z][A-Za-z0-9+.-]{0,30}://[^\s:/@'\"\\]{0,200}:)([^\s/'\"\\]+)(?=@)"
)
_BEARER = re.compile(r"((?:\bBearer|\b[Aa]uthorization\b[\"']?\s*[:=]\s*[\"']?\w+)\s+)([A-Za-z0-9._~+/=-]{8,})")
_NAME = r"(?=[A-Za-z_])[\w.-]{0,80}(?i:pass|pw|secret|credential|key|token|auth|pat|sig)[\w.-]{0,80}"
_VALUE = r"(?P<value>\$\{[^}\n]*\}|\"[^\"\n]*\"|'[^'\n]*'|[^\s,;&\"'(){}\\]+)"
_ASSIGNED = re.compile(rf"(?<![\w.])(?P<name>{_NAME})(?P<between>[\"']?\s*[=:]\s*){_VALUE}")
_OPTION = re.compile(rf"(?<![\w-])(?P<name>--{_NAME})(?P<between>\s+)(?!-){_VALUE}")
_NAMED_WORD = re.compile(r"([-+~]*[A-Za-z_][\w./-]*)=(.*)", re.DOTALL)
_FILE_WORDS = frozenset({"path", "paths", "directory", "file", "python", "target", "original", "copy", "sha256"})
_LEAST_LENGTH = 6
"""Shorter secrets are hidden where they are given, but not looked for in other texts, most of which would contain
them."""


def is_secret(name: str, value: str) -> bool:
    """Whether an option or variable of that name with that value gives away a secret."""
    if _TRIVIAL.fullmatch(value):
        return False
    words = [it.lower() for it in _WORDS.findall(name)]
    if words[-3:] == ["access", "key", "id"]:
        return True
    match words[-1:]:
        case [last] if last in _SECRET_WORDS or last.endswith(("password", "passwd", "passphrase")):
            return value not in _SCHEMES
        case ["key" | "keys" | "token" | "tokens" | "pat" as last]:
            plain = last == "token" and len(words) == 1
            return plain or not _OWNERS.isdisjoint(words[:-1]) or looks_random(value)
        case ["pass" | "pwd" | "pw"]:
            return not _PATH.fullmatch(value) and (
                words == ["pw"] or words == ["pwd"] or not _PASSWORD_OWNERS.isdisjoint(words[:-1])
            )
        case ["auth"]:
            return ":" in value
        case [last] if last in _QUERY_WORDS:
            return looks_random(value)
    return False


def looks_random(value: str) -> bool:
    """Whether no person would name anything like this."""
    return bool(_HEXADECIMAL.fullmatch(value) or _RANDOM.fullmatch(value))


def redacted_text(text: str, secrets: Iterable[str] = ()) -> str:
    """The text without these secrets, without whatever has a secret's well-known shape, and without values that stand
    behind a secret's name."""
    for it in sorted(secrets, key=len, reverse=True):
        text = text.replace(it, HIDDEN)
    if not text or (text.isalnum() and len(text) < 16):
        return text
    text = _PRIVATE_KEY.sub(HIDDEN, text)
    text = _URL_PASSWORD.sub(rf"\g<1>{HIDDEN}", text)
    text = _BEARER.sub(rf"\g<1>{HIDDEN}", text)
    text = _SHAPES.sub(HIDDEN, text)
    text = _ASSIGNED.sub(_without_value, text)
    return _OPTION.sub(_without_value, text)


def redacted(workload: Workload) -> Workload:
    """The workload without secrets, to be shown or stored."""
    found = _secrets_in(workload.arguments)
    arguments = tuple(redacted_text(it, found) for it in _redacted_words(workload.arguments))
    return workload if arguments == workload.arguments else msgspec.structs.replace(workload, arguments=arguments)


def is_redacted(workload: Workload) -> bool:
    """Whether an argument is missing from the workload because it was a secret."""
    return any(HIDDEN in it for it in workload.arguments)


def secrets_of(workload: Workload, environment: Mapping[str, str] | None = None) -> frozenset[str]:
    """The secrets that the workload's arguments and these variables give, as far as they can be looked for in texts."""
    return _secrets_in(workload.arguments) | secrets_in_environment(environment or {})


def secrets_in_environment(environment: Mapping[str, str]) -> frozenset[str]:
    """The secrets that these variables give, as far as they can be looked for in texts."""
    values = {value for name, value in environment.items() if is_secret(name, value) and not _PATH.fullmatch(value)}
    return frozenset(it for it in values if len(it) >= _LEAST_LENGTH)


def redacted_request(request: _T) -> _T:
    """A request to the executor without secrets, to be stored; two that differ only in secrets become equal."""
    match request:
        case LaunchRequest():
            changed: Any = msgspec.structs.replace(request, assignment=redacted_assignment(request.assignment))
        case TurnRequest():
            changed = msgspec.structs.replace(request, arms=tuple(map(redacted_assignment, request.arms)))
        case _:
            changed = request
    result: _T = changed
    return result


def redacted_assignment(assignment: Assignment) -> Assignment:
    """An assignment without secrets, to be stored. The child takes its arguments from its command line instead."""
    return msgspec.structs.replace(assignment, workload=redacted(assignment.workload))


def redacted_record(record: _T, secrets: Iterable[str] = ()) -> _T:
    """The record with every text redacted but the names of files, which must still be found."""
    known = tuple(secrets)
    return with_texts(record, lambda it: redacted_text(it, known), keep=_names_a_file)


def with_texts(value: _T, change: Callable[[str], str], *, keep: Callable[[str], bool] = lambda field: False) -> _T:
    """The value with every text in it changed; fields for whose name ``keep`` is true stay. Workloads are redacted as
    a whole, since a secret may be an argument of its own."""
    changed: Any = value
    if isinstance(value, str):
        text = change(value)
        changed = value if text == value else text
    elif isinstance(value, tuple):
        parts = [with_texts(it, change, keep=keep) for it in value]
        if any(new is not old for new, old in zip(parts, value, strict=True)):
            changed = tuple(parts)
    elif isinstance(value, Record):
        changed = _with_changed_fields(value, change, keep)
    result: _T = changed
    return result


def _with_changed_fields(record: Record, change: Callable[[str], str], keep: Callable[[str], bool]) -> Record:
    if isinstance(record, Workload):
        record = redacted(record)
    if isinstance(record, Machine):
        pairs = tuple((name, HIDDEN if is_secret(name, it) else it) for name, it in record.environment)
        record = record if pairs == record.environment else msgspec.structs.replace(record, environment=pairs)
    changed = {}
    for name in record.__struct_fields__:
        old = getattr(record, name)
        if keep(name) or not isinstance(old, (str, tuple, Record)):
            continue
        new = with_texts(old, change, keep=keep)
        if new is not old:
            changed[name] = new
    return msgspec.structs.replace(record, **changed) if changed else record


def _names_a_file(field: str) -> bool:
    return field.rpartition("_")[2] in _FILE_WORDS


def _without_value(found: re.Match[str]) -> str:
    value = found["value"]
    quote = value[0] if value[0] in "\"'" else ""
    inner = value.strip(quote) if quote else value
    if not is_secret(found["name"], inner):
        return found[0]
    return f"{found['name']}{found['between']}{quote}{HIDDEN}{quote}"


# -- arguments --------------------------------------------------------------------------------------


def _redacted_words(words: Iterable[str]) -> list[str]:
    shown: list[str] = []
    option = ""
    for word in words:
        if option and not _is_option(word) and is_secret(option, word):
            shown.append(HIDDEN)
            option = ""
            continue
        shown.append(_redacted_word(word))
        option = word if _is_option(word) and "=" not in word else ""
    return shown


def _redacted_word(word: str) -> str:
    named = _NAMED_WORD.fullmatch(word)
    if named is None:
        return redacted_text(word)
    name, value = named.groups()
    return f"{name}={HIDDEN if is_secret(name, value) else _redacted_word(value)}"


def _is_option(word: str) -> bool:
    return len(word) > 1 and word[0] == "-" and not _TRIVIAL.fullmatch(word)


def _secrets_in(words: tuple[str, ...]) -> frozenset[str]:
    """What redacting hides of each word: all of it, or what lies between the parts that stay."""
    found: set[str] = set()
    for word, shown in zip(words, _redacted_words(words), strict=True):
        if HIDDEN not in shown or word == shown:
            continue
        pattern = "(.+?)".join(map(re.escape, shown.split(HIDDEN)))
        match = re.fullmatch(pattern, word, re.DOTALL)
        found |= set(match.groups()) if match is not None else {word}
    return frozenset(it for it in found if len(it) >= _LEAST_LENGTH and it != HIDDEN)
