"""The contents of a node's certificate, the id that follows from its key, and signatures with it.

A certificate names its holder by one URI, ``canopy://OVERLAY/ROLE/TENANT/GENERATION``, followed by
``/PLACE`` if the issuer may sign a bounded number of ids (`restrictions`). The node's id is
BLAKE2b-128(key || generation): no other node can have it, and a node that has lost its state
becomes another node in the next generation, which its issuer has to sign.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Sequence
from hashlib import blake2b, sha256
from typing import Final, NamedTuple, Protocol

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from canopy.wire.constants import NAME, NAMED
from canopy.wire.keys.restrictions import Restriction, extension
from overlay.links.statements import Chain, Signature
from overlay.machine import NodeId
from overlay.rights import ROLES, Principal, Role

NODE_DAYS: Final = 7.0
"""Days for which a node's certificate is valid. A revoked node is refused after that even by nodes
that the revocation does not reach. Nodes renew after `RENEW_AFTER` days."""

RENEW_AFTER: Final = 2.0
"""Days after which a node renews its certificate: the issuer may then be away for five days."""

RENEW_UNTIL: Final = 90.0
"""Days after its expiry for which a certificate can be renewed by proof of its key: a machine that
was off comes back by itself."""

AUTHORITY_DAYS: Final = 3650.0
"""Days for which root and issuer are valid; `canopy keys rotate` replaces them earlier."""

RESTRICTED_DAYS: Final = 366.0
"""The most days for which a restricted issuer is valid, since others hold its key."""

DAY: Final = 86_400.0

SKEW: Final = datetime.timedelta(hours=1)
"""The allowed difference of clocks: certificates are valid from this time before they are made."""

_URI: Final = re.compile(
    r"canopy://([A-Za-z0-9._-]{1,64})/([a-z]{1,16})/([A-Za-z0-9._-]{0,64})/([0-9]{1,9})"
    r"(?:/([1-9][0-9]{0,6}))?"
)


UNREADABLE: Final = (
    *(ValueError, TypeError, UnsupportedAlgorithm, x509.InvalidVersion),
    *(x509.DuplicateExtension, x509.UnsupportedGeneralNameType, x509.ExtensionNotFound),
)
"""The errors of `cryptography` for certificates that it cannot read, when they are loaded or their
parts accessed. Strangers send certificates, so every reader catches these."""

GENERATIONS_MOST: Final = 64
"""The number of ids of one key that are checked, from its newest back: those of some months at
least."""


class CertificateError(Exception):
    """A certificate is not one of this overlay; says why."""


class KeyFolderError(Exception):
    """The keys in a folder cannot be used; the message says why and what to do."""


class Holder(NamedTuple):
    """The holder of a certificate."""

    overlay: str
    role: Role
    tenant: str
    generation: int
    place: int = 0
    """The holder's number among its issuer's ids, if these are bounded; 0: they are not."""

    @property
    def uri(self) -> str:
        """The holder as a URI in the certificate."""
        role, place = self.role.name.lower(), f"/{self.place}" if self.place else ""
        return f"canopy://{self.overlay}/{role}/{self.tenant}/{self.generation}{place}"

    def refusal(self, restriction: Restriction | None) -> str:
        """Return why an issuer with this restriction may not sign it; empty if it may."""
        if restriction is None:
            return ""
        return restriction.refusal(self.role, self.tenant, self.place)


class NodeCertificate(NamedTuple):
    """The facts that a certificate states about its node."""

    principal: Principal
    holder: Holder
    key: bytes
    begins: float
    ends: float
    """Seconds since 1970."""


def raw_key(key: Ed25519PublicKey) -> bytes:
    """Return the 32 bytes of a public key."""
    return key.public_bytes(Encoding.Raw, PublicFormat.Raw)


def node_id(key: bytes, generation: int) -> NodeId:
    """Return the id of the node with this public key, in this generation: 32 hex digits."""
    return blake2b(key + generation.to_bytes(8, "big"), digest_size=16).hexdigest()


def ids_of(key: bytes, generation: int) -> tuple[NodeId, ...]:
    """Return the ids of this public key, from this generation back, at most `GENERATIONS_MOST`.
    Revoking one of them revokes all."""
    before = max(-1, generation - GENERATIONS_MOST)
    return tuple([node_id(key, each) for each in range(generation, before, -1)])


def fingerprint(certificate: x509.Certificate) -> str:
    """Return the SHA-256 of a certificate in hex digits, by which a token names the root."""
    return sha256(certificate.public_bytes(Encoding.DER)).hexdigest()


def check_name(what: str, name: str) -> str:
    """Return `name`, if it can be in a certificate. Raises CertificateError."""
    if not NAME.fullmatch(name):
        raise CertificateError(f"{what} {name!r}: expected {NAMED}")
    return name


def private_pem(key: Ed25519PrivateKey) -> bytes:
    """Return a private key in the form of its file (PKCS #8; the file's mode protects it)."""
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def pem(*certificates: x509.Certificate) -> bytes:
    """Return certificates as text, one after the other."""
    return b"".join(certificate.public_bytes(Encoding.PEM) for certificate in certificates)


def authority_certificate(
    name: str,
    key: Ed25519PublicKey,
    signer: Ed25519PrivateKey,
    signed_by: x509.Certificate | None,
    now: float,
    is_root: bool = False,
    restriction: Restriction | None = None,
    days: float = AUTHORITY_DAYS,
) -> x509.Certificate:
    """Return a certificate that may sign: a root if `signed_by` is None; else an issuer below it,
    which may be restricted; or with `is_root` another root, for which `signed_by` vouches."""
    subject = _name(name)
    builder = (
        _builder(subject, signed_by.subject if signed_by else subject, key, now, days)
        .add_extension(
            x509.BasicConstraints(ca=True, path_length=None if signed_by is None or is_root else 0),
            True,
        )
        .add_extension(_usage(signs=True), True)
    )
    if restriction is not None:
        builder = builder.add_extension(extension(restriction), True)
    return builder.sign(signer, None)


def node_certificate(
    holder: Holder,
    key: Ed25519PublicKey,
    signer: Ed25519PrivateKey,
    signed_by: x509.Certificate,
    now: float,
    days: float = NODE_DAYS,
) -> x509.Certificate:
    """Return a node's certificate, signed by an issuer, for both sides of TLS. It expires with its
    issuer's at the latest."""
    days = min(days, (signed_by.not_valid_after_utc.timestamp() - now) / DAY)
    if days <= 0.0:
        raise CertificateError("the issuer's certificate has ended")
    usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    names = [x509.UniformResourceIdentifier(holder.uri)]
    return (
        _builder(_name(f"{holder.overlay} node"), signed_by.subject, key, now, days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), True)
        .add_extension(_usage(signs=False), True)
        .add_extension(x509.ExtendedKeyUsage(usages), False)
        .add_extension(x509.SubjectAlternativeName(names), False)
        .sign(signer, None)
    )


