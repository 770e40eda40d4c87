"""The errors between a program and its node.

Each is a `ControlError` whose text says what happened, where, and what to do about it; its class
decides the exit code of a command (docs/reference/commands.md).
"""

from __future__ import annotations

from typing import Final

from overlay.client import ENDED, LEAVING, NO_MAJORITY


class ControlError(Exception):
    """A request to the node failed.

    Where `publish_many` raises it, the first `answered` events are published (except those that the
    node refused), the next `in_doubt` events may be published, and the rest are not.
    """

    answered: int = 0
    in_doubt: int = 0


class UnreachableError(ControlError):
    """The node does not exist, does not run, or went away (exit code 3)."""


class NodeFullError(UnreachableError):
    """The node runs, and serves its maximum of programs already, the setting `clients.programs`
    (exit code 1: it refused). A program that looks for a lost node tries again."""


class DeniedError(ControlError):
    """The node exists and this user may not talk to it (exit code 4)."""


class AddressError(ControlError):
    """A node's address was given where the node's data folder, or an access file, is needed (exit
    code 2)."""


class ContextError(ControlError):
    """The user's named contexts cannot be read (exit code 1)."""


class UnknownContextError(ContextError):
    """No context has that name (exit code 2)."""


class CommandTimeoutError(ControlError):
    """No answer in time; the command may still be carried out (exit code 5)."""


class CommandFailed(ControlError):  # noqa: N818 - the word of the reply
    """The node answered `Failed`. `code` is usage, selector, refused, denied, time-out, unknown,
    ended, leaving or no-majority, among others."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


class SelectorRefusedError(CommandFailed):
    """The node does not accept the selector. The text shows the place with a caret."""


class NodeLeavingError(CommandFailed):
    """The node is leaving the overlay and has carried out nothing of the command. It may be sent
    again, to this node when it is back or to another one (exit code 3)."""


class NoMajorityError(CommandFailed):
    """No majority of a stream's replicas answers, and the command was not carried out. It may be
    sent again when a majority answers (exit code 3)."""


class SubscriptionEndedError(CommandFailed):
    """Another program has ended the subscription (`canopy subs rm`). No further events arrive."""


class EventRefusedError(CommandFailed):
    """The event is not valid; the text names the attribute and the reason."""

    place: int | None = None
    """The index of the event among those that were given; None if it was refused by the node."""

    def behind(self, count: int) -> EventRefusedError:
        """Return the error for an event that has `count` others before its batch."""
        if self.place is None:
            return self
        return unfit_event(self.place + count, self.fault)

    fault: str = ""


def unfit_event(place: int, fault: str) -> EventRefusedError:
    """Return the error for the event with the index `place`."""
    error = EventRefusedError("event", f"event {place}: {fault}")
    error.place, error.fault = place, fault
    return error


KINDS: Final = {
    "selector": SelectorRefusedError,
    "event": EventRefusedError,
    ENDED: SubscriptionEndedError,
    LEAVING: NodeLeavingError,
    NO_MAJORITY: NoMajorityError,
}
"""Error classes by the code of the reply. Other codes are `CommandFailed`."""


def failure(code: str, reason: str) -> CommandFailed:
    """Return the error for a `Failed` reply with this code and reason."""
    return KINDS.get(code, CommandFailed)(code, reason)
