"""The lies, by name. Each class is one attack; what it does not change is done as it should be."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from msgspec.structs import replace

from canopy.sim.world.signer import SimulatedSigner
from harness.lying_node import Attack, Band
from overlay.chord.cluster.messages import (
    ClusterHello,
    LogAck,
    LogEntries,
    RequestVote,
    VoteReply,
)
from overlay.chord.epochs import FORK, granting
from overlay.chord.keys import attribute_key
from overlay.chord.messages import Cluster, Find, FindReply, Moved
from overlay.chord.recovery.messages import RecoverRequest
from overlay.lower_random.messages import (
    AccessPoint,
    Neighbour,
    Relayed,
    RingHint,
    Shuffle,
    ShuffleReply,
    Walk,
    WalkHit,
    WalkMiss,
)
from overlay.lower_random.peer_records import signed_part
from overlay.machine import Message, Peer
from overlay.upper_tree.messages import Accepted, AskTree, Deliver, TreeAnswer, Visit
from overlay.upper_tree.visits import groups_of

NAMED = 8
"""Entries of one exchange, as honest nodes send."""

PUSHES = 5
"""Nodes to which each liar pushes, each time."""

FAR_AHEAD = 1_000_000
"""By which epochs of lies are newer than what is true."""

VOTED_FOR = 5.0
"""Seconds for which a voter that lies says it votes for no other."""

TERM = 60.0
"""Seconds for which *no subscribers* holds, in lies."""


class Honest:
    """The base of all attacks: nothing is changed."""

    def __init__(self, band: Band) -> None:
        self.band = band

    def says(self, node: Any, to: Peer, message: Message) -> Iterable[Message]:
        """Return the messages that the node sends instead of `message`: the message itself."""
        return (message,)

    def hears(self, node: Any, sender: Peer, message: Message) -> Message | None:
        """Return the message that the node takes instead of `message`, or None: the message
        itself."""
        return message

    def pushes(self, node: Any) -> Iterable[tuple[Peer, Message]]:
        """Return the messages that a liar sends on its own: none."""
        return ()

    def some(self, peers: list[Peer], most: int) -> list[Peer]:
        """At most so many of these, at random."""
        return self.band.rng.sample(peers, min(most, len(peers)))


class Poisoning(Honest):
    """Names only liars in exchanges, pushes these at all honest nodes, and drops walks."""

    def targets(self) -> list[Peer]:
        """Return the nodes that are attacked: the victims."""
        return self.band.victims

    def says(self, node: Any, to: Peer, message: Message) -> Iterable[Message]:
        """Replace the nodes named in exchanges by liars."""
        if isinstance(message, Shuffle | ShuffleReply):
            return (type(message)(self.liars(), (), ()),)
        return (message,)

    def hears(self, node: Any, sender: Peer, message: Message) -> Message | None:
        """Walks end here without a word."""
        return None if isinstance(message, Walk) else message

    def pushes(self, node: Any) -> Iterator[tuple[Peer, Message]]:
        """Exchanges that nobody asked for."""
        self.band.entries[node.me.id] = node.view.own_entry()
        for victim in self.some(self.targets(), PUSHES):
            yield victim, Shuffle(self.liars(), (), ())

    def liars(self) -> tuple[Neighbour, ...]:
        """Some of the band, as young entries."""
        chosen = self.some(self.band.liars, NAMED)
        return tuple(self.band.entries.get(liar.id, Neighbour(liar, 0)) for liar in chosen)


class MadeUp(Poisoning):
    """Names and pushes nodes that do not exist, at the liars' addresses: anybody can make keys, and
    so ids that sign. They show a liar's own certificate."""

    def liars(self) -> tuple[Neighbour, ...]:
        """Made-up ids at the addresses of some liars."""
        return tuple(map(self._made_up, self.some(self.band.liars, NAMED)))

    def _made_up(self, liar: Peer) -> Neighbour:
        who = replace(liar, id=f"{self.band.rng.getrandbits(64):016x}")
        known = self.band.entries.get(liar.id)
        if known is None or known.record is None:  # where nodes have no keys nothing is signed
            return Neighbour(who, 0)
        signer = SimulatedSigner(who.id, self.band.world)
        signature = signer.sign(signed_part(who, known.record.until))
        return Neighbour(who, 0, record=replace(known.record, signature=signature))


