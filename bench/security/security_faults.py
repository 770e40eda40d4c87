"""Faults of what keeps strangers and liars out: identities, rights, TLS, tokens, revocations."""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Mapping

from cryptography import x509

from bench.mutations.planting import fault, replace, replace_constant
from canopy.cli.config import shown_token
from canopy.wire import audit
from canopy.wire.control.client_connection import is_own_user
from canopy.wire.directory import kademlia_fixes
from canopy.wire.directory.signed_kademlia import Address, Cookies
from canopy.wire.directory.signed_records import DirectoryKeys
from canopy.wire.driver import TrioDriver
from canopy.wire.keys import beliefs
from canopy.wire.keys.beliefs import Beliefs
from canopy.wire.keys.certificates import is_signed_by
from canopy.wire.keys.chains import read_chain_der
from canopy.wire.keys.issuing import Issuing
from canopy.wire.keys.key_folder import KeyFolder
from canopy.wire.keys.policies import _check_signer
from canopy.wire.keys.tokens import Invitation
from canopy.wire.process.security import NodeSecurity
from canopy.wire.transport.accept_limits import AcceptLimits, whose
from canopy.wire.transport.connection import Connection
from canopy.wire.transport.framing import FrameFormat, FrameReader
from canopy.wire.transport.tls import Chain, new_context
from matching import Value
from overlay.chord.cluster.election import Election
from overlay.chord.cluster.messages import VoteReply
from overlay.chord.merging.merging import Merging
from overlay.chord.messages import Cluster
from overlay.client import Event
from overlay.links.connections import LinkConnection
from overlay.links.handshake import Handshake, is_of_another
from overlay.links.messages import Frame, Superseded
from overlay.lower_random.messages import Relayed
from overlay.lower_random.policies import PolicyChanged
from overlay.machine import Message, NodeId, Peer
from overlay.rights import Principal, refusal
from overlay.tenants import quotas
from overlay.tenants.confining import Ruling, outcome
from overlay.tenants.leaf_share import over_share
from overlay.tenants.policy import Confinement, Policy, TenantPolicy
from overlay.tenants.quotas import Quotas
from overlay.upper_tree.delivery.event_counts import EventCounts
from overlay.upper_tree.host.hosting import Hosting
from overlay.upper_tree.messages import ComeAgain, Registration
from overlay.upper_tree.owner.leaf_holdings import LeafHoldings
from overlay.upper_tree.owner.registrations import leaf_inbox
from overlay.upper_tree.owner.registrations.leaf_inbox import LeafInbox
from overlay.upper_tree.owner.registrations.leaf_quota import LeafQuota
from overlay.upper_tree.owner.registrations.policy_changes import PolicyChanges
from overlay.upper_tree.owner.registrations.registry import Registry
from overlay.upper_tree.owner_claims import OwnerClaims
from overlay.upper_tree.subscriber.registrar import Registrar

EVENTS = "tests/attacks/events/test_attacks_events.py"
INTEGERS = "tests/attacks/test_attacks_integers.py"
KEYS = "tests/canopy/wire/keys/test_wire_keys.py"
RECALLS = "tests/attacks/test_attacks_recalls.py"
RIGHTS = "tests/attacks/test_attacks_rights.py"
RINGS = "tests/attacks/test_attacks_rings.py"
ANY_MESSAGE = "tests/attacks/test_attacks_messages.py"
CONFINEMENT = "tests/attacks/test_attacks_confinement.py"
DIRECTORY = "tests/attacks/directory/test_attacks_directory.py"
SIGNED_DIRECTORY = "tests/attacks/directory/test_attacks_signed_directory.py"
LEAVES = "tests/upper_tree/owner/registrations/test_tree_leaf_inbox.py"
PUT_OFF = "tests/upper_tree/subscriber/test_tree_put_off.py"
LOCAL = "tests/attacks/machine/test_attacks_local.py"
OWNERS = "tests/attacks/test_attacks_owners.py"
POLICY = "tests/attacks/test_attacks_policy.py"
TENANTS = "tests/attacks/test_attacks_tenants.py"
TRANSPORT = "tests/attacks/test_attacks_transport.py"
VOTES = "tests/attacks/test_attacks_votes.py"


