"""The interface of every protocol machine: handlers in, a Port out.

A machine is a class with one handler per message, timer and local event. It reads and changes its
own state, and speaks only through the injected `Port`, whose methods queue and return and never
call back. Handlers run to completion. There is no socket, file, await, wall clock or global
generator in a machine, so that the simulator runs the very same code as a process does.

A handler is a method `on_…` whose last parameter is annotated with what it handles. `node.py`
builds the whole node's dispatch from these and refuses two owners of one message or timer.

(Injected Port was measured against returned effect lists and generators: the most readable, and
1.5 to 3 times faster in Python.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from random import Random
from typing import Annotated, Any, ClassVar, Protocol, TypeVar, get_args, get_type_hints

import msgspec

NodeId = str
"""A node's name: 16 hex digits, drawn once and kept in its data folder."""

Key = str
"""A place on the ring: 40 lower-case hex digits (SHA-1), so that string order is ring order."""

Uint53 = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
"""An integer that a message may carry: a count, a number, an epoch. 2^53 is what a double, and so
every reader of JSON, keeps exactly. What nodes compute from such a number fits into 64 bits."""

Uint63 = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
"""A time in nanoseconds, a digest, or another number that is only compared."""

Duration = Annotated[float, msgspec.Meta(ge=0.0, le=1e9)]
"""Seconds, at most 31 years. Neither an infinite number nor NaN, with which a timer would never
be due."""

WallClock = Annotated[float, msgspec.Meta(ge=0.0, le=253_370_764_800.0)]
"""Seconds since 1970, before the year 9999: calendars have such a time in each zone, and no number
that is none."""

Version = tuple[Uint53, Uint53]
"""(epoch, number). Compared as a pair: a higher epoch outranks every number of a lower one."""


Region = Annotated[str, msgspec.Meta(max_length=64)]
"""A node's region, a path: ``eu``, ``eu/de`` (overlay/regions.py). "": it has no region."""

Tier = Annotated[int, msgspec.Meta(ge=0, le=100)]
"""A node's tier, which says how much it is meant to pass on for others: what enters a region enters
it at a node of the highest tier."""


class Peer(msgspec.Struct, frozen=True, array_like=True):
    """A node and how to reach it. Two Peers are the same node if their ids are equal.

    All fields but the id are hints that may be out of date: `address` ("host:port"), `region` and
    `tier`.
    """

    id: NodeId
    address: str
    region: Region = ""
    tier: Tier = 0


class NodeRoles(Protocol):
    """The permissions of nodes' roles, as far as they are known here (overlay/tenants/guard.py)."""

    def takes_part(self, node: NodeId) -> bool:
        """Whether a node may be in views: not if it is known to be a leaf."""

    def votes(self, node: NodeId) -> bool | None:
        """Whether a node may lead clusters. None: that is not known."""


class AnyNode:
    """The roles where nodes have no keys: every node may do everything."""

    def takes_part(self, node: NodeId) -> bool:
        """Return that any node may be in views."""
        return True

    def votes(self, node: NodeId) -> bool | None:
        """Return that any node may lead clusters."""
        return True


def by_id(peers: Iterable[Peer], besides: NodeId = "") -> dict[NodeId, Peer]:
    """The peers by id, without the node `besides`; of two with the same id the later one is
    kept."""
    found = {peer.id: peer for peer in peers}
    found.pop(besides, None)
    return found


class Message(msgspec.Struct, frozen=True, array_like=True, tag=True, gc=False):
    """A message between nodes, named by a noun or by an event that has happened. No other type can
    be decoded from the wire."""

    overtakes: ClassVar[bool] = False
    """Whether it may come before what was sent earlier and waits on a link whose peer does not keep
    up: heartbeats, votes, questions that a person asks. They keep their order among themselves."""

    capability: ClassVar[str] = ""
    """The capability that a peer must have named when it connected (`CAPABILITIES` in
    overlay/links/messages.py), else it is not sent this: nodes of an older version would take it
    for garbage. "": all nodes know it."""

    def data_units(self) -> int:
        """Return the number of data-plane messages that this counts for, as compared with the lower
        bound in the figures of CBDLO, section 5.

        One event or one attribute that travels from one node to another is one unit; everything
        else (acknowledgements, maintenance) counts 0 here and is counted as `other_messages`.
        """
        return 0