class Eclipse(Poisoning):
    """All that `Poisoning` does, to nodes that have just come."""

    def targets(self) -> list[Peer]:
        """Return the nodes that are attacked: the newcomers."""
        return self.band.newcomers

    def says(self, node: Any, to: Peer, message: Message) -> Iterable[Message]:
        """Lie to newcomers only."""
        return super().says(node, to, message) if to in self.band.newcomers else (message,)

    def hears(self, node: Any, sender: Peer, message: Message) -> Message | None:
        """Others' walks go on."""
        is_theirs = isinstance(message, Walk) and message.origin in self.band.newcomers
        return None if is_theirs else message


class FalseAccessPoints(Honest):
    """Claims to be the access point of every tree, in exchanges and to walks; events that visit it
    are accepted and dropped."""

    def points(self, node: Any, attributes: Iterable[str]) -> tuple[AccessPoint, ...]:
        """Lies about these trees, newer than the truth."""
        version, ring = (FAR_AHEAD, 1), node.access_points.ring
        return tuple(AccessPoint(name, node.me, version, 0, ring) for name in attributes)

    def says(self, node: Any, to: Peer, message: Message) -> Iterable[Message]:
        """Exchanges carry lies about trees."""
        if isinstance(message, Shuffle | ShuffleReply):
            lies = self.points(node, self.band.attributes)
            return (replace(message, access_points=lies),)
        return (message,)

    def hears(self, node: Any, sender: Peer, message: Message) -> Message | None:
        """Walks hit, and visits are accepted."""
        if isinstance(message, Walk):
            found = self.points(node, message.attributes)
            node.answer(message.origin, WalkHit(message.number, message.hop, found))
            return None
        return swallow(node, message)


class BlackHole(Honest):
    """Takes what is to be passed on, and drops it: walks, lookups, frames for others, events, and
    the copies that it should make of them as a delegate."""

    def hears(self, node: Any, sender: Peer, message: Message) -> Message | None:
        """Only what is for this node itself is handled."""
        if isinstance(message, Walk | Find | Relayed):
            return None
        if isinstance(message, Deliver) and message.onward:
            return replace(message, onward=())
        return swallow(node, message)


class PushAndDrop(Poisoning):
    """Gets into views as `Poisoning` does, and drops what comes this way as `BlackHole` does."""

    def __init__(self, band: Band) -> None:
        super().__init__(band)
        self._dropping = BlackHole(band)

    def hears(self, node: Any, sender: Peer, message: Message) -> Message | None:
        """Only what is for this node itself is handled."""
        return self._dropping.hears(node, sender, message)


class NobodyThere(Honest):
    """Says that trees have no subscribers, to all who may be looking for one."""

    def hears(self, node: Any, sender: Peer, message: Message) -> Message | None:
        """Walks and questions are answered so."""
        if isinstance(message, Walk):
            node.answer(message.origin, WalkMiss(message.number, message.hop, message.attributes))
            node.answer(message.origin, self.nobody(message.attributes))
            return None
        if isinstance(message, AskTree):
            node.answer(sender, replace(self.nobody(message.attributes), number=message.number))
            return None
        return message

    def pushes(self, node: Any) -> Iterator[tuple[Peer, Message]]:
        """Answers that nobody asked for."""
        for victim in self.some(self.band.victims, PUSHES):
            yield victim, self.nobody(self.band.attributes)

    def nobody(self, attributes: tuple[str, ...]) -> TreeAnswer:
        """The lie about these trees."""
        return TreeAnswer((), attributes, TERM, 1, (), FAR_AHEAD)


