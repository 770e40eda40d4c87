"""C6: whatever happens in whatever order, who serves a value holds all its registrations.

Owner, hosts and subscriber are real machines; links are FIFO, and the test chooses which one
delivers next, who registers, and who dies or comes back meanwhile. After every step:

* every host that serves a value matches every acknowledged registration for it, so that an event
  that any of them accepts after a SUBACK reaches the subscriber;
* while no host is lost, each value is served by some host at every moment.

At rest each value is served once, as the map says, and everything is acknowledged.
"""

from __future__ import annotations

from random import Random

import pytest

from harness.overlays import settings as numbers
from matching import place
from overlay.chord.events import MemberJoined, MemberLeaving, MemberLost
from overlay.machine import Message, Peer
from overlay.settings import Settings
from overlay.upper_tree.host.hosted_tree import HostedTree
from overlay.upper_tree.messages import Register, Registered, Registration, Unregister
from tests.support.demand import Demand
from tests.support.examples import seeds
from tests.support.trees import HostNode, OwnerNode, cluster_of, event, registration
from tests.support.world import World, WorldNode, peer

BROKERS = ("h0", "h1", "h2")
IDLE = ("i0", "i1", "i2", "i3")
"""Nodes that are no members, and may be asked to host."""

VALUES = range(-1, 12)
SPOTS = {value: event(1, x=value) for value in VALUES}
S = peer("s")

QUIET = ["deliver"] * 12 + ["register"] * 3 + ["unregister"] * 2 + ["commit"] * 2 + ["time"] * 2


