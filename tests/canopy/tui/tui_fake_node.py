"""A node without a network that speaks the interface of `canopy.client.blocking.ControlClient`.

It answers every command that the TUI uses, delivers what `publish` is given to the subscriptions
whose selectors match, and can go away and come back. Thread-safe, since the TUI's threads use it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable
from typing import Any

from canopy.client.errors import CommandFailed, UnreachableError
from canopy.client.session import ControlSession
from matching import SelectorError, compile_selector
from overlay.client import (
    Attributes,
    BeginReading,
    Command,
    Delivery,
    Done,
    EndReading,
    Event,
    EventsTaken,
    Explained,
    Failed,
    Feed,
    GetAttributes,
    GetIncidents,
    GetPeers,
    GetRing,
    GetStatus,
    GetStreams,
    GetSubscriptions,
    Incidents,
    Located,
    OpenSession,
    Peers,
    Publish,
    Published,
    ReadingReady,
    Reply,
    RingClusters,
    SessionOpened,
    Status,
    StreamEvent,
    Streams,
    Subscribe,
    Subscribed,
    Subscriptions,
    TakeEvents,
    Unsubscribe,
    Where,
    Why,
)
from overlay.info import (
    ClusterInfo,
    ConsumerInfo,
    ExplanationLine,
    GroupInfo,
    GroupShardInfo,
    Incident,
    PeerInfo,
    Reason,
    ReplicaInfo,
    ShardInfo,
    StreamInfo,
    SubscriptionInfo,
    VirtualNodeInfo,
)
from overlay.stream_client import DeadLetter, GetGroups, Groups, RowExplained, RowReader, WhyRow

NODES = tuple(f"{n:x}" * 16 for n in range(1, 10))
ME = NODES[0]


def key(fraction: float) -> str:
    """A place on the ring."""
    return f"{min(int(fraction * 2**160), 2**160 - 1):040x}"


def cluster(begin: float, end: float, members: tuple[str, ...], *attributes: str) -> ClusterInfo:
    standby = members[1] if len(members) > 1 else ""
    addresses = {node: f"127.0.0.1:40{n:02d}" for n, node in enumerate(members)}
    return ClusterInfo(key(end), key(begin), 3, members[0], standby, members, attributes, addresses)


class FakeNode:
    def __init__(self) -> None:
        self.lock = threading.Condition(threading.RLock())
        self.running = True
        self.clients: list[FakeClient] = []
        self.commands: list[Command] = []
        self.sequence = 0
        self.subscribed = 0
        self.streams = [
            stream("orders", key="customer", ttl_seconds=7_200.0, prefer="availability"),
            stream("quakes", capture="magnitude > 6"),
        ]
        self.rows: list[dict[str, Any]] = [{"n": n} for n in range(5)]  # of every stream
        self.refuse: Failed | None = None  # the next Subscribe gets this
        self.incidents = (
            Incident(75.0, "elected", NODES[1], key(0.2), 4, f"in place of {NODES[0]}"),
            Incident(76.2, "silent", NODES[0], key(0.2), 3, "the primary"),
        )
        self.clusters = (
            cluster(0.9, 0.2, NODES[:3], "magnitude", "place"),
            cluster(0.2, 0.55, NODES[3:6], "type", "tsunami"),
            cluster(0.55, 0.9, NODES[6:8], "depth"),
        )

    def connect(self) -> FakeClient:
        with self.lock:
            if not self.running:
                raise UnreachableError("no node runs at /nowhere; start it with `canopy node`")
            client = FakeClient(self)
            self.clients.append(client)
            return client

    def go_away(self) -> None:
        with self.lock:
            self.running = False
            self.clients.clear()
            self.lock.notify_all()

    def come_back(self) -> None:
        with self.lock:
            self.running = True

    def selectors(self) -> list[str]:
        with self.lock:
            return [s for client in self.clients for _, s in client.subscriptions.values()]

    def publish(self, *events: dict, payload: bytes = b"") -> int:
        """Deliver to whoever matches; how many deliveries."""
        made = 0
        with self.lock:
            for attributes in events:
                self.sequence += 1
                event = Event(
                    ME, 1, self.sequence, 1.7e9 + self.sequence, attributes, payload, "text/plain"
                )
                for client in self.clients:
                    for identity, (_, selector) in client.subscriptions.items():
                        if compile_selector(selector).matches(attributes):
                            client.queue.append(
                                Delivery(identity, event, "magnitude", "4", "6.5", 2, 3.5)
                            )
                            made += 1
            self.lock.notify_all()
        return made

    def asked(self, kind: type[Command]) -> list[Command]:
        with self.lock:
            return [command for command in self.commands if isinstance(command, kind)]

    def answer(self, client: FakeClient, command: Command) -> Reply:
        match command:
            case Subscribe():
                return self._subscribe(client, command)
            case Unsubscribe():
                client.subscriptions.pop(command.subscription, None)
                return Done(0)
            case Publish():
                first = self.sequence + 1
                for draft in command.events:
                    self.publish(draft.attributes, payload=draft.payload)
                return Published(0, len(command.events), ME, 1, first)
            case GetStatus():
                return self._status()
            case GetPeers():
                return Peers(0, tuple(
                    PeerInfo(node, f"127.0.0.1:40{n:02d}", "connected", n, n < 6, 1000 * n, 900 * n)
                    for n, node in enumerate(NODES) if n
                ))  # fmt: skip
            case GetIncidents():
                return Incidents(0, self.incidents)
            case GetRing():
                return RingClusters(0, self.clusters, True)
            case GetAttributes():
                return Attributes(0, ("magnitude", "place", "tsunami", "odd name"))
            case GetSubscriptions():
                return Subscriptions(0, tuple(
                    SubscriptionInfo(identity, name, selector, True, 1, ("magnitude",))
                    for client in self.clients
                    for identity, (name, selector) in client.subscriptions.items()
                ))  # fmt: skip
            case Where():
                return self._where(command.attribute)
            case Why():
                return self._why(command.event)
            case GetStreams():
                found = [s for s in self.streams if command.name in ("", s.name)]
                return Streams(0, tuple(found))
            case GetGroups():
                part = GroupShardInfo(0, 3, 5, 5, 2, 1, 0, 4, ("worker",))
                found = GroupInfo("mailers", "n > 2", 30.0, 5, "", "", "", 0.0, (part,))
                letter = DeadLetter(0, 2, 5, "the lease ran out", 1.7e9)
                return Groups(0, (found,), (letter,) if command.group else ())
            case WhyRow():
                reader = RowReader("billing", "n > 1", 2, "read")
                place = (0, len(self.rows), "@" + ME, 7, 3, 9, 1.7e9)
                return RowExplained(0, "kept", *place, {}, (reader,))
            case EndReading() | Feed():
                return Done(0)
            case OpenSession():
                return SessionOpened(0, "", 0.0)
        raise AssertionError(f"the TUI has no use for {command!r}")

    def _subscribe(self, client: FakeClient, command: Subscribe) -> Reply:
        if self.refuse is not None:
            refusal, self.refuse = self.refuse, None
            raise CommandFailed(refusal.code, refusal.reason)
        try:
            compile_selector(command.selector)
        except SelectorError as error:
            raise CommandFailed("selector", error.message) from None
        self.subscribed += 1
        identity = f"{ME}.{self.subscribed}"
        client.subscriptions[identity] = (command.name, command.selector)
        return Subscribed(0, identity)

    def _status(self) -> Status:
        return Status(
            0, ME, "127.0.0.1:4000", True, False, 4, "primary", self.clusters[0].key, "ring1", 6, 8,
            len(self.selectors()), 0, 3, "pivot",
            {"127.0.0.1:4001": "reached", "10.0.0.9:4000": "connection refused"},
            {"data_sent": 12_345, "walks": 77, "delivered": self.sequence}, 4242, 3723.0, "fir",
        )  # fmt: skip

    def _where(self, attribute: str) -> Reply:
        if attribute == "odd name":
            raise CommandFailed("time-out", "the ring did not answer")
        owner = next((c for c in self.clusters if attribute in c.attributes), self.clusters[0])
        return Located(0, attribute, owner, (3, 7), (
            VirtualNodeInfo("BOTTOM", "4", ME, 120),
            VirtualNodeInfo("4", "6.5", NODES[1], 256),
            VirtualNodeInfo("6.5", "TOP", NODES[2], 3),
        ))  # fmt: skip

    def _why(self, event: str) -> Reply:
        if event.endswith(".666"):
            raise CommandFailed("unknown", "this event is forgotten")
        verdicts = (
            ExplanationLine(0, "magnitude >= 5 AND (place LIKE '%a%' OR depth < 3)", "true", ""),
            ExplanationLine(1, "magnitude >= 5", "true", "6.1"),
            ExplanationLine(1, "place LIKE '%a%'", "false", "'Peru'"),
            ExplanationLine(1, "depth < 3", "unknown", "NULL"),
        )
        reasons = tuple(
            Reason(identity, name, selector, True, "it matched and came by the tree of magnitude",
                   verdicts, "magnitude", "4", "6.5", 2)
            for client in self.clients
            for identity, (name, selector) in client.subscriptions.items()
        )  # fmt: skip
        path = ("published here", "walk found the tree of magnitude at 2222", "match at 3333")
        return Explained(0, event, "e1", {"magnitude": 6.1}, path, reasons)


def stream(name: str, **more: Any) -> StreamInfo:
    leader = ReplicaInfo(
        *(ME, "127.0.0.1:4000", "leads", 3, 0, 5, 9, 9, 4_096, 1.7e9),
        behind=((NODES[1], 2),),
        consumers=(ConsumerInfo("billing", "n > 1", 2),),
        keys=3 if more.get("key") else None,
    )
    other = ReplicaInfo(NODES[1], "", "follows", 3, 0, 5, 7, 7, 4_000, 1.7e9, damaged=True)
    lost = ReplicaInfo(NODES[2], "127.0.0.1:4002", "silent")
    shards = (ShardInfo(0, ME, (leader, other, lost)),)
    return StreamInfo(name, "id", "", 3, 0.0, 0, shards, **more)


class FakeClient:
    """One connection; the interface of ControlClient as far as the TUI uses it."""

    def __init__(self, node: FakeNode) -> None:
        self.node = node
        self._session = ControlSession("/nowhere")
        self.notices = self._session.notices
        self.subscriptions: dict[str, tuple[str, str]] = {}
        self.queue: deque[Delivery] = deque()
        self.reading: BeginReading | None = None
        self.row = 0
        self.open: dict[int, Command] = {}

    def begin(self, command: Command, timeout: float = 30.0) -> int:
        with self.node.lock:
            self._check()
            self.node.commands.append(command)
            number = len(self.open) + 1
            self.open[number] = command
            return number

    def is_answered(self, number: int, timeout: float) -> bool:
        with self.node.lock:
            taking = isinstance(self.open[number], TakeEvents)
            rows = self.node.rows
            self.node.lock.wait_for(lambda: not taking or len(rows) > self.row, timeout)
            return not taking or len(rows) > self.row or self not in self.node.clients

    def finish(self, number: int, timeout: float = 30.0) -> Reply:
        with self.node.lock:
            self._check()
            command = self.open[number]
            if isinstance(command, BeginReading):
                if command.stream == "gone":
                    raise CommandFailed("unknown", "there is no stream gone")
                end = len(self.node.rows)
                self.reading = command
                start = {"first": 0, "new": end}.get(command.start, command.at)
                self.row = dict(command.positions).get(0, start)
                return ReadingReady(0, ((self.row, end),), "", "id")
            assert isinstance(command, TakeEvents)
            assert self.reading is not None
            wanted = compile_selector(self.reading.selector or "TRUE")
            found = tuple(
                StreamEvent(0, at, 1.7e9 + at, row)
                for at, row in enumerate(self.node.rows)
                if at >= self.row and wanted.matches(row)
            )
            self.row = len(self.node.rows)
            return EventsTaken(0, found, ((0, self.row),))

    def abandon(self, number: int) -> None:
        pass

    def _check(self) -> None:
        if self not in self.node.clients:
            raise UnreachableError("the node at /nowhere has gone: it closed the connection")

    def request(self, command: Command, timeout: float = 30.0) -> Reply:
        with self.node.lock:
            self._check()
            self.node.commands.append(command)
            return self.node.answer(self, command)

    def ask_many(
        self, commands: Iterable[Command], kind: type, timeout: float = 30.0, ahead: int = 1
    ) -> list[Reply]:
        return [self.request(command, timeout) for command in commands]

    def take(self, timeout: float) -> list[Delivery]:
        with self.node.lock:
            self.node.lock.wait_for(lambda: self.queue or self not in self.node.clients, timeout)
            if not self.queue:
                self._check()
            found = list(self.queue)
            self.queue.clear()
            return found

    def close(self) -> None:
        with self.node.lock:
            if self in self.node.clients:
                self.node.clients.remove(self)