class Timer(msgspec.Struct, frozen=True):
    """A local timer. Equal timers are the same timer: setting one again moves it."""


class LocalEvent(msgspec.Struct, frozen=True):
    """An event that a machine emits for the machines above it on the same node. Never comes from
    the wire."""


class Stored(LocalEvent, frozen=True):
    """All that `Port.store_later` was given up to this ticket is durable."""

    ticket: int


Handler = Callable[..., None]
Handlers = Mapping[type[Message] | type[Timer] | type[LocalEvent], Handler]
"""Message handlers take (sender: Peer, message); timer and event handlers take the one struct."""


class Traceable(Protocol):
    """A thing that trace records name: an event, or a row of a stream."""

    @property
    def identity(self) -> str:
        """The identity, the same text at every node."""

    @property
    def traced(self) -> bool:
        """Whether nodes write records of it."""


Named = TypeVar("Named", bound=Traceable)


class Port(Protocol):
    """The interface of a machine to everything outside of it. Every method queues and returns."""

    @property
    def now(self) -> float:
        """Monotonic seconds. Has no meaning outside this node."""

    @property
    def rng(self) -> Random:
        """This node's own generator, seeded once."""

    @property
    def me(self) -> Peer:
        """This node's id and address."""

    @property
    def processors(self) -> int:
        """The number of processors of this node's machine that the node may use."""

    @property
    def schemas(self) -> Any:
        """The schemas to which events of this node's programs must conform: an `EventSchemas`
        (overlay/upper_tree/publisher/admission.py); None: there are none."""

    def send(self, peer: Peer, message: Message) -> None:
        """Send over the link to `peer` (itself allowed: it is dispatched in this turn, uncounted).

        FIFO per peer, but for what `overtakes`. Reliable until `LinkDown`, which names what may not
        have arrived.
        """

    def set_timer(self, delay: float, timer: Timer) -> None:
        """Fire `timer` after `delay` seconds; an equal timer that is pending is moved."""

    def cancel_timer(self, timer: Timer) -> None:
        """Do not fire `timer`; nothing happens if it is not pending."""

    def emit(self, event: LocalEvent) -> None:
        """Hand `event` to all machines that listen to its type, after the present handler has
        returned."""

    def watch(self, group: str, peers: Sequence[Peer]) -> None:
        """Keep the links to these peers open, so that their silence is noticed (`LinkDown`).

        Replaces the peers watched under the same `group` before.
        """

    def reply(self, client: int, reply: Any) -> None:
        """Answer a client of this node, or send it news (overlay/client.py, Reply)."""

    def share(self, events: Sequence[Any], places: Mapping[int, Sequence[int]]) -> None:
        """Tell clients that gather, in one call for all: to each the events at its places, as
        `Gathered`."""

    def store(self, *records: bytes, replace: bool = False) -> None:
        """Keep `records` on disk, durable before any frame or reply of this turn leaves. `replace`:
        in place of all stored records. The stored records are handed to the node at its next start,
        perhaps with those of a turn that was not yet durable (overlay/records.py has the whole
        contract)."""

    def store_later(self, *records: bytes, replace: bool = False) -> int:
        """As `store`, but nothing waits for it: the records are durable, in their order among all
        that is stored, when `Stored` comes with a ticket that is not below the one returned. That
        is in a later turn; what rests on the records may be said from then on."""

    def trace(self, kind: str, **fields: Any) -> None:
        """Write one flat trace record (canopy/traces/schema.py). Costs little when tracing is
        off; `tree` is given as the function that makes it, which is called when it is written."""

    def trace_each(self, kind: str, name: str, values: Sequence[str], **fields: Any) -> None:
        """Write a record for each of these values of the field `name`; all other fields are the
        same. Several times faster than one after another. They are of events among `sampled`, or
        of none, and `name` is ``event`` or ``subscription``."""

    def trace_marks(self, incarnation: int, first: int, count: int) -> Sequence[bool] | None:
        """Return, for each of the `count` events that this node publishes now, numbered from
        `first` on, whether all nodes are to trace it; None: all of them."""

    def sampled(self, events: Sequence[Named]) -> Sequence[Named]:
        """The events among these whose trace records are kept (none when tracing is off), so that a
        machine with many events builds no records of the others."""

    def row_share(self, kind: str, count: int) -> float:
        """Return the share of `count` rows of streams that get a trace record of a kind (``row`` or
        ``take``); the records have to name it. 0: none."""

    def trace_unmatched(self, counts: Mapping[str, int], alone: int) -> None:
        """Count events for which trees found no interested node: `counts` by the tree's attribute.
        `alone` of these events found none in any tree, and so have no `match` record."""

    def count(self, name: str, amount: int = 1) -> None:
        """Add to a named counter of this node (`canopy status`, metrics)."""


