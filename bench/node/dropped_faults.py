"""Faults of what is made good when a link had no room."""

from __future__ import annotations

from bench.mutations.planting import fault, replace
from overlay.chord.cluster.follower_log import FollowerLog
from overlay.chord.cluster.leader_log import LeaderLog
from overlay.chord.cluster.messages import LogSnapshot
from overlay.chord.recovery.messages import ObserverSnapshot
from overlay.chord.recovery.observed_logs import ObservedLogs
from overlay.chord.recovery.observers import Observers
from overlay.links.events import MessageDropped
from overlay.machine import Peer

DROPPED = "tests/chord/cluster/test_chord_dropped.py"


@fault("P1", DROPPED, "test_a_voter_gets_what_the_link_had_no_room_for")
def unsent_primary_forgets_what_was_dropped() -> None:
    """Entries and greetings for which a link had no room are not sent again."""

    def nothing(self: LeaderLog, event: MessageDropped) -> None:
        return None

    replace(LeaderLog.dropped, nothing)


@fault("P1", DROPPED, "test_a_voter_gets_what_the_link_had_no_room_for")
def unsent_voter_forgets_what_was_dropped() -> None:
    """A voter does not say again how far it is when the link had no room for that."""

    def nothing(self: FollowerLog, event: MessageDropped) -> None:
        return None

    replace(FollowerLog.dropped, nothing)


@fault("P1", DROPPED, "test_a_whole_state_of_which_a_piece_is_missing_does_not_count")
def unsent_voter_takes_a_state_with_a_gap() -> None:
    """A whole state counts when its last piece has come, whatever came between."""
    original = FollowerLog.on_copy

    def on_copy(self: FollowerLog, sender: Peer, message: LogSnapshot) -> None:
        message = LogSnapshot(*[getattr(message, f) for f in message.__struct_fields__[:-1]])
        original(self, sender, message)

    replace(FollowerLog.on_copy, on_copy)


@fault("P5", DROPPED, "test_nor_does_an_observers")
def unsent_observer_takes_a_state_with_a_gap() -> None:
    """An observer's copy counts when the last piece has come, whatever came between."""
    original = ObservedLogs.on_copy

    def on_copy(self: ObservedLogs, sender: Peer, message: ObserverSnapshot) -> None:
        message = ObserverSnapshot(*[getattr(message, f) for f in message.__struct_fields__[:-1]])
        original(self, sender, message)

    replace(ObservedLogs.on_copy, on_copy)


@fault("P5", DROPPED, "test_nor_does_an_observers")
def unsent_observer_copies_for_ever() -> None:
    """An observer for whose copy a link had no room is waited for."""

    def nothing(self: Observers, event: MessageDropped) -> None:
        return None

    replace(Observers.dropped, nothing)
