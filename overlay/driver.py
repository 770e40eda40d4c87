"""The calls of a driver on its node, and those of a node on its driver.

A driver brings a node its inputs and carries out what it asks for: over trio in canopy/wire, in a
virtual world in canopy/sim. Each input is one turn (overlay/turns.py). Methods of the driver only
queue and return; none calls back. After every input the driver asks for the node's new `deadline`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

from overlay.client import Command, Event, Reply
from overlay.health import HealthReport
from overlay.links.events import ConnectionId, IdentityConflict
from overlay.links.events import Transport as LinkTransport
from overlay.links.hybrid_clock import HybridClock
from overlay.links.messages import Frame
from overlay.machine import LocalEvent, Named
from overlay.rights import Principal


class Vitals(msgspec.Struct, frozen=True):
    """The measurements of a node for its own health records (docs/design/health.md)."""

    queue: int  # events, visits and deliveries that are not finished
    late_ms: float  # by which its timers were late at most, since `vitals` was called last
    round_trip_ms: float  # the median of its links; 0: not measured
    resent: int  # batches that were sent again, since the start
    links: int  # that are connected


class DrivenNode(Protocol):
    """A node as its driver sees it: `node.Node`, or a test's stand-in."""

    # --- life ---

    def start(self) -> None:
        """Begin: set the first timers and dial the seeds. Called once, before any other input."""

    def add_seeds(self, addresses: Sequence[str], instead_of: Sequence[str] = ()) -> None:
        """Dial these addresses ("host:port") as well to join; known ones are left out. Those of
        `instead_of` are not dialled any more."""

    def drain(self) -> None:
        """Begin to leave the overlay in order: `drained` says when that is done. From now on
        programs' publications and subscriptions are refused."""

    def leave(self, reason: str) -> None:
        """Take leave on all links: the last input before the process ends."""

    @property
    def ready(self) -> bool:
        """Whether the node has found its way into the overlay and does not leave."""

    @property
    def neighbours(self) -> int:
        """The number of other known nodes; 0: this node is alone in its overlay."""

    @property
    def unreached(self) -> Mapping[str, str]:
        """By address of the peer list, why no node was reached there; without those that were."""

    @property
    def drained(self) -> bool:
        """Whether nothing is under way any more, after `drain`."""

    @property
    def numbered(self) -> Mapping[str, int]:
        """The numbers of events and of subscriptions to which the node has given an identity."""

    @property
    def unfinished(self) -> Mapping[str, int]:
        """The amount of unfinished work by kind, without kinds that have none; {} when
        `drained`."""

    @property
    def conflict(self) -> IdentityConflict | None:
        """The last other process of this node that was heard of. The driver ends this one if it
        has to stop: nothing that it says counts any more."""

    # --- health ---

    def vitals(self) -> Vitals:
        """Return the node's measurements, now and since the last call. Not a turn of its own."""

    def judge_health(self, measured: Mapping[str, float]) -> None:
        """Judge by these measurements of the node and its machine (the fields of a health record)
        whether the node is sub-healthy, and tell other nodes. Not a turn of its own."""

    def update_health(self, report: HealthReport) -> None:
        """Choose among nodes by a new health file from now on. Takes no turn of its own."""

    # --- connections ---

    def on_opened(self, connection: ConnectionId, principal: Principal | None = None) -> None:
        """Handle that a dial of the node succeeded. `principal`: the peer's identity as
        authenticated by the transport; None: the transport does not authenticate."""

    def on_accepted(self, connection: ConnectionId, principal: Principal | None = None) -> None:
        """Another process has dialled the node; `principal` as in `on_opened`."""

    def on_frames(self, connection: ConnectionId, frames: Sequence[Frame]) -> None:
        """Frames that were read together from one connection, in order."""

    def on_garbage(self, connection: ConnectionId, reason: str) -> None:
        """Bytes that are no frame were read; `on_closed` follows unless the node closes the
        connection."""

    def on_closed(self, connection: ConnectionId, reason: str) -> None:
        """A connection ended or a dial failed, and not because the node closed it."""

    # --- time ---

    def deadline(self) -> float | None:
        """Return when `on_tick` is due, by the driver's clock; None: no timer is set."""

    def on_tick(self) -> None:
        """`deadline` has passed: fire the timers that are due."""

    # --- the disk of its shards ---

    def on_disk(self, events: Sequence[LocalEvent]) -> None:
        """Answers of `Driver.logs` that came together, in order."""

    # --- its own disk ---

    def on_stored(self, ticket: int) -> None:
        """Handle that all records given to `Driver.store_later` up to this ticket are durable."""

    # --- keys ---

    def on_documents(self) -> None:
        """The list of revoked nodes, or the policy, has perhaps changed on disk."""

    # --- clients ---

    def commands(self, client: int, commands: Sequence[Command]) -> None:
        """Commands of one client that were read together, in order."""

    def client_gone(self, client: int, unread_for: float = 0.0) -> None:
        """End all that the client with this number subscribed; replies to it are no longer wanted.
        `unread_for`: seconds since its connection was lost, in which its session was kept and no
        program read what came."""


