"""Faults of what keeps out strangers, ids that nobody has certified, and tenants in each other's
names.
"""

from __future__ import annotations

import ssl

from cryptography import x509

from bench.mutations.planting import fault, replace, replace_constant
from canopy.wire.keys import certificates
from canopy.wire.keys.certificates import KeySigner
from canopy.wire.process.node_process import NodeProcess
from canopy.wire.transport import connection
from canopy.wire.transport.accept_limits import HandshakeTurns
from canopy.wire.transport.local_users import Address, SocketOwner, owner_of
from canopy.wire.transport.tls import TlsPipe, new_context
from overlay.machine import Message
from overlay.rights import Principal, refusal
from overlay.upper_tree.messages import Register
from streams.shard.hosting.shard_hosts import ShardHosts
from streams.tenant_rules import named

NO_CHECK_TIME = ssl.VerifyFlags(0x200000)
"""OpenSSL's, which Python does not name."""

TRANSPORT = "tests/attacks/test_attacks_transport.py"
TENANTS = "tests/attacks/test_attacks_tenants.py"
USERS = "tests/attacks/machine/test_attacks_users.py"


@fault(
    "A7",
    "tests/attacks/certificates/test_attacks_certificates.py",
    "test_a_strange_certificate_at_the_issuer_ends_its_connection_alone",
)
def strangers_end_nodes_by_certificates() -> None:
    """Of what a certificate's reader raises only the usual is caught."""
    replace_constant(certificates, "UNREADABLE", (ValueError, x509.ExtensionNotFound))


@fault("A9", TRANSPORT, "test_what_comes_after_a_goodbye_is_not_kept")
def strangers_are_heard_after_their_goodbye() -> None:
    """What comes after a peer's goodbye in TLS is kept."""
    original = TlsPipe.decrypt

    def deaf(self: TlsPipe, data: bytes | bytearray) -> bytes:
        self.is_over = False
        return original(self, data)

    replace(TlsPipe.decrypt, deaf)


@fault(
    "A8",
    "tests/canopy/wire/keys/test_wire_keys.py",
    "test_who_is_revoked_is_so_under_every_later_id_of_its_key",
)
def revoked_keys_have_other_ids() -> None:
    """Who is revoked is believed under the next id of its key."""

    replace(certificates.ids_of, lambda key, generation: (certificates.node_id(key, generation),))


@fault(
    "A38",
    "tests/attacks/test_attacks_sampling.py",
    "test_ids_that_the_overlay_has_not_certified_enter_no_view",
)
def views_take_ids_that_nobody_has_certified() -> None:
    """An entry of a view whose node has signed it is good, whoever made its key."""

    replace(KeySigner.vouches, lambda self, node, chain, votes=False: True)


@fault("A27", TENANTS, "test_a_registration_replaces_no_other_node_s")
def registrations_replace_those_of_others() -> None:
    """A node may register under the id of another's registration."""
    original = refusal

    def any_id(sender: Principal, message: Message) -> str:
        return "" if isinstance(message, Register) else original(sender, message)

    replace(refusal, any_id)


@fault("A27", TENANTS, "test_names_by_which_programs_end_one_another_are_each_tenant_s_own")
def tenants_read_as_others() -> None:
    """A tenant's durable consumers and producers have the names that its programs give them."""

    replace(named, lambda sender, name: name)


@fault("A42", USERS, "test_another_user_of_the_machine_is_refused")
def users_of_the_machine_are_heard() -> None:
    """A socket that its program has closed counts as root's, as kernels show it."""

    def whoever(family: int, local: Address, remote: Address) -> SocketOwner | None:
        found = original(family, local, remote)
        return found if found is None or found.inode else SocketOwner(0, 1)

    original = owner_of
    replace(owner_of, whoever)


@fault("A42", USERS, "test_no_hello_ends_a_node_whose_id_is_locked_on_the_machine")
def users_end_nodes_by_a_greeting() -> None:
    """Without keys a Hello with the node's own id ends its process, whoever says it."""

    replace(NodeProcess._is_alone_with_its_id, lambda self: False)


@fault("A9", TRANSPORT, "test_handshakes_of_all_other_machines_have_one_rate")
def strangers_handshakes_have_no_rate() -> None:
    """Handshakes begin as they come, from however many addresses."""

    async def at_once(self: HandshakeTurns, host: str) -> None:
        return None

    replace(HandshakeTurns.wait, at_once)


@fault("A18", TRANSPORT, "test_a_peer_that_never_reads_is_cut_off_at_a_bound")
def who_never_reads_is_written_to() -> None:
    """What is queued for a peer that does not read has no bound."""
    replace_constant(connection, "QUEUE_LIMIT", 1 << 40)


@fault(
    "A24",
    "tests/attacks/test_attacks_shards.py",
    "test_who_has_no_part_in_a_shard_neither_destroys_nor_stops_it",
)
def shards_hear_any_member() -> None:
    """A replica of a shard hears members that have no part in it."""

    replace(ShardHosts._may_speak, lambda self, hosted, node, message: True)


@fault("A4", TRANSPORT, "test_a_certificate_holds_for_its_time[expired]")
def certificates_hold_for_ever() -> None:
    """TLS does not look when a certificate holds."""
    original = new_context

    def timeless(is_server: bool) -> ssl.SSLContext:
        context = original(is_server)
        context.verify_flags |= NO_CHECK_TIME
        return context

    replace(new_context, timeless)
