"""Faults in the process around a node, and in what programs and operators get from it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.mutations.planting import fault, replace
from canopy.client.session import ControlSession
from canopy.wire.control.client_connection import ReplayBuffer
from canopy.wire.folder import DataFolder
from canopy.wire.state_file import StateCommits
from overlay.links.handshake import Handshake

if TYPE_CHECKING:
    from canopy.client.frames import Sized

from bench.mutations.planting import replace_constant
from canopy.wire import folder
from canopy.wire.admin import http
from overlay import phrases
from overlay.links.session import LinkSession

DISK = "tests/canopy/wire/test_wire_disk.py"


@fault(
    "M5",
    "tests/canopy/wire/control/test_wire_sessions.py",
    "test_a_program_that_comes_back_goes_on_with_nothing_lost_and_nothing_twice",
)
def sent_counts_as_received() -> None:
    """A node forgets what it has sent to a program when it has sent it."""

    def add(
        self: ReplayBuffer, frame: bytes, items: int, end: int, is_notice: bool = False
    ) -> None:
        self.sent += items

    replace(ReplayBuffer.add, add)


@fault(
    "D11",
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


@fault("I2", DISK, "test_nothing_of_a_turn_leaves_that_could_not_be_stored")
def failed_write_forgotten() -> None:
    """A node whose disk has refused a record goes on with the next turn as if it had it."""
    original = StateCommits.sync

    def sync(self: StateCommits) -> None:
        try:
            original(self)
        finally:
            self._error = None

    replace(original, sync)


@fault("V7", DISK, "test_an_identity_that_is_older_than_the_state_is_refused")
def any_state_accepted() -> None:
    """A node starts with the state of another node, or of later starts than it knows of."""

    replace(DataFolder._compare, lambda self, known, owner: None)


@fault(
    "V7",
    "tests/canopy/wire/test_wire_folder.py",
    "test_a_copy_that_is_put_back_uses_no_incarnation_twice",
)
def copied_folder_counts_on() -> None:
    """A node whose folder was put back from an older copy counts its starts on from there."""

    replace(folder.founding_time, lambda path, now: now)


@fault(
    "V7",
    "tests/links/test_links_copies.py",
    "test_a_copy_that_starts_later_ends_the_node_that_it_was_copied_from",
)
def superseded_goes_on() -> None:
    """A process goes on though a peer has reported that a later one has its node's id."""

    replace(Handshake.on_superseded, lambda self, connection, frame: None)


@fault(
    "A45",
    "tests/canopy/cli/test_cli_streams.py",
    "test_no_spreadsheet_calculates_a_text_and_no_terminal_acts_on_it",
)
def formulas_in_tables() -> None:
    """A text that a spreadsheet calculates is exported as it is."""

    replace(phrases.harmless, lambda text: phrases.CONTROL.sub("", text))


@fault(
    "D16", "tests/links/test_links_versions.py", "test_what_a_peer_does_not_know_is_not_sent_to_it"
)
def unknown_message_sent() -> None:
    """A node sends optional messages to peers that have not named the capability."""

    replace(LinkSession.understands, lambda self, message: True)


@fault(
    "V9", "tests/canopy/wire/admin/test_wire_admin.py", "test_checks_answer_as_those_of_kubernetes"
)
def failing_check_answers_ok() -> None:
    """/readyz names the failing check, with the status 200."""
    replace_constant(http, "FAILING", http.OK)