class Model:
    """The network, and what a subscriber may rely on."""

    rest_for = 100  # quarters of a second: longer than any lease

    def __init__(self, chosen: Settings) -> None:
        self.net = World()
        self.net.observers.append(self)
        self.matched: dict[str, dict[int, list[str]]] = {}
        """What hosts match by value, while they hear nothing: asked again after every step."""
        self.chosen = chosen
        self.net.node("s")
        self.demand = Demand(0.0, VALUES)
        self.hosts = {name: self._host(name) for name in (*BROKERS, *IDLE)}
        self.owner = OwnerNode(self.net.node("p"), chosen, cluster_of("p", *BROKERS))
        self.owner.clusters.idle = tuple(map(peer, IDLE))
        self.serving_members = list(BROKERS)
        self.dead: dict[str, None] = {}
        self.made: dict[str, Registration] = {}
        self.promised: dict[str, Registration] = {}

    def heard(self, node: WorldNode, what: object, sender: Peer | None) -> None:
        self.matched.pop(node.me.id, None)

    def sent(self, sender: Peer, receiver: Peer, message: Message) -> None:
        pass

    def _host(self, name: str) -> HostNode:
        self.matched.pop(name, None)
        node = HostNode(self.net.node(name), self.chosen)
        self.demand.put_on({name: node})
        return node

    # --- steps ---

    def step(self, kind: str, number: int) -> None:
        getattr(self, kind)(number)
        self.owner.port.turn()
        for message in self.owner.port.take(Registered):
            for id_ in message.ids:
                if id_ in self.made:
                    self.promised[id_] = self.made[id_]

    def deliver(self, number: int) -> None:
        links = self.net.busy()
        if links:
            self.net.deliver(links[number % len(links)])

    def register(self, number: int) -> None:
        low, width = number % 10, number // 10 % 4
        id_ = f"s/{len(self.made)}"
        made = registration(id_, "x", f"x BETWEEN {low} AND {low + width}", S)
        self.made[id_] = made
        self.owner.port.hear(Register(1, (made,)), S)

    def unregister(self, number: int) -> None:
        if self.made:
            id_ = list(self.made)[number % len(self.made)]
            self.promised.pop(id_, None)
            self.owner.port.hear(Unregister("x", (id_,)), S)

    def commit(self, number: int) -> None:
        self.owner.clusters.commit()

    def time(self, number: int) -> None:
        self.net.run((0.2, 1.0)[number % 2])

    def lose(self, name: str) -> None:
        self.net.cut("p", name)
        if name in self.serving_members:
            self.serving_members.remove(name)
            self._describe()
            self.owner.port.hear(MemberLost(peer(name)))

    def gain(self, name: str) -> None:
        self.net.join("p", name)
        self.serving_members.append(name)
        self._describe()
        self.owner.port.hear(MemberJoined(peer(name)))

    def _describe(self) -> None:
        self.owner.clusters.cluster = cluster_of("p", *self.serving_members)

    def crash(self, number: int) -> None:
        name = BROKERS[number % len(BROKERS)]
        if name not in self.dead:
            self.dead[name] = None
            del self.net.nodes[name]
            self.hosts.pop(name)
            self.lose(name)

    def restart(self, number: int) -> None:
        """Another process by the same name, which knows nothing."""
        if self.dead:
            name = list(self.dead)[number % len(self.dead)]
            del self.dead[name]
            self.hosts[name] = self._host(name)
            self.gain(name)

    def ask(self, number: int) -> None:
        """Events ask for more or for less, of some values or of all."""
        self.demand.total = (0.0, 1.0, 3.0, 6.0)[number % 4]
        self.demand.values = ([5], VALUES, range(3), VALUES)[number // 4 % 4]

    def release(self, number: int) -> None:
        """A node that is no member leaves in order, or comes back as another process."""
        name = IDLE[number % len(IDLE)]
        node = self.hosts[name]
        if node.offers._leaves_by is None:
            node.offers.leave()
            self.step_of(name)
        elif not node.offers.hosted:
            self.net.cut("p", name, left=True)
            self.hosts[name] = self._host(name)
            self.net.join("p", name)

    def lose_idle(self, number: int) -> None:
        """A node that is no member dies, and another process takes its place."""
        name = IDLE[number % len(IDLE)]
        self.net.cut("p", name)
        self.hosts[name] = self._host(name)
        self.net.join("p", name)

    def step_of(self, name: str) -> None:
        self.matched.pop(name, None)
        self.net.nodes[name].turn()

    def hold(self, number: int) -> None:
        """It neither hears nor is heard, for however long."""
        self.net.held[BROKERS[number % len(BROKERS)]] = None

    def wake(self, number: int) -> None:
        if self.net.held:
            del self.net.held[list(self.net.held)[number % len(self.net.held)]]

    def leave(self, number: int) -> None:
        name = BROKERS[number % len(BROKERS)]
        if name in self.serving_members and len(self.serving_members) > 1:
            self.serving_members.remove(name)
            self._describe()
            self.owner.port.hear(MemberLeaving(peer(name)))

    # --- what must hold ---

    def serving(self, leased: bool = True) -> list[tuple[str, HostedTree]]:
        """Every host with a part of the tree; `leased`: by a valid lease only."""
        hosting = {name: node.hosting for name, node in self.hosts.items()}
        hosting["p"] = self.owner.hosting  # the owner hosts if it has to
        trees = ((name, machine, machine.trees.get("x")) for name, machine in hosting.items())
        return [
            (name, tree)
            for name, machine, tree in trees
            if tree is not None and (not leased or machine.assigned.has_lease(tree))
        ]

    def servers(self, value: int) -> list[tuple[str, list[str]]]:
        """(host, registrations that it matches) for every host that serves the value."""
        return [
            (name, self.matches(name, tree, value))
            for name, tree in self.serving()
            if tree.served.span(place(value)) is not None
        ]

    def matches(self, name: str, tree: HostedTree, value: int) -> list[str]:
        if name == "p":  # changed by the test in other ways as well
            return tree.match(SPOTS[value])
        known = self.matched.setdefault(name, {})
        if value not in known:
            known[value] = tree.match(SPOTS[value])
        return known[value]

    def check_promises(self) -> None:
        serving = self.serving()
        for value in VALUES:
            due = [i for i, r in self.promised.items() if r.interval.contains(value)]
            for host, tree in serving:
                if due and tree.served.span(place(value)) is not None:
                    matched = self.matches(host, tree, value)
                    missing = [id_ for id_ in due if id_ not in matched]
                    assert not missing, f"{host} serves {value} without {missing}"

    def check_covered(self) -> None:
        if self.promised:
            serving = self.serving(leased=False)
            for value in VALUES:
                spot = place(value)
                assert any(tree.served.span(spot) is not None for _, tree in serving), (
                    f"no host serves {value}"
                )

    def rest(self) -> None:
        self.net.held.clear()
        self.demand.total = 0.0
        for _ in range(self.rest_for):
            self.net.flush()
            self.owner.clusters.commit()
            self.net.run(0.25)
            self.step("commit", 0)
            self.check_promises()
        self.net.flush()

    def check_rest(self) -> None:
        owned = self.owner.owner.trees.get("x")
        if owned is None:
            assert all("x" not in node.hosting.trees for node in self.hosts.values())
            return
        live = owned.tree.registrations
        assert sorted(self.promised) == sorted(live), "everything is acknowledged"
        assert not owned.is_changing, "a change does not end"
        for value in VALUES:
            (entry,) = [e for e in owned.tree.map.entries if e.interval.contains(value)]
            named = sorted(host.id for host in entry.hosts)
            assert sorted(host for host, _ in self.servers(value)) == named, "the map is wrong"
            fit = min(self.chosen.tree.replicas, max(1, len(self.serving_members)))
            assert len(named) >= fit, "there are hosts for another replica"
            expected = [i for i, r in live.items() if r.interval.contains(value)]
            for _, matched in self.servers(value):
                assert sorted(matched) == sorted(expected), "hosts hold something else"


def run(seed: int, faults: list[str], covered: bool, kind: type[Model] = Model) -> Model:
    """Many steps of one seed, in bursts, so that changes meet each other."""
    rng = Random(f"changes {seed}")
    model = kind(
        numbers(
            tree={
                "split_at": rng.choice([1, 2, 4]),
                "lease": 10_000.0,
                "replicas": rng.choice([1, 2, 3]),
            }
        )
    )
    kinds = [*QUIET, *faults]
    for _ in range(300):
        model.step(rng.choice(kinds), rng.randrange(1_000))
        model.check_promises()
        if covered:
            model.check_covered()
    model.rest()
    model.check_rest()
    return model


@pytest.mark.parametrize("seed", seeds(25))
def test_a_change_leaves_no_value_alone_and_no_registration_behind(seed: int) -> None:
    model = run(seed, ["leave"], covered=True)
    assert model.owner.owner.state.highest()[1] >= 5, "the map has changed often"


@pytest.mark.parametrize("seed", seeds(40))
def test_hosts_that_wake_up_serve_nothing_that_they_have_missed(seed: int) -> None:
    """By their serving leases, for nothing else shows them that they were away."""
    run(seed, ["hold", "wake", "time", "time", "time", "leave"], covered=False)


@pytest.mark.parametrize("seed", seeds(40))
def test_hosts_that_die_and_come_back_serve_only_what_they_hold(seed: int) -> None:
    run(seed, ["crash", "restart", "restart"], covered=False)


class LoadedModel(Model):
    """Where hosts report loads; at rest there is none."""

    rest_for = 200  # also longer than what is known of a load lasts


@pytest.mark.parametrize("seed", seeds(8))
def test_trees_that_grow_and_shrink_leave_no_value_alone(seed: int) -> None:
    kinds = ["ask", "ask", "time", "time", "time", "time", "release", "leave"]
    model = run(seed, kinds, covered=True, kind=LoadedModel)
    assert model.owner.owner.pool.hosts() == []


@pytest.mark.parametrize("seed", seeds(8))
def test_hosts_of_the_pool_that_die_serve_only_what_they_hold(seed: int) -> None:
    kinds = ["ask", "ask", "time", "time", "time", "time", "lose_idle", "release", "hold", "wake"]
    run(seed, kinds, covered=False, kind=LoadedModel)


def test_the_model_uses_the_pool() -> None:
    used = dict.fromkeys(IDLE, 0)
    for seed in range(6):
        model = LoadedModel(numbers(tree={"lease": 10_000.0, "replicas": 1}))
        model.register(seed)
        model.demand.total = 6.0
        for _ in range(60):
            model.step("time", 0)
            model.net.flush()
            model.owner.clusters.commit()
        for name in model.owner.owner.trees["x"].tree.map.hosts():
            if name in used:
                used[name] += 1
    assert all(used.values())
