"""Faults in the process around a node: its control socket, its data folder, its counters."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trio

from bench.mutations.planting import fault, replace
from canopy.client.resubscription import Resubscription
from canopy.client.session import ControlSession, SessionPosition
from canopy.traces.analysis.completeness.holes import RunFacts, runs_of
from canopy.wire.control.client_connection import ClientConnection
from canopy.wire.control.parked_sessions import ParkedSessions
from canopy.wire.control.replay_buffer import ReplayBuffer
from canopy.wire.control.server import ControlServer
from canopy.wire.durable import require_room
from canopy.wire.folder import DataFolder
from canopy.wire.state_commits import StateCommits
from canopy.wire.state_file import NodeIdentity, StateFile
from node import Node
from overlay.incidents import IncidentLog
from overlay.links.events import IdentityConflict, LinkDown
from overlay.links.handshake import Handshake
from overlay.links.messages import Hello, Superseded, Welcome

if TYPE_CHECKING:
    from canopy.client.frames import Sized

COPY_TESTS = "tests/links/test_links_copies.py"
COMMIT_TESTS = "tests/canopy/wire/test_wire_state_commits.py"
DISK_TESTS = "tests/canopy/wire/test_wire_disk.py"
SESSION_TESTS = "tests/canopy/wire/control/test_wire_sessions.py"
LOSS_TEST = (
    "tests/overlay/test_overlay_loss_counters.py",
    "test_links_that_break_without_a_loss_leave_every_loss_counter_at_zero",
)


@fault(
    "clients: bounded",
    "tests/canopy/wire/control/test_wire_programs.py",
    "test_one_program_too_many_hears_why_and_those_before_it_are_served",
)
def program_refused_in_silence() -> None:
    """A node closes the connection of one program too many without saying why."""

    async def _refuse(self: ControlServer, stream: trio.SocketStream) -> None:
        self.refused += 1
        await trio.aclose_forcefully(stream)

    replace(ControlServer._refuse, _refuse)


@fault(
    "M5",
    SESSION_TESTS,
    "test_a_program_that_comes_back_goes_on_with_nothing_lost_and_nothing_twice",
)
def sent_counts_as_received() -> None:
    """A node forgets what it has sent to a program when it has sent it."""

    def add(
        self: ReplayBuffer, frame: bytes, items: int, end: int, is_notice: bool = False
    ) -> None:
        self.sent += items

    replace(ReplayBuffer.add, add)


@fault("M5", SESSION_TESTS, "test_a_session_ends_when_its_time_is_over_and_not_before")
def session_kept_for_ever() -> None:
    """A node keeps the session of a program that never comes back."""

    def _end_of(self: ParkedSessions, client: ClientConnection) -> float:
        return math.inf

    replace(ParkedSessions._end_of, _end_of)


@fault("M5", SESSION_TESTS, "test_replies_of_the_connection_before_do_not_reach_the_next")
def old_replies_answer_new_requests() -> None:
    """A node answers what a program asked on a connection that it has lost."""

    def wants(self: ClientConnection, request: int) -> bool:
        return True

    replace(ClientConnection.wants, wants)


@fault(
    "M5",
    "tests/canopy/client/test_client_sessions.py",
    "test_nothing_is_lost_and_nothing_comes_twice_when_connections_break",
)
def resumes_from_the_beginning() -> None:
    """A program that resumes its session does not count what it has received."""
    original = ControlSession.accept

    def accept(self: ControlSession, frames: list[Sized]) -> None:
        original(self, frames)
        self._received = 0

    replace(original, accept)


@fault(
    "M5",
    "tests/canopy/client/test_client_sessions.py",
    "test_a_program_that_is_started_again_goes_on_behind_its_token",
)
def token_counts_what_was_not_handed_out() -> None:
    """A program's token counts what its library has received and not handed out yet."""
    original = Resubscription.token

    def token(self: Resubscription, taken: SessionPosition | None, untaken: int) -> str:
        return original(self, taken, 0)

    replace(original, token)


@fault("counters", *LOSS_TEST)
def unacknowledged_counts_as_lost() -> None:
    """A node counts deliveries as lost that a broken link left unacknowledged."""
    original = Node._on_link_down

    def _on_link_down(self: Node, event: LinkDown) -> None:
        original(self, event)
        self.count("deliveries_lost", sum(message.data_units() for message in event.lost))

    replace(original, _on_link_down)


