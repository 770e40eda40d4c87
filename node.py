"""One peer: builds its machines and routes messages between them; decides nothing.

An input from the driver is a *turn*: the machine that owns it runs, then everything it sent to this
node itself and every local event, in order, until nothing is left; then the links flush one frame
per peer. Machines are built from below to above, which is also the order in which listeners of one
local event hear it.

    driver ─► Links ─► dispatch table ─► machines ─► Port (this node) ─► Links ─► driver

Run as a script this file is `canopy node`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, NamedTuple

from msgspec.structs import replace

from overlay.chord.clusters import Clusters
from overlay.chord.events import RingKnown, RoleChanged
from overlay.chord.ring.ring import Ring
from overlay.client import Command, Done, Drain, Failed, GetPeers, GetStatus
from overlay.driver import Driver, Vitals
from overlay.health import Health, HealthReport
from overlay.incidents import FAULT, IncidentLog, contain
from overlay.links.events import (
    Codec,
    ConnectionId,
    IdentityConflict,
    LinkContext,
    LinkDown,
    SeedFailed,
    SeedReached,
)
from overlay.links.links import Links
from overlay.links.messages import Frame, ProcessName
from overlay.links.statements import Signer, Tokens
from overlay.lower_random.access_points import AccessPoints
from overlay.lower_random.clock_offsets import ClockOffsets
from overlay.lower_random.crawl import Crawl
from overlay.lower_random.documents import REVOCATIONS, Documents, DocumentStore
from overlay.lower_random.peer_records import PeerRecords
from overlay.lower_random.policies import POLICY, Policies, PolicyStore
from overlay.lower_random.relays import Relaying
from overlay.lower_random.view import View
from overlay.machine import InnerReply, LocalEvent, Machine, Message, NodeId, Peer, Stored
from overlay.reports import Reports
from overlay.rights import Principal, Role
from overlay.settings import Settings
from overlay.tenants.confinement import RULES
from overlay.tenants.guard import Guard, settings_for
from overlay.turns import Turns
from overlay.upper_tree.clients.clients import LocalClients
from overlay.upper_tree.clients.dry_run import DryRuns
from overlay.upper_tree.clients.explanations import Explanations
from overlay.upper_tree.clients.inspection import Inspection
from overlay.upper_tree.delivery.delegation import Delegation
from overlay.upper_tree.delivery.delivery_tokens import OwnToken
from overlay.upper_tree.delivery.gap_notices import GapNotices
from overlay.upper_tree.delivery.relays import Relays
from overlay.upper_tree.event_history import EventHistory
from overlay.upper_tree.event_proofs import ProofCheck, proofs_of
from overlay.upper_tree.host.host import Hosting
from overlay.upper_tree.host.host_offers import HostOffers
from overlay.upper_tree.owner.owner import Owner
from overlay.upper_tree.owner.rebalance import Rebalance
from overlay.upper_tree.owner.registrations.policy_changes import PolicyChanges
from overlay.upper_tree.owner.registrations.registry import Registry
from overlay.upper_tree.owner.registrations.registry_merge import ArcMerge, RegistryMerge
from overlay.upper_tree.owner.registrations.restoration import TreeRestoration
from overlay.upper_tree.publisher.location_cache import LocationCache
from overlay.upper_tree.publisher.publications import Publications
from overlay.upper_tree.publisher.publisher import Publisher
from overlay.upper_tree.publisher.replicas import ReplicaSelector
from overlay.upper_tree.publisher.tree_finder import TreeFinder
from overlay.upper_tree.subscriber.receiver import Receiver
from overlay.upper_tree.subscriber.registrar import Registrar
from overlay.upper_tree.summaries.cache_holders import CacheHolders
from overlay.upper_tree.summaries.summary_server import SummaryServer
from streams.machines import StreamMachines
from streams.shard.hosting.shard_hosts import ShardsReleased
from streams.tenant_rules import STREAM_RULES


class LocalNode(NamedTuple):
    """This node's identity, and that of its process."""

    me: Peer
    incarnation: int
    """It grows with each start from one data folder."""
    overlay: str = "canopy"
    """Nodes of two overlays never link."""
    name: str = ""
    """The name that its operators gave it."""
    boot: int = 0
    """When the process was started: it distinguishes copies of a data folder. 0: unknown."""


