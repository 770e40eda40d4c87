"""A world with virtual time that runs the same Node as a process does.

Theory of operation. All future actions are on one heap, keyed by (virtual time, sequence number),
so that two actions at the same time happen in the order in which they were scheduled. Time jumps
from one to the next. All random numbers come from generators that are seeded with the world's seed
and a name: one for the network, one for each start of each node. Nothing depends on `hash()`, on
the wall clock or on the order of a set, so a seed is a whole history: the same trace records, to
the byte.

    world = World(seed=7, codec=WireCodec())
    first = world.add_node()
    second = world.add_node(seeds=[first])
    world.run_until(lambda: world.ready(), most=60)
    subscription = world.subscribe(second, "magnitude > 5")
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from math import isfinite
from random import Random
from typing import Any

from canopy.sim.world.clients import CARRIED_FOR, Clients, Crash, Publication, SimulatedSubscription
from canopy.sim.world.disk import Disk, DiskConditions, DiskDamagedError, SimulatedDiskError
from canopy.sim.world.driver import CLOCKS, NodeBuilder, SimDriver
from canopy.sim.world.log_disk import SimulatedLogDisk
from canopy.sim.world.network import Network
from canopy.sim.world.processor import Processor
from canopy.sim.world.recorder import Recorder
from canopy.sim.world.scheduler import Scheduler
from canopy.sim.world.signer import (
    SimulatedCertificates,
    SimulatedPolicyStore,
    SimulatedRevocations,
    SimulatedSigner,
    revoked,
    sealed,
)
from canopy.sim.world.traffic import Traffic
from canopy.traces.writer import OpenFile
from matching import Value
from node import Credentials, LocalNode, Node
from overlay.client import Command, GetStatus, Reply, Status
from overlay.links.events import Codec
from overlay.machine import LocalEvent, Message, Peer
from overlay.rights import Principal, Role
from overlay.settings import Settings
from overlay.tenants.policy import Policy


class MeteredNode(Node):
    """`node.Node` in a world, which counts by kind the messages that it passes to its links (those
    to itself cost nothing); `driver` is a `canopy.sim.world.driver.SimDriver`."""

    driver: Any

    def send(self, peer: Peer, message: Message) -> None:
        """Count the message by its kind and send it."""
        if peer.id != self.me.id:
            self.driver.sent(message)
        super().send(peer, message)


EPOCH = 1_767_225_600.0
"""The wall clock at virtual time 0: 2026-01-01T00:00:00Z. Any fixed time would do."""

LOOK = 1.0
"""Seconds between two checks of a process for changes of its key folder, as in `canopy.wire`."""

RECHECK = 2.0
"""Seconds between two checks of the certificates of connections, as in `canopy.wire`."""

CLIENT = 1
"""The client of a node that is used if none is named."""


class World(Scheduler):
    """The nodes of a simulation, their network and their clients, reproducible by seed."""

    driver_type: Callable[..., SimDriver] = SimDriver

    def __init__(
        self,
        seed: int | str,
        codec: Codec,
        settings: Settings | None = None,
        *,
        build: NodeBuilder | None = None,
        traces: OpenFile | None = None,
        overlay: str = "canopy",
    ) -> None:
        super().__init__()
        self.seed = seed
        self.settings = settings or Settings()
        self.clients = Clients()
        self.recorder = Recorder(
            lambda: self.now,
            lambda node: self.wall(self.identities.get(node, "")),
            traces,
            overlay=overlay,
        )
        self.traffic = Traffic()
        self.network = Network(self.generator("network"), self.at, lambda: self.now, self.traffic)
        self.drivers: dict[str, SimDriver] = {}
        """The newest process of each node, by the node's name; ended ones too."""
        self.identities: dict[str, str] = {}
        """Every node id that ever existed, with the name of its node (a node may lose its disk)."""
        self.happened: list[tuple[float, str]] = []
        """The faults and other changes of the world: (time, words)."""
        self.copied: dict[str, None] = {}
        """Ids of nodes whose data folder was copied: two processes may have one of these."""
        self.disk_conditions = DiskConditions()
        """The conditions of disks that are created from now on."""
        self.processor: Processor | None = None
        """The costs of processes that start from now on; None: their work takes no time."""
        self.directory: dict[str, tuple[str, ...]] = {}
        """The directory: the addresses that nodes published, by name."""
        self.places: dict[str, tuple[str, int]] = {}
        self.roles: dict[str, Role] | None = None
        """If nodes have keys: the role in each node's certificate, which is *voter* unless set
        before the node was added. None: nodes have no keys."""
        self.certificates = SimulatedCertificates()
        """The certificates of processes that start from now on, if nodes have keys."""
        self.tenants: dict[str, str] = {}
        """By node, the tenant in its certificate."""
        self.policy_stores: dict[str, SimulatedPolicyStore] = {}
        self.audit: list[tuple[str, str, dict[str, Any]]] = []
        """The nodes' audit records: (node, kind, fields)."""
        """Region and tier of each node, by the node's name."""
        self.revocation_stores: dict[str, SimulatedRevocations] = {}
        """The list of revocations of each node that has keys."""
        self._looks = self.generator("looks")
        self._log_disks: dict[tuple[str, str], SimulatedLogDisk] = {}  # by node and address
        self._clocks: dict[str, float] = {}  # seconds that a node's wall clock is ahead
        self._peer_lists: dict[str, tuple[str, ...]] = {}
        self._codec = codec
        self._overlay = overlay
        self._build = build or MeteredNode
        self._ids = self.generator("ids")
        self._wiped: dict[str, None] = {}  # ids that began on an empty disk instead of another
        self._lived = 0.0  # node-seconds of processes that others have replaced

    def generator(self, name: str) -> Random:
        """Return a generator of this world for `name`. (A text as seed is hashed by SHA-512.)"""
        return Random(f"{self.seed}/{name}")

    # --- nodes ---

    def add_node(
        self, seeds: Iterable[str] = (), name: str = "", region: str = "", tier: int = 0
    ) -> str:
        """Start a new node whose peer list has the nodes (or addresses) `seeds`. Returns its name.
        It stays in `region` through restarts."""
        number = len(self.drivers)
        name = name or f"n{number}"
        assert name not in self.drivers, f"there is a node {name} already"
        if self.roles is not None:
            self.roles.setdefault(name, Role.VOTER)
        disk = self._new_disk(name, self._address(number))
        self._peer_lists[name] = tuple(
            self.drivers[seed].disk.address if seed in self.drivers else seed for seed in seeds
        )
        self.places[name] = (region, tier)
        self._start(name, disk)
        return name

    def copy(self, name: str) -> str:
        """Copy the data folder of `name` and start a second process with it, at another address.
        Returns its name. The two have one id, and one of them has to stop."""
        number = len(self.drivers)
        generator = self.generator(f"copy {number}")
        disk = self.drivers[name].disk.copied(self._address(number), generator)
        copy = f"n{number}"
        if self.roles is not None:
            self.roles[copy] = self.roles[name]
        self.copied[disk.node] = None
        self._peer_lists[copy] = self._peer_lists[name]
        self.places[copy] = self.places[name]
        self._start(copy, disk)
        return copy

    def introduce(self, name: str, seeds: Iterable[str]) -> None:
        """Replace the peer list that `name` reads at its next start by these nodes."""
        self._peer_lists[name] = tuple(self.drivers[seed].disk.address for seed in seeds)

    def crash(self, name: str, *, silent: bool = False) -> None:
        """Kill the node's process; with `silent` its machine too, so that no connection is reset.
        Data that its disk did not have yet is lost, or torn (canopy/sim/world/disk.py)."""
        driver = self.drivers[name]
        driver.stop(silent=silent)
        held = self.recorder.events_at(driver.disk.node, self.now - CARRIED_FOR)
        self.clients.crashed(Crash(name, self.now, *held))

    def restart(self, name: str, *, wiped: bool = False, damaged: bool = False) -> bool:
        """Start a crashed or drained node again, with its disk, with an empty one (`wiped`), or
        with a `damaged` one: then it is another node at the same address. Returns whether it
        started: a full disk prevents it."""
        driver = self.drivers[name]
        assert not driver.alive, f"{name} is running"
        disk = driver.disk
        if wiped:
            disk = self._empty_disk(name, disk.address)
        elif damaged:
            disk.damage()
        return self._start(name, disk)

    def drain(self, name: str) -> None:
        """Ask the node to leave in order (SIGTERM)."""
        self.clients.leaving(name, self.now)
        self.drivers[name].drain()

    def draining(self, name: str) -> None:
        """Note that the node has begun to drain: a paused node may have had deliveries left."""
        self.clients.ended(name, self.now)

    def node(self, name: str) -> Any:
        """Return the Node itself, for checks."""
        return self.drivers[name].node

    def names(self) -> list[str]:
        """Return the running nodes, in order of their first start."""
        return [name for name, driver in self.drivers.items() if driver.alive]

    def principal(self, name: str) -> Principal | None:
        """Return the facts in a node's certificate: its true id, and its role."""
        if self.roles is None:
            return None
        tenant = self.tenants.get(name, "")
        return Principal(self.drivers[name].disk.node, self.roles[name], tenant)

    def is_revoked(self, name: str, node: str) -> bool:
        """Return whether `name` knows that the certificate of the node with this id is revoked."""
        store = self.revocation_stores.get(name)
        return store is not None and node in store.ids

    def revoke(self, name: str, *nodes: str) -> None:
        """Revoke the certificates of these nodes at `name`, as its operators do. It notices the
        changed file within `LOOK` seconds, closes their connections and passes the list on."""
        store = self.revocation_stores[name]
        ids = [self.drivers[node].disk.node for node in nodes]
        store.write(revoked(store.version + 1, [*sorted(store.ids), *ids]))
        self.at(self.now + LOOK * self._looks.random(), self._noticed, name)

    def _noticed(self, name: str) -> None:
        driver = self.drivers[name]
        if driver.alive:
            driver.recheck()
            driver.documents_changed()

    def certificate_ends(self, name: str) -> float:
        """When the certificate ends with which a node opens connections now."""
        return self.certificates.ends(name)

    def _keep_secure(self, driver: SimDriver, certificates: SimulatedCertificates) -> None:
        """Renew the certificate of a process in time, and check who is connected to it."""
        if driver.alive:
            if not driver.is_paused:
                certificates.look(driver.name, self.wall(driver.name))
                certificates.cut_off += driver.recheck()
            self.after(RECHECK, self._keep_secure, driver, certificates)

    def push_policy(self, name: str, policy: Policy) -> None:
        """Give a node a policy, as its operators do; it passes it on."""
        self.policy_stores[name].accept(sealed(policy))
        self.drivers[name].documents_changed()

    @property
    def node_seconds(self) -> float:
        """Return the virtual lifetime of all processes together, in seconds."""
        return self._lived + sum(driver.lived for driver in self.drivers.values())

    def ready(self) -> bool:
        """Return whether all running nodes are ready."""
        return all(d.node.ready for d in self.drivers.values() if d.alive)

    # --- wall clocks ---

    def wall(self, name: str) -> float:
        """Return a node's wall clock time, in seconds since 1970."""
        return EPOCH + self.now + self._clocks.get(name, 0.0)

    def turn_clock(self, name: str, seconds: float) -> None:
        """Turn a node's wall clock forward by `seconds`, or with a negative number back."""
        self._clocks[name] = self._clocks.get(name, 0.0) + seconds

    # --- clients ---

    def subscribe(
        self, node: str, selector: str, name: str = "", client: int = CLIENT, level: int = 0
    ) -> SimulatedSubscription:
        """Subscribe at `node`; the acknowledgement comes later."""
        subscription = SimulatedSubscription(node, client, selector, name, self.now, level)
        self.drivers[node].command(client, self.clients.subscribe(subscription))
        return subscription

    def subscribe_together(
        self, node: str, selectors: Iterable[str], client: int = CLIENT
    ) -> list[SimulatedSubscription]:
        """Make several subscriptions in one turn of `node`."""
        made = [SimulatedSubscription(node, client, text, "", self.now) for text in selectors]
        self.drivers[node].command(client, *map(self.clients.subscribe, made))
        return made

    def unsubscribe(self, subscription: SimulatedSubscription) -> None:
        """End an acknowledged subscription."""
        command = self.clients.unsubscribe(subscription, self.now)
        self.drivers[subscription.node].command(subscription.client, command)

    def client_gone(self, node: str, client: int = CLIENT) -> None:
        """Close a client's connection to its node."""
        self.clients.ended(node, self.now, client)
        self.drivers[node].client_gone(client)

    def publish(
        self,
        node: str,
        *events: Mapping[str, Value | None],
        receipt: bool = False,
        client: int = CLIENT,
    ) -> list[Publication]:
        """Publish events at `node`; their identities are set by the answer."""
        wall = self.wall(node)
        made, command = self.clients.publish(node, list(events), self.now, wall, receipt)
        self.drivers[node].command(client, command)
        return made

    def ask(self, node: str, command: Command, most: float = 30.0) -> Reply:
        """Send a command and run until its answer arrives. TimeoutError after `most` seconds."""
        answers = self.clients.answers
        self.drivers[node].command(CLIENT, command)
        if not self.run_until(lambda: command.request in answers, most):
            raise TimeoutError(f"{node} did not answer {command!r} within {most} s")
        return answers.pop(command.request)

    def status(self, node: str) -> Status:
        """Return the node's reply to `canopy status`."""
        reply = self.ask(node, GetStatus(self.clients.request()))
        assert isinstance(reply, Status), reply
        return reply

    def acknowledged(self) -> bool:
        """Return whether every subscription has its SUBACK, or has failed or ended."""
        return all(
            s.acknowledged is not None or s.failed or s.ending is not None
            for s in self.clients.subscriptions
        )

    def settle(self, most: float = 120.0, still: float = 5.0) -> bool:
        """Run until nothing is pending and nothing was delivered for `still` seconds. Returns
        whether that was reached."""
        end = self.now + most
        while self.now < end:
            before = len(self.clients.deliveries)
            self.run(still)
            answered = all(p.identity or p.refused for p in self._own_publications())
            if (
                answered
                and before == len(self.clients.deliveries)
                and all(self.status(name).pending == 0 for name in self.names())
            ):
                return True
        return False

    # --- for the drivers ---

    def replied(self, driver: SimDriver, client: int, reply: Reply) -> None:
        """Handle a node's reply to a client. (A dying process is no longer heard.)"""
        if driver.alive:
            self.clients.replied(driver.name, client, reply, self.now)

    def directory_put(self, name: str, addresses: tuple[str, ...]) -> None:
        """Publish a node's addresses in the directory."""
        self.directory[name] = addresses

    def log_disk(self, disk: Disk, deliver: Callable[[LocalEvent], None]) -> SimulatedLogDisk:
        """Return the disk of a node's shards, which outlives its processes."""
        place = (disk.node, disk.address)
        logs = self._log_disks.get(place)
        if logs is None:
            logs = SimulatedLogDisk(self, self.generator(f"{place}/logs"), deliver)
            self._log_disks[place] = logs
        logs.deliver = deliver
        return logs

    # --- helpers ---

    def _own_publications(self) -> list[Publication]:
        """Return the publications that their node can still answer: it has not died since."""
        last = {crash.node: crash.time for crash in self.clients.crashes}
        return [
            p
            for p in self.clients.publications
            if self.drivers[p.node].alive and p.published > last.get(p.node, -1.0)
        ]

    def _address(self, number: int) -> str:
        """Return the address of the node with this number: a machine of its own."""
        return f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}:7000"

    def _new_disk(self, name: str, address: str) -> Disk:
        node = f"{self._ids.getrandbits(64):016x}"
        self.identities[node] = name
        disk = Disk(node, address, self.generator(f"{node}/disk"))
        disk.conditions = self.disk_conditions
        return disk

    def _empty_disk(self, name: str, address: str) -> Disk:
        disk = self._new_disk(name, address)
        self._wiped[disk.node] = None
        return disk

    def _start(self, name: str, disk: Disk) -> bool:
        try:
            restored = disk.begin()
        except DiskDamagedError:
            return self._start(name, self._empty_disk(name, disk.address))
        except SimulatedDiskError:
            return False
        whose = disk.node if disk.node in self._wiped else name
        rng = self.generator(f"{whose}/{disk.incarnation}")
        driver = self.driver_type(self, name, disk, rng.random() * CLOCKS)
        driver.processor = self.processor
        if name in self.drivers:
            self._lived += self.drivers[name].lived
        self.drivers[name] = driver
        keys: Credentials | None = None
        if self.roles is not None:
            revocations = self.revocation_stores.setdefault(name, SimulatedRevocations())
            # Looks are at times of the process's own, so one follows within `RECHECK`.
            revocations.taken = lambda: self.at(
                self.now + RECHECK * self._looks.random(), driver.recheck
            )
            if isfinite(self.certificates.life):
                self.certificates.begin(name, self.wall(name))
                first = RECHECK * self._looks.random()
                self.after(first, self._keep_secure, driver, self.certificates)
            signer = SimulatedSigner(
                disk.node,
                str(self.seed),
                self.roles[name],
                partial(self.wall, name),
                partial(self.certificate_ends, name),
            )
            keys = Credentials(
                self.roles[name],
                self.tenants.get(name, ""),
                revocations,
                self.policy_stores.setdefault(name, SimulatedPolicyStore()),
                signer,
            )
        me = Peer(disk.node, disk.address, *self.places[name])
        local = LocalNode(me, disk.incarnation, self._overlay, name)
        peers = self._peer_lists[name]
        driver.run(
            self._build(local, self.settings, rng, self._codec, driver, peers, restored, keys)
        )
        return True
