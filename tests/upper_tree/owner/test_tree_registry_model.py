"""C6, P1: the registry as a state machine, with a plain dictionary as oracle.

A real registrar, owner and hosts, joined by FIFO links that deliver when hypothesis says so. The
registrar subscribes, unsubscribes and renews its leases; hosts acknowledge, fall out of reach and
come back; maps are cut, merged and moved; another node takes the primary's place with no more than
what was committed of the log. After every step, each subscription that was reported ready is
matched by every host that serves a value of it. At the end each value is served, and when the
subscriber falls silent everything of it ends with its leases.
"""

from __future__ import annotations

from hypothesis import Phase
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from harness.overlays import settings
from matching import compile_selector, place
from overlay.chord.events import (
    Elected,
    EntryReceived,
    MemberJoined,
    MemberLost,
    OwnerFound,
    RoleChanged,
)
from overlay.chord.keys import attribute_key
from overlay.links.events import LinkDown
from overlay.upper_tree.events import OwnerRefused, SubscriptionsReady
from overlay.upper_tree.messages import NotOwner
from overlay.upper_tree.subscriber.registrar import Registrar
from tests.support.examples import examples
from tests.support.trees import KEY, FakeRing, HostNode, OwnerNode, cluster_of, event
from tests.support.world import World, peer

HOSTS = ("h0", "h1", "h2")
VALUES = range(-1, 14)
LEASE = 6.0


