"""Secrets: references in params, their values on the member that runs the attempt, and redaction of values from text.

A reference is `{"secret": "pg_password"}`, a file in the member's secrets folder, or `{"env": "PGPASSWORD"}`, a
variable that the member's configuration lists. Only references are registered, replicated and shown; the value is read
where the work is done.
"""

import hmac
import json
import os
import re
import stat
from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Final
from urllib.parse import quote, quote_plus

from pydantic import BaseModel, ConfigDict, StringConstraints

from tasks.access import is_within
from tasks.errors import MissingSecret
from tasks.file_guard import OwnFiles, path_of

VALUE_BYTES_MAX: Final = 64 * 1024
VALUE_CHARS_MIN: Final = 6
"""The shortest allowed value. A shorter one could be guessed, and would be redacted from every word with it."""
LINE_BYTES_MIN: Final = 16
"""The size from which a line of a multi-line secret is redacted by itself. A shorter line may occur by chance."""

REDACTED: Final = b"[secret]"
_HEAD_BYTES: Final = 32
_FILE_NAME: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,254}")
_VARIABLE_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}")


class SecretFile(BaseModel):
    """`{"secret": name}`: the content of a file in the member's secrets folder, without the newline at its end."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    secret: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-][A-Za-z0-9._-]{0,254}$")]


class SecretEnv(BaseModel):
    """`{"env": NAME}`: a variable of the member's environment that ROTA_ENV_ALLOW lists; never ROTA_*."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    env: Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,254}$")]


Reference = SecretFile | SecretEnv
"""The type of a secret in a kind's params."""


@dataclass(frozen=True, slots=True)
class NodesOwn:
    """The node's secret and token, to which no reference may resolve.

    `files` hold them, `data` is the node's data folder. `marks` are keyed hashes of the values, made with `key`: the
    process that resolves references can recognize the values without having them.
    """

    files: tuple[str, ...] = ()
    data: str = ""
    key: bytes = b""
    marks: tuple[bytes, ...] = ()

    def is_value(self, value: str) -> bool:
        """Whether `value`, or a line of it, is the node's secret or token."""
        if not self.marks:
            return False
        parts = {value.strip(), *(line.strip() for line in value.splitlines())}
        return not {mark(part, self.key) for part in parts}.isdisjoint(self.marks)


def mark(value: str, key: bytes) -> bytes:
    """Return a keyed hash of a value."""
    return hmac.digest(key, value.encode("utf-8", "surrogateescape"), "sha256")


NOBODYS: Final = NodesOwn()
"""No secrets of a node, for a process without a node: the command line, and tests."""


def resolve(
    reference: Any,
    secrets_dir: Path,
    env_allow: Collection[str],
    environ: Mapping[str, str],
    own: NodesOwn = NOBODYS,
) -> str:
    """Return the value of `reference`, in any form that `reference_of` takes.

    Raises `MissingSecret`, also if the value is the node's `own` secret or token under another name, or shorter than
    `VALUE_CHARS_MIN`. The message says where the value was searched for, and never contains a value.
    """
    match named := reference_of(reference):
        case SecretFile(secret=name):
            value = _from_file(name, secrets_dir, own)
        case SecretEnv(env=name):
            value = _from_env(name, env_allow, environ)
    if own.is_value(value):
        raise MissingSecret(f"{shown(named)} {_OWN}")
    if (why := _too_short(value)) is not None:
        raise MissingSecret(f"{shown(named)} {why}")
    return value


def _too_short(value: str) -> str | None:
    """Say why a value is too short to be a secret; None if it is long enough. A run of blanks counts as one."""
    if not value.strip():
        return "is empty: write the value that is meant into it"
    if len(" ".join(value.split())) < VALUE_CHARS_MIN:  # the shortest of its spellings
        return (
            f"has fewer than {VALUE_CHARS_MIN} characters, so redaction would hit ordinary words: make it longer. "
            "Give a value that is no secret as it is, not by a reference"
        )
    return None


def reference_of(given: Any) -> Reference:
    """Return the reference in any form: a `Reference`, its dict form, or the name of a file. Raises `MissingSecret`."""
    match given:
        case SecretFile(secret=name) | {"secret": str(name)} | str(name):
            if not _FILE_NAME.fullmatch(name):
                raise MissingSecret(f"{name!r} is not the name of a secret: use letters, digits, '.', '_' and '-' only")
            return SecretFile(secret=name)
        case SecretEnv(env=name) | {"env": str(name)}:
            if not _VARIABLE_NAME.fullmatch(name):
                raise MissingSecret(f"{name!r} is not the name of a variable: use letters, digits and '_' only")
            return SecretEnv(env=name)
    raise MissingSecret('a reference to a secret must be {"secret": NAME} or {"env": NAME}')


def shown(reference: Reference) -> str:
    """Return the reference as text for a sentence.

    >>> shown(SecretFile(secret="hook"))
    "secret 'hook'"
    """
    return f"secret {reference.secret!r}" if isinstance(reference, SecretFile) else f"variable {reference.env!r}"


