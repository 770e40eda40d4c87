"""An issuer's answers to requests for certificates. No IO except the key folder's."""

from __future__ import annotations

import hmac
import time
from collections.abc import Callable

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from canopy.wire.keys.authority import Issuer, issuer_of
from canopy.wire.keys.certificates import (
    DAY,
    RENEW_UNTIL,
    CertificateError,
    Holder,
    NodeCertificate,
    fingerprint,
    ids_of,
    is_signed_by,
    key_of,
    load_pem,
    node_id,
    pem,
    raw_key,
    read_node,
)
from canopy.wire.keys.chains import authority_id, check_times
from canopy.wire.keys.enrolment import Denied, Enrol, Issued, RenewCertificate, claim
from canopy.wire.keys.key_folder import KeyFolder
from canopy.wire.keys.ledger import Ledger, LimitError
from canopy.wire.keys.restrictions import restriction_of
from canopy.wire.keys.tokens import hashed
from overlay.rights import ROLES, Role


class RefusedError(Exception):
    """A request is refused; the reason may be sent to the requester."""


class Issuing:
    """The issuer's side of enrolment."""

    def __init__(
        self, folder: KeyFolder, overlay: str, now: Callable[[], float] = time.time
    ) -> None:
        self._folder = folder
        self._overlay = overlay
        self._now = now

    def answer(self, nonce: bytes, request: Enrol | RenewCertificate) -> Issued | Denied:
        """Grant or refuse a node's request. `nonce`: the one that the node was sent."""
        with self._folder.locked():
            return self._answer(nonce, request)

    def _answer(self, nonce: bytes, request: Enrol | RenewCertificate) -> Issued | Denied:
        try:
            key = Ed25519PublicKey.from_public_bytes(request.key)
            generation = request.generation if isinstance(request, RenewCertificate) else 1
            try:
                key.verify(request.signature, claim(nonce, request.key, generation))
            except InvalidSignature:
                raise RefusedError("the request is not signed by its key") from None
            if isinstance(request, Enrol):
                return self._enrol(request, key)
            if request.generation == 0:
                return self._renew_issuer(request)
            return self._renew(request, key)
        except (RefusedError, CertificateError, LimitError, ValueError) as error:
            return Denied(str(error)[:400])

    def _enrol(self, request: Enrol, key: Ed25519PublicKey) -> Issued:
        found = self._folder.invitations().get(request.invitation)
        if found is None or not hmac.compare_digest(found.hash, hashed(request.secret)):
            raise RefusedError("the token is not known here: it was used, or withdrawn")
        if found.until < self._now():
            self._folder.remove_invitation(request.invitation)
            raise RefusedError("the token has expired")
        holder = Holder(self._overlay, ROLES[found.role], found.tenant, 1)
        node = node_id(request.key, 1)
        self._check_revoked(request.key, 1)
        if node not in found.used_by and len(found.used_by) >= found.uses:
            raise RefusedError("the token was used")
        issuer = self._issuer()
        holder = self._enter(issuer, holder, request.key, request.invitation, found.per_hour)
        if node not in found.used_by:  # who asks again has not heard the answer
            used = msgspec.structs.replace(found, used_by=(*found.used_by, node))
            self._folder.write_invitation(request.invitation, used)
        return self._issue(issuer, holder, key)

    def _renew(self, request: RenewCertificate, key: Ed25519PublicKey) -> Issued:
        try:
            certificate = load_pem(request.certificate)[0]
            known = read_node(certificate)
        except CertificateError as error:
            raise RefusedError(str(error)) from None
        revoked = self._folder.revocations(self._overlay)[0].ids
        for former in self._folder.issuers():
            if is_signed_by(certificate, [former]):
                break
        else:
            raise RefusedError("the certificate is not signed by this issuer")
        if authority_id(former) in revoked:
            raise RefusedError("the certificate is of an issuer that was revoked")
        check_times(certificate)
        if reason := known.holder.refusal(restriction_of(former)):
            raise RefusedError(reason)
        if authority_id(former) != issuer_of(self._folder).id:
            self._check_signed(known)
        if known.key != request.key or known.holder.overlay != self._overlay:
            raise RefusedError("the certificate is of another key")
        if known.ends + RENEW_UNTIL * DAY < self._now():
            raise RefusedError(
                f"it has ended more than {RENEW_UNTIL:g} days ago: ask for an invitation"
            )
        if request.generation not in (known.holder.generation, known.holder.generation + 1):
            raise RefusedError("the generation is neither the present nor the next one")
        self._check_revoked(request.key, known.holder.generation)
        issuer = self._issuer()
        holder = known.holder._replace(generation=request.generation)
        return self._issue(issuer, self._enter(issuer, holder, request.key), key)

    def _check_signed(self, known: NodeCertificate) -> None:
        """Refuse certificates that were not signed here. The key of a former issuer may be stolen,
        and a certificate signed with it must not become one of the present issuer."""
        found = Ledger(self._folder.path).signed().get(known.key.hex())
        role = known.holder.role.name.lower()
        if (
            found is None
            or found.tenant != known.holder.tenant
            or found.role not in ("", role)
            or (not found.role and known.holder.role > Role.VOTER)
        ):
            raise RefusedError("a certificate of the former issuer that was not signed here")

    def _renew_issuer(self, request: RenewCertificate) -> Issued:
        """Sign the certificate of a restricted issuer that was made here below the present root
        (`rotation`)."""
        (asked, *_) = load_pem(request.certificate)
        key = key_of(asked)
        if key is None or raw_key(key) != request.key:
            raise RefusedError("the certificate is of another key")
        name = authority_id(asked)
        if name in self._folder.revocations(self._overlay)[0].ids:
            raise RefusedError("this issuer was revoked")
        made = self._folder.made_issuers().get(name)
        if made is None:
            raise RefusedError("this issuer was not made here")
        self._folder.write_made_issuer(name, msgspec.structs.replace(made, taken=self._now()))
        others = self._folder.chain("issuer")[1:]
        roots = self._folder.chain("roots")
        listed = self._folder.revocations(self._overlay)[1]
        return Issued(made.certificate + pem(*others), pem(*roots), listed)

    def _check_revoked(self, key: bytes, generation: int) -> None:
        revoked = self._folder.revocations(self._overlay)[0].ids
        if not set(ids_of(key, generation)).isdisjoint(revoked):
            raise RefusedError("this node was revoked")

    def _issuer(self) -> Issuer:
        issuer, now = issuer_of(self._folder), self._now()
        if issuer.id in self._folder.revocations(self._overlay)[0].ids:
            raise RefusedError("this issuer was revoked")
        if issuer.certificate.not_valid_after_utc.timestamp() <= now:
            raise RefusedError("this issuer's certificate has ended")
        return issuer

    def _enter(
        self, issuer: Issuer, holder: Holder, key: bytes, invitation: str = "", per_hour: int = 0
    ) -> Holder:
        """Return the holder with its place, if one more id may be signed. Raises LimitError."""
        restriction, revoked = issuer.restriction, self._folder.revocations(self._overlay)[0].ids
        if reason := holder._replace(place=1).refusal(restriction):
            raise RefusedError(reason)  # before anything is noted
        return Ledger(self._folder.path).enter(
            holder,
            key,
            self._now(),
            revoked,
            restriction,
            invitation,
            per_hour,
            fingerprint(issuer.certificate),
        )

    def _issue(self, issuer: Issuer, holder: Holder, key: Ed25519PublicKey) -> Issued:
        roots = self._folder.chain("roots")
        chain = issuer.sign_node(holder, key, self._now())
        return Issued(pem(*chain), pem(*roots), self._folder.revocations(self._overlay)[1])