@fault("counters", *LOSS_TEST)
def incident_with_each_dial() -> None:
    """A node notes an incident with each attempt to reach a peer whose link is down."""
    original = IncidentLog.on_link_down

    def on_link_down(self: IncidentLog, event: LinkDown) -> None:
        self._down.pop(event.peer.id, None)
        original(self, event)

    replace(original, on_link_down)


@fault("persist before reply", DISK_TESTS, "test_nothing_of_a_turn_leaves_that_could_not_be_stored")
def failed_write_forgotten() -> None:
    """A node whose disk has refused a record goes on with the next turn as if it had it."""
    original = StateCommits.sync

    def sync(self: StateCommits) -> None:
        try:
            original(self)
        finally:
            self._error = None

    replace(original, sync)


@fault(
    "persist before reply", COMMIT_TESTS, "test_what_is_stored_at_once_takes_along_what_was_before"
)
def later_records_wait_on() -> None:
    """What a node stores at once is on disk before what it stored earlier behind a turn."""
    original = StateCommits.store

    def store(self: StateCommits, *records: bytes, anew: bool = False) -> None:
        later, self._waiting = self._waiting, []
        original(self, *records, anew=anew)
        self._waiting += later

    replace(original, store)


@fault("persist before reply", COMMIT_TESTS, "test_a_ticket_is_taken_when_its_records_are_durable")
def tickets_taken_before_the_disk() -> None:
    """A node hears that records are durable while its disk is still writing them."""

    def take(self: StateCommits) -> int:
        taken, self._taken = self._taken, self._ticket
        return 0 if taken == self._ticket else self._ticket

    replace(StateCommits.take, take)


@fault("persist before reply", DISK_TESTS, "test_a_state_file_that_was_replaced_is_noticed")
def deleted_state_unnoticed() -> None:
    """A node goes on storing in a file that was deleted or replaced."""

    def _check(self: StateFile) -> None:
        pass

    replace(StateFile._check, _check)


@fault("V7", DISK_TESTS, "test_an_identity_that_is_older_than_the_state_is_refused")
def any_state_accepted() -> None:
    """A node starts with the state of another node, or of later starts than it knows of."""

    def _compare(self: DataFolder, known: NodeIdentity, owner: NodeIdentity | None) -> None:
        pass

    replace(DataFolder._compare, _compare)


@fault("bounded", DISK_TESTS, "test_a_node_does_not_start_on_a_full_disk")
def starts_without_room() -> None:
    """A node starts on a disk that has no room for what it has to store."""

    def no_room(folder: Path, size: int) -> None:
        pass

    replace(require_room, no_room)


@fault(
    "one process per id",
    COPY_TESTS,
    "test_a_copy_that_starts_later_ends_the_node_that_it_was_copied_from",
)
def superseded_goes_on() -> None:
    """A process goes on though a peer has reported that a later one has its node's id."""

    def on_superseded(self: Handshake, frame: Superseded) -> None:
        pass

    replace(Handshake.on_superseded, on_superseded)


@fault(
    "one process per id",
    COPY_TESTS,
    "test_superseded_is_believed_of_a_later_process_of_this_node_only",
)
def restarted_node_believes_its_past() -> None:
    """A process stops when any other process of its node is reported to it, an earlier one too."""

    def on_superseded(self: Handshake, frame: Superseded) -> None:
        self._node.emit(IdentityConflict(frame.peer, frame.incarnation, True))

    replace(Handshake.on_superseded, on_superseded)


@fault("one process per id", COPY_TESTS, "test_two_that_meet_each_other_know_it_both")
def both_copies_stop() -> None:
    """Of two processes of one node that meet each other both stop."""

    def _on_own_id(self: Handshake, greeting: Hello | Welcome) -> bool:
        if greeting.process == self._node.process:
            return False
        self._node.emit(IdentityConflict(greeting.peer, greeting.incarnation, True))
        return True

    replace(Handshake._on_own_id, _on_own_id)


@fault(
    "traces: judged independently",
    "tests/canopy/traces/test_traces_incidents.py",
    "test_a_subscription_ends_with_the_process_of_its_node_and_not_with_one_that_slept",
)
def subscription_outlives_its_process() -> None:
    """The analysis takes a node that was killed and started again for one that goes on."""
    original = runs_of

    def runs(*facts: Any) -> list[RunFacts]:
        return [dataclasses.replace(run, ended=None, holes=()) for run in original(*facts)]

    replace(original, runs)
