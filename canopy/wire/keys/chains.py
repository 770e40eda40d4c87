"""Checks of certificate chains beyond signatures: whether each authority may sign what it has
signed. And documents of the whole overlay, which a chain signs (`CertifiedDocument`).

TLS verifies the signatures, times and path lengths of a chain; `path_of` does so for the signer of
a document. Then `read_chain` checks the restrictions of issuers (`restrictions`), and that every
critical extension was handled. (TLS is told to leave critical extensions to this module, since it
does not know that of restrictions.)
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import pairwise
from typing import Annotated, Final, NamedTuple, TypeVar

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtensionOID

from canopy.wire.keys.certificates import (
    AUTHORITY_DAYS,
    DAY,
    NODE_DAYS,
    RESTRICTED_DAYS,
    SKEW,
    UNREADABLE,
    CertificateError,
    NodeCertificate,
    is_authority,
    is_signed_by,
    key_of,
    load_der,
    node_id,
    path_length,
    raw_key,
    read_node,
)
from canopy.wire.keys.restrictions import OID, RestrictionError, restriction_of
from overlay.machine import NodeId

T = TypeVar("T")

UNDERSTOOD: Final = frozenset(
    (
        ExtensionOID.BASIC_CONSTRAINTS,
        ExtensionOID.KEY_USAGE,
        ExtensionOID.EXTENDED_KEY_USAGE,
        ExtensionOID.SUBJECT_ALTERNATIVE_NAME,
        ExtensionOID.NAME_CONSTRAINTS,
        OID,
    )
)
"""Extensions that may be critical: TLS handles all of them but the last."""

CHAIN_MOST: Final = 5
"""The most certificates from a node's to the root, with one by which a former root vouches for
it."""


SLACK: Final = 2 * SKEW.total_seconds()
"""Seconds by which a certificate may be valid longer than its days: it begins `SKEW` before it was
made."""


class Vouched(NamedTuple):
    """A node's certificate, and those that vouch for it."""

    node: NodeCertificate
    issuers: tuple[NodeId, ...]
    """The ids of the keys that have signed, the node's issuer first and the root last."""
    ends: float
    """When the first of these certificates expires, in seconds since 1970."""


def authority_id(certificate: x509.Certificate) -> NodeId:
    """Return the id of an issuer or root in lists of revocations: the id of a node with its key in
    generation 0, which nodes do not have. Raises CertificateError."""
    key = key_of(certificate)
    if key is None:
        raise CertificateError("who signed it has no Ed25519 key")
    return node_id(raw_key(key), 0)


def read_chain_der(chain: Sequence[bytes]) -> Vouched:
    """Check a chain from TLS, as `read_chain`. Raises CertificateError."""
    return read_chain([load_der(one) for one in chain])


def issuer_name(certificate: bytes) -> NodeId:
    """Return `authority_id` of a certificate (DER), for messages; "unknown" if it has none."""
    try:
        return authority_id(load_der(certificate))
    except CertificateError:
        return "unknown"


def may_sign(authority: x509.Certificate, certificate: x509.Certificate) -> bool:
    """Return whether this authority may sign such a certificate at all: an issuer may not sign
    issuers."""
    return is_authority(authority) and (
        path_length(authority) is None or not is_authority(certificate)
    )


def check_times(certificate: x509.Certificate) -> None:
    """Raise CertificateError if the certificate is valid for longer than its kind may be. The
    holder of an issuer's key can sign any end, so every verifying node bounds it."""
    days = NODE_DAYS
    if is_authority(certificate):
        try:
            is_restricted = restriction_of(certificate) is not None
        except RestrictionError as error:
            raise CertificateError(str(error)) from None
        days = RESTRICTED_DAYS if is_restricted else AUTHORITY_DAYS
    try:
        held = certificate.not_valid_after_utc - certificate.not_valid_before_utc
    except UNREADABLE:
        raise CertificateError("a certificate that cannot be understood") from None
    if held.total_seconds() > days * DAY + SLACK:
        raise CertificateError(
            f"a certificate for {held.total_seconds() / DAY:,.0f} days, and {days:g} are allowed"
        )


def names_successor(path: Sequence[x509.Certificate], roots: Sequence[x509.Certificate]) -> bool:
    """Return whether, on this path, one of `roots` vouches for a root that is not among them: the
    signer then knows a later root."""
    known = set(map(authority_id, roots))
    return any(
        is_authority(one) and path_length(one) is None and authority_id(one) not in known
        for one in path[:-1]
    )


def path_of(
    certificate: x509.Certificate,
    others: Sequence[x509.Certificate],
    roots: Sequence[x509.Certificate],
) -> tuple[x509.Certificate, ...]:
    """Return the path from the certificate to one of `roots`, with the help of `others`. Raises
    CertificateError if there is none."""
    found = _path(certificate, tuple(others), tuple(roots))
    if found is None:
        raise CertificateError("nobody whom this overlay believes vouches for it")
    return found