_OWN: Final = "is the node's own secret or token, which is never handed to a task"


def _from_file(name: str, secrets_dir: Path, own: NodesOwn) -> str:
    with _opened(name, secrets_dir, own) as file:
        content = file.read(VALUE_BYTES_MAX + 1)
    if len(content) > VALUE_BYTES_MAX:
        raise _too_large(name, secrets_dir)
    try:
        return content.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise MissingSecret(f"secret {name!r}: {secrets_dir / name} is not UTF-8 text") from None


@contextmanager
def _opened(name: str, secrets_dir: Path, own: NodesOwn) -> Iterator[BinaryIO]:
    """Open the file of a secret. Raises `MissingSecret` if it cannot be opened, or if reading it in the block fails."""
    path = secrets_dir / name
    try:
        # Without blocking: opening a named pipe would wait for a writer.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:
            if _is_own(file.fileno(), secrets_dir, own):
                raise MissingSecret(f"secret {name!r} {_OWN}")
            yield file
    except OSError as error:
        raise MissingSecret(f"secret {name!r}: cannot read {path}: {error.strerror}") from None


def _too_large(name: str, secrets_dir: Path) -> MissingSecret:
    return MissingSecret(f"secret {name!r}: {secrets_dir / name} is larger than {VALUE_BYTES_MAX} bytes")


def lacking(
    reference: Reference,
    secrets_dir: Path,
    env_allow: Collection[str],
    environ: Mapping[str, str],
    own: NodesOwn = NOBODYS,
) -> str | None:
    """Say why `reference` does not resolve here; None if no reason is found. Does not read the content of a file.

    So only the attempt notices that a file is not UTF-8, is too short without its blanks, or contains the node's own
    secret.
    """
    try:
        match reference:
            case SecretEnv(env=name):
                if (why := _too_short(_from_env(name, env_allow, environ))) is not None:
                    return f"variable {name!r} {why}"
            case SecretFile(secret=name):
                with _opened(name, secrets_dir, own) as file:
                    size = os.fstat(file.fileno()).st_size
                    if size > VALUE_BYTES_MAX:
                        raise _too_large(name, secrets_dir)
                    if size < VALUE_CHARS_MIN and stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                        return f"secret {name!r} {_too_short('' if size == 0 else '?')}"
    except MissingSecret as missing:
        return str(missing)
    return None


def _is_own(descriptor: int, secrets_dir: Path, own: NodesOwn) -> bool:
    """Whether an open file is the node's own, judged by its inode, so that no link hides it, and by its folder."""
    if OwnFiles.at(own.files).has(os.fstat(descriptor), descriptor):
        return True
    path, data, folder = path_of(descriptor), os.path.realpath(own.data), os.path.realpath(secrets_dir)
    # The folder of secrets may be in the data folder, but its files are not the node's own data.
    return bool(own.data) and is_within(path, data) and not (is_within(folder, data) and is_within(path, folder))


def _from_env(name: str, env_allow: Collection[str], environ: Mapping[str, str]) -> str:
    if name.startswith("ROTA_"):
        raise MissingSecret(f"variable {name!r}: ROTA_* variables belong to the node and are never handed to a task")
    if name not in env_allow:
        raise MissingSecret(f"variable {name!r} is not listed in ROTA_ENV_ALLOW on this member")
    if name not in environ:
        raise MissingSecret(f"variable {name!r} is not set on this member")
    value = environ[name]
    if len(value.encode("utf-8", "surrogateescape")) > VALUE_BYTES_MAX:
        raise MissingSecret(f"variable {name!r} is larger than {VALUE_BYTES_MAX} bytes")
    if any("\ud800" <= char <= "\udfff" for char in value):
        raise MissingSecret(f"variable {name!r} is not UTF-8 text")
    return value


def spellings(value: str) -> frozenset[bytes]:
    """Return the forms in which `value` is likely to be printed.

    These are the value as it is, in a URL, in JSON, in a Python literal, on one line, and in lower or upper case, as in
    the name of a host. For a multi-line value they include each line of `LINE_BYTES_MIN` bytes or more, because a
    program may print the lines one by one, each after a prefix. A shorter line (`}`, `-----`) may be ordinary text.
    Returns no form for a value shorter than `VALUE_CHARS_MIN`, because `resolve` returns no such secret.
    """
    if _too_short(value) is not None:
        return frozenset()
    texts = {value, value.strip(), " ".join(value.split()), quote(value, safe=""), quote(value), quote_plus(value)}
    texts |= _escaped(value) | {value.strip().lower(), value.strip().upper(), value.strip().casefold()}
    found = {_bytes(text) for text in texts if text}
    lines = [line.strip() for line in value.splitlines()]
    if len(lines) > 1:
        apart = (spelling for line in lines for spelling in (line, " ".join(line.split()), *_escaped(line)))
        found |= {line for line in map(_bytes, apart) if len(line) >= LINE_BYTES_MIN}
    return frozenset(found)


def _escaped(text: str) -> set[str]:
    return {json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1], repr(text)[1:-1]}


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