class Driver(LinkTransport, Protocol):
    """The part of its driver that a node uses, besides dialling, writing and closing
    connections."""

    @property
    def processors(self) -> int:
        """The number of the machine's processors that the node may use."""

    @property
    def schemas(self) -> Any:
        """The schemas of events, as `Port.schemas`."""

    def clock(self) -> float:
        """The time in monotonic seconds, read once per turn."""

    def wall(self) -> int:
        """Return the time of the machine's wall clock, in nanoseconds since 1970: for people, and
        for data that is kept for a limited time."""

    @property
    def hybrid(self) -> HybridClock:
        """The clock of the trace records, whose time goes with each batch to other nodes."""

    def note(self, kind: str, fields: dict[str, Any]) -> None:
        """Write down, for operators and for good, what another node has done: into the audit file.
        Seldom, since it waits for the disk."""

    def reply(self, client: int, reply: Reply) -> None:
        """Send a client a reply, or a notice that it did not ask for."""

    def share(self, events: Sequence[Event], places: Mapping[int, Sequence[int]]) -> None:
        """Tell clients that gather: to each, by number, the events at its places, as `Gathered`."""

    def trace(self, kind: str, fields: dict[str, Any]) -> None:
        """Write a trace record; the driver adds the wall clock and the hybrid logical clock."""

    def trace_each(
        self, kind: str, name: str, values: Sequence[str], fields: dict[str, Any]
    ) -> None:
        """Write trace records of a kind that differ only in the field `name`."""

    def trace_marks(self, incarnation: int, first: int, count: int) -> Sequence[bool] | None:
        """Return, for each of the `count` events that this node publishes now, numbered from
        `first` on, whether all nodes are to trace it; None: all of them."""

    def sampled(self, events: Sequence[Named]) -> Sequence[Named]:
        """The events among these whose trace records are kept."""

    def row_share(self, kind: str, count: int) -> float:
        """The share of these `count` rows of streams that gets records of a kind (``row``,
        ``take``)."""

    def trace_unmatched(self, counts: Mapping[str, int], alone: int) -> None:
        """Count events for which trees found no interested node: `counts` by the tree's attribute.
        `alone` of these events found none in any tree, and so have no `match` record."""

    def store(self, *records: bytes, replace: bool = False) -> None:
        """Append to the node's state file, or `replace` it. The records are durable before any
        later write leaves."""

    def store_later(self, *records: bytes, replace: bool = False) -> int:
        """As `store`, behind the turn: `DrivenNode.on_stored` follows with this ticket, or a later
        one. Tickets grow."""

    @property
    def logs(self) -> Any:
        """The disk of the node's shards: a `streams.disk.LogDisk`, whose answers come by
        `DrivenNode.on_disk`."""

    def publish_address(self, name: str, addresses: tuple[str, ...]) -> None:
        """Tell the directory at which addresses `name` is reached."""
