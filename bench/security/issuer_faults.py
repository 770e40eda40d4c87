"""Faults of what issuers may sign, and of how many ids."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from bench.mutations.planting import fault, replace, replace_constant
from canopy.wire.durable import write_durably
from canopy.wire.keys import beliefs, chains, live_ids, rotation
from canopy.wire.keys.authority import Issuer
from canopy.wire.keys.certificates import (
    Holder,
    NodeCertificate,
    is_authority,
    node_certificate,
)
from canopy.wire.keys.chains import Vouched, check_signer, check_times, may_sign
from canopy.wire.keys.issuing import Issuing
from canopy.wire.keys.joining import _is_vouched_for, _Side
from canopy.wire.keys.key_folder import KeyFolder
from canopy.wire.keys.ledger import Ledger
from canopy.wire.keys.live_ids import LiveIds
from canopy.wire.keys.policies import believed_policy, claimed_policy
from canopy.wire.keys.restrictions import Restriction, restriction_of
from canopy.wire.keys.revocations import Revocations, believed_list
from canopy.wire.process.renewal_times import RENEW_AGAIN, RenewalTimes
from canopy.wire.process.security import NodeSecurity
from canopy.wire.transport.tls import Chain, TlsError
from overlay.machine import NodeId
from overlay.rights import Principal, Role
from overlay.tenants.policy import Policy

ISSUERS = "tests/attacks/certificates/test_attacks_issuers.py"
ROTATION = "tests/attacks/certificates/test_attacks_rotation.py"
LEDGER = "tests/canopy/wire/keys/test_wire_issuers.py"
BEYOND = "test_what_an_issuer_signs_beyond_its_right_is_refused"
RENEWALS = "tests/canopy/wire/keys/test_wire_renewal_times.py"


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


# --- a root that is replaced ---


@fault("keys", ROTATION, "test_a_certificate_for_ten_years_is_refused_whoever_signed_it")
def issuers_sign_for_any_time() -> None:
    """How long a certificate holds is up to who signs it."""

    def any_time(certificate: x509.Certificate) -> None:
        return None

    replace(check_times, any_time)


@fault(
    "policy", ROTATION, "test_a_policy_that_is_not_believed_permits_nothing_and_the_node_goes_on"
)
def rotation_policy_of_a_dropped_root_holds() -> None:
    """A policy that a node has kept is believed whatever root it is signed below."""

    def kept(data: bytes, overlay: str, roots: list[x509.Certificate]) -> tuple[Policy | None, str]:
        return claimed_policy(data), ""

    replace(believed_policy, kept)


@fault("policy", ROTATION, "test_all_that_hangs_on_the_root_goes_over_with_it")
def rotation_forgets_the_policy() -> None:
    """When the root is replaced the policy stays signed below the former one."""
    original = KeyFolder.write_together

    def without(self: KeyFolder, files: Mapping[str, bytes]) -> None:
        original(self, {name: data for name, data in files.items() if name != "policy"})

    replace(KeyFolder.write_together, without)


@fault("keys", ROTATION, "test_a_rotation_is_not_finished_while_something_hangs_on_the_former_root")
def rotation_is_finished_at_once() -> None:
    """The former root is dropped whatever still hangs on it."""

    def nothing(*arguments: object) -> list[str]:
        return []

    replace(rotation._sign_again, nothing)


@fault("keys", ROTATION, "test_connections_are_looked_at_again_when_roots_change")
def rotation_leaves_connections_open() -> None:
    """Who was authenticated below a root that is believed no more stays connected."""

    def once_verified(self: NodeSecurity, chain: Chain) -> Vouched:
        return chains.read_chain_der(chain)

    replace(NodeSecurity._judge, once_verified)


@fault("keys", ROTATION, "test_who_knows_the_new_root_hears_nothing_more_of_the_former_issuer")
def rotation_hears_former_issuers() -> None:
    """A list of revocations is believed below any root, and not the newest alone."""
    original = believed_list

    def any_root(
        data: bytes, overlay: str, roots: list[x509.Certificate]
    ) -> tuple[Revocations, bytes, str]:
        found, _, reason = original(data, overlay, roots)
        return (found, data, "") if found.version else (found, b"", reason)

    replace(believed_list, any_root)


@fault("keys", ROTATION, "test_a_former_issuer_is_washed_clean_by_nobody")
def rotation_washes_certificates() -> None:
    """The present issuer renews whatever the former one's key has signed."""

    def anything(self: Issuing, known: NodeCertificate) -> None:
        return None

    replace(Issuing._check_signed, anything)


@fault("keys", ROTATION, "test_who_has_the_former_issuer_cannot_drop_the_later_root")
def rotation_drops_any_root() -> None:
    """A list of revocations drops a root, whoever of the overlay's issuers has signed it."""

    def anybody(signers: Sequence[x509.Certificate], root: x509.Certificate) -> bool:
        return True

    replace(beliefs._succeeds, anybody)


@fault("keys", ROTATION, "test_a_process_that_ends_in_between_leaves_all_of_it_or_nothing")
def rotation_changes_file_by_file() -> None:
    """Files that belong together are replaced one after the other."""

    def one_by_one(self: KeyFolder, files: Mapping[str, bytes]) -> None:
        self.prepare()
        for name, data in files.items():
            write_durably(self.path / name, data)

    replace(KeyFolder.write_together, one_by_one)


@fault("keys", RENEWALS, "test_all_that_ended_at_one_moment_come_back_without_a_storm")
def renewals_are_tried_again_in_step() -> None:
    """All nodes whose renewal has failed try again a minute later."""

    def asks(self: RenewalTimes, now: float, has_to: bool = True) -> None:
        self._at = now + RENEW_AGAIN

    replace(RenewalTimes.asks, asks)