def read_node(certificate: x509.Certificate) -> NodeCertificate:
    """Decode a node's certificate, whoever signed it. Raises CertificateError."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
        (uri,) = names.value.get_values_for_type(x509.UniformResourceIdentifier)
        begins = certificate.not_valid_before_utc.timestamp()
        ends = certificate.not_valid_after_utc.timestamp()
    except UNREADABLE:
        raise CertificateError("the certificate names no node") from None
    found = _URI.fullmatch(uri)
    key = key_of(certificate)
    if found is None or found[2] not in ROLES or key is None:
        raise CertificateError(f"the certificate names no node: {uri[:200]!r}")
    holder = Holder(found[1], ROLES[found[2]], found[3], int(found[4]), int(found[5] or 0))
    raw = raw_key(key)
    principal = Principal(node_id(raw, holder.generation), holder.role, holder.tenant)
    return NodeCertificate(principal, holder, raw, begins, ends)


def load_der(data: bytes) -> x509.Certificate:
    """Return a certificate in the encoding of TLS and signed documents. Raises CertificateError."""
    try:
        return x509.load_der_x509_certificate(data)
    except UNREADABLE as error:
        raise CertificateError(f"not a certificate: {error}") from None


def load_pem(data: bytes) -> list[x509.Certificate]:
    """Return one or more certificates in text form. Raises CertificateError."""
    try:
        return x509.load_pem_x509_certificates(data)
    except UNREADABLE as error:
        raise CertificateError(f"no certificates: {error}") from None


def key_of(certificate: x509.Certificate) -> Ed25519PublicKey | None:
    """Return the certificate's public key; None if it is not an Ed25519 key."""
    try:
        key = certificate.public_key()
    except UNREADABLE:
        return None
    return key if isinstance(key, Ed25519PublicKey) else None


