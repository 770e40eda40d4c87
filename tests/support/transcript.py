"""What the nodes of a World say, as text: a line per message or timer that a node handles, and
indented below it what the node sends in return.

Protocol tests compare a transcript with the text that they expect, so that a flow can be read as
one reads a story. Only the nodes and the kinds of messages and timers that a test names are shown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from overlay.chord.cluster.messages import (
    ClusterHello,
    ClusterHelloReply,
    LogAck,
    LogEntries,
    LogSnapshot,
    RequestVote,
    VoteReply,
)
from overlay.chord.epochs import fork_count
from overlay.chord.messages import (
    ArcGiven,
    Find,
    FindReply,
    Membership,
    Rejoin,
    TakenOver,
    TakeOver,
)
from overlay.chord.recovery.messages import RecoverReply, RecoverRequest
from overlay.machine import Message, NodeId, Peer, Timer
from overlay.phrases import counted
from overlay.upper_tree.inspection_messages import (
    AskMatches,
    FindHosts,
    HostsFound,
    MatchesFound,
)
from tests.support.world import World, WorldNode


def yes(granted: bool) -> str:
    return "yes" if granted else "no"


def entries(message: LogEntries) -> str:
    kinds = ["configuration" if e.config is not None else "entry" for e in message.entries]
    return f"{', '.join(kinds)} after {message.after[1]}"


def leads(message: ClusterHello | Rejoin) -> str:
    epoch = message.cluster.version[0]
    return f"fork {fork_count(epoch)}" if fork_count(epoch) else f"epoch {epoch}"


DETAILS: Mapping[type, Callable[[Any], str]] = {
    Find: lambda m: f"hop {m.hop}",
    FindReply: lambda m: f"after {m.hop} hops",
    RequestVote: lambda m: "pre-vote" if m.pre_vote else f"epoch {m.epoch}",
    VoteReply: lambda m: f"{'pre-vote' if m.pre_vote else f'epoch {m.epoch}'}: {yes(m.granted)}",
    ClusterHello: leads,
    ClusterHelloReply: lambda m: f"has {m.position[1]} entries",
    Rejoin: leads,
    LogEntries: entries,
    LogSnapshot: lambda m: f"{len(m.entries)} entries",
    LogAck: lambda m: f"has {m.next} entries",
    TakeOver: lambda m: f"{m.index} entries, epoch {m.cluster.version[0]}",
    TakenOver: lambda m: yes(m.accepted),
    ArcGiven: lambda m: yes(m.given),
    Membership: lambda m: f"{len(m.cluster.members())} members",
    RecoverRequest: lambda m: "look" if not m.epoch else "may I lead it?",
    RecoverReply: lambda m: yes(m.agreed),
    FindHosts: lambda m: f"of {counted(len(m.attributes), 'tree')}",
    HostsFound: lambda m: f"{counted(len(m.locations), 'location')}, {len(m.absent)} absent",
    AskMatches: lambda m: f"{counted(len(m.events), 'event')}, {counted(len(m.trees), 'tree')}",
    MatchesFound: lambda m: f"{counted(sum(m.nodes), 'node')}, {len(m.moved)} moved",
}


class Transcript:
    """Records from its construction on. `names`: the nodes that are shown, and how they are
    called; `kinds`: messages and timers."""

    def __init__(self, world: World, names: Mapping[NodeId, str], kinds: Sequence[type]) -> None:
        self._lines: list[str] = []
        self._names = names
        self._kinds = tuple(kinds)
        self._is_kept = True  # whether the last line, a heading, is part of the transcript
        world.observers.append(self)

    def text(self) -> str:
        return "\n".join(self._lines if self._is_kept else self._lines[:-1])

    def heard(self, node: WorldNode, what: Any, sender: Peer | None) -> None:
        if not self._is_kept:  # the turn before was of no kind that is shown, and said nothing
            self._lines.pop()
        self._lines.append(self._heading(node.me, what, sender))
        known = node.me.id in self._names and (sender is None or sender.id in self._names)
        self._is_kept = known and isinstance(what, self._kinds)

    def sent(self, sender: Peer, receiver: Peer, message: Message) -> None:
        known = sender.id in self._names and receiver.id in self._names
        if known and isinstance(message, self._kinds):
            self._lines.append(f"    -> {self._name(receiver)}: {_say(message)}")
            self._is_kept = True

    def _heading(self, node: Peer, what: Any, sender: Peer | None) -> str:
        if sender is not None:
            return f"{self._name(node)} <- {self._name(sender)}: {_say(what)}"
        kind = "timer" if isinstance(what, Timer) else "event"
        return f"{self._name(node)}: {kind} {type(what).__name__}"

    def _name(self, peer: Peer) -> str:
        return self._names.get(peer.id, "another node")


def _say(message: Message) -> str:
    detail = DETAILS.get(type(message))
    return type(message).__name__ + ("" if detail is None else f" ({detail(message)})")
