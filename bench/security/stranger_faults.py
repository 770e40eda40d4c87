"""Faults of what keeps out strangers, ids that nobody has certified, and tenants in each other's
names."""

from __future__ import annotations

from collections import OrderedDict

from cryptography import x509

from bench.mutations.planting import fault, replace, replace_constant
from canopy.gateway.mqtt import messages
from canopy.gateway.serving import Doors
from canopy.wire import driver
from canopy.wire.admin import http
from canopy.wire.keys import certificates
from canopy.wire.keys.signing import KeySigner
from canopy.wire.process.node_process import NodeProcess
from canopy.wire.process.security import NodeSecurity
from canopy.wire.sparing import Sparing
from canopy.wire.transport.handshake_turns import HandshakeTurns
from canopy.wire.transport.local_users import Address, Owner, owner_of
from canopy.wire.transport.tls import TlsPipe
from overlay.hybrid_clock import HybridClock
from overlay.links.signing import Chain
from overlay.machine import Message, NodeId
from overlay.rights import Principal, refusal
from overlay.tenants import quotas
from overlay.tenants.quotas import Quotas
from overlay.upper_tree import sliced_inbox
from overlay.upper_tree.messages import Register
from streams.services.append import append_server
from streams.tenant_rules import named

CERTIFICATES = "tests/attacks/certificates/test_attacks_certificates.py"
CLOCKS = "tests/links/test_links_hybrid_clock.py"
GATEWAY = "tests/canopy/gateway/test_gateway_parts.py"
INBOX = "tests/upper_tree/test_tree_sliced_inbox.py"
KEYS = "tests/canopy/wire/keys/test_wire_keys.py"
PLACES = "tests/canopy/gateway/test_gateway_places.py"
SAMPLING = "tests/attacks/test_attacks_sampling.py"
TENANTS = "tests/attacks/test_attacks_tenants.py"
USERS = "tests/attacks/machine/test_attacks_users.py"
TRANSPORT = "tests/attacks/test_attacks_transport.py"
WATCHED = "tests/canopy/wire/admin/test_wire_admin.py"


@fault(
    "keys",
    CERTIFICATES,
    "test_a_strange_certificate_at_the_issuer_ends_its_connection_alone",
)
def strangers_end_nodes_by_certificates() -> None:
    """Of what a certificate's reader raises only the usual is caught."""
    replace_constant(certificates, "UNREADABLE", (ValueError, x509.ExtensionNotFound))


@fault("keys", TRANSPORT, "test_what_comes_after_a_goodbye_is_not_kept")
def strangers_are_heard_after_their_goodbye() -> None:
    """What comes after a peer's goodbye in TLS is kept."""
    original = TlsPipe.decrypt

    def deaf(self: TlsPipe, data: bytes | bytearray) -> bytes:
        self.is_over = False
        return original(self, data)

    replace(TlsPipe.decrypt, deaf)


@fault("keys", TRANSPORT, "test_in_a_flood_from_many_addresses_the_oldest_stranger_goes")
def strangers_take_all_places() -> None:
    """Nobody makes room for others who are not authenticated either."""

    class Endless(OrderedDict[object, object]):
        def __len__(self) -> int:
            return 0

    replace_constant(driver, "OrderedDict", Endless)


@fault("keys", TRANSPORT, "test_what_strangers_do_is_written_down_sparingly")
def strangers_fill_the_log() -> None:
    """Each thing that a stranger does has its line in the log and in the audit file."""

    def always(self: Sparing, kind: str) -> int:
        return 1

    replace(Sparing.due, always)


@fault("keys", KEYS, "test_who_is_revoked_is_so_under_every_later_id_of_its_key")
def revoked_keys_have_other_ids() -> None:
    """Who is revoked is believed under the next id of its key."""

    def alone(key: bytes, generation: int) -> tuple[NodeId, ...]:
        return (certificates.node_id(key, generation),)

    replace(certificates.ids_of, alone)


@fault("keys", SAMPLING, "test_ids_that_the_overlay_has_not_certified_enter_no_view")
def views_take_ids_that_nobody_has_certified() -> None:
    """An entry of a view whose node has signed it is good, whoever made its key."""

    def anybody(self: KeySigner, node: NodeId, chain: Chain, votes: bool = False) -> bool:
        return True

    replace(KeySigner.vouches, anybody)


@fault("keys", SAMPLING, "test_a_node_that_is_revoked_leaves_what_others_say_of_views")
def views_keep_who_is_revoked() -> None:
    """What was found of a node's certificate is believed after it was revoked."""
    original = NodeSecurity.vouches
    known: dict[Chain, bool] = {}

    def once(self: NodeSecurity, node: NodeId, chain: Chain, votes: bool = False) -> bool:
        if chain not in known:
            known[chain] = original(self, node, chain, votes)
        return known[chain]

    replace(NodeSecurity.vouches, once)