class Registrations(RuleBasedStateMachine):
    """The subscriber s, an owner p0 (then p1, p2 …) and hosts."""

    @initialize(split_at=st.sampled_from([1, 2, 20]), replicas=st.integers(1, 3))
    def begin(self, split_at: int, replicas: int) -> None:
        self.settings = settings(
            tree={"split_at": split_at, "replicas": replicas, "lease": LEASE, "retry": 1.0}
        )
        self.net = World()
        self.hosts = {name: HostNode(self.net.node(name), self.settings) for name in HOSTS}
        self.epoch = 1
        self.reachable = dict.fromkeys(HOSTS)
        self.owner = self.make_owner()
        port = self.net.node("s")
        self.ring = FakeRing(port)
        self.registrar = Registrar(port, self.settings, 1, self.ring)
        port.add(self.registrar)
        self.registrar.start()
        self.subscriber = port
        self.ring.learn(self.cluster)
        self.wanted: dict[str, tuple[int, int]] = {}
        self.ready: dict[str, tuple[int, int]] = {}
        """The oracle: what was acknowledged and has not been ended since."""
        self.number = 0
        self.committed = 0  # entries that a majority had when the primary was lost
        self.register(5, 2, True)
        self.pass_time(1.0)  # hosts have leases

    def make_owner(self) -> OwnerNode:
        name = f"p{self.epoch - 1}"
        self.cluster = cluster_of(name, *self.reachable, version=(self.epoch, 0))
        primary = self.epoch == 1
        return OwnerNode(self.net.node(name), self.settings, self.cluster, primary=primary)

    @property
    def attached(self) -> bool:
        return hasattr(self, "owner")

    # --- the subscriber ---

    @rule(low=st.integers(0, 9), width=st.integers(0, 4), arrives=st.booleans())
    def register(self, low: int, width: int, arrives: bool) -> None:
        self.number += 1
        name = f"s{self.number}"
        predicate = compile_selector(f"x BETWEEN {low} AND {low + width}")
        self.wanted[name] = (low, low + width)
        self.registrar.subscribe(name, self.registrar.plan(name, predicate))
        self.subscriber.turn()
        link = ("s", self.owner.port.me.id)
        while arrives and self.net.links.get(link):
            self.net.deliver(link)

    @rule(
        ranges=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 4)), min_size=2, max_size=6),
        arrives=st.booleans(),
    )
    def register_together(self, ranges: list[tuple[int, int]], arrives: bool) -> None:
        """All in one turn, and so in one message, one step of the log and one message per host."""
        for low, width in ranges[1:]:
            self.number += 1
            name = f"s{self.number}"
            predicate = compile_selector(f"x BETWEEN {low} AND {low + width}")
            self.wanted[name] = (low, low + width)
            self.registrar.subscribe(name, self.registrar.plan(name, predicate))
        self.register(*ranges[0], arrives)

    @precondition(lambda self: self.wanted)
    @rule(data=st.data())
    def unregister(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.wanted)))
        del self.wanted[name]
        self.ready.pop(name, None)
        self.registrar.unsubscribe(name)
        self.subscriber.turn()

    # --- the network and time ---

    @rule(choices=st.lists(st.integers(0, 9), min_size=1, max_size=12))
    def deliver(self, choices: list[int]) -> None:
        """Some messages arrive, among them acknowledgements of hosts; 0 commits the log."""
        for choice in choices:
            links = self.net.busy()
            if not choice:
                self.owner.clusters.commit()
            elif links:
                self.net.deliver(links[choice % len(links)])
            self.acknowledged_registrations_are_served()

    @rule(seconds=st.sampled_from([0.3, 1.0, 2.5]))
    def pass_time(self, seconds: float) -> None:
        """Leases are renewed, maps change, and what is under way arrives meanwhile."""
        steps = round(seconds / 0.1)
        for _ in range(steps):
            self.net.run(0.1)
            self.net.flush()
        self.owner.clusters.commit()

    # --- hosts ---

    @precondition(lambda self: len(self.reachable) > 1)
    @rule(data=st.data())
    def lose_host(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.reachable)))
        del self.reachable[name]
        self.net.cut(self.owner.port.me.id, name)
        self.describe()
        self.owner.port.hear(MemberLost(peer(name)))

    @precondition(lambda self: len(self.reachable) < len(HOSTS))
    @rule(data=st.data(), restarted=st.booleans())
    def host_returns(self, data: st.DataObject, restarted: bool) -> None:
        name = data.draw(st.sampled_from([n for n in HOSTS if n not in self.reachable]))
        self.reachable[name] = None
        if restarted:
            self.hosts[name] = HostNode(self.net.node(name), self.settings)
        self.net.join(self.owner.port.me.id, name)
        self.describe()
        self.owner.port.hear(MemberJoined(peer(name)))

    def describe(self) -> None:
        """The cluster's newest description names its reachable members."""
        self.cluster = self.owner.clusters.cluster = cluster_of(
            self.owner.port.me.id, *self.reachable, version=(self.epoch, 0)
        )

    # --- another primary ---

    @precondition(lambda self: self.attached and self.epoch < 4)
    @rule(lost=st.integers(0, 5))
    def elect(self, lost: int) -> None:
        """The primary dies with all that is under way. Of its log the next one has everything that
        was committed, and of the rest all but the last `lost` entries."""
        former = self.owner
        log = former.clusters.log
        self.committed = max(self.committed, former.owner.committed)
        kept = log[: max(self.committed, len(log) - lost)]
        name = former.port.me.id
        for other in (*HOSTS, "s"):
            self.net.cut(name, other)
        del self.net.nodes[name]
        self.epoch += 1
        self.owner = self.make_owner()
        for index, entry in enumerate(kept):
            self.owner.port.hear(EntryReceived(KEY, index, entry))
        self.owner.clusters.log = list(kept)
        self.owner.port.hear(RoleChanged(self.cluster, "primary"))
        self.owner.port.hear(Elected(self.cluster, peer(name)))
        former_primaries = [f"p{number}" for number in range(self.epoch - 1)]
        for lost_host in (*former_primaries, *(n for n in HOSTS if n not in self.reachable)):
            self.owner.port.hear(LinkDown(peer(lost_host), "silent", False, ()))
        self.ring.learn(self.cluster)
        self.subscriber.hear(OwnerFound(attribute_key("x"), self.cluster, 1))

    @precondition(lambda self: self.attached and self.epoch < 4)
    @rule(low=st.integers(0, 9), width=st.integers(0, 4))
    def lose_primary_before_commit(self, low: int, width: int) -> None:
        """Every host installs a registration, and the primary is lost before another voter has it
        in its log. The subscriber hears of the next primary when its hosts serve already."""
        self.register(low, width, True)
        self.net.flush()
        self.acknowledged_registrations_are_served()
        self.elect(len(self.owner.clusters.log))
        self.net.held["s"] = None
        for _ in range(4):
            self.pass_time(0.5)
            self.acknowledged_registrations_are_served()
        self.net.held.clear()

    # --- what must hold ---

    @invariant()
    def loads_are_those_of_the_virtual_nodes(self) -> None:
        owner = self.owner.owner
        counted: dict[str, int] = {}
        for node in owner.selector.virtual_nodes():
            for host in node.hosts:
                counted[host] = counted.get(host, 0) + 1 + node.registrations
        assert owner.trees.loads() == counted

    @invariant()
    def acknowledged_registrations_are_served(self) -> None:
        if not self.attached:
            return
        for message in self.subscriber.of(SubscriptionsReady):
            for name in message.subscriptions:
                if name in self.wanted:
                    self.ready[name] = self.wanted[name]
        self.subscriber.emitted.clear()
        for _, refused in self.owner.port.sent_to(NotOwner):
            self.subscriber.hear(OwnerRefused(refused.attributes))
        for value in VALUES:
            due = {f"{n}/0" for n, (low, high) in self.ready.items() if low <= value <= high}
            for host, matched in self.serving(value):
                missing = due - matched
                assert not missing, f"{host} serves {value} without {sorted(missing)}"

    def serving(self, value: int) -> list[tuple[str, set[str]]]:
        """(host, registrations that it matches) of every host that serves a value of x."""
        nodes = {name: node.hosting for name, node in self.hosts.items()}
        nodes[self.owner.port.me.id] = self.owner.hosting
        return [
            (name, set(tree.match(event(1, x=value))))
            for name, hosting in nodes.items()
            if (tree := hosting.trees.get("x")) is not None
            and tree.served.span(place(value)) is not None
            and hosting.assigned.has_lease(tree)
        ]

    def teardown(self) -> None:
        if not self.attached:
            return
        for name in [n for n in HOSTS if n not in self.reachable]:
            self.reachable[name] = None
            self.net.join(self.owner.port.me.id, name)
            self.describe()
            self.owner.port.hear(MemberJoined(peer(name)))
        for _ in range(30):  # longer than any serving lease
            self.pass_time(1.0)
        self.acknowledged_registrations_are_served()
        assert self.ready == self.wanted, "every registration is acknowledged in the end"
        if self.wanted:
            assert all(self.serving(value) for value in VALUES), "each value is served"
        del self.net.nodes["s"]
        for _ in range(20):
            self.pass_time(1.0)
        assert not self.owner.owner.trees, "what is not renewed ends"
        assert not any(node.hosting.trees for node in self.hosts.values())


def test_what_is_acknowledged_is_served_whatever_happens() -> None:
    chosen = hypothesis_settings(
        max_examples=examples(80), stateful_step_count=40, deadline=None, phases=[Phase.generate]
    )
    run_state_machine_as_test(Registrations, settings=chosen)  # type: ignore[no-untyped-call]
