"""Faults in the directory of streams, and at the nodes that have their shards."""

from __future__ import annotations

from msgspec import structs

from bench.mutations.planting import fault, replace
from overlay.chord.events import OwnerFound
from overlay.machine import NodeId, Peer
from streams.access.locator import StreamLocator
from streams.directory.entry import ShardPlace
from streams.directory.messages import FoundStream, StreamRefused
from streams.directory.questions import Answer
from streams.directory.stream_owner import StreamOwner
from streams.directory.supervision import Supervision
from streams.shard.hosting.shard_hosts import ShardHosts

DIRECTORY = "tests/streams/directory/test_streams_directory.py"


@fault("S13", DIRECTORY, "test_a_stream_is_founded_once_found_from_everywhere_and_removed_for_ever")
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


@fault("S14", DIRECTORY, "test_a_leader_that_is_lost_is_replaced_and_what_was_committed_stays")
def stream_lost_leader_stays_nominated() -> None:
    """The owner of a stream nominates the leader that it has nominated once."""
    original = Supervision.nominee
    first: dict[str, NodeId] = {}

    def nominee(self: Supervision, place: ShardPlace, now: float) -> NodeId:
        found = original(self, place, now)
        return first.setdefault(self.shard, found) if found else found

    replace(original, nominee)


@fault(
    "T4",
    "tests/streams/directory/test_streams_supervision.py",
    "test_nobody_is_nominated_who_was_not_heard",
)
def stream_owner_nominates_unasked() -> None:
    """The owner of a stream nominates the first replica, whatever the others have."""
    original = Supervision.nominee

    def nominee(self: Supervision, place: ShardPlace, now: float) -> NodeId:
        return original(self, place, now) or min(peer.id for peer in place.replicas)

    replace(original, nominee)


@fault("S14", DIRECTORY, "test_a_node_that_is_gone_for_long_is_replaced_by_another")
def stream_lost_replica_is_not_replaced() -> None:
    """The owner of a stream waits for a replica for ever."""

    replace(Supervision._is_gone, lambda self, node, now: False)


@fault("S13", DIRECTORY, "test_a_stream_of_which_no_directory_knows_is_brought_back_by_who_has_it")
def stream_orphans_are_not_told() -> None:
    """A node whose shards no owner asks for tells nobody."""

    def on_owner_found(self: ShardHosts, event: OwnerFound) -> None:
        self._lost.pop(event.key, None)

    replace(ShardHosts.on_owner_found, on_owner_found)


@fault(
    "S13",
    "tests/streams/programs/producer/test_streams_producers.py",
    "test_an_owner_that_has_lost_a_stream_ends_nobody_who_has_known_it",
)
def stream_that_its_owner_does_not_know_counts_as_removed() -> None:
    """A node believes whichever cluster owns a stream's name that there is no such stream."""
    original = StreamLocator._answered

    def answered(self: StreamLocator, name: str, answer: Answer) -> None:
        if isinstance(answer, StreamRefused):
            answer = structs.replace(answer, removed=True)
        original(self, name, answer)

    replace(original, answered)


@fault(
    "S13", DIRECTORY, "test_a_fork_without_the_entry_of_a_stream_does_not_say_that_there_is_none"
)
def stream_forks_know_all_names() -> None:
    """A fork founds a stream, or says that there is none, before it was told what nodes have."""

    replace(StreamOwner._is_in_doubt, lambda self: False)