def _path(
    certificate: x509.Certificate,
    others: tuple[x509.Certificate, ...],
    roots: tuple[x509.Certificate, ...],
) -> tuple[x509.Certificate, ...] | None:
    if certificate in roots:
        return (certificate,)
    for root in roots:
        if may_sign(root, certificate) and is_signed_by(certificate, [root]):
            return certificate, root
    for at, other in enumerate(others):
        if may_sign(other, certificate) and is_signed_by(certificate, [other]):
            rest = _path(other, others[:at] + others[at + 1 :], roots)
            if rest is not None:
                return certificate, *rest
    return None


def read_chain(chain: Sequence[x509.Certificate]) -> Vouched:
    """Return the facts of a chain with valid signatures, if its authorities may sign such a node.
    The node's certificate comes first and the root last. Raises CertificateError."""
    if not 2 <= len(chain) <= CHAIN_MOST:
        raise CertificateError("nobody vouches for its certificate")
    node = read_node(chain[0])
    for below, authority in pairwise(chain):
        if not may_sign(authority, below):
            raise CertificateError("its issuer may not sign it")
    for one in chain:
        check_times(one)
        try:
            unknown = [e.oid.dotted_string for e in one.extensions if e.critical]
        except UNREADABLE:
            raise CertificateError("a certificate that cannot be understood") from None
        unknown = [oid for oid in unknown if x509.ObjectIdentifier(oid) not in UNDERSTOOD]
        if unknown:
            raise CertificateError(f"a critical extension is not known here: {unknown[0]}")
    for authority in chain[1:]:
        try:
            restriction = restriction_of(authority)
        except RestrictionError as error:
            raise CertificateError(str(error)) from None
        if reason := node.holder.refusal(restriction):
            raise CertificateError(reason)
    return Vouched(
        node,
        tuple(map(authority_id, chain[1:])),
        min(one.not_valid_after_utc.timestamp() for one in chain),
    )


def check_signer(
    chain: Sequence[x509.Certificate],
    roots: Sequence[x509.Certificate],
    revoked: Collection[NodeId],
    at: float | None,
) -> NodeCertificate | None:
    """Return the signer of a document of the whole overlay; None if it is an authority, which must
    be unrestricted. The signer's certificate comes first in `chain`. `at`: the time at which all
    had to be valid. Raises CertificateError."""
    path = path_of(chain[0], chain[1:], roots)
    try:
        restricted = is_authority(path[0]) and restriction_of(path[0]) is not None
    except RestrictionError:
        restricted = True
    if restricted:
        raise CertificateError("it is signed by a restricted issuer, which signs nodes alone")
    for one in path:
        check_times(one)
    node = None if is_authority(path[0]) else read_chain(path).node
    if any(authority_id(one) in revoked for one in path[node is not None :]):
        raise CertificateError("its signer's issuer was revoked" if node else "it was revoked")
    if at is not None and not all(
        one.not_valid_before_utc.timestamp() <= at <= one.not_valid_after_utc.timestamp()
        for one in path
    ):
        raise CertificateError("its signer had no valid certificate when it was signed")
    return node


class CertifiedDocument(msgspec.Struct, frozen=True, array_like=True):
    """A document of the whole overlay as it is sent and stored: its bytes, a signature, and the
    signer's certificate with those that vouch for it (DER)."""

    body: bytes
    signature: bytes
    signers: Annotated[tuple[bytes, ...], msgspec.Meta(min_length=1, max_length=4)]


def sign_document(
    context: bytes,
    content: msgspec.Struct,
    key: Ed25519PrivateKey,
    chain: Sequence[x509.Certificate],
) -> bytes:
    """Return the signed document; `chain`: the signer's certificate and those that vouch for it.
    `context` says what kind of document the signature is for."""
    body = msgspec.msgpack.encode(content)
    signers = tuple(one.public_bytes(Encoding.DER) for one in chain)
    return msgspec.msgpack.encode(CertifiedDocument(body, key.sign(context + body), signers))


def read_document(
    data: bytes,
    context: bytes,
    kind: type[T],
    check: Callable[[list[x509.Certificate], T], None],
) -> T:
    """Return the content of a signed document. `check` is called with the signer's certificates and
    the content. Raises CertificateError, and what `check` raises."""
    try:
        signed = msgspec.msgpack.decode(data, type=CertifiedDocument)
        found = msgspec.msgpack.decode(signed.body, type=kind)
        chain = [load_der(one) for one in signed.signers]
        check(chain, found)
        key = key_of(chain[0])
        if key is None:
            raise CertificateError("its signer's key is of another kind")
        key.verify(signed.signature, context + signed.body)
    except (msgspec.MsgspecError, ValueError, InvalidSignature) as error:
        raise CertificateError(str(error) or type(error).__name__) from None
    return found


def claimed(data: bytes, kind: type[T]) -> T | None:
    """Return the content of a signed document without verifying it; None if it cannot be read."""
    try:
        signed = msgspec.msgpack.decode(data, type=CertifiedDocument)
        return msgspec.msgpack.decode(signed.body, type=kind)
    except msgspec.MsgspecError:
        return None


def document_signers(data: bytes) -> list[x509.Certificate]:
    """Return the signer's certificate of a valid document, and those that vouch for it."""
    return [load_der(one) for one in msgspec.msgpack.decode(data, type=CertifiedDocument).signers]
