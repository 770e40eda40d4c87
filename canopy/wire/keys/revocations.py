"""The list of revoked ids, signed by the overlay's root or an unrestricted issuer. Ids are those of
nodes, and of issuers (`chains.authority_id`), which revokes all that they have signed.

There is one list; each change makes the next version, with all ids of the last one. A node accepts
a list with a higher version than its own, keeps it durably, and closes links with nodes on it
(canopy/wire/process/security).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Annotated

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from canopy.wire.keys.certificates import CertificateError
from canopy.wire.keys.chains import check_signer, claimed, read_document, sign_document
from overlay.machine import NodeId, Uint53

IDS_MOST = 10_000
"""The most ids in a list, some 400 KiB. An id can be dropped 90 days after its certificate has
expired, when it can no longer be renewed."""


class Revocations(msgspec.Struct, frozen=True, array_like=True):
    """The nodes and issuers whose certificates are revoked, as the authority signs them."""

    overlay: str
    version: Uint53
    ids: Annotated[tuple[NodeId, ...], msgspec.Meta(max_length=IDS_MOST)]


NONE = Revocations("", 0, ())
"""The list of an overlay without revocations."""

_CONTEXT = b"canopy revocations 1\n"


def sign(
    revocations: Revocations, key: Ed25519PrivateKey, chain: Sequence[x509.Certificate]
) -> bytes:
    """Return the signed list; `chain`: the signer's certificate and those that vouch for it."""
    return sign_document(_CONTEXT, revocations, key, chain)


def read(
    data: bytes,
    overlay: str,
    roots: list[x509.Certificate],
    revoked: Collection[NodeId] = (),
    at: float | None = None,
) -> Revocations:
    """Return a list that an authority below one of `roots` has signed. The authority must not be
    among `revoked`, and must be valid at the time `at`, if given. Raises CertificateError."""

    def check(chain: list[x509.Certificate], _: Revocations) -> None:
        if check_signer(chain, roots, revoked, at):
            raise CertificateError("it is signed by no authority")

    try:
        found = read_document(data, _CONTEXT, Revocations, check)
    except CertificateError as error:
        raise CertificateError(f"no list of revocations: {error}") from None
    if found.overlay != overlay:
        raise CertificateError(f"the list of revocations is of the overlay {found.overlay!r}")
    return found


def believed_list(
    data: bytes, overlay: str, roots: list[x509.Certificate]
) -> tuple[Revocations, bytes, str]:
    """Return the list of revocations that a node has stored, its encoding, and "". If it is no
    longer trusted, return its contents nevertheless, b"" and the reason: its ids are refused until
    another list arrives."""
    if not data:
        return NONE, b"", ""
    try:
        return read(data, overlay, roots), data, ""
    except CertificateError as error:
        reason = str(error)
    found = claimed(data, Revocations)
    return found if found is not None and found.overlay == overlay else NONE, b"", reason