@fault("keys", RIGHTS, "test_a_hello_with_the_id_of_another_node_takes_nothing_over")
def security_believes_any_greeting() -> None:
    """A greeting may name another node than the certificate does."""

    def never(connection: LinkConnection, frame: Frame) -> bool:
        return False

    replace(is_of_another, never)


@fault("keys", RIGHTS, "test_a_peer_cannot_say_that_this_node_was_superseded")
def security_believes_that_it_is_superseded() -> None:
    """A node stops when any peer says that a later process has its id."""
    original = Handshake.on_superseded

    def believing(self: Handshake, connection: LinkConnection, frame: Superseded) -> None:
        connection.principal = ""
        original(self, connection, frame)

    replace(Handshake.on_superseded, believing)


@fault("keys", RIGHTS, "test_what_is_beyond_a_role_is_refused_and_the_session_closed")
def security_asks_for_no_rights() -> None:
    """Every message of an authenticated node is dispatched, whatever its role."""

    def nothing(sender: Principal, message: Message) -> str:
        return ""

    replace(refusal, nothing)


@fault("I3", VOTES, "test_a_vote_that_nobody_asked_for_is_not_believed")
def security_believes_epochs_of_strangers() -> None:
    """The epoch in a vote counts before it is looked who has sent it."""
    original = Election.on_vote_reply

    def early(self: Election, sender: Peer, message: VoteReply) -> None:
        self._highest_epoch = max(self._highest_epoch, message.voted_epoch)
        original(self, sender, message)

    replace(Election.on_vote_reply, early)


@fault("P2", RINGS, "test_an_outsider_alone_does_not_end_a_ring")
def security_believes_the_end_of_a_ring() -> None:
    """One node's word that a ring has ended is enough, whoever it is."""

    def always(self: Merging, sender: Peer, ring: str) -> bool:
        return True

    replace(Merging._believes, always)


@fault("promise: every event", EVENTS, "test_what_fails_the_recheck_does_not_count_as_seen")
def security_counts_forged_events_as_seen() -> None:
    """An event that fails the recheck counts as seen all the same."""

    def nothing(self: EventCounts, events: Iterable[Event]) -> None:
        return None

    replace(EventCounts.discard, nothing)


@fault("I12", INTEGERS, "test_a_hello_does_not_lift_the_limit_of_frames")
def security_takes_large_frames_of_anybody() -> None:
    """A frame may be large before the connection carries a session."""
    original = FrameReader.__init__

    def opened(self: FrameReader[object], format: FrameFormat[object]) -> None:
        original(self, format)
        self.open()

    replace(FrameReader.__init__, opened)


@fault("keys", TRANSPORT, "test_an_older_version_of_tls_is_refused")
def security_speaks_older_tls() -> None:
    """A node speaks TLS 1.2 as well."""
    original = new_context

    def older(is_server: bool) -> ssl.SSLContext:
        context = original(is_server)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        return context

    replace(new_context, older)


@fault("keys", TRANSPORT, "test_nobody_without_a_certificate_is_heard")
def security_asks_for_no_certificate() -> None:
    """The side that is dialled does not ask for a certificate."""
    original = new_context

    def trusting(is_server: bool) -> ssl.SSLContext:
        context = original(is_server)
        if is_server:
            context.verify_mode = ssl.CERT_NONE
        return context

    replace(new_context, trusting)


@fault("keys", TRANSPORT, "test_who_is_revoked_is_cut_off_and_not_let_in_again")
def security_ignores_revocations() -> None:
    """A certificate that the root vouches for is believed, though its node was revoked."""

    def believing(self: NodeSecurity, chain: Chain) -> Principal:
        return read_chain_der(chain).node.principal

    replace(NodeSecurity.identify, believing)


@fault("keys", TRANSPORT, "test_a_list_of_revocations_needs_the_issuers_signature")
def security_takes_lists_of_anybody() -> None:
    """Whoever signs a list of revocations or a certificate is taken for an authority."""

    def always(certificate: x509.Certificate, authorities: list[x509.Certificate]) -> bool:
        return True

    replace(is_signed_by, always)


@fault("keys", TRANSPORT, "test_an_address_has_so_many_accepts_in_a_second")
def security_accepts_without_bound() -> None:
    """An address may open as many connections as it likes."""

    def always(self: AcceptLimits, host: str, now: float) -> bool:
        return True

    replace(AcceptLimits.admits, always)