class Redactor:
    """Redacts values from a stream of bytes, even a value that spans two pieces.

    >>> redactor = Redactor()
    >>> redactor.learn("hunter2")
    >>> redactor.feed(b"password: hun") + redactor.feed(b"ter2!") + redactor.rest()
    b'password: [secret]!'
    """

    def __init__(self) -> None:
        self._spellings: frozenset[bytes] = frozenset()
        self._sorted: list[bytes] = []
        self._first_bytes: frozenset[int] = frozenset()
        self._longest = 1
        self._pattern: re.Pattern[bytes] | None = None
        self._held = b""

    def learn(self, value: str) -> None:
        """Redact `value` from now on, in each of its `spellings`."""
        new = spellings(value)
        if new <= self._spellings:
            return
        self._spellings |= new
        self._sorted = sorted(self._spellings)
        self._first_bytes = frozenset(spelling[0] for spelling in self._spellings)
        self._longest = max(map(len, self._spellings), default=1)
        self._pattern = re.compile(_any_of(self._sorted)) if self._sorted else None

    def feed(self, piece: bytes) -> bytes:
        """Add `piece`, and return the next part of the stream that may be shown. Holds back a possible start."""
        if self._pattern is None:
            return piece
        data = self._held + piece
        shown: list[bytes] = []
        at = 0
        cut = self._beginning_of_value(data)
        # A match that reaches into the part that is held back may become longer: only matches before the cut are final.
        for match in self._pattern.finditer(data):
            if match.start() >= cut:
                break
            shown += [data[at : match.start()], REDACTED]
            at = match.end()
        cut = max(cut, at)
        self._held = data[cut:]
        return b"".join([*shown, data[at:cut]])

    def rest(self) -> bytes:
        """Return the part that was held back, redacted. Call it at the end of the stream."""
        held, self._held = self._held, b""
        return self.redact(held)

    def redact(self, data: bytes) -> bytes:
        """Return `data`, a whole text, with the values redacted."""
        return data if self._pattern is None else self._pattern.sub(REDACTED, data)

    def redact_text(self, text: str) -> str:
        """Return `text` with the values redacted."""
        return self.redact(text.encode("utf-8", "surrogateescape")).decode("utf-8", "surrogateescape")

    def holds(self, data: bytes, size_min: int = 1) -> bool:
        """Whether `data` contains one of the values that have `size_min` bytes or more."""
        return any(len(spelling) >= size_min and spelling in data for spelling in self._spellings)

    def _beginning_of_value(self, data: bytes) -> int:
        """Find where the longest suffix of `data` starts that is a proper prefix of a value; `len(data)`: none."""
        for at in range(max(0, len(data) - self._longest + 1), len(data)):
            if data[at] in self._first_bytes and self._begins(data[at : at + _HEAD_BYTES]) and self._begins(data[at:]):
                return at
        return len(data)

    def _begins(self, part: bytes) -> bool:
        """Whether a longer spelling begins with `part`. By bisection: a secret may have a thousand lines."""
        next_one = bisect_right(self._sorted, part)
        return next_one < len(self._sorted) and self._sorted[next_one].startswith(part)


def _any_of(spellings: list[bytes]) -> bytes:
    """Make a pattern that matches any of `spellings` (sorted), grouped by first byte, so that most text is skipped.

    In a group, longer spellings come first, so that a value that begins with another one is matched whole.
    """
    groups = []
    for first, group in groupby(spellings, key=lambda spelling: spelling[:1]):
        rests = sorted((spelling[1:] for spelling in group), key=len, reverse=True)
        groups.append(re.escape(first) + b"(?:" + b"|".join(map(re.escape, rests)) + b")")
    return b"|".join(groups)


def redact_json(value: Any, redactor: Redactor) -> Any:
    """Return `value` (JSON types) with the secrets' values redacted from every text in it, also from objects' keys."""
    match value:
        case str():
            return redactor.redact_text(value)
        case dict():
            return {redactor.redact_text(str(name)): redact_json(item, redactor) for name, item in value.items()}
        case list():
            return [redact_json(item, redactor) for item in value]
    return value


def references_in(params: Any) -> Iterator[SecretFile | SecretEnv]:
    """Yield every secret reference in a checked params model, in the order of its fields."""
    match params:
        case SecretFile() | SecretEnv():
            yield params
        case BaseModel():
            for _, value in params:
                yield from references_in(value)
        case dict():
            for value in params.values():
                yield from references_in(value)
        case list() | tuple():
            for value in params:
                yield from references_in(value)


def names_secrets(params: Any) -> bool:
    """Whether params of any kind contain a value that looks like a reference.

    >>> names_secrets({"source": [{"password": {"secret": "pg"}}]}), names_secrets({"env": {"A": "b"}, "secret": 1})
    (True, False)
    """
    match params:
        case {"secret": str(), **rest} | {"env": str(), **rest} if not rest:
            return True
        case dict():
            return any(map(names_secrets, params.values()))
        case list():
            return any(map(names_secrets, params))
    return False