class Credentials(NamedTuple):
    """The certificate, keys and trust of a node, in an overlay with keys."""

    role: Role | None = None
    """None: nodes have no keys."""
    tenant: str = ""
    revocations: DocumentStore | None = None
    policy: PolicyStore | None = None
    """This and `revocations` keep what the overlay's operators have signed."""
    signer: Signer | None = None
    """Signs as this node."""


class Node:
    """A peer, to be driven by trio (canopy/wire/) or by a virtual world (canopy/sim/): implements
    `overlay.driver.DrivenNode` for its driver, and `overlay.machine.Port` for its machines."""

    def __init__(
        self,
        local: LocalNode,
        settings: Settings,
        rng: Random,
        codec: Codec,
        driver: Driver,
        seeds: Sequence[str] = (),
        restored: Sequence[bytes] = (),
        credentials: Credentials | None = None,
    ) -> None:
        """`restored` is what was stored, in order. With `credentials` no peer is believed that the
        driver has not authenticated."""
        keys = credentials or Credentials()
        role = keys.role
        self.me = local.me
        self.rng = rng
        self.settings = settings if role is None else settings_for(role, settings)
        self.incarnation = local.incarnation
        self.name = local.name
        self.driver = driver
        self.turns = Turns(driver.clock, lambda: self.count("refused_late"))
        self.now = self.turns.now
        """Monotonic seconds, the same for a whole turn."""
        # What a Port offers and others do: bound here, not wrapped.
        self.processors = driver.processors
        self.set_timer, self.cancel_timer = self.turns.set_timer, self.turns.cancel_timer
        self.emit = self.turns.emit
        self.share = driver.share
        self.store, self.store_later = driver.store, driver.store_later
        self.trace_marks, self.sampled = driver.trace_marks, driver.sampled
        self.trace_unmatched, self.row_share = driver.trace_unmatched, driver.row_share
        self.schemas = driver.schemas
        self.counters: dict[str, int] = {}
        self.health = Health(self)
        self.signer = keys.signer
        self.draining = False
        self.conflict: IdentityConflict | None = None
        self._seeds = dict.fromkeys(seeds, "not tried yet")
        self._watched: dict[str, tuple[Peer, ...]] = {}
        self._ready = self._ring_known = False
        counting = settings.tree.routing == "counting"
        self.policies = Policies(self, keys.policy, keys.tenant, counting, role is Role.LEAF)
        self.history = EventHistory(settings.tree.history)
        self.proofs = proofs_of(keys.signer, settings.tree.sign, self.wall_seconds)
        dispatch = self._proven(self.turns.dispatch)
        rules = {**RULES, **STREAM_RULES}
        self.guard = Guard(self, role, keys.tenant, rules, self.policies, dispatch)
        self._build(codec, local, restored, keys)

    # --- building ---

    def _build(
        self, codec: Codec, local: LocalNode, restored: Sequence[bytes], keys: Credentials
    ) -> None:
        settings = self.settings
        self._build_lower(settings, codec, local, keys)
        self.clusters = Clusters(
            self,
            settings.cluster,
            self.ring,
            self.view,
            not self._seeds,
            settings.election,
            restored,
            self.health,
        )
        self._build_owner(settings)
        self._build_hosting(settings)
        self._build_publisher(settings)
        self._build_subscriber(settings)
        self._build_clients(settings)
        self.machines = self._in_order()
        self.turns.build(self.machines)
        self._listen()
        self._commands = self.carriers()

    def _build_lower(
        self, settings: Settings, codec: Codec, local: LocalNode, keys: Credentials
    ) -> None:
        """Build the links, and the machines that know other nodes."""
        context = LinkContext(
            self.me,
            ProcessName.of(self.me, self.incarnation, local.boot),
            local.overlay,
            settings.links,
            self.rng,
            self.driver.clock,
            self.driver.hybrid,
            self.emit,
            self.count,
            self.trace,
        )
        most = settings.view.seed_retry_most
        self.links = Links(context, codec, self.driver, self.guard.dispatch, most)
        points = self.access_points = AccessPoints(self, settings.view, self.health)
        view = self.view = View(
            self,
            settings.view,
            points,
            self._offered_load,
            self.guard,
            PeerRecords(self.me, self.signer, self.wall_seconds),
        )
        self.relaying = Relaying(self, view, self.links)
        if not self.guard.is_keyed:  # what it carries is not authenticated
            self.links.use_detours(self.relaying)
        self.clock_offsets = ClockOffsets(self, view, self.links, self.driver.wall)
        stores = {REVOCATIONS: keys.revocations, POLICY: keys.policy}
        self.documents = Documents(self, stores, view, spreads=not self.guard.is_leaf)
        self.crawl = Crawl(self, settings.walk, view, points, self.health)
        self.ring = Ring(self, settings.ring, self.guard, self.signer)

    def _offered_load(self) -> int:
        """Per cent of what this node can host that is asked of it: all where it is sub-healthy, so
        that others are recruited first."""
        return self.hosting.load if self.health.own is None else 100

    def _build_owner(self, settings: Settings) -> None:
        """Build the machines that decide about the trees that this node owns."""
        self.owner = Owner(self, settings, self.clusters, self.ring, self.signer)
        self.restoration = TreeRestoration(self, self.owner)
        self.cache_holders = CacheHolders(self, settings, self.owner, self.restoration)
        self.summaries = SummaryServer(
            self, settings, self.owner, self.cache_holders, self.restoration
        )
        self.registry = Registry(
            self,
            settings,
            self.owner,
            self.summaries,
            self.restoration,
            self.policies,
            self.guard,
        )
        self.rebalance = Rebalance(self, settings, self.owner)
        self.registry_merge = RegistryMerge(
            self, settings, self.clusters, self.owner, self.registry, self.summaries
        )
        self.arc_merge = ArcMerge(self, self.clusters, self.owner, self.summaries)

    def _build_hosting(self, settings: Settings) -> None:
        """Build the machines that host virtual nodes of others' trees."""
        view = self.view
        relays = Relays(self, view.peers, view.tiered_peers, self._passes_on, self._may_delegate)
        self.notices = GapNotices(self)
        self.hosting = Hosting(
            self,
            settings,
            self.access_points,
            self.ring,
            relays,
            self.notices,
            is_confined=bool(self.policies.tenant),
            is_keyed=self.guard.role is not None,
        )
        self.holding = self.hosting.holding
        self.host_offers = HostOffers(
            self, settings, self.hosting.assigned, self.clusters.idle_peers
        )

    def _build_publisher(self, settings: Settings) -> None:
        """Build the machines that find trees and send events there."""
        replicas = ReplicaSelector.configured(self.me, settings.tree, self.health, self.processors)
        locations = LocationCache.configured(settings.tree, replicas)
        finding = (self, settings, self.crawl, self.ring, locations)
        self.finder = TreeFinder(*finding, is_keyed=self.guard.role is not None)
        self.publisher = Publisher(
            self,
            settings,
            self.incarnation,
            self.finder,
            locations,
            self.access_points,
            self.history,
            self.hosting.copies,
            self.proofs,
        )
        self.publications = Publications(self, self.publisher, self.policies)

    def _build_subscriber(self, settings: Settings) -> None:
        """Build the machines that register subscriptions and show deliveries."""
        own = OwnToken(Tokens(self.signer), self.incarnation, self.now)
        self.registrar = Registrar(
            self, settings, self.incarnation, self.ring, self.guard.is_leaf, own.token
        )
        self.receiver = Receiver(self, settings, self.history, self.incarnation, own)
        self.delegation = Delegation(self, self.hosting.copies, self.holding)

    def _build_clients(self, settings: Settings) -> None:
        """Build the machines that answer programs and operators, and those of streams."""
        self.clients = LocalClients(
            self,
            self.incarnation,
            self.registrar,
            self.receiver,
            self.history,
            self.policies,
            settings,
            self.wall_seconds,
        )
        self.reports = Reports(
            self.links,
            self.view,
            self.clusters,
            self.ring,
            self.hosting,
            self.clients,
            self.publications,
            self.registrar,
            self.host_offers,
            self.health,
        )
        self.inspection = Inspection(self, self.owner, self.ring, self.health)
        self.dry_runs = DryRuns(self, settings, self.owner, self.restoration, self.ring)
        self.streams = StreamMachines(
            self,
            self.driver.logs,
            self.ring,
            self.owner,
            self.view.peers,
            self.incarnation,
            self.driver.wall,
            self._carry_out,
            self.clients.client_closed,
            self.guard.is_keyed,
        )

    def _in_order(self) -> tuple[Machine, ...]:
        """Return all machines, in the order in which they hear local events."""
        return (
            self.access_points,
            self.view,
            self.crawl,
            self.relaying,
            self.ring,
            self.clusters,
            self.owner,
            self.owner.hosts,
            self.owner.pool,
            self.restoration,
            self.cache_holders,
            self.summaries,
            self.registry.ends,
            self.registry,
            self.rebalance,
            self.hosting,
            self.host_offers,
            *self.finder.machines,
            self.publisher,
            self.publications,
            self.registrar,
            self.receiver,
            self.delegation,
            self.notices,
            self.holding,
            self.clients,
            self.inspection,
            Explanations(self, self.clients, self.reports.query_targets, self.policies),
            self.dry_runs,
            IncidentLog(self),
            self.registry_merge,
            self.arc_merge,
            self.documents,
            self.policies,
            PolicyChanges(self, self.policies, self.owner, self.registry),
            self.clock_offsets,
            *self.streams.machines,
        )

    def _proven(self, dispatch: Callable[[Peer, Message], None]) -> Callable[[Peer, Message], None]:
        """`dispatch`, of what is left of messages without events that are not signed, where that is
        wanted."""
        if self.proofs is None:
            return dispatch
        return ProofCheck(
            self.proofs,
            self.history,
            self,
            dispatch,
            self.driver.note,
        ).dispatch

    def _passes_on(self, node: NodeId) -> bool:
        return self.guard.takes_part(node) and not self.hosting.assigned.is_leaf(node)

    def _may_delegate(self, node: NodeId) -> bool:
        return self.settings.tree.delegates != "voters" or self.guard.votes(node) is True

    def carriers(self) -> dict[type, Callable[..., None]]:
        """Commands of programs with the method that carries each out."""
        carriers: dict[type, Callable[..., None]] = {
            GetStatus: self._get_status,
            GetPeers: self._get_peers,
            Drain: self._drain_command,
        }
        for machine in self.machines:
            carriers.update(machine.commands())
        return carriers

    def _listen(self) -> None:
        self.turns.listen(SeedReached, self._on_seed_reached)
        self.turns.listen(ShardsReleased, lambda event: self.clusters.leave())
        self.turns.listen(SeedFailed, self._on_seed_failed)
        self.turns.listen(LinkDown, self._on_link_down)
        self.turns.listen(IdentityConflict, self._on_identity_conflict)
        self.turns.listen(RoleChanged, self._on_role_changed)
        self.turns.listen(RingKnown, self._on_ring_known)

    # --- the Port of the machines ---

    def send(self, peer: Peer, message: Message) -> None:
        """Send over the link, or handle in this turn if it is for this node itself."""
        if peer.id == self.me.id:
            for taken in self.guard.own(message):
                self.turns.post(self.me, taken)
            return
        if self.guard.may_withhold and self.guard.withholds(message):
            return
        units = message.data_units()
        self.count("data_messages" if units else "other_messages", units or 1)
        self.links.send(peer, message)

    def reply(self, client: int, reply: Any) -> None:
        """Answer a program, or a client inside of this node (a negative number)."""
        if client < 0:
            self.emit(InnerReply(client, reply))
        else:
            self.driver.reply(client, reply)

    def watch(self, group: str, peers: Sequence[Peer]) -> None:
        """Keep the links to these peers open, instead of those watched under the same `group`."""
        new = tuple(peer for peer in peers if peer.id != self.me.id)
        for peer in new:
            self.links.pin(peer.id)
        for peer in self._watched.get(group, ()):
            self.links.unpin(peer.id)
        self._watched[group] = new

    def trace(self, kind: str, **fields: Any) -> None:
        """Write a record of a kind of canopy/traces/schema.py, with its fields, to this node's
        trace."""
        self.driver.trace(kind, fields)

    def trace_each(self, kind: str, name: str, values: Sequence[str], **fields: Any) -> None:
        """Write records of a kind that differ only in the field `name`."""
        self.driver.trace_each(kind, name, values, fields)

    def count(self, name: str, amount: int = 1) -> None:
        """Add to a named counter of this node."""
        self.counters[name] = self.counters.get(name, 0) + amount

    def wall_seconds(self) -> float:
        """The machine's wall clock, in seconds since 1970."""
        return self.driver.wall() / 1e9

    # --- turns: what the driver calls ---

    def start(self) -> None:
        """Start all machines, and dial the seeds and the members of the former cluster."""
        self.now = self.turns.begin()
        routing = self.settings.tree.routing
        self.trace("start", address=self.me.address, routing=routing, name=self.name)
        for machine in self.machines:
            machine.start()
        for address in (*self._seeds, *(peer.address for peer in self.clusters.companions())):
            self.links.add_seed(address)
        self._finish_turn()

    def add_seeds(self, addresses: Sequence[str], instead_of: Sequence[str] = ()) -> None:
        """Dial more addresses to join, from the directory, and those of `instead_of` no more."""
        self.now = self.turns.begin()
        for address in instead_of:
            self.links.remove_seed(address)
            self._seeds.pop(address, None)
        for address in addresses:
            self.links.add_seed(address)
        self._finish_turn()

    def on_opened(self, connection: ConnectionId, principal: Principal | None = None) -> None:
        """A dial of this node succeeded."""
        self._turn(self.links.on_opened, connection, self.guard.admit(principal))

    def on_accepted(self, connection: ConnectionId, principal: Principal | None = None) -> None:
        """Another process has dialled this node."""
        self._turn(self.links.on_accepted, connection, self.guard.admit(principal))

    def on_frames(self, connection: ConnectionId, frames: Sequence[Frame]) -> None:
        """Frames of one connection that were read together, for one turn."""
        self.now = self.turns.begin()
        for frame in frames:
            self.links.on_frame(connection, frame)
        self._finish_turn()

    def on_garbage(self, connection: ConnectionId, reason: str) -> None:
        """Bytes that are no frame were read: the links close the connection."""
        self._turn(self.links.on_garbage, connection, reason)

    def on_closed(self, connection: ConnectionId, reason: str) -> None:
        """A connection ended, or a dial failed."""
        self._turn(self.links.on_closed, connection, reason)

    def deadline(self) -> float | None:
        """When `on_tick` is due next, by the driver's clock."""
        mine = self.turns.deadline()
        links = self.links.deadline()
        return links if mine is None else mine if links is None else min(mine, links)

    def on_tick(self) -> None:
        """Fire the timers that are due. What they set again fires in a later turn."""
        self.now = self.turns.begin()
        self.links.on_tick(late=self.turns.fire_due())
        self._finish_turn()

    def commands(self, client: int, commands: Sequence[Command]) -> None:
        """Commands of a client that were read together, for one turn."""
        self.now = self.turns.begin()
        for command in commands:
            self._carry_out(client, command)
        self._finish_turn()

    def _carry_out(self, client: int, command: Command) -> None:
        handler = self._commands.get(type(command))
        if handler is None:
            reason = f"this node does not know {type(command).__name__}"
            self.reply(client, Failed(command.request, "usage", reason))
            return
        try:
            handler(client, command)
        except Exception as error:  # a program would bring it to the next node
            what = type(command).__name__
            contain(self, what, error)
            self.reply(client, Failed(command.request, "fault", f"{what}: {FAULT}"))

    def on_disk(self, events: Sequence[LocalEvent]) -> None:
        """Take the results of disk operations of its shards."""
        self.now = self.turns.begin()
        for event in events:
            self.emit(event)
        self._finish_turn()

    def on_stored(self, ticket: int) -> None:
        """Note that records stored behind the turns are durable up to this ticket."""
        self._turn(self.emit, Stored(ticket))

    def on_documents(self) -> None:
        """The list of revoked nodes, or the policy, has perhaps changed on disk."""
        self._turn(self.documents.changed)

    def client_gone(self, client: int, unread_for: float = 0.0) -> None:
        """A client has gone: its subscriptions end. `unread_for`: seconds for which its session
        was kept."""
        self.streams.client_gone(client)
        self._turn(self.clients.client_closed, client, unread_for)

    def _turn(self, handler: Callable[..., None], *arguments: Any) -> None:
        self.now = self.turns.begin()
        handler(*arguments)
        self._finish_turn()

    def _finish_turn(self) -> None:
        self.turns.settle(self.links.flush)  # which can find a link broken
        if self._ring_known and not self._ready and self.view.is_filled:
            self._ready = True
            self.trace("ready")

    # --- health ---

    def vitals(self) -> Vitals:
        """Return the node's measurements for a health record."""
        return self.reports.vitals(self.turns.take_latest(), self.counters)

    def judge_health(self, measured: Mapping[str, float]) -> None:
        """Judge by what was measured of this node and its machine whether it is sub-healthy."""
        self.turns.begin()
        self.health.judge(self.me.id, measured)

    def update_health(self, report: HealthReport) -> None:
        """Choose among nodes by `report` from now on."""
        self.now = self.turns.begin()
        self.count("health_reports")
        self.health.update(report)

    # --- readiness and leaving ---

    @property
    def ready(self) -> bool:
        """The view is filled, a way into the ring is known, and the node does not leave."""
        return self._ready and not self.draining

    def _on_ring_known(self, event: RingKnown) -> None:
        self._ring_known = True

    def drain(self) -> None:
        """Leave in order: refuse what programs ask for from now on, end the subscriptions, hand
        over what is hosted, see to what was acknowledged."""
        if not self.draining:
            self.now = self.turns.begin()
            self.draining = True
            self.publications.leave()
            self.clients.leave()
            self.streams.leave()  # and then its cluster, which decides who leads their shards
            self.host_offers.leave()
            self.holding.leave()
            self._finish_turn()

    @property
    def neighbours(self) -> int:
        """The number of nodes in its view; 0: it is alone."""
        return len(self.view)

    @property
    def unreached(self) -> Mapping[str, str]:
        """By address of the peer list, why no node was reached there."""
        known = ("reached", "not tried yet")
        return {address: why for address, why in self._seeds.items() if why not in known}

    @property
    def drained(self) -> bool:
        """Whether nothing is under way any more."""
        return self.draining and not self.unfinished

    @property
    def unfinished(self) -> Mapping[str, int]:
        """The work that keeps the node from being drained, by kind (overlay/reports.py)."""
        mine = {"appends": self.streams.unanswered, "shards": self.streams.unreleased}
        return {**self.reports.unfinished, **{kind: n for kind, n in mine.items() if n}}

    @property
    def numbered(self) -> Mapping[str, int]:
        """The number of events and subscriptions it has given an identity, for its last record."""
        return {"published": self.publisher.numbered, "subscribed": self.clients.numbered}

    def leave(self, reason: str) -> None:
        """Say goodbye on all links: the last thing before the process ends."""
        self.now = self.turns.begin()
        self.links.leave(reason)

    def _drain_command(self, client: int, command: Drain) -> None:
        self.reply(client, Done(command.request))
        self.drain()

    # --- what this node itself listens to ---

    def _on_seed_reached(self, event: SeedReached) -> None:
        self._seeds[event.address] = "reached"

    def _on_seed_failed(self, event: SeedFailed) -> None:
        self._seeds[event.address] = event.reason

    def _on_link_down(self, event: LinkDown) -> None:
        for message in event.lost:
            if (units := message.data_units()) > 0:
                self.count("data_messages_unacknowledged", units)

    def _on_identity_conflict(self, event: IdentityConflict) -> None:
        if self.conflict is None or not self.conflict.must_stop:
            self.conflict = event

    def _on_role_changed(self, event: RoleChanged) -> None:
        if event.cluster is not None and event.role == "primary":
            addresses = tuple(peer.address for peer in event.cluster.members())
            self.driver.publish_address("ring", addresses)

    # --- status ---

    def _get_status(self, client: int, command: GetStatus) -> None:
        found = self.reports.status(
            command,
            self.me,
            self.name,
            self.incarnation,
            self.ready,
            self.draining,
            self._seeds,
            self.counters,
        )
        self.reply(client, replace(found, shards=self.streams.hosts.held_shards()))

    def _get_peers(self, client: int, command: GetPeers) -> None:
        self.reply(client, self.reports.peers(command))


if __name__ == "__main__":
    from canopy.cli.process.node import main

    main()
