"""Faults of what keeps strangers and liars out: identities, rights, TLS, tokens, revocations."""

from __future__ import annotations

import ssl
from collections.abc import Mapping

from cryptography import x509

from bench.mutations.planting import fault, replace, replace_constant
from canopy.wire.directory import kademlia_fixes
from canopy.wire.directory.local_network import Announcements
from canopy.wire.directory.signed_kademlia import Cookies
from canopy.wire.directory.signed_records import DirectoryKeys
from canopy.wire.keys import beliefs
from canopy.wire.keys.beliefs import Beliefs
from canopy.wire.keys.certificates import is_signed_by
from canopy.wire.keys.chains import read_chain_der
from canopy.wire.keys.key_folder import KeyFolder
from canopy.wire.process.security import NodeSecurity
from canopy.wire.transport.accept_limits import AcceptLimits
from canopy.wire.transport.framing import FrameFormat, FrameReader
from canopy.wire.transport.tls import new_context
from matching import Value
from overlay.chord.cluster.election import Election
from overlay.chord.cluster.messages import VoteReply
from overlay.chord.ring_merge import Merging
from overlay.links.handshake import is_of_another
from overlay.lower_random.messages import Relayed
from overlay.machine import Message, Peer
from overlay.rights import Principal, refusal
from overlay.tenants.policy import Confinement, Policy, TenantPolicy
from overlay.tenants.quotas import Quotas
from overlay.upper_tree.delivery.event_counts import EventCounts
from overlay.upper_tree.host.assigned_trees import AssignedTrees
from overlay.upper_tree.owner.registrations.registry import LeafQuota
from overlay.upper_tree.owner_claims import OwnerClaims

RIGHTS = "tests/attacks/test_attacks_rights.py"
SIGNED_DIRECTORY = "tests/attacks/directory/test_attacks_signed_directory.py"
TRANSPORT = "tests/attacks/test_attacks_transport.py"
TENANTS = "tests/attacks/test_attacks_tenants.py"


@fault("A13", RIGHTS, "test_a_hello_with_the_id_of_another_node_takes_nothing_over")
def security_believes_any_greeting() -> None:
    """A greeting may name another node than the certificate does."""

    replace(is_of_another, lambda connection, frame: False)


@fault("A11", RIGHTS, "test_what_is_beyond_a_role_is_refused_and_the_session_closed")
def security_asks_for_no_rights() -> None:
    """Every message of an authenticated node is dispatched, whatever its role."""

    replace(refusal, lambda sender, message: "")


@fault(
    "A19",
    "tests/attacks/test_attacks_votes.py",
    "test_a_vote_that_nobody_asked_for_is_not_believed",
)
def security_believes_epochs_of_strangers() -> None:
    """The epoch in a vote counts before it is looked who has sent it."""
    original = Election.on_vote_reply

    def early(self: Election, sender: Peer, message: VoteReply) -> None:
        self._highest_epoch = max(self._highest_epoch, message.voted_epoch)
        original(self, sender, message)

    replace(Election.on_vote_reply, early)


@fault("A21", "tests/attacks/test_attacks_rings.py", "test_an_outsider_alone_does_not_end_a_ring")
def security_believes_the_end_of_a_ring() -> None:
    """One node's word that a ring has ended is enough, whoever it is."""

    replace(Merging._believes, lambda self, sender, ring: True)


@fault(
    "A30",
    "tests/attacks/events/test_attacks_events.py",
    "test_what_fails_the_recheck_does_not_count_as_seen",
)
def security_counts_forged_events_as_seen() -> None:
    """An event that fails the recheck counts as seen all the same."""

    replace(EventCounts.discard, lambda self, events: None)


@fault(
    "A14",
    "tests/attacks/test_attacks_integers.py",
    "test_a_hello_does_not_lift_the_limit_of_frames",
)
def security_takes_large_frames_of_anybody() -> None:
    """A frame may be large before the connection carries a session."""
    original = FrameReader.__init__

    def opened(self: FrameReader[object], format: FrameFormat[object]) -> None:
        original(self, format)
        self.open()

    replace(FrameReader.__init__, opened)


@fault("A2", TRANSPORT, "test_an_older_version_of_tls_is_refused")
def security_speaks_older_tls() -> None:
    """A node speaks TLS 1.2 as well."""
    original = new_context

    def older(is_server: bool) -> ssl.SSLContext:
        context = original(is_server)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        return context

    replace(new_context, older)


@fault("A3", TRANSPORT, "test_nobody_without_a_certificate_is_heard")
def security_asks_for_no_certificate() -> None:
    """The side that is dialled does not ask for a certificate."""
    original = new_context

    def trusting(is_server: bool) -> ssl.SSLContext:
        context = original(is_server)
        if is_server:
            context.verify_mode = ssl.CERT_NONE
        return context

    replace(new_context, trusting)


@fault("A10", TRANSPORT, "test_who_is_revoked_is_cut_off_and_not_let_in_again")
def security_ignores_revocations() -> None:
    """A certificate that the root vouches for is believed, though its node was revoked."""

    replace(NodeSecurity.identify, lambda self, chain: read_chain_der(chain).node.principal)


@fault("A10", TRANSPORT, "test_a_list_of_revocations_needs_the_issuers_signature")
def security_takes_lists_of_anybody() -> None:
    """Whoever signs a list of revocations or a certificate is taken for an authority."""

    replace(is_signed_by, lambda certificate, authorities: True)


