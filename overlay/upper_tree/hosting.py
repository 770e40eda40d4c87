"""The host's side of the trees: virtual nodes, and events that come by (C6 to C9).

An event enters at any host of the tree. If one of the host's own virtual nodes holds the value it
is matched there (visiting.py), and sent to the interested nodes; else it goes on towards the
virtual node that holds it (partition.py). Either way the publisher hears who has taken the event,
and where, so that the next one goes there directly. A host that does not serve the tree answers
*moved*.
"""

from __future__ import annotations

from matching import Groups
from overlay.lower_random.access_points import AccessPoints
from overlay.lower_random.messages import AccessPoint
from overlay.machine import Handlers, Machine, Peer, Port
from overlay.settings import Settings
from overlay.upper_tree.compiled import compiled
from overlay.upper_tree.hosted import HostedTree, Joint
from overlay.upper_tree.messages import Assign, Assigned, Install, Installed, Uninstall, Visit
from overlay.upper_tree.visiting import VisitInHand

HOP_BOUND = 64
"""Messages on a tree path after which an event is given back to its publisher as *moved*: far over
any tree's height (2^64 virtual nodes), so only a loop between stale slices meets it."""


class Hosting(Machine):
    """Serves virtual nodes of any number of trees."""

    def __init__(self, port: Port, settings: Settings, access_points: AccessPoints) -> None:
        super().__init__(port)
        self.counting = settings.tree.routing == "counting"
        self.fan_out = settings.tree.fan_out
        self.access_points = access_points
        self.trees: dict[str, HostedTree] = {}
        self.joint: Joint | None = None if self.counting else Groups()

    def handlers(self) -> Handlers:
        """Messages, timers and events with their handlers."""
        return {
            Assign: self.on_assign,
            Install: self.on_install,
            Uninstall: self.on_uninstall,
            Visit: self.on_visit,
        }

    # --- what the owner says ---

    def on_install(self, sender: Peer, message: Install) -> None:
        """Registrations may come before the interval is assigned."""
        tree = self._tree(message.attribute)
        for registration in message.registrations:
            tree.install(registration, compiled(registration.selector))
        ids = tuple(registration.id for registration in message.registrations)
        self.port.send(sender, Installed(message.attribute, ids))

    def on_uninstall(self, sender: Peer, message: Uninstall) -> None:
        """Registrations that ended."""
        tree = self.trees.get(message.attribute)
        if tree is not None:
            for id_ in message.ids:
                tree.uninstall(id_)

    def on_assign(self, sender: Peer, message: Assign) -> None:
        """Serve these intervals at this version; an older word than the last is ignored."""
        tree = self._tree(message.attribute)
        if message.version >= tree.version:
            tree.assign(message)
            tree.forget_foreign()
            if not message.intervals:
                del self.trees[message.attribute]
            self._publish_access_points()
        self.port.send(sender, Assigned(message.attribute, message.version))

    def _tree(self, attribute: str) -> HostedTree:
        tree = self.trees.get(attribute)
        if tree is None:
            tree = self.trees[attribute] = HostedTree(attribute, self.joint)
        return tree

    def _publish_access_points(self) -> None:
        self.access_points.own(
            [
                AccessPoint(attribute, self.port.me, tree.version, 0)
                for attribute, tree in self.trees.items()
                if tree.intervals
            ]
        )

    # --- events ---

    def on_visit(self, sender: Peer, message: Visit) -> None:
        """Match, pass on, or give back, for each attribute."""
        visit = VisitInHand(self.port, message, self.joint, self.trees, self.fan_out)
        for attribute in message.attributes:
            tree = self.trees.get(attribute)
            if tree is None or not tree.intervals or message.hop > HOP_BOUND:
                visit.give_back(attribute)
            else:
                visit.take(attribute, tree)
        visit.match()
        visit.finish()
