"""Invitations: `canopy keys invite` prints a token, and `canopy node --join` uses it.

A token names the root by its fingerprint, so that the new node trusts no other, its issuer by
addresses, and a secret, of which the issuer keeps only a hash. Since only one issuer accepts a
token, it can be used once without any agreement between nodes.
"""

from __future__ import annotations

import base64
import binascii
from hashlib import blake2b
from typing import Annotated, Final

import msgspec

PREFIX: Final = "canopy1."
"""The prefix of tokens, by which scanners can recognise them."""

SECRET_BYTES: Final = 16

Short = Annotated[str, msgspec.Meta(max_length=64)]


class TokenError(Exception):
    """The text is not a valid token; the message gives the reason."""


class Token(msgspec.Struct, frozen=True, array_like=True):
    """An invitation into an overlay: where to ask for a certificate, and the secret that permits
    it."""

    overlay: Short
    root: Short  # fingerprint
    addresses: Annotated[tuple[str, ...], msgspec.Meta(min_length=1, max_length=8)]
    invitation: Short
    secret: Annotated[bytes, msgspec.Meta(min_length=SECRET_BYTES, max_length=SECRET_BYTES)]
    node: Short = ""
    """The id of the node that may receive the secret; "": any whose role is issuer or higher."""
    peers: Annotated[tuple[str, ...], msgspec.Meta(max_length=8)] = ()
    """Further addresses of the overlay: an issuer that is a leaf names no other node."""


class Invitation(msgspec.Struct, frozen=True):
    """The issuer's record of a token. Times are seconds since 1970."""

    hash: str
    role: str
    tenant: str
    uses: int
    until: float
    used_by: tuple[str, ...] = ()
    """Ids of the nodes that have used it."""
    per_hour: int = 0
    """The most nodes that may use it within an hour; 0: any number."""


def hashed(secret: bytes) -> str:
    """Return the hash of a secret, which the issuer keeps. (The secret has 128 random bits, so it
    cannot be guessed.)"""
    return blake2b(secret, digest_size=32, person=b"canopy-invite").hexdigest()


def write_token(token: Token) -> str:
    """Return the token as text."""
    data = msgspec.msgpack.encode(token)
    return PREFIX + base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def read_token(text: str) -> Token:
    """Parse the text of a token. Raises TokenError."""
    text = text.strip()
    if not text.startswith(PREFIX):
        raise TokenError(f"a token begins with {PREFIX}")
    body = text[len(PREFIX) :]
    try:
        data = base64.urlsafe_b64decode(body + "=" * (-len(body) % 4))
        return msgspec.msgpack.decode(data, type=Token)
    except (binascii.Error, ValueError, msgspec.MsgspecError):
        raise TokenError("the token is damaged: copy all of it") from None