@fault("A12", TRANSPORT, "test_an_address_has_so_many_accepts_in_a_second")
def security_accepts_without_bound() -> None:
    """An address may open as many connections as it likes."""

    replace(AcceptLimits.admits, lambda self, host, now: True)


@fault(
    "A37", "tests/canopy/wire/keys/test_wire_keys.py", "test_keys_that_others_can_read_are_refused"
)
def security_uses_readable_keys() -> None:
    """A node uses keys that other users of the machine can read."""

    replace(KeyFolder.check, lambda self: None)


@fault("A32", TENANTS, "test_what_a_tenant_asks_for_is_intersected_and_operators_are_not")
def policy_is_not_intersected() -> None:
    """Owners keep what a tenant asks for as it is."""

    replace(Confinement.narrow, lambda self, tenant, selector: selector)


@fault("A32", "tests/attacks/test_attacks_confinement.py", "test_nothing_leaks")
def policy_permits_the_unknown() -> None:
    """What a policy is unknown for is permitted as if it were true."""

    def lenient(self: Confinement, tenant: str, attributes: Mapping[str, Value | None]) -> bool:
        may = self._predicate(self.of(tenant).subscribe)
        return may is not None and may.evaluate(attributes) is not False

    replace(Confinement.may_see, lenient)


@fault("A35", "tests/attacks/test_attacks_policy.py", "test_a_policy_never_goes_back")
def policy_goes_back() -> None:
    """An older policy that is put into the key folder is taken."""
    original = beliefs._newest_policy

    def file_alone(
        folder: KeyFolder, overlay: str, roots: list[x509.Certificate], former: Beliefs | None
    ) -> tuple[Policy | None, bytes, str]:
        return original(folder, overlay, roots, None)

    replace(beliefs._newest_policy, file_alone)


@fault("T8", TENANTS, "test_without_a_policy_that_can_be_applied_tenants_may_nothing")
def policy_is_not_needed() -> None:
    """Where there is no policy, or none that can be read, tenants may do anything."""
    original = Confinement.of

    def open_to_all(self: Confinement, tenant: str) -> TenantPolicy:
        return TenantPolicy("TRUE", "TRUE") if self.reason else original(self, tenant)

    replace(Confinement.of, open_to_all)
    replace(Confinement.denial, lambda self, tenant: "")


@fault(
    "A23",
    "tests/attacks/test_attacks_owners.py",
    "test_a_voter_that_does_not_own_the_tree_gives_no_orders",
)
def security_obeys_any_voter() -> None:
    """A host takes the orders of every voter."""

    replace(OwnerClaims._is_known, lambda self, node, cluster: True)


@fault(
    "A26", "tests/attacks/test_attacks_recalls.py", "test_a_voter_that_owns_no_tree_recalls_nothing"
)
def security_believes_recalls_of_any_voter() -> None:
    """A publisher drops what it knows, and rejects answers, as any voter says."""

    def always(self: OwnerClaims, sender: Peer, message: Message) -> None:
        self._take(sender, message)

    replace(OwnerClaims.take, always)


@fault(
    "A25", "tests/attacks/test_attacks_messages.py", "test_nothing_is_relayed_where_nodes_have_keys"
)
def security_takes_relayed_frames() -> None:
    """A node with keys takes what a helper brings of another node."""

    def lenient(sender: Principal, message: Message, honest: object = refusal) -> str:
        assert callable(honest)
        return "" if isinstance(message, Relayed) else str(honest(sender, message))

    replace(refusal, lenient)


@fault(
    "A40",
    "tests/attacks/directory/test_attacks_directory.py",
    "test_a_datagram_from_elsewhere_draws_none",
)
def security_directory_answers_anybody() -> None:
    """The directory answers datagrams whatever their source is."""

    def always(host: str) -> bool:
        return True

    replace_constant(kademlia_fixes, "is_loopback", always)


@fault("A47", SIGNED_DIRECTORY, "test_no_address_is_sent_more_than_was_sent_in_its_name")
def security_directory_asks_for_no_cookie() -> None:
    """Where nodes have keys the directory does not look whether an address receives."""

    replace(Cookies.holds, lambda self, cookie, address: True)


@fault("A47", SIGNED_DIRECTORY, "test_what_no_node_has_signed_is_not_read")
def security_directory_believes_any_record() -> None:
    """A record of the directory is believed, whoever has signed it."""

    replace(DirectoryKeys.vouches, lambda self, node, chain: True)


@fault(
    "A48",
    "tests/attacks/directory/test_attacks_local_network.py",
    "test_only_numbers_of_own_networks_are_dialled",
)
def security_announcements_name_any_address() -> None:
    """A node dials whatever address is announced on its local network."""

    replace(Announcements._is_near, lambda self, host: True)


@fault("A33", TENANTS, "test_a_leaf_over_its_quota_is_refused_and_hears_why")
def security_has_no_quotas() -> None:
    """A leaf may ask for as much as it likes."""

    replace(Quotas.outcome, lambda self, sender, message: None)


@fault("A33", TENANTS, "test_an_owner_takes_no_more_of_a_leaf_that_does_not_look")
def security_owners_take_all_of_a_leaf() -> None:
    """An owner does not look at what a leaf has, and plants all trees that it asks for."""

    replace(LeafQuota.takes, lambda self, registration, held, fresh, plants: True)


@fault("A28", TENANTS, "test_leaves_get_what_they_want_and_pass_nothing_on")
def security_delegates_to_leaves() -> None:
    """Hosts do not look whether a delegate is a leaf, whose deliveries others refuse."""

    replace(AssignedTrees.is_leaf, lambda self, node: False)
