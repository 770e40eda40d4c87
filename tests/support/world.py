"""Machines in virtual time: any of them at one node or at several, joined by FIFO links.

Theory of operation. A `WorldNode` is the Port of the machines that a test gives it (`add`). One
turn is one message, timer or event that it hears, with the local events and messages to itself that
follow, as in a whole node. Between two nodes there is a FIFO queue in each direction. In a world
without a delay these queues move only when the test says so (`deliver`, `flush`), in any order of
the links; in a world with a delay each message arrives after it. A link that breaks is reported
to both ends by `LinkDown`, which names what was under way, as sessions do (overlay/links).

Time is the simulator's (canopy/sim/world/scheduler.py): timers fire in `run`. Whole nodes, with
sessions, disks and faults below them, are in canopy/sim/world/world.py.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, Protocol, TypeVar

from canopy.sim.world.scheduler import Scheduler
from overlay.client import Gathered
from overlay.links.events import LinkDown, LinkUp
from overlay.machine import Handler, LocalEvent, Machine, Message, Named, Peer, Stored, Timer

T = TypeVar("T")
Link = tuple[str, str]
"""Sender and receiver, by id."""


def peer(name: str) -> Peer:
    """The Peer of the node of this name."""
    return Peer(name, f"{name}:1")


class Observer(Protocol):
    """What is called for each message, in the order in which things happen."""

    def heard(self, node: WorldNode, what: Any, sender: Peer | None) -> None:
        """Called before the node handles a message, timer or event."""

    def sent(self, sender: Peer, receiver: Peer, message: Message) -> None:
        """Called when a node sends a message."""


class WorldNode:
    """The Port of some machines: what they did is kept in lists, for a test to read."""

    def __init__(self, world: World, me: Peer, rng: Random) -> None:
        self.world = world
        self.me = me
        self.processors = 1
        self.schemas: Any = None
        self.rng = rng
        self.sent: list[tuple[Peer, Message]] = []
        self.emitted: list[LocalEvent] = []
        self.replies: list[tuple[int, Any]] = []
        self.traces: list[tuple[str, dict[str, Any]]] = []
        self.counts: Counter[str] = Counter()
        self.unmatched: Counter[str] = Counter()
        """By tree, the traced events for which it found nobody …"""
        self.alone = 0
        """… and how many found nobody in any tree."""
        self.watched: dict[str, tuple[Peer, ...]] = {}
        self.timers: dict[Timer, float] = {}
        """Pending timers, and when each is due."""
        self.tickets = 0
        self._unstored: list[tuple[tuple[bytes, ...], bool]] = []
        self._table: dict[type, list[Handler]] = {}
        self._queue: deque[LocalEvent | Message] = deque()

    # -- Port ------------------------------------------------------------------------------------

    @property
    def now(self) -> float:
        return self.world.now

    def send(self, peer: Peer, message: Message) -> None:
        self.sent.append((peer, message))
        self.world.sent.append((self.me.id, peer.id, message))
        for observer in self.world.observers:
            observer.sent(self.me, peer, message)
        if peer.id == self.me.id:
            self._queue.append(message)
        else:
            self.world.carry(self.me, peer, message)

    def set_timer(self, delay: float, timer: Timer) -> None:
        self.timers[timer] = self.now + delay
        self.world.after(delay, self._due, timer)

    def cancel_timer(self, timer: Timer) -> None:
        self.timers.pop(timer, None)

    def emit(self, event: LocalEvent) -> None:
        self.emitted.append(event)
        self._queue.append(event)

    def watch(self, group: str, peers: Sequence[Peer]) -> None:
        self.watched[group] = tuple(peers)

    def reply(self, client: int, reply: Any) -> None:
        self.replies.append((client, reply))

    def share(self, events: Sequence[Any], places: Mapping[int, Sequence[int]]) -> None:
        for client, where in places.items():
            self.reply(client, Gathered(0, tuple([events[place] for place in where])))

    def store(self, *records: bytes, replace: bool = False) -> None:
        if self._unstored:
            self._write_all()
        self._write(records, replace)

    def _write(self, records: Sequence[bytes], replace: bool) -> None:
        disk = self.world.disks.setdefault(self.me.id, [])
        if replace:
            disk.clear()
        disk += records

    def store_later(self, *records: bytes, replace: bool = False) -> int:
        """Durable in this turn already, or after `World.disk_time`."""
        self.tickets += 1
        self._unstored.append((records, replace))
        if self.world.disk_time is None:
            self._write_all()
        elif len(self._unstored) == 1:
            low, high = self.world.disk_time
            self.world.after(low + (high - low) * self.world.rng.random(), self.disk_syncs)
        return self.tickets

    def disk_syncs(self) -> None:
        """What was to be stored behind the turns is durable now, and the node hears so."""
        if self._unstored and self.world.nodes.get(self.me.id) is self:
            self._write_all()
            self.turn()

    def _write_all(self) -> None:
        for records, replace in self._unstored:
            self._write(records, replace)
        self._unstored.clear()
        self._queue.append(Stored(self.tickets))

    def trace(self, kind: str, **fields: Any) -> None:
        self.traces.append((kind, fields))

    def trace_each(self, kind: str, name: str, values: Sequence[str], **fields: Any) -> None:
        for value in values:
            self.trace(kind, **{name: value}, **fields)

    def trace_marks(self, incarnation: int, first: int, count: int) -> Sequence[bool] | None:
        return None

    def sampled(self, events: Sequence[Named]) -> Sequence[Named]:
        return events

    def row_share(self, kind: str, count: int) -> float:
        return 1.0

    def trace_unmatched(self, counts: Mapping[str, int], alone: int) -> None:
        self.unmatched.update(counts)
        self.alone += alone

    def count(self, name: str, amount: int = 1) -> None:
        self.counts[name] += amount

    # -- what a test does ------------------------------------------------------------------------

    def add(self, *machines: Machine) -> None:
        """Give the node machines. They are not started."""
        for machine in machines:
            for kind, handler in machine.handlers().items():
                handlers = self._table.setdefault(kind, [])
                assert not handlers or issubclass(kind, LocalEvent), f"two owners of {kind}"
                handlers.append(handler)

    def ignore(self, kind: type) -> None:
        """Do nothing with such messages, timers or events from now on."""
        self._table[kind] = []

    def hear(self, what: Message | LocalEvent | Timer, sender: Peer | None = None) -> None:
        """One turn: a message (with its sender), a timer or an event, and what follows from it."""
        for observer in self.world.observers:
            observer.heard(self, what, sender)
        self._handle(what, sender)
        self.turn()
        for check in self.world.checks:
            check()

    def turn(self) -> None:
        """Handle what was emitted and sent to itself; to be called after a machine's method."""
        while self._queue:
            what = self._queue.popleft()
            self._handle(what, self.me if isinstance(what, Message) else None)

    def advance(self, seconds: float) -> None:
        """Let time pass in the whole world."""
        self.world.run(seconds)

    def fire(self, timer: Timer) -> bool:
        """Fire a pending timer now. Returns whether it was pending."""
        return timer in self.timers and self._fire(timer)

    # -- what a test reads -----------------------------------------------------------------------

    def take(self, kind: type[T]) -> list[T]:
        """The messages of a type that were sent, without their receivers; forgets them."""
        return [message for _, message in self.sent_to(kind)]

    def sent_to(self, kind: type[T]) -> list[tuple[str, T]]:
        """(receiver's id, message) of a type that were sent; forgets them."""
        found: list[tuple[str, T]] = [
            (to.id, message) for to, message in self.sent if isinstance(message, kind)
        ]
        self.sent = [each for each in self.sent if not isinstance(each[1], kind)]
        return found

    def answers(self, kind: type[T]) -> list[T]:
        """Replies of a type to any client; forgets them."""
        found = [reply for _, reply in self.replies if isinstance(reply, kind)]
        self.replies = [each for each in self.replies if not isinstance(each[1], kind)]
        return found

    def of(self, kind: type[T]) -> list[T]:
        """The events of a type that were emitted."""
        return [event for event in self.emitted if isinstance(event, kind)]

    def traced(self, kind: str) -> list[dict[str, Any]]:
        """The fields of the trace records of a kind."""
        return [fields for what, fields in self.traces if what == kind]

    # -- helpers ---------------------------------------------------------------------------------

    def _handle(self, what: Any, sender: Peer | None) -> None:
        for handler in self._table.get(type(what), ()):
            if sender is None:
                handler(what)
            else:
                handler(sender, what)

    def _due(self, timer: Timer) -> None:
        """A timer that was set is due, unless it was cancelled or moved, or the node is gone."""
        when = self.timers.get(timer)
        if when is not None and when <= self.now and self.world.nodes.get(self.me.id) is self:
            self._fire(timer)

    def _fire(self, timer: Timer) -> bool:
        del self.timers[timer]
        self.hear(timer)
        return True