@fault("keys", KEYS, "test_a_token_gives_one_node_the_role_that_it_names")
def security_forgets_that_a_token_was_used() -> None:
    """An issuer does not note who has used a token."""
    original = KeyFolder.write_invitation

    def unused(self: KeyFolder, name: str, invitation: Invitation) -> None:
        if not invitation.used_by:
            original(self, name, invitation)

    replace(KeyFolder.write_invitation, unused)


@fault("keys", KEYS, "test_who_is_revoked_gets_nothing_more")
def security_renews_the_revoked() -> None:
    """An issuer renews certificates of nodes that were revoked."""

    def nothing(self: Issuing, node: str) -> None:
        return None

    replace(Issuing._check_revoked, nothing)


@fault("keys", KEYS, "test_keys_that_others_can_read_are_refused")
def security_uses_readable_keys() -> None:
    """A node uses keys that other users of the machine can read."""

    def nothing(self: KeyFolder) -> None:
        return None

    replace(KeyFolder.check, nothing)


@fault("policy", TENANTS, "test_what_a_tenant_asks_for_is_intersected_and_operators_are_not")
def policy_is_not_intersected() -> None:
    """Owners keep what a tenant asks for as it is."""

    def everything(self: Confinement, tenant: str, selector: str) -> str:
        return selector

    replace(Confinement.narrow, everything)


@fault("policy", TENANTS, "test_a_leaf_that_does_not_look_is_refused_by_the_first_host")
def policy_is_left_to_the_publisher() -> None:
    """The first host does not look at what a leaf publishes."""

    def as_it_is(*arguments: object) -> Ruling:
        message = arguments[-1]
        assert isinstance(message, Message)
        return Ruling(message)

    replace(outcome, as_it_is)


@fault("policy", TENANTS, "test_another_policy_reaches_the_subscriptions_that_there_are")
def policy_changes_only_what_comes() -> None:
    """Another policy holds for new registrations alone."""

    def nothing(self: PolicyChanges, event: PolicyChanged) -> None:
        return None

    replace(PolicyChanges.on_policy_changed, nothing)


@fault("policy", CONFINEMENT, "test_nothing_leaks")
def policy_permits_the_unknown() -> None:
    """What a policy is unknown for is permitted as if it were true."""

    def lenient(self: Confinement, tenant: str, attributes: Mapping[str, Value | None]) -> bool:
        may = self._predicate(self.of(tenant).subscribe)
        return may is not None and may.evaluate(attributes) is not False

    replace(Confinement.may_see, lenient)


@fault("policy", POLICY, "test_admins_and_issuers_sign_policies_and_nobody_else")
def policy_is_taken_of_anybody() -> None:
    """Whoever has a key can sign a policy."""

    def nothing(*arguments: object) -> None:
        return None

    replace(_check_signer, nothing)


@fault("policy", POLICY, "test_a_policy_never_goes_back")
def policy_goes_back() -> None:
    """An older policy that is put into the key folder is taken."""
    original = beliefs._newest_policy

    def file_alone(
        folder: KeyFolder, overlay: str, roots: list[x509.Certificate], former: Beliefs | None
    ) -> tuple[Policy | None, bytes, str]:
        return original(folder, overlay, roots, None)

    replace(beliefs._newest_policy, file_alone)


@fault(
    "policy",
    TENANTS,
    "test_without_a_policy_that_can_be_applied_tenants_may_nothing",
)
def policy_is_not_needed() -> None:
    """Where there is no policy, or none that can be read, tenants may do anything."""
    original = Confinement.of

    def open_to_all(self: Confinement, tenant: str) -> TenantPolicy:
        return TenantPolicy("TRUE", "TRUE") if self.reason else original(self, tenant)

    def never(self: Confinement, tenant: str) -> str:
        return ""

    replace(Confinement.of, open_to_all)
    replace(Confinement.denial, never)


@fault("I3", OWNERS, "test_a_voter_that_does_not_own_the_tree_gives_no_orders")
def security_obeys_any_voter() -> None:
    """A host takes the orders of every voter."""

    def always(self: OwnerClaims, node: NodeId, cluster: Cluster | None) -> bool:
        return True

    replace(OwnerClaims._is_known, always)


