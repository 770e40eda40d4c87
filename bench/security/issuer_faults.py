"""Faults of what issuers may sign, and of how many ids."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from bench.mutations.planting import fault, replace, replace_constant
from canopy.wire.keys import chains, live_ids
from canopy.wire.keys.authority import Issuer
from canopy.wire.keys.certificates import Holder, is_authority, node_certificate
from canopy.wire.keys.chains import Vouched, check_signer, may_sign
from canopy.wire.keys.joining import _is_vouched_for, _Side
from canopy.wire.keys.ledger import Ledger
from canopy.wire.keys.live_ids import LiveIds
from canopy.wire.keys.restrictions import Restriction, restriction_of
from canopy.wire.process.security import NodeSecurity
from canopy.wire.transport.tls import Chain, TlsError
from overlay.machine import NodeId
from overlay.rights import Principal, Role

ISSUERS = "tests/attacks/certificates/test_attacks_issuers.py"
LEDGER = "tests/canopy/wire/keys/test_wire_issuers.py"
BEYOND = "test_what_an_issuer_signs_beyond_its_right_is_refused"


@fault("keys", ISSUERS, BEYOND)
def issuers_restriction_ignored() -> None:
    """What a restricted issuer has signed is believed like anybody's."""

    def nothing(self: Restriction, role: Role, tenant: str, place: int) -> str:
        return ""

    replace(Restriction.refusal, nothing)


@fault("keys", ISSUERS, BEYOND)
def issuers_tenants_ignored() -> None:
    """Of a restriction only the roles are looked at."""
    original = Restriction.refusal

    def roles(self: Restriction, role: Role, tenant: str, place: int) -> str:
        found = original(self, role, tenant, place)
        return "" if "nodes of" in found else found

    replace(Restriction.refusal, roles)


@fault("keys", ISSUERS, BEYOND)
def issuers_restriction_not_understood_is_none() -> None:
    """A restriction that is not understood restricts nothing."""
    original = restriction_of

    def lax(certificate: x509.Certificate) -> Restriction | None:
        try:
            return original(certificate)
        except ValueError:
            return None

    replace(restriction_of, lax)


@fault("keys", ISSUERS, BEYOND)
def issuers_critical_extensions_ignored() -> None:
    """Extensions that are critical and not known are passed over, as TLS was told to."""

    class Everything(frozenset[x509.ObjectIdentifier]):
        def __contains__(self, item: object) -> bool:
            return True

    replace_constant(chains, "UNDERSTOOD", Everything())


@fault("keys", ISSUERS, "test_it_signs_no_documents_of_the_overlay")
def issuers_below_an_issuer_signs_documents() -> None:
    """The signer of a document may be an issuer that an issuer has signed."""

    def any_authority(authority: x509.Certificate, certificate: x509.Certificate) -> bool:
        return is_authority(authority)

    replace(may_sign, any_authority)


@fault("keys", ISSUERS, "test_with_an_issuer_all_that_it_has_signed_is_revoked")
def issuers_revoked_issuer_goes_on() -> None:
    """A revoked issuer signs nothing more, and what it has signed is believed."""
    original = NodeSecurity.identify

    def believing(self: NodeSecurity, chain: Chain) -> Principal:
        try:
            return original(self, chain)
        except TlsError as error:
            if "its issuer" not in str(error):
                raise
            return chains.read_chain_der(chain).node.principal

    replace(NodeSecurity.identify, believing)


@fault("keys", ISSUERS, "test_a_revoked_issuer_takes_nothing_back")
def issuers_revoked_issuer_signs_lists() -> None:
    """Documents are believed of an issuer that was revoked."""
    original = check_signer

    def any_time(
        chain: Sequence[x509.Certificate],
        roots: Sequence[x509.Certificate],
        revoked: Collection[NodeId],
        at: float | None,
    ) -> object:
        return original(chain, roots, (), at)

    replace(check_signer, any_time)


@fault("keys", ISSUERS, "test_an_issuer_holds_for_its_time_and_so_does_what_it_signed")
def issuers_ended_issuer_is_believed_while_connected() -> None:
    """Of a chain only the node's certificate has to hold while a connection is open."""
    original = chains.read_chain

    def own_end(chain: Sequence[x509.Certificate]) -> Vouched:
        found = original(chain)
        return found._replace(ends=found.node.ends)

    replace(chains.read_chain, own_end)


@fault("keys", ISSUERS, "test_of_two_ids_in_one_place_a_node_believes_one")
def issuers_places_are_not_kept() -> None:
    """Two ids of an issuer may have the same place."""
    original = LiveIds.refusal

    def any_place(self: LiveIds, found: Vouched, now: float, revoked: Collection[NodeId]) -> str:
        reason = original(self, found, now, revoked)
        return "" if "place" in reason else reason

    replace(LiveIds.refusal, any_place)


@fault("keys", ISSUERS, "test_of_two_ids_in_one_place_a_node_believes_one")
def issuers_a_key_has_many_ids() -> None:
    """Earlier generations of a key are believed beside the latest."""
    replace_constant(live_ids, "REMEMBERED", 0)


@fault("keys", ISSUERS, "test_a_newcomer_keeps_nothing_that_the_issuer_may_not_sign")
def issuers_replaces_roots() -> None:
    """At a renewal a node takes any root that its issuer sends."""

    def any_root(
        root: x509.Certificate,
        others: Sequence[x509.Certificate],
        known: Sequence[x509.Certificate],
    ) -> bool:
        return True

    replace(_is_vouched_for, any_root)


@fault("keys", ISSUERS, "test_the_token_of_a_restricted_issuer_is_for_its_node_alone")
def issuers_secret_is_told_to_any_node() -> None:
    """A newcomer tells the token's secret to any node of the overlay that answers."""
    original = _Side.__init__

    def anybody(
        self: _Side, roots: Sequence[x509.Certificate], issuer: NodeId | None = None
    ) -> None:
        original(self, roots, None)

    replace(_Side.__init__, anybody)


@fault("keys", ISSUERS, "test_it_invites_and_renews_nobody_beyond_its_right")
def issuers_signs_beyond_its_right() -> None:
    """An issuer signs what others will refuse."""

    def signed(
        self: Issuer, holder: Holder, key: Ed25519PublicKey, now: float
    ) -> tuple[x509.Certificate, ...]:
        return node_certificate(holder, key, self.key, self.certificate, now), *self.chain

    replace(Issuer.sign_node, signed)


@fault("keys", LEDGER, "test_new_ids_are_bounded_in_all_and_by_the_hour")
def issuers_limits_ignored() -> None:
    """An issuer signs any number of ids, whatever limit was set."""

    def nothing(self: Ledger, *arguments: object) -> None:
        return None

    replace(Ledger._check, nothing)
