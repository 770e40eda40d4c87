"""A registrar in a ring of one owner, for tests."""

from __future__ import annotations

from matching import compile_selector
from overlay.chord.keys import attribute_key
from overlay.chord.messages import Cluster
from overlay.settings import Settings
from overlay.upper_tree.events import SubscriptionsReady
from overlay.upper_tree.messages import Register, Registered
from overlay.upper_tree.subscriber.registrar import Registrar
from tests.support.trees import FakeRing, cluster_of
from tests.support.world import one_node, peer

OWNER = peer("o")


class Rig:
    """A registrar; the whole ring is owned by o unless said otherwise."""

    def __init__(
        self, chosen: Settings | None = None, known: bool = True, is_leaf: bool = False
    ) -> None:
        self.port = one_node("s")
        self.ring = FakeRing(self.port)
        self.registrar = Registrar(self.port, chosen or Settings(), 3, self.ring, is_leaf)
        self.port.add(self.registrar)
        if known:
            self.ring.learn(cluster_of("o"))

    def subscribe(self, selector: str, name: str = "a") -> list[tuple[str, str]]:
        planned = self.registrar.plan(name, compile_selector(selector))
        self.registrar.subscribe(name, planned)
        self.port.turn()
        return [(p.registration.attribute, p.registration.id) for p in planned]

    def acknowledge(self, attribute: str, *ids: str) -> None:
        self.port.hear(Registered(attribute, (1, 1), ids), OWNER)

    def settled(self) -> bool:
        return self.registrar.settled

    def ready(self) -> list[str]:
        names = [id_ for e in self.port.of(SubscriptionsReady) for id_ in e.subscriptions]
        self.port.emitted.clear()
        return names

    def registered(self) -> list[tuple[str, list[str]]]:
        return [(to, [r.id for r in m.registrations]) for to, m in self.port.sent_to(Register)]


def part(primary: str, attribute: str) -> Cluster:
    key = attribute_key(attribute)
    return Cluster("ring", key, f"{int(key, 16) - 1:040x}", (2, 1), peer(primary))
