"""A file of tokens: the programs that may use a gateway, or a node over TCP, with their rights and
expiry.

A token is 256 random bits, shown once when it is made. The file keeps only its SHA-256 hash (a
random key needs no slow hash), so that a copy of the file admits nobody.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import stat
import time
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final, Literal

import msgspec

from canopy.wire.durable import PRIVATE, write_durably
from overlay.phrases import as_argument

Scope = Literal["publish", "subscribe", "observe", "admin"]
"""The scopes of tokens; the gateway uses the first three."""

PREFIX: Final = "cgw1_"
"""The prefix of a gateway's token, by which scanners of published source code find one."""


class TokensError(Exception):
    """The file of tokens cannot be used; the message says why and what to do."""


class ProgramToken(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The rights of one token. `publish` and `subscribe` are selectors that confine it; "": any
    event. `streams`: the streams to which it may append, by names or patterns (`*`, `?`).
    `expires`: wall clock seconds; 0: never."""

    name: str
    hash: str
    scopes: tuple[Scope, ...]
    publish: str = ""
    subscribe: str = ""
    created: float = 0.0
    expires: float = 0.0
    streams: tuple[str, ...] = ()

    def is_expired(self, now: float) -> bool:
        """Return whether it has expired at `now`, wall clock seconds."""
        return bool(self.expires) and now >= self.expires


class _Content(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    version: Literal[1]
    tokens: tuple[ProgramToken, ...] = ()


def named_in(stream: str, names: Sequence[str]) -> bool:
    """Return whether one of the names, or patterns, of a token matches the stream."""
    return any(fnmatchcase(stream, name) for name in names)


class TokenFile:
    """The tokens in a file, read again when the file has changed. `prefix`: that of new tokens."""

    def __init__(self, path: Path, prefix: str = PREFIX) -> None:
        self.path = path
        self._prefix = prefix
        self._tokens: tuple[ProgramToken, ...] = ()
        self._seen: tuple[int, int, int] | None = None

    def all(self) -> tuple[ProgramToken, ...]:
        """Return the tokens in the file; none if there is no file. Raises TokensError."""
        try:
            found = self.path.stat()
        except FileNotFoundError:
            self._tokens, self._seen = (), None
            return ()
        if stat.S_IMODE(found.st_mode) & 0o077:
            raise TokensError(
                f"{self.path} is open to other users; run: chmod 600 {as_argument(self.path)}"
            )
        mark = (found.st_mtime_ns, found.st_size, found.st_ino)
        if mark != self._seen:
            self._tokens, self._seen = self._read(), mark
        return self._tokens

    def find(self, secret: str) -> ProgramToken | None:
        """Return the token with this secret; None if there is none, or it has expired. Raises
        TokensError."""
        hash_ = hash_of(secret)
        found = None
        for token in self.all():
            if hmac.compare_digest(token.hash, hash_):
                found = token
        return None if found is None or found.is_expired(time.time()) else found

    def add(
        self,
        name: str,
        scopes: tuple[Scope, ...],
        publish: str = "",
        subscribe: str = "",
        lifetime: float = 0.0,
        streams: tuple[str, ...] = (),
    ) -> str:
        """Add a token and return its secret. `lifetime`: seconds; 0: for ever. Raises TokensError
        if the name is taken."""
        tokens = self.all()
        if any(token.name == name for token in tokens):
            raise TokensError(f"there is a token {name} already; remove it first, or choose a name")
        secret = self._prefix + secrets.token_urlsafe(32)
        now = time.time()
        expires = now + lifetime if lifetime else 0.0
        made = ProgramToken(
            name, hash_of(secret), scopes, publish, subscribe, now, expires, streams
        )
        self._write((*tokens, made))
        return secret

    def remove(self, name: str) -> None:
        """Remove the token `name`. Raises TokensError if there is none."""
        tokens = self.all()
        left = tuple(token for token in tokens if token.name != name)
        if len(left) == len(tokens):
            known = ", ".join(token.name for token in tokens) or "none"
            raise TokensError(f"there is no token {name}; there are: {known}")
        self._write(left)

    def _read(self) -> tuple[ProgramToken, ...]:
        try:
            return msgspec.json.decode(self.path.read_bytes(), type=_Content).tokens
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise TokensError(f"{self.path} is no file of tokens: {error}") from None

    def _write(self, tokens: tuple[ProgramToken, ...]) -> None:
        content = msgspec.json.format(msgspec.json.encode(_Content(1, tokens)), indent=2)
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_durably(self.path, content, PRIVATE)


def hash_of(secret: str) -> str:
    """Return the hash under which the file keeps a token."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()