@fault("I8", RECALLS, "test_a_voter_that_owns_no_tree_recalls_nothing")
def security_believes_recalls_of_any_voter() -> None:
    """A publisher drops what it knows, and rejects answers, as any voter says."""

    def always(self: OwnerClaims, sender: Peer, message: Message) -> None:
        self._take(sender, message)

    replace(OwnerClaims.take, always)


@fault("keys", ANY_MESSAGE, "test_nothing_is_relayed_where_nodes_have_keys")
def security_takes_relayed_frames() -> None:
    """A node with keys takes what a helper brings of another node."""

    def lenient(sender: Principal, message: Message, honest: object = refusal) -> str:
        assert callable(honest)
        return "" if isinstance(message, Relayed) else str(honest(sender, message))

    replace(refusal, lenient)


@fault("keys", TRANSPORT, "test_a_flood_is_refused_before_anything_is_made_for_it")
def security_looks_at_floods() -> None:
    """Connections beyond what an address may have are accepted."""

    def always(self: AcceptLimits, host: str, now: float) -> bool:
        return True

    replace(AcceptLimits.admits, always)


@fault("keys", TRANSPORT, "test_addresses_of_one_ipv6_network_are_one")
def security_counts_single_addresses() -> None:
    """Each IPv6 address has limits of its own."""

    def as_it_is(host: str) -> str:
        return host

    replace(whose, as_it_is)


@fault("keys", DIRECTORY, "test_a_datagram_from_elsewhere_draws_none")
def security_directory_answers_anybody() -> None:
    """The directory answers datagrams whatever their source is."""

    def always(host: str) -> bool:
        return True

    replace_constant(kademlia_fixes, "is_loopback", always)


@fault("keys", SIGNED_DIRECTORY, "test_no_address_is_sent_more_than_was_sent_in_its_name")
def security_directory_asks_for_no_cookie() -> None:
    """Where nodes have keys the directory does not look whether an address receives."""

    def always(self: Cookies, cookie: bytes, address: Address) -> bool:
        return True

    replace(Cookies.holds, always)


@fault("keys", SIGNED_DIRECTORY, "test_what_no_node_has_signed_is_not_read")
def security_directory_believes_any_record() -> None:
    """A record of the directory is believed, whoever has signed it."""

    def always(self: DirectoryKeys, node: NodeId, chain: Chain) -> bool:
        return True

    replace(DirectoryKeys.vouches, always)


@fault("keys", TENANTS, "test_a_leaf_over_its_quota_is_refused_and_hears_why")
def security_has_no_quotas() -> None:
    """A leaf may ask for as much as it likes."""

    def nothing(self: Quotas, sender: Principal, message: Message) -> None:
        return None

    replace(Quotas.outcome, nothing)


@fault("keys", TENANTS, "test_a_leaf_hears_at_once_that_it_has_its_share")
def security_leaves_do_not_look_at_their_share() -> None:
    """A leaf's node registers whatever its programs ask for, and these wait for what owners do not
    take."""

    def never(registrations: int, trees: int, most: int) -> str:
        return ""

    replace(over_share, never)


@fault("keys", TENANTS, "test_an_owner_takes_no_more_of_a_leaf_that_does_not_look")
def security_owners_take_all_of_a_leaf() -> None:
    """An owner does not look at what a leaf has, and plants all trees that it asks for."""

    def always(
        self: LeafQuota, registration: Registration, held: LeafHoldings, fresh: int, plants: bool
    ) -> bool:
        return True

    replace(LeafQuota.takes, always)


@fault("keys", TENANTS, "test_a_leaf_that_registers_much_waits_and_delays_nobody_else")
def security_leaves_register_as_others_do() -> None:
    """An owner takes the registrations of leaves as they come, like those of other nodes."""

    def enqueue(self: Registry, sender: Peer, message: Message) -> None:
        self.inbox.take(sender, message)

    replace(Registry.enqueue, enqueue)


@fault("keys", LEAVES, "test_leaves_have_their_turns_one_after_the_other")
def security_first_leaf_is_done_first() -> None:
    """An owner does all that one leaf has asked for before it comes to the next."""
    original = LeafInbox._pop

    def _pop(self: LeafInbox) -> tuple[Peer, Message, int]:
        found = original(self)
        queue = self._waiting.pop(found[0].id, None)
        if queue is not None:
            self._waiting = {found[0].id: queue, **self._waiting}
        return found

    replace(original, _pop)


