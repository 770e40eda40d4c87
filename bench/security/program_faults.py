"""Faults of what programs on other machines may do, of what traces show, and of limits per key."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any

from bench.mutations.planting import fault, replace
from canopy.client.remote import AccessFile, _check_node
from canopy.traces.redaction import Redaction
from canopy.wire.control.client_connection import ClientConnection
from canopy.wire.control.remote import RemoteDoor
from canopy.wire.control.scopes import confined, refusal
from canopy.wire.control.server import ControlServer
from canopy.wire.driver import TrioDriver
from canopy.wire.token_file import Token
from canopy.wire.transport.connection import Connection
from overlay.client import Command

PROGRAMS = "tests/attacks/test_attacks_programs.py"
SECRETS = "tests/attacks/test_attacks_secrets.py"
TRANSPORT = "tests/attacks/test_attacks_transport.py"


@fault("programs", PROGRAMS, "test_a_token_allows_its_scopes_and_no_more")
def programs_may_ask_anything() -> None:
    """A token allows every command, whatever its scopes are."""

    def never(token: Token, command: Command) -> str:
        return ""

    replace(refusal, never)


@fault("programs", PROGRAMS, "test_a_selector_confines_what_is_followed_and_published")
def programs_follow_what_they_ask_for() -> None:
    """The selector of a token is not intersected with what its program asks for."""

    def as_asked(token: Token, command: Command) -> Command:
        return command

    replace(confined, as_asked)


@fault("programs", PROGRAMS, "test_a_token_lets_a_program_in_and_its_removal_ends_it")
def programs_outlive_their_token() -> None:
    """A program whose token was removed keeps its connection."""

    def always(self: RemoteDoor, token: Token, secret: str) -> bool:
        return True

    replace(RemoteDoor.is_still_good, always)


@fault("programs", PROGRAMS, "test_a_session_goes_on_for_the_same_token_alone")
def programs_resume_sessions_of_others() -> None:
    """Who knows the name of a session resumes it, whatever token has opened it."""

    def of_anybody(self: ControlServer, token: str, holder: str) -> ClientConnection | None:
        return next((one for one in self._clients.values() if one.session == token), None)

    replace(ControlServer._find_session, of_anybody)


@fault("programs", PROGRAMS, "test_the_secret_is_shown_to_no_other_node")
def programs_show_their_secret_to_any_node() -> None:
    """A program does not look which node answers before it sends its token."""

    def unchecked(secured: ssl.SSLSocket, access: AccessFile) -> None:
        pass

    replace(_check_node, unchecked)


@fault("traces", SECRETS, "test_no_secret_and_with_redaction_no_value_is_written")
def redaction_keeps_attributes() -> None:
    """Redacted records have the values of attributes."""
    original = Redaction.apply

    def partly(self: Redaction, kind: str, fields: Mapping[str, Any]) -> dict[str, Any]:
        kept = original(self, kind, fields)
        return {**kept, "attributes": fields["attributes"]} if "attributes" in fields else kept

    replace(Redaction.apply, partly)


@fault("traces", SECRETS, "test_no_secret_and_with_redaction_no_value_is_written")
def redaction_keeps_selectors() -> None:
    """Redacted records have selectors and ids of events as they are."""

    def as_it_is(self: Redaction, text: str) -> str:
        return text

    replace(Redaction._hash, as_it_is)


@fault("keys", TRANSPORT, "test_a_key_has_four_connections_and_the_newest_stay")
def keys_connect_without_bound() -> None:
    """One key may keep as many accepted connections as it opens."""

    def unbounded(self: TrioDriver, new: Connection) -> None:
        pass

    replace(TrioDriver._bound_key, unbounded)
