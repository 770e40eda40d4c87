"""Faults in the directory of streams, and at the nodes that have their shards."""

from __future__ import annotations

from typing import Any

from msgspec import structs

from bench.mutations.planting import fault, replace
from overlay.chord.events import OwnerFound
from overlay.machine import NodeId, Peer
from streams.access.locator import StreamLocator
from streams.directory.entry import ShardPlace
from streams.directory.messages import FoundStream, StreamRefused
from streams.directory.questions import Answer, CircleSearch
from streams.directory.stream_owner import StreamOwner
from streams.directory.supervision import GONE, Supervision
from streams.disk import DiskFailed, Opened
from streams.shard.hosting.shard_hosts import ShardHosts
from streams.shard.replica import ShardUnled

DIRECTORY = "tests/streams/directory/test_streams_directory.py"
COPYING = "tests/streams/copying/test_streams_copying.py"
PRODUCING = "tests/streams/programs/producer/test_streams_producers.py"
LEAVING = "tests/streams/directory/test_streams_leaving.py"
SUPERVISION = "tests/streams/directory/test_streams_supervision.py"
NAMES = "promise: a stream's name belongs to one founding id, for ever"
LED = "promise: a shard has a leader and its replicas while a majority is there"
ONCE = "test_a_stream_is_founded_once_found_from_everywhere_and_removed_for_ever"


@fault(NAMES, DIRECTORY, ONCE)
def stream_is_founded_over_another() -> None:
    """The owner of a stream's name founds another stream of that name."""
    original = StreamOwner.on_found_stream

    def on_found_stream(self: StreamOwner, sender: Peer, message: FoundStream) -> None:
        there = StreamOwner.entry
        StreamOwner.entry = lambda self, name: None  # type: ignore[method-assign]
        try:
            original(self, sender, message)
        finally:
            StreamOwner.entry = there  # type: ignore[method-assign]

    replace(original, on_found_stream)


@fault(NAMES, DIRECTORY, ONCE)
def stream_tombstone_is_not_told() -> None:
    """The owner of a removed stream does not tell the nodes that its shards are to go."""

    def _order_removal(self: StreamOwner, *arguments: Any) -> bool:
        return False

    replace(StreamOwner._order_removal, _order_removal)


@fault(LED, DIRECTORY, "test_of_an_idle_stream_nodes_are_told_seldom_and_say_at_once_what_changes")
def stream_change_at_a_node_is_not_told() -> None:
    """A node whose shard ends its leadership waits until the owner asks."""

    def on_unled(self: ShardHosts, event: ShardUnled) -> None:
        pass

    def on_disk_failed(self: ShardHosts, event: DiskFailed) -> None:
        if (hosted := self.hosted.get(event.shard)) is not None:
            hosted.replica.on_disk_failed(event)

    def on_opened(self: ShardHosts, event: Opened) -> None:
        if (hosted := self.hosted.get(event.shard)) is not None:
            hosted.replica.on_opened(event)
            self._learn(event.found.state.stream)

    replace(ShardHosts.on_unled, on_unled)
    replace(ShardHosts.on_disk_failed, on_disk_failed)
    replace(ShardHosts.on_opened, on_opened)


@fault(LED, DIRECTORY, "test_a_leader_that_is_lost_is_replaced_and_what_was_committed_stays")
def stream_lost_leader_stays_nominated() -> None:
    """The owner of a stream nominates the leader that it has nominated once."""
    original = Supervision.nominee
    first: dict[str, NodeId] = {}

    def nominee(self: Supervision, place: ShardPlace, now: float) -> NodeId:
        found = original(self, place, now)
        return first.setdefault(self.shard, found) if found else found

    replace(original, nominee)


@fault(LED, SUPERVISION, "test_nobody_is_nominated_who_was_not_heard")
def stream_owner_nominates_unasked() -> None:
    """The owner of a stream nominates the first replica, whatever the others have."""
    original = Supervision.nominee

    def nominee(self: Supervision, place: ShardPlace, now: float) -> NodeId:
        return original(self, place, now) or min(peer.id for peer in place.replicas)

    replace(original, nominee)


