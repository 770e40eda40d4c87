"""An owner of trees, its match brokers as hosts, and one subscriber, joined by a TreeNet."""

from __future__ import annotations

from msgspec.structs import replace

from matching import place
from overlay.client import Event
from overlay.settings import Settings
from overlay.upper_tree.messages import Register
from tests.support.overlays import settings
from tests.support.tree_net import (
    HostNode,
    OwnerNode,
    TreeNet,
    cluster_of,
    event,
    peer,
    registration,
)

S = peer("s")
SMALL = settings(tree={"split_at": 4})


class Rig:
    """The owner p, match brokers that host, and the subscriber s."""

    def __init__(self, *brokers: str, chosen: Settings = SMALL, replicas: int = 1) -> None:
        chosen = replace(chosen, tree=replace(chosen.tree, replicas=replicas))
        self.net = TreeNet()
        self.settings = chosen
        self.subscriber = self.net.node("s")
        self.hosts = {name: HostNode(self.net.node(name), chosen) for name in brokers}
        self.owner = OwnerNode(self.net.node("p"), chosen, cluster_of("p", *brokers))

    def register(self, *selectors: str, first: int = 0) -> None:
        made = tuple(
            registration(f"s/{first + n}", "x", text, S) for n, text in enumerate(selectors)
        )
        self.owner.port.hear(Register(1, made), S)
        self.owner.clusters.commit()
        self.net.flush()

    def settle(self, seconds: float = 5.0) -> None:
        """Time passes in steps; messages arrive at once."""
        for _ in range(int(seconds * 5)):
            self.net.advance(0.2)
            self.owner.clusters.commit()
            self.net.flush()

    def pause(self, kind: type) -> None:
        """Time passes until a message of this kind is on its way; it is not delivered."""
        for _ in range(50):
            self.net.advance(0.2)
            while self.net.busy():
                link = self.net.busy()[0]
                if any(isinstance(message, kind) for message in self.net.links[link]):
                    return
                self.net.deliver(link)
        raise AssertionError(f"no {kind.__name__}")

    @property
    def spread(self) -> list[str]:
        """Hosts of the map's virtual nodes, in order."""
        return [entry.hosts[0].id for entry in self.owner.owner.trees["x"].tree.map.entries]

    def serving(self, value: int, name: str = "") -> list[str]:
        """Hosts (or only `name`) that match this value now."""
        return [
            host
            for host, node in self.hosts.items()
            if name in ("", host) and served(node, event(1, x=value)) is not None
        ]

    def members(self, *brokers: str) -> None:
        self.owner.clusters.cluster = cluster_of("p", *brokers)


def served(node: HostNode, what: Event) -> list[str] | None:
    """What the host would match, None if it does not serve the value."""
    tree = node.hosting.trees.get("x")
    spot = place(what.attributes["x"] or 0)
    if tree is None or tree.span(spot) is None:
        return None
    return tree.match(what)
