"""The commands that programs on other machines may send: one table, from command to scope.

A program on this machine is the user's own and may send any command. A program that connects over
TCP has a token, and each of its commands is looked up here before anything else is done with it; a
command without a row is refused. Scopes do not include one another.

A token may also limit by selectors what its program follows and publishes. A followed selector is
*intersected*: ``(asked) AND (allowed)``. Such a program may only subscribe and publish, since
positions and rows of streams are shared with others.
"""

from __future__ import annotations

from typing import Final

import msgspec

from canopy.wire.token_file import ProgramToken, Scope, named_in
from matching import SelectorError, compile_selector
from overlay.client import (
    AppendEvents,
    BeginReading,
    CloseSession,
    Command,
    CommitReading,
    Drain,
    DryRun,
    EndReading,
    EndSubscription,
    Feed,
    Gather,
    GetAttributes,
    GetEvents,
    GetIncidents,
    GetPeers,
    GetRing,
    GetStatus,
    GetStreams,
    GetSubscriptions,
    Grant,
    OpenSession,
    Publish,
    RemoveStream,
    ResumeSession,
    Subscribe,
    TakeEvents,
    Unsubscribe,
    Where,
    Why,
)
from overlay.operator_commands import GetClocks, GetSchemas, Reload
from overlay.stream_client import (
    AddStream,
    AttachGroup,
    BeginLogCheck,
    BeginProducer,
    DecideTransaction,
    DetachGroup,
    EditGroup,
    EditStream,
    EndDead,
    GetGroups,
    GetLogCheck,
    GetTransactions,
    LeaveUnknown,
    PrepareEvents,
    RemoveGroup,
    SettleRows,
    TakeReviews,
    TakeRows,
    WhyRow,
)

ANY: Final = frozenset({Grant, OpenSession, ResumeSession, CloseSession})
"""Commands that every program may send: they concern only its own connection."""

PLAIN: Final = frozenset({Subscribe, Gather, Unsubscribe, Publish})
"""Commands that a program may send whose token has selectors."""

APPENDING: Final = (AppendEvents, BeginProducer, PrepareEvents, DecideTransaction)
"""Commands that are allowed only for streams that the token names."""

ROWS: Final[dict[Scope, tuple[type[Command], ...]]] = {
    "publish": (
        *(Publish, AppendEvents, BeginProducer),
        *(PrepareEvents, DecideTransaction, TakeReviews, LeaveUnknown),
    ),
    "subscribe": (
        *(Subscribe, Gather, Unsubscribe, BeginReading, TakeEvents, CommitReading, EndReading),
        *(AttachGroup, TakeRows, SettleRows, DetachGroup),
    ),
    "observe": (
        *(GetStatus, GetPeers, GetRing, GetIncidents, GetAttributes, GetSubscriptions, GetEvents),
        *(Where, Why, DryRun, WhyRow, GetStreams, GetGroups, GetTransactions, GetClocks),
        GetSchemas,
    ),
    "admin": (
        *(EndSubscription, Feed, Drain, Reload, AddStream, EditStream, RemoveStream),
        *(EndDead, EditGroup, RemoveGroup, BeginLogCheck, GetLogCheck),
    ),
}
"""The commands that each scope allows."""

SCOPE_OF: Final[dict[type[Command], Scope]] = {
    command: scope for scope, commands in ROWS.items() for command in commands
}


def refusal(token: ProgramToken, command: Command) -> str:
    """Return why a program with this token may not send this command; "" if it may."""
    kind = type(command)
    if kind in ANY:
        return ""
    scope = SCOPE_OF.get(kind)
    if scope not in token.scopes:
        wanted = f"it needs the scope {scope}" if scope else "only programs on its machine may"
        return f"the token {token.name} does not allow {kind.__name__}: {wanted}"
    if isinstance(command, APPENDING) and not named_in(command.stream, token.streams):
        return (
            f"the token {token.name} does not name stream {command.stream} as one that it appends "
            f"to: canopy access add … --stream {command.stream}"
        )
    if not (token.publish or token.subscribe):
        return ""
    if kind not in PLAIN:
        return (
            f"the token {token.name} confines what is followed and published, and so allows "
            f"no {kind.__name__}"
        )
    if isinstance(command, Publish) and token.publish:
        allowed = compile_selector(token.publish)
        for place, draft in enumerate(command.events, 1):
            if not allowed.matches(draft.attributes):
                return (
                    f"event {place} is not what the token {token.name} allows to publish: "
                    f"{token.publish}"
                )
    return ""


def confined(token: ProgramToken, command: Command) -> Command:
    """Return the command for the node: a selector is intersected with the token's. It is parsed
    alone first, so that it cannot close the parentheses; a malformed one is passed on for the node
    to refuse."""
    if not isinstance(command, Subscribe) or not token.subscribe:
        return command
    try:
        compile_selector(command.selector)
    except SelectorError:
        return command
    return msgspec.structs.replace(
        command, selector=f"({command.selector}) AND ({token.subscribe})"
    )