class World(Scheduler):
    """Nodes by id, the links between them, and the time.

    `delay`: seconds on the way, evenly spread between the two; None: the test delivers by hand.
    `notice`: seconds until a node notices that the other end of a link is gone.
    """

    def __init__(
        self,
        seed: int = 1,
        delay: tuple[float, float] | None = None,
        notice: float = 1.0,
        now: float = 1_000.0,
    ) -> None:
        super().__init__(now)
        self.seed = seed
        self.rng = Random(seed)
        self.delay = delay
        self.notice = notice
        self.nodes: dict[str, WorldNode] = {}
        self.links: dict[Link, deque[Message]] = {}
        """What is under way; a link is open in both directions once something was sent."""
        self.held: dict[str, None] = {}
        """Nodes whose links hold everything back, in a world without a delay."""
        self.severed: dict[Link, None] = {}
        """Links that carry nothing until they heal."""
        self.sent: list[tuple[str, str, Message]] = []
        """(sender, receiver, message) of all that nodes sent, in order."""
        self.disks: dict[str, list[bytes]] = {}
        """What nodes have stored; outlives `kill`."""
        self.disk_time: tuple[float, float] | None = None
        """Seconds after which what is stored behind a turn is durable, evenly spread between the
        two; None: it is at once."""
        self.observers: list[Observer] = []
        self.checks: list[Callable[[], object]] = []
        """Called after each turn of each node."""
        self._clear_at: dict[Link, float] = {}  # when the last message of the link arrives
        self._unnoticed: dict[Link, list[LinkDown]] = {}  # ends of sessions, by who will hear them
        self._peers: dict[str, Peer] = {}  # every node that there was

    # -- nodes -----------------------------------------------------------------------------------

    def node(
        self,
        name: str,
        address: str = "",
        rng: Random | None = None,
        region: str = "",
        tier: int = 0,
    ) -> WorldNode:
        """Add a node without machines, or start another one in the place of one that is gone."""
        me = Peer(name, address or peer(name).address, region, tier)
        node = WorldNode(self, me, rng or Random(f"{self.seed}.{name}"))
        self.nodes[name] = node
        self._peers[name] = me
        return node

    def kill(self, name: str, left: bool = False) -> None:
        """Remove a node; what it sent before still arrives. The others notice after `notice`
        seconds, or at once if it has `left` in order."""
        gone = self.nodes.pop(name)
        for link in [link for link in self._unnoticed if link[0] == name]:
            del self._unnoticed[link]  # a process that is started later had no such session
        for source, target in list(self.links):
            if target == name:
                self._down(source, gone.me, left, self._drop((source, name)))
            elif source == name:
                del self.links[name, target]

    def forget(self) -> None:
        """Drop all timers that are set and messages that are under way."""
        self.clear()
        self.links.clear()
        for node in self.nodes.values():
            node.timers.clear()

    # -- links -----------------------------------------------------------------------------------

    def carry(self, sender: Peer, receiver: Peer, message: Message) -> None:
        """Take a message that a node sends to another."""
        link = (sender.id, receiver.id)
        if self.delay is not None and (link in self.severed or receiver.id not in self.nodes):
            self._down(sender.id, receiver, False, (message,))
            return
        queue = self.links.setdefault(link, deque())
        self.links.setdefault((receiver.id, sender.id), deque())
        queue.append(message)
        if self.delay is not None:
            low, high = self.delay
            at = self.now + (low + (high - low) * self.rng.random() if high > low else low)
            at = self._clear_at[link] = max(at, self._clear_at.get(link, 0.0))
            self.at(at, self._arrive, link, queue)

    def busy(self) -> list[Link]:
        """Links with something under way that is not held back."""
        return [
            link
            for link, messages in self.links.items()
            if messages and not any(name in self.held for name in link)
        ]

    def deliver(self, link: Link) -> None:
        """Hand over the oldest message of one link."""
        self._hand_over(link, self.links[link])

    def flush(self, most: int = 10_000) -> None:
        """Deliver until nothing is under way."""
        for _ in range(most):
            links = self.busy()
            if not links:
                return
            self.deliver(links[0])
        raise AssertionError("the network does not come to rest")

    def cut(self, one: str, two: str, left: bool = False) -> None:
        """The session between two nodes ends (`two` has `left`), with what is under way; both ends
        hear it now. What is sent afterwards begins another session."""
        for source, target in ((one, two), (two, one)):
            lost = self._drop((source, target))
            if source in self.nodes:
                self.nodes[source].hear(LinkDown(self._peer(target), "cut", left, lost))

    def join(self, one: str, two: str) -> None:
        """There is another session between two nodes; both hear it now."""
        for source, target in ((one, two), (two, one)):
            self.nodes[source].hear(LinkUp(self._peer(target), True))

    def sever(self, one: str, two: str) -> None:
        """Two nodes do not reach each other until `heal`; both notice after `notice` seconds."""
        for source, target in ((one, two), (two, one)):
            self.severed[source, target] = None
            self._down(source, self._peer(target), False, self._drop((source, target)))

    def heal(self, one: str, two: str) -> None:
        """They reach each other again. The session comes up after its end was noticed."""
        for source, target in ((one, two), (two, one)):
            self.severed.pop((source, target), None)
            self.after(self.notice, self.begin_session, source, target)

    def begin_session(self, at: str, other: str) -> None:
        """A node hears that there is a new session with another, if they reach each other. It hears
        before of the end of each former one that it has not noticed yet, as a peer that was started
        again ends the old session first (overlay/links/handshake.py)."""
        if other in self.nodes and (at, other) not in self.severed:
            for down in list(self._unnoticed.get((at, other), ())):
                self._notice((at, other), down)
            self.tell(at, LinkUp(self._peer(other), True))

    def tell(self, name: str, event: LocalEvent) -> None:
        """A node hears an event, if it is there."""
        if name in self.nodes:
            self.nodes[name].hear(event)

    # -- helpers ---------------------------------------------------------------------------------

    def _arrive(self, link: Link, queue: deque[Message]) -> None:
        if queue:  # else it was lost with its session
            self._hand_over(link, queue)

    def _hand_over(self, link: Link, queue: deque[Message]) -> None:
        message = queue.popleft()
        if link[1] in self.nodes:
            self.nodes[link[1]].hear(message, self._peer(link[0]))

    def _drop(self, link: Link) -> tuple[Message, ...]:
        self._clear_at.pop(link, None)
        queue = self.links.pop(link, deque())
        lost = tuple(queue)
        queue.clear()
        return lost

    def _down(self, at: str, other: Peer, left: bool, lost: tuple[Message, ...]) -> None:
        down = LinkDown(other, "gone", left, lost)
        self._unnoticed.setdefault((at, other.id), []).append(down)
        self.after(0.01 if left else self.notice, self._notice, (at, other.id), down)

    def _notice(self, link: Link, down: LinkDown) -> None:
        """A node hears that a session has ended, unless it has heard it already."""
        unnoticed = self._unnoticed.get(link, [])
        if any(each is down for each in unnoticed):
            unnoticed[:] = [each for each in unnoticed if each is not down]
            self.tell(link[0], down)

    def _peer(self, name: str) -> Peer:
        return self._peers.get(name) or peer(name)


def one_node(name: str = "me", seed: int = 1) -> WorldNode:
    """One node in a world of its own: what it sends to others goes nowhere."""
    return World(seed).node(name)