@fault(LED, DIRECTORY, "test_a_node_that_is_gone_for_long_is_replaced_by_another")
def stream_lost_replica_is_not_replaced() -> None:
    """The owner of a stream waits for a replica for ever."""

    def _is_gone(self: Supervision, node: NodeId, now: float) -> bool:
        return False

    replace(Supervision._is_gone, _is_gone)


@fault(NAMES, DIRECTORY, "test_a_stream_of_which_no_directory_knows_is_brought_back_by_who_has_it")
def stream_orphans_are_not_told() -> None:
    """A node whose shards no owner asks for tells nobody."""

    def on_owner_found(self: ShardHosts, event: OwnerFound) -> None:
        self._lost.pop(event.key, None)

    replace(ShardHosts.on_owner_found, on_owner_found)


@fault(
    NAMES,
    DIRECTORY,
    "test_a_fork_without_the_entry_of_a_stream_does_not_say_that_there_is_none",
)
def stream_forks_know_all_names() -> None:
    """A fork founds a stream, or says that there is none, before it was told what nodes have."""

    def never(self: StreamOwner) -> bool:
        return False

    replace(StreamOwner._is_in_doubt, never)


@fault(NAMES, DIRECTORY, ONCE)
def stream_shards_outlive_their_removal() -> None:
    """A node keeps the shards of a stream that was removed."""

    def _destroy(self: ShardHosts, shard: str) -> None:
        return

    replace(ShardHosts._destroy, _destroy)


@fault(
    "retention: a log is not longer than was asked for",
    DIRECTORY,
    "test_what_a_stream_is_not_to_keep_is_removed_at_all_its_replicas",
)
def stream_options_are_not_carried_out() -> None:
    """A node that leads a shard does not look at what its stream is to keep."""

    def _retain(self: ShardHosts) -> None:
        return

    replace(ShardHosts._retain, _retain)


@fault(
    "promise: no stream copies itself", COPYING, "test_a_stream_that_would_copy_itself_is_refused"
)
def stream_circles_are_looked_for_one_step_only() -> None:
    """Of a stream's sources their own sources are not looked at."""

    def _ask(self: CircleSearch, name: str) -> None:
        return None

    replace(CircleSearch._ask, _ask)


@fault(LED, PRODUCING, "test_an_owner_that_has_lost_a_stream_ends_nobody_who_has_known_it")
def stream_that_its_owner_does_not_know_counts_as_removed() -> None:
    """A node believes whichever cluster owns a stream's name that there is no such stream."""
    original = StreamLocator._answered

    def answered(self: StreamLocator, name: str, answer: Answer) -> None:
        if isinstance(answer, StreamRefused):
            answer = structs.replace(answer, removed=True)
        original(self, name, answer)

    replace(original, answered)


@fault(LED, DIRECTORY, "test_who_has_lost_its_vote_is_replaced_or_begins_anew[3]")
def shard_barred_replica_is_not_replaced() -> None:
    """The owner of a stream takes a replica that has lost its vote for one that is there."""

    def _is_gone(self: Supervision, node: NodeId, now: float) -> bool:
        heard = self.heard.get(node)
        return now - (self._begun if heard is None else heard.at) > GONE

    replace(Supervision._is_gone, _is_gone)


@fault(LED, DIRECTORY, "test_who_has_lost_its_vote_is_replaced_or_begins_anew[3]")
def shard_barred_replica_waits_for_another_node() -> None:
    """Where there is no other node, a replica that has lost its vote stays one."""
    original = Supervision.wanted

    def wanted(self: Supervision, place: ShardPlace, *others: Any) -> tuple[Peer, ...]:
        found = original(self, place, *others)
        return found if len(found) >= len(place.replicas) else place.replicas

    replace(original, wanted)


@fault(LED, LEAVING, "test_a_stream_of_two_nodes_survives_the_leaving_of_either[True]")
def shard_leaving_replica_stays_one() -> None:
    """A node that leaves stays a replica where the others are no majority without it."""

    def _shrinks(self: Supervision, place: ShardPlace, now: float) -> bool:
        return False

    replace(Supervision._shrinks, _shrinks)