class FalseOwners(NobodyThere):
    """Claims to lead every cluster under a later epoch, and answers as their owner that trees have
    no subscribers."""

    def says(self, node: Any, to: Peer, message: Message) -> Iterable[Message]:
        """Exchanges name this node as the way into the ring."""
        if isinstance(message, Shuffle | ShuffleReply):
            return (replace(message, rings=self.hints(node)),)
        return (message,)

    def hears(self, node: Any, sender: Peer, message: Message) -> Message | None:
        """Lookups end here."""
        if isinstance(message, Find):
            for claim in self.claims(node, message.number, message.hop):
                if claim.cluster.owns(message.key):
                    node.answer(message.origin, claim)
            return None
        return message if isinstance(message, Walk) else super().hears(node, sender, message)

    def pushes(self, node: Any) -> Iterator[tuple[Peer, Message]]:
        """Claims that answer no lookup."""
        for victim in self.some(self.band.victims, PUSHES):
            for claim in self.claims(node, 0, 1):
                yield victim, claim
                yield victim, Moved(claim.cluster)

    def claims(self, node: Any, number: int, hop: int) -> list[FindReply]:
        """Each cluster that is known, led by this node."""
        return [
            FindReply(
                number,
                replace(each, version=(FAR_AHEAD, 1), primary=node.me, standby=None, brokers=()),
                hop,
            )
            for each in self.clusters(node)
        ]

    def hints(self, node: Any) -> tuple[RingHint, ...]:
        """The same as hints."""
        return tuple(
            RingHint(each.ring, each.key, (FAR_AHEAD, 1), node.me) for each in self.clusters(node)
        )

    def clusters(self, node: Any) -> list[Cluster]:
        """Those that own the trees, as this node knows them."""
        keys = map(attribute_key, self.band.attributes)
        found = [cluster for key in keys if (cluster := node.ring.covering(key)) is not None]
        return list({cluster.key: cluster for cluster in found}.values())


class LyingVoter(FalseOwners):
    """A voter of a cluster: acknowledges its log without storing it, votes for every candidate,
    claims later epochs and forks, and answers lookups as if it led. It does not stand itself: who
    is elected leads, and then lies as a primary."""

    def says(self, node: Any, to: Peer, message: Message) -> Iterable[Message]:
        """It asks for no votes; what is not changed below is said as it is."""
        return () if isinstance(message, RequestVote | RecoverRequest) else (message,)

    def hears(self, node: Any, sender: Peer, message: Message) -> Message | None:
        """Entries are acknowledged, and candidates get their vote."""
        if isinstance(message, LogEntries):
            self._acknowledge(node, sender, message, message.after[1] + len(message.entries))
            return None
        if isinstance(message, RequestVote):
            signed = granting(node.ring.id, message.key, message.epoch, sender.id)
            grant = None if node.signer is None else node.signer.sign(signed)
            epoch = message.epoch
            yes = VoteReply(message.key, epoch, message.pre_vote, True, epoch, VOTED_FOR, grant)
            node.answer(sender, yes)
            return None
        return super().hears(node, sender, message) if isinstance(message, Find) else message

    def pushes(self, node: Any) -> Iterator[tuple[Peer, Message]]:
        """To all: the next epoch, or the next fork, is this node's."""
        for claim in self.claims(node, 0, 1):
            for victim in self.band.victims:
                yield victim, Moved(claim.cluster)
                yield victim, ClusterHello(claim.cluster)
                yield victim, claim

    def claims(self, node: Any, number: int, hop: int) -> list[FindReply]:
        """The own cluster, led by this node, signed as well as it can be."""
        own = node.clusters.cluster
        if own is None:
            return []
        step = self.band.rng.choice((1, FORK))
        rest = [peer for peer in own.members() if peer.id != node.me.id]
        said = own.under(own.epoch + step).served_by(node.me, *rest)
        if node.signer is not None:
            signed = granting(said.ring, said.key, said.epoch, node.me.id)
            said = replace(said, grants=(node.signer.sign(signed),))
        return [FindReply(number, node.ring.sealed(said), hop)]

    def _acknowledge(self, node: Any, sender: Peer, message: LogEntries, end: int) -> None:
        node.answer(sender, LogAck(message.key, message.epoch, end))


def swallow(node: Any, message: Message) -> Message | None:
    """Accept a visit and drop it; any other message is left as it is."""
    if not isinstance(message, Visit) or message.part is not None:
        return message
    groups = groups_of(message)
    if message.events:
        taken = tuple(
            (names, tuple(event.sequence for event in events)) for names, events in groups
        )
        incarnation = message.events[0].incarnation
        node.answer(message.origin, Accepted(incarnation, taken, ()))
    return None


ATTACKS: dict[str, Callable[[Band], Attack]] = {
    "poisoning": Poisoning,
    "made-up": MadeUp,
    "eclipse": Eclipse,
    "access-points": FalseAccessPoints,
    "black-hole": BlackHole,
    "push-and-drop": PushAndDrop,
    "nobody-there": NobodyThere,
    "owners": FalseOwners,
    "voter": LyingVoter,
}
"""All attacks by name."""