@fault("promise: every event", TENANTS, "test_a_registration_replaces_no_other_node_s")
def registrations_replace_those_of_others() -> None:
    """A node may register under the id of another's registration."""
    original = refusal

    def any_id(sender: Principal, message: Message) -> str:
        return "" if isinstance(message, Register) else original(sender, message)

    replace(refusal, any_id)


@fault("keys", TENANTS, "test_names_by_which_programs_end_one_another_are_each_tenant_s_own")
def tenants_read_as_others() -> None:
    """A tenant's durable consumers and producers have the names that its programs give them."""

    def as_said(sender: Principal, name: str) -> str:
        return name

    replace(named, as_said)


@fault("keys", TENANTS, "test_nobody_appends_as_another_node")
def nodes_append_as_others() -> None:
    """A node may append as another node itself does."""

    def never(sender: object, producer: str) -> None:
        return None

    replace(append_server._check, never)


@fault("keys", TENANTS, "test_long_selectors_of_a_leaf_are_taken_a_few_at_a_time")
def leaves_register_long_selectors() -> None:
    """How much of long selectors a leaf asks for is not bounded."""

    def whole(self: Quotas, sender: Principal, message: Message) -> tuple[Message | None, int]:
        return message, 0

    replace(Quotas.shortened, whole)


@fault("keys", TENANTS, "test_what_costs_much_to_answer_counts_for_many_questions")
def leaves_ask_for_much_at_once() -> None:
    """Renewals and questions for documents have no quota."""
    costs = {k: 1 for k in quotas.QUESTION_COSTS if k not in ("Renew", "DocumentVersion")}
    replace_constant(quotas, "QUESTION_COSTS", costs)


@fault("C6", INBOX, "test_a_long_selector_counts_for_as_many_as_it_costs")
def long_selectors_count_as_short_ones() -> None:
    """A turn takes as many registrations with long selectors as with short ones."""
    replace_constant(sliced_inbox, "LONG_PER", 1 << 30)


@fault("traces", CLOCKS, "test_who_lies_takes_nobody_further_than_a_day_ahead_of_its_own_clock")
def clocks_follow_any_other() -> None:
    """A hybrid logical clock follows whoever is ahead, however far."""
    original = HybridClock.observe

    def believing(self: HybridClock, seen: int) -> None:
        self._own = None
        original(self, seen)

    replace(HybridClock.observe, believing)


@fault("health", WATCHED, "test_callers_are_bounded_and_who_says_nothing_is_disconnected")
def silent_callers_keep_probes_out() -> None:
    """Who opens connections to the metrics and says nothing keeps all others out."""

    class Empty(OrderedDict[object, object]):
        def __bool__(self) -> bool:
            return False

    replace_constant(http, "OrderedDict", Empty)


@fault("gateway", PLACES, "test_one_more_ends_the_connection_that_has_shown_no_token_for_longest")
def silent_connections_fill_the_gateway() -> None:
    """Who opens connections to the gateway and shows no token keeps all others out."""

    def full(self: Doors) -> bool:
        return self._open < self._most

    replace(Doors._has_room, full)


@fault("gateway", GATEWAY, "test_what_mqtt_cannot_carry_is_left_out_and_ends_no_subscriber")
def an_event_ends_all_mqtt_subscribers() -> None:
    """Texts that MQTT forbids, or that are too long for it, are sent all the same."""

    def always(text: str) -> bool:
        return True

    replace(messages._fits, always)


@fault("keys", USERS, "test_another_user_of_the_machine_is_refused")
def users_of_the_machine_are_heard() -> None:
    """A socket that its program has closed counts as root's, as kernels show it."""

    def whoever(family: int, local: Address, remote: Address) -> Owner | None:
        found = original(family, local, remote)
        return found if found is None or found.inode else Owner(0, 1)

    original = owner_of
    replace(owner_of, whoever)


@fault("keys", USERS, "test_no_hello_ends_a_node_whose_id_is_locked_on_the_machine")
def users_end_nodes_by_a_greeting() -> None:
    """Without keys a Hello with the node's own id ends its process, whoever says it."""

    def never(self: NodeProcess) -> bool:
        return False

    replace(NodeProcess._is_alone_with_its_id, never)


@fault("keys", TRANSPORT, "test_handshakes_of_all_other_machines_have_one_rate")
def strangers_handshakes_have_no_rate() -> None:
    """Handshakes begin as they come, from however many addresses."""

    async def at_once(self: HandshakeTurns, host: str) -> None:
        return None

    replace(HandshakeTurns.wait, at_once)