class Machine:
    """The base of all machines: a Port, and handlers `on_…`."""

    def __init__(self, port: Port) -> None:
        self.port = port

    def handlers(self) -> Handlers:
        """The handling method by type of message, timer and event. Read once, when the node is
        built. A machine that is made of parts adds theirs."""
        return handlers_of(self)

    def commands(self) -> Mapping[Any, Callable[..., None]]:
        """The method that carries out each command of programs. Read once, when the node is
        built."""
        return {}

    def client_gone(self, client: int) -> None:
        """A program has gone: nobody waits for the answers to its commands."""

    def start(self) -> None:
        """Set the first timers. Called once, after all machines are built."""


def handlers_of(*parts: object) -> Handlers:
    """By message, timer and event type the method of one of `parts` that handles it. TypeError if
    two handle the same type."""
    found: dict[Any, Handler] = {}
    for part in parts:
        machine: type = type(part)
        for kind, name in handlers_by_name(machine).items():
            if kind in found:
                raise TypeError(f"{type(part).__name__} and another part handle {kind.__name__}")
            found[kind] = getattr(part, name)
    return found


@cache
def handlers_by_name(machine: type) -> dict[Any, str]:
    """Names of the class's methods `on_…`, each by the type of its last parameter, or by the types
    of a union. TypeError if two methods handle the same type."""
    found: dict[Any, str] = {}
    for name in dir(machine):
        if name.startswith("on_"):
            *_, what, _returned = get_type_hints(getattr(machine, name)).values()
            for kind in get_args(what) or (what,):
                if found.setdefault(kind, name) != name:
                    raise TypeError(f"{machine.__name__} handles {kind.__name__} twice")
    return found


class Alarm:
    """A timer that keeps the earliest of the times that were asked for.

    `Port.set_timer` moves a pending timer: a machine that set its timer at every event would never
    be called while events come faster than its delay.
    """

    def __init__(self, port: Port, timer: Timer) -> None:
        self.port = port
        self.timer = timer
        self._due: float | None = None

    def within(self, delay: float) -> None:
        """Fire the timer in `delay` seconds, unless it is due earlier already."""
        due = self.port.now + delay
        if self._due is None or due < self._due:
            self._due = due
            self.port.set_timer(delay, self.timer)

    def rang(self) -> None:
        """Note that the timer has fired. To be called first in its handler."""
        self._due = None

    def cancel(self) -> None:
        """Do not fire the timer until it is asked for again."""
        self._due = None
        self.port.cancel_timer(self.timer)


class ProtocolError(Exception):
    """A peer sent what the protocol does not allow. Raised by handlers of messages: the session
    with the peer is closed with this reason, and the peer gets a penalty (overlay/links)."""

    is_fault: ClassVar[bool] = True
    """Whether the peer is to be blamed for it; False: its session ends without a penalty."""


# --- clients inside of the node: machines that use what programs use ---
#
# A machine that subscribes, appends or reads as a program does is a client with a negative number:
# its replies become local events, which it hears after the handler that made them.


class InnerReply(LocalEvent, frozen=True):
    """A reply (overlay/client.py) to a client inside of the node."""

    client: int
    reply: Any
