"""Messages between nodes for the questions of programs: `canopy ring`, `where`, `why` and `pub
--dry-run`.

None of it changes anything at the node that is asked. A question's `number` comes back with the
answer, so that a late one is known as such.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from matching import Value
from overlay.client import Event
from overlay.machine import Key, Message, NodeId, Peer, Uint53, Version
from overlay.upper_tree.messages import Entry, Location


class AskTrees(Message, frozen=True):
    """Asks for the attributes that the receiver's cluster owns, and for the tree of `attribute`
    ("": of none in particular)."""

    overtakes = True

    number: Uint53
    attribute: str = ""


class TreesReport(Message, frozen=True, tag="Trees"):
    """Answer to AskTrees. `entries` with the number of registrations in each."""

    overtakes = True

    number: Uint53
    key: Key
    attributes: tuple[str, ...]
    version: Version
    entries: tuple[tuple[Entry, Uint53], ...]
    led_for: Annotated[float, msgspec.Meta(ge=-1.0, le=1e9)] = -1.0  # seconds
    silent: tuple[NodeId, ...] = ()  # members that the primary does not hear


class FindHosts(Message, frozen=True):
    """Asks for the hosts of these attributes' trees, which the receiver's cluster owns. The owner
    notes nothing about the asker, unlike with `AskTree`. The answer repeats `number`; only a
    primary answers."""

    number: Uint53
    attributes: tuple[str, ...]


class HostsFound(Message, frozen=True):
    """Answer to FindHosts: the virtual nodes of the trees that exist, and the attributes that have
    none. Those that the sender's cluster does not own are in neither."""

    number: Uint53
    locations: tuple[Location, ...]
    absent: tuple[str, ...]


class AskMatches(Message, frozen=True):
    """Asks which registrations here match these events, which are not published. `events` are
    numbers of the asker, in the order of `attributes`; `trees`: attributes, each with the numbers
    of the events that would visit its tree at this host."""

    number: Uint53
    events: tuple[Uint53, ...]
    attributes: tuple[dict[str, Value | None], ...]
    trees: tuple[tuple[str, tuple[Uint53, ...]], ...]


class NodeMatch(msgspec.Struct, frozen=True, array_like=True):
    """A node that an event would be sent to: the number of its matching subscriptions, and as many
    of their ids as the answer has room for."""

    peer: Peer
    subscriptions: Uint53
    ids: tuple[str, ...]


class MatchesFound(Message, frozen=True):
    """Answer to AskMatches, in the order of its `events`. `nodes`: how many each would be sent to;
    `listed` are those that the answer has room for. `moved`: trees with the numbers of the events
    whose values this host does not serve."""

    number: Uint53
    events: tuple[Uint53, ...]
    nodes: tuple[Uint53, ...]
    listed: tuple[tuple[NodeMatch, ...], ...]
    moved: tuple[tuple[str, tuple[Uint53, ...]], ...]


class AskEvent(Message, frozen=True):
    """Asks for the facts that the receiver remembers about this event, which it published or was
    shown."""

    number: Uint53
    event: str


class EventFacts(Message, frozen=True):
    """Answer to AskEvent: the event (None: unknown or forgotten), and its way as text."""

    number: Uint53
    event: Event | None
    path: tuple[str, ...]
    node: NodeId
