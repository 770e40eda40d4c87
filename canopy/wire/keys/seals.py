"""Payloads that only holders of a tenant's key can read (docs/design/security.md#sealed-payloads).

A *seal file* has the keys: one seals, all of them open, so that payloads sealed before a rotation
stay readable. Programs name the file; no key is ever an argument, and none is printed.

A sealed payload is an envelope of the media type `SEALED`: version (1 byte), key id (8), salt (16),
number (8, big-endian), and the MessagePack array [payload type, payload] encrypted by
ChaCha20-Poly1305. The cipher's key is BLAKE2b-256(salt) under the key of the file: each sealing
program draws a salt, so that its numbers, which are the nonces, are unique. Associated data are the
envelope's first 33 bytes and the attributes as a MessagePack map in order of names. So an envelope
opens only with the attributes, `id` among them, with which it was sealed.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import secrets
import stat
import time
from base64 import b64decode, b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from canopy.wire.constants import SEALED
from canopy.wire.durable import PRIVATE, write_durably
from overlay.bounded import BoundedDict
from overlay.phrases import readable_by_others

VERSION: Final = b"\x01"
ID: Final = 8
SALT: Final = 16
HEAD: Final = 1 + ID + SALT + 8
LEAST: Final = HEAD + 16
"""The least size of an envelope, in bytes."""

FILE_MOST: Final = 1 << 20
KEYS_MOST: Final = 1_000
LOOK: Final = 1.0
"""Seconds between two checks whether the file has changed."""

SALTS_KEPT: Final = 4_096
"""The most salts whose derived keys are remembered; deriving one takes some microseconds."""

Seal = Literal["opened", "no-key", "false", "none"]
"""The state of a payload: opened; sealed with a missing key; an envelope that is invalid, or for
other attributes; not sealed."""

_ATTRIBUTES: Final = msgspec.msgpack.Encoder(order="deterministic")
_CONTENT: Final = msgspec.msgpack.Decoder(tuple[str, bytes])


class SealFileError(Exception):
    """A seal file cannot be used; the message says why and what to do."""


class SealFileDeniedError(SealFileError):
    """A seal file cannot be used, since other users can read it, or this user cannot."""


class SealKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One key. `made`: seconds since 1970."""

    key: Annotated[str, msgspec.Meta(max_length=64)]
    made: float

    @property
    def secret(self) -> bytes:
        """The 32 bytes of the key. Raises ValueError."""
        found = b64decode(self.key, validate=True)
        if len(found) != 32:
            raise ValueError("a key has 32 bytes")
        return found

    @property
    def id(self) -> str:
        """The id by which envelopes name the key: 16 hexadecimal digits of a hash."""
        return _id_of(self.secret).hex()

    def __repr__(self) -> str:
        return f"SealKey({self.id})"


class SealFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The keys of a file, in the order in which they were made."""

    version: Literal[1]
    seals: str
    """The id of the key that seals."""
    keys: Annotated[tuple[SealKey, ...], msgspec.Meta(min_length=1, max_length=KEYS_MOST)]


def _id_of(secret: bytes) -> bytes:
    return hashlib.blake2b(secret, digest_size=ID, person=b"canopy seal id").digest()


def _new_key() -> SealKey:
    return SealKey(b64encode(secrets.token_bytes(32)).decode(), float(int(time.time())))


# --- the file ---


def found_seals(path: Path) -> SealFile:
    """Make a seal file with one key. Raises SealFileError if the file exists."""
    key = _new_key()
    made = SealFile(1, key.id, (key,))
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        with open(os.open(path, flags, 0o600), "wb") as out:
            out.write(_text(made))
    except OSError as error:
        raise SealFileError(f"{path}: {error.strerror}") from None
    return made


def add_key(path: Path) -> SealFile:
    """Add a key that opens and does not seal yet. Raises SealFileError."""
    known = read_seals(path)
    return _write(path, SealFile(1, known.seals, (*known.keys, _new_key())))


def seal_with_newest(path: Path) -> SealFile:
    """Make the newest key the one that seals. Raises SealFileError."""
    known = read_seals(path)
    return _write(path, SealFile(1, known.keys[-1].id, known.keys))


def forget_key(path: Path, id_: str) -> SealFile:
    """Drop a key, so that payloads sealed with it can no longer be opened. Raises SealFileError if
    there is none of that id, or if it is the key used for sealing."""
    known = read_seals(path)
    left = tuple(key for key in known.keys if key.id != id_)
    if len(left) == len(known.keys):
        raise SealFileError(f"{path} has no key {id_}")
    if id_ == known.seals:
        raise SealFileError(f"{id_} is the key that seals: rotate to another one first")
    return _write(path, SealFile(1, known.seals, left))


def read_seals(path: Path) -> SealFile:
    """Return the keys of a file that only its user can read. Raises SealFileError."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except PermissionError:
        raise SealFileDeniedError(f"{path} belongs to another user") from None
    except OSError as error:
        made = "; `canopy keys seal new FILE` makes one"
        hint = made if isinstance(error, FileNotFoundError) else ""
        raise SealFileError(f"{path}: {error.strerror}{hint}") from None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > FILE_MOST:
            raise SealFileError(f"{path} is no seal file")
        if status.st_mode & 0o077 or status.st_uid != os.geteuid():
            raise SealFileDeniedError(readable_by_others(path))
        return parse_seals(os.read(descriptor, FILE_MOST), str(path))
    finally:
        os.close(descriptor)