def read_der(data: bytes) -> NodeCertificate:
    """Decode a node's certificate from TLS, as `read_node`. Raises CertificateError."""
    return read_node(load_der(data))


def is_authority(certificate: x509.Certificate) -> bool:
    """Return whether the certificate may sign others."""
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except UNREADABLE:
        return False


def path_length(certificate: x509.Certificate) -> int | None:
    """Return how many authorities may be between an authority and a node; None: any number."""
    return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.path_length


def is_signed_by(certificate: x509.Certificate, authorities: Sequence[x509.Certificate]) -> bool:
    """Return whether one of these authorities has signed the certificate."""
    for authority in authorities:
        try:
            certificate.verify_directly_issued_by(authority)
        except (InvalidSignature, *UNREADABLE):
            continue
        return True
    return False


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:64])])


def _usage(signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _builder(
    subject: x509.Name, issuer: x509.Name, key: Ed25519PublicKey, now: float, days: float
) -> x509.CertificateBuilder:
    begins = datetime.datetime.fromtimestamp(now, datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins - SKEW)
        .not_valid_after(begins + datetime.timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), False)
    )


class Vouching(Protocol):
    """Knows which nodes the overlay has certified (canopy/wire/process/security)."""

    def chain(self) -> Chain:
        """Return this node's certificate, and those that vouch for it (DER)."""

    def vouches(self, node: NodeId, chain: Chain, votes: bool = False) -> bool:
        """Whether the overlay has certified this node, and has not revoked it."""


class KeySigner:
    """Signs with a node's Ed25519 key. The signer of a signature follows from the key in it, since
    ids are hashes of keys; verifying it needs no certificate."""

    def __init__(
        self, key: Ed25519PrivateKey, generation: int, vouching: Vouching | None = None
    ) -> None:
        """`vouching`: None if no certificates are checked."""
        self._vouching = vouching
        self._key = key
        self._raw = raw_key(key.public_key())
        self._generation = generation
        self._node = node_id(self._raw, generation)

    def sign(self, statement: bytes) -> Signature:
        """Sign a statement as this node."""
        return Signature(self._node, self._raw, self._generation, self._key.sign(statement))

    def holds(self, signature: Signature, statement: bytes) -> bool:
        """Return whether the named node has signed this statement."""
        if node_id(signature.key, signature.generation) != signature.signer:
            return False
        try:
            Ed25519PublicKey.from_public_bytes(signature.key).verify(signature.seal, statement)
        except (InvalidSignature, ValueError):
            return False
        return True

    def chain(self) -> Chain:
        """Return this node's certificate, with those that vouch for it."""
        return () if self._vouching is None else self._vouching.chain()

    def vouches(self, node: NodeId, chain: Chain, votes: bool = False) -> bool:
        """Return whether the overlay has certified this node, and has not revoked it."""
        return self._vouching is not None and self._vouching.vouches(node, chain, votes)
