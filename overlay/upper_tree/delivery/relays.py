"""Nodes that this one does not reach, and who may bring them their deliveries (P3).

A link can be broken while both its ends live. What it does not carry goes to a *helper*, any other
node, who gives back what it cannot bring either. That must come to an end where the node is really
gone: deliveries for it would go round for ever, and faster the sooner each attempt fails.

A link may also be silent for a while before anybody can say that it is lost. What waits on it goes
to a helper, too, and stays on the link: `copied` names it, so that it is not sent a third time when
the link is lost, unless the helper has given it back. Where a helper gives back while the link is
silent, it is the node that stands still and not the link, and nothing more is copied.

So it is remembered since when a node's link is lost, and which helpers gave something back for it
lately. They are passed over. A delivery that was given back is dropped when the link has been lost
for `AGAIN` and `HELPERS` of them, or all there are, could not reach the node either; as long as one
helper reaches it, a link may be broken for as long as it likes.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence

from overlay.client import Event
from overlay.machine import NodeId, Peer, Port
from overlay.upper_tree.messages import Deliver, Undelivered

AGAIN = 18.0
"""Seconds that a node is tried for since its link was lost and no other came up: three times as
long as a silent link is waited for. Wild guess."""

HELPERS = 4
"""Helpers who have to fail before a node is given up: other hosts are often behind the same broken
switch. Wild guess."""

FAILED_FOR = 60.0
"""Seconds that a helper who gave back is passed over: so that `HELPERS` of them, one after the
other and with an attempt of our own before each (`links.dead_after`), are counted together."""

COPIED_MOST = 16_384
"""Deliveries on silent links that are remembered as copied, per link: what is beyond is not copied.
2 MB; some seconds of a busy link. Wild guess."""

LOST_MOST = 4_096
"""Nodes that are remembered: those that were lost first are forgotten, and so tried somewhat
longer. As many as there may be links."""


Copied = tuple[str, int, int, str, NodeId]
"""One delivery: an event's (publisher, incarnation, sequence), the tree, and whose delegate brings
it ("": its host). Two hosts may be each other's helpers for one event."""


def deliveries_of(events: Sequence[Event], attribute: str, host: NodeId) -> list[Copied]:
    """What these events of one message are known by."""
    return [(e.publisher, e.incarnation, e.sequence, attribute, host) for e in events]


def of_message(message: Deliver) -> list[Copied]:
    """… and of this one."""
    host = "" if message.host is None else message.host.id
    return deliveries_of(message.events, message.attribute, host)


def use_up(copied: Counter[Copied], keys: Sequence[Copied]) -> bool:
    """Whether all of these are there; then once less. (The same delivery may wait twice on a link:
    it came back, and came again.)"""
    if not all(copied[key] > 0 for key in keys):
        return False
    copied.subtract(keys)
    return True


class Lost:
    """A node whose link was lost and has not come up since."""

    __slots__ = ("failed", "since")

    def __init__(self, since: float) -> None:
        self.since = since
        self.failed: dict[NodeId, float] = {}  # helpers who gave back, and when


class Silent:
    """A node whose link carries nothing just now."""

    __slots__ = ("copied", "is_vain")

    def __init__(self) -> None:
        self.copied: Counter[Copied] = Counter()  # what somebody else has as well, how often
        self.is_vain = False  # a helper cannot reach it either


class Relays:
    """Bounded: `LOST_MOST` nodes, with some helpers each; silent are those with a session."""

    def __init__(self, port: Port, others: Callable[[], Sequence[Peer]]) -> None:
        """`others`: nodes that may help."""
        self.port = port
        self.others = others
        self._lost: OrderedDict[NodeId, Lost] = OrderedDict()
        self._silent: dict[NodeId, Silent] = {}

    # --- silent links ---

    def copy(self, node: NodeId, message: Deliver) -> bool:
        """This waits on its silent link. Whether it is to go another way as well."""
        silent = self._silent.setdefault(node, Silent())
        if silent.is_vain or len(silent.copied) + len(message.events) > COPIED_MOST:
            return False
        silent.copied.update(of_message(message))
        return True

    def hear(self, node: NodeId) -> None:
        """Its link is silent no more."""
        self._silent.pop(node, None)

    def copied(self, node: NodeId) -> Counter[Copied]:
        """What waits on its silent link and somebody else has."""
        silent = self._silent.get(node)
        return Counter() if silent is None else silent.copied

    def take_back(self, message: Undelivered) -> list[Event]:
        """A helper gave this back: the events that wait on no link of ours."""
        silent = self._silent.get(message.peer.id)
        if silent is None:
            return list(message.events)
        silent.is_vain = True
        keys = deliveries_of(message.events, message.attribute, "")
        held = [use_up(silent.copied, (key,)) for key in keys]
        return [event for event, is_held in zip(message.events, held, strict=True) if not is_held]

    # --- lost links ---

    def lose(self, node: NodeId) -> None:
        """The link to it is lost, and with it what waited there."""
        self._silent.pop(node, None)
        self._lost.setdefault(node, Lost(self.port.now))
        while len(self._lost) > LOST_MOST:
            self._lost.popitem(last=False)

    def find(self, node: NodeId) -> None:
        """A link to it came up."""
        self._lost.pop(node, None)
        self._silent.pop(node, None)

    def gave_back(self, node: NodeId, helper: NodeId) -> bool:
        """A helper could not reach it. Whether it may still be there."""
        lost = self._lost.get(node)
        if lost is None:
            return True
        lost.failed[helper] = self.port.now
        self._forget_failures(lost)
        enough = len(lost.failed) >= HELPERS or self.helper(node) is None
        return not enough or self.is_fresh(node)

    def is_fresh(self, node: NodeId) -> bool:
        """Whether it is not lost, or not for long."""
        lost = self._lost.get(node)
        return lost is None or self.port.now - lost.since < AGAIN

    def helper(self, node: NodeId) -> Peer | None:
        """Somebody else, whose link is not known to be lost, and who did not fail lately."""
        lost = self._lost.get(node)
        if lost is not None:
            self._forget_failures(lost)
        failed = {} if lost is None else lost.failed
        fit = [
            peer
            for peer in self.others()
            if peer.id not in (node, self.port.me.id)
            and peer.id not in self._lost
            and peer.id not in self._silent
            and peer.id not in failed
        ]
        return self.port.rng.choice(fit) if fit else None

    def _forget_failures(self, lost: Lost) -> None:
        now = self.port.now
        lost.failed = {n: at for n, at in lost.failed.items() if now - at < FAILED_FOR}