def parse_seals(data: bytes, where: str = "it") -> SealFile:
    """Return the keys in the text of a seal file. Raises SealFileError, whose message quotes
    nothing of the text."""
    try:
        found = msgspec.json.decode(data, type=SealFile)
        ids = [key.id for key in found.keys]
    except ValueError:
        raise SealFileError(f"{where} is no seal file; `canopy keys seal new` makes one") from None
    if found.seals not in ids or len(dict.fromkeys(ids)) < len(ids):
        raise SealFileError(f"{where} is no seal file: its keys do not belong together")
    return found


def _text(found: SealFile) -> bytes:
    return msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n"


def _write(path: Path, found: SealFile) -> SealFile:
    try:
        write_durably(path, _text(found), PRIVATE)
    except OSError as error:
        raise SealFileError(f"{path}: {error.strerror}") from None
    return found


# --- sealing and opening ---


class _Sealing(NamedTuple):
    """The state with which this process seals. Each of `numbers` is drawn once."""

    process: int
    head: bytes  # of envelopes, up to the number
    cipher: ChaCha20Poly1305
    numbers: itertools.count[int]


class OpenedPayload(NamedTuple):
    """A payload for its program: unchanged, unless it was opened."""

    seal: Seal
    payload: bytes
    payload_type: str


class Seals:
    """Seals and opens with the keys of a file. The file is read again when it has changed; while it
    cannot be read, the former keys stay in use. Threads may share it."""

    def __init__(self, path: Path) -> None:
        """Read the seal file at `path`. Raises SealFileError if it cannot be used."""
        self._path = path
        self._secrets: dict[bytes, bytes] = {}
        self._ciphers: BoundedDict[bytes, ChaCha20Poly1305] = BoundedDict(SALTS_KEPT)
        self._sealing: _Sealing | None = None
        self._seals = b""
        self._mark: tuple[int, int, int] | None = None
        self._look_at = 0.0
        self._take(read_seals(path), self._stamp())

    def __repr__(self) -> str:
        return f"Seals({str(self._path)!r})"

    def seal(
        self, attributes: Mapping[str, Any], payload: bytes, payload_type: str
    ) -> tuple[bytes, str]:
        """Return the envelope of a payload, and its type. A sealed payload stays as it is. Raises
        TypeError, ValueError or OverflowError for attributes that no event may have."""
        if payload_type == SEALED:
            return payload, payload_type
        self._refresh()
        sealing = self._sealing
        if sealing is None or sealing.process != os.getpid():  # a fork has the same numbers
            sealing = self._sealing = self._begin()
        number = next(sealing.numbers).to_bytes(8, "big")
        head = sealing.head + number
        bound = head + _ATTRIBUTES.encode(attributes)
        content = msgspec.msgpack.encode((payload_type, payload))
        return head + sealing.cipher.encrypt(bytes(4) + number, content, bound), SEALED

    def open(
        self, attributes: Mapping[str, Any], payload: bytes, payload_type: str
    ) -> OpenedPayload:
        """Return the contents of an envelope, if this file has its key and the envelope belongs to
        these attributes."""
        if payload_type != SEALED:
            return OpenedPayload("none", payload, payload_type)
        if len(payload) < LEAST or payload[:1] != VERSION:
            return OpenedPayload("false", payload, payload_type)
        cipher = self._cipher(payload[1 : 1 + ID + SALT])
        if cipher is None:
            return OpenedPayload("no-key", payload, payload_type)
        bound = payload[:HEAD] + _ATTRIBUTES.encode(attributes)
        nonce = bytes(4) + payload[HEAD - 8 : HEAD]
        try:
            kind, content = _CONTENT.decode(cipher.decrypt(nonce, payload[HEAD:], bound))
        except (InvalidTag, ValueError):
            return OpenedPayload("false", payload, payload_type)
        return OpenedPayload("opened", content, kind)

    def _begin(self) -> _Sealing:
        salt = secrets.token_bytes(SALT)
        cipher = _derived(self._secrets[self._seals], salt)
        return _Sealing(os.getpid(), VERSION + self._seals + salt, cipher, itertools.count())

    def _cipher(self, name: bytes) -> ChaCha20Poly1305 | None:
        """Return the cipher of a key and a salt, which `name` joins; None: the key is not here."""
        found = self._ciphers.get(name)
        if found is None:
            secret = self._secrets.get(name[:ID])
            if secret is None:
                self._refresh()
                secret = self._secrets.get(name[:ID])
            if secret is None:
                return None
            found = self._ciphers[name] = _derived(secret, name[ID:])
        return found

    def _stamp(self) -> tuple[int, int, int] | None:
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino

    def _refresh(self) -> None:
        now = time.monotonic()
        if now < self._look_at:
            return
        self._look_at = now + LOOK
        mark = self._stamp()
        if mark is not None and mark != self._mark:
            try:
                self._take(read_seals(self._path), mark)
            except SealFileError:
                self._mark = mark  # the former keys go on

    def _take(self, found: SealFile, mark: tuple[int, int, int] | None) -> None:
        self._secrets = {_id_of(key.secret): key.secret for key in found.keys}
        self._ciphers = BoundedDict(SALTS_KEPT)
        self._seals, self._sealing, self._mark = bytes.fromhex(found.seals), None, mark
        self._look_at = time.monotonic() + LOOK


def _derived(secret: bytes, salt: bytes) -> ChaCha20Poly1305:
    key = hashlib.blake2b(salt, key=secret, digest_size=32, person=b"canopy seal key").digest()
    return ChaCha20Poly1305(key)


def key_named(payload: bytes) -> str:
    """Return the id of an envelope's key; "" if the payload is not an envelope."""
    whole = len(payload) >= LEAST and payload[:1] == VERSION
    return payload[1 : 1 + ID].hex() if whole else ""