@fault("keys", LEAVES, "test_what_waits_is_bounded_and_each_leaf_has_its_part")
def security_leaves_wait_without_bound() -> None:
    """Whatever leaves ask an owner for waits there until its turn."""
    original = LeafInbox.take

    def take(self: LeafInbox, sender: Peer, message: Message) -> None:
        for part in leaf_inbox.pieces(message):
            self._weights.pop(sender.id, None)
            original(self, sender, part)

    replace(original, take)


@fault("keys", PUT_OFF, "test_what_was_put_off_is_sent_again_when_it_may_be")
def security_put_off_is_not_heard() -> None:
    """A leaf sends again as ever what an owner has put off."""

    def on_come_again(self: Registrar, sender: Peer, message: ComeAgain) -> None:
        self.port.count("registrations_put_off", len(message.registrations))

    replace(Registrar.on_come_again, on_come_again)


@fault("keys", PUT_OFF, "test_nobody_puts_off_what_was_asked_of_others_or_is_acknowledged")
def security_anybody_puts_off() -> None:
    """A leaf believes of whoever says so that its registrations are put off."""
    original = Registrar.on_come_again

    def on_come_again(self: Registrar, sender: Peer, message: ComeAgain) -> None:
        for key in message.registrations:
            if (local := self.registrations.get(key)) is not None:
                self._local.move((local,), sender.id)
        original(self, sender, message)

    replace(original, on_come_again)


@fault("keys", TENANTS, "test_a_leaf_that_asks_too_much_hears_so_a_few_times_a_second")
def security_each_refusal_is_answered() -> None:
    """A leaf gets an answer for each message that is over its quota."""
    replace_constant(quotas, "ANSWERS", 1e9)


@fault("keys", TENANTS, "test_an_owner_takes_no_more_of_a_leaf_that_does_not_look")
def security_owners_plant_all_trees_of_a_leaf() -> None:
    """How many trees an owner plants for one leaf in a while is not bounded."""

    def always(self: LeafQuota, node: NodeId) -> bool:
        return True

    replace(LeafQuota._plants, always)


@fault("keys", TENANTS, "test_an_owner_takes_no_more_of_a_leaf_that_does_not_look")
def security_owners_count_what_has_ended() -> None:
    """What a leaf has ended counts as what it has."""

    def nothing(self: LeafHoldings, registration: Registration) -> None:
        return

    replace(LeafHoldings.removed, nothing)


@fault("C11", TENANTS, "test_leaves_get_what_they_want_and_pass_nothing_on")
def security_delegates_to_leaves() -> None:
    """Hosts do not look whether a delegate is a leaf, whose deliveries others refuse."""

    def never(self: Hosting, node: NodeId) -> bool:
        return False

    replace(Hosting.is_leaf, never)


@fault("keys", LOCAL, "test_no_line_is_changed_taken_out_or_put_in_unseen")
def security_audit_does_not_chain() -> None:
    """A line of the audit file has the hash of itself alone."""
    original = audit._hash

    def alone(before: str, line: dict[str, object]) -> str:
        return original("", line)

    replace(audit._hash, alone)


@fault("keys", LOCAL, "test_programs_of_other_users_are_refused")
def security_serves_all_users() -> None:
    """A node does not look whose program is at its control socket."""

    def always(stream: object) -> bool:
        return True

    replace(is_own_user, always)


@fault("keys", LOCAL, "test_a_token_is_shown_nowhere")
def security_shows_tokens() -> None:
    """`canopy config check` prints the token that is configured."""

    def as_it_is(join: str) -> str:
        return join

    replace(shown_token, as_it_is)


@fault("keys", TRANSPORT, "test_keys_of_one_address_or_tenant_leave_room_for_others")
def connections_of_one_address_unbounded() -> None:
    """Who has many keys may have all connections of a node."""

    def nothing(self: TrioDriver, new: Connection, host: str) -> None:
        return None

    replace(TrioDriver._bound_shared, nothing)


@fault("keys", LOCAL, "test_a_reload_says_that_keys_are_refused")
def reload_hides_refused_keys() -> None:
    """A reload whose keys are refused is reported as done."""
    original = NodeSecurity.reload

    def silent(self: NodeSecurity) -> str:
        original(self)
        return ""

    replace(NodeSecurity.reload, silent)
