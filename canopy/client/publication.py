"""From a program's events to publications, and from their replies to a result (no IO)."""

from __future__ import annotations

import itertools
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

import msgspec

from canopy.client.errors import ControlError, EventRefusedError, NodeLeavingError
from canopy.client.link import Link, pipelined
from canopy.client.node import ClientNode
from canopy.client.resubscription import Backoff
from canopy.client.session import expected
from matching import Value
from overlay.client import Draft, Publish, Published

BATCH: Final = 512
"""The most events of one publication; larger ones were no faster (docs/lab/performance.md)."""

BATCH_BYTES: Final = 1 << 20
"""The approximate size of one publication: bytes of payload and text. A frame may have 8 MiB."""

AHEAD: Final = 2
"""The number of unanswered publications, so that the node has work while an answer is on its way.
The node stops reading from a client with 1,024 events that it has not processed."""


Attributes: TypeAlias = Mapping[str, Value | None]
"""An event's attributes: names to booleans, numbers, strings, or None."""


class PublishResult(msgspec.Struct, frozen=True):
    """The result of publishing events, in their order."""

    identities: tuple[str, ...]
    """The identity of each event, for `canopy why`; "" for a refused one."""
    refused: tuple[tuple[int, str], ...] = ()
    """(index, reason) of each event that the node refused."""
    accepted: bool = False
    """Whether every tree that the events visit has accepted them, as `receipt` asks. Otherwise the
    node has only admitted them."""
    hosts: tuple[Mapping[str, str], ...] = ()
    """With `receipt`, for each event the ids of the nodes that accepted it, by the attribute of the
    tree; empty for an event that was refused or that no tree wants. A node that dies before it has
    passed an event on loses it."""

    @property
    def count(self) -> int:
        """The number of published events, without the refused ones."""
        return len(self.identities) - len(self.refused)


class Drafting:
    """Makes drafts of a program's events, with an `id` for events that have none."""

    def __init__(self) -> None:
        self._prefix = secrets.token_hex(6)
        self._numbers = itertools.count(1)

    def draft(self, event: Attributes | Draft, payload: bytes = b"", type_: str = "") -> Draft:
        """Return `event` as a draft, with an `id` and a `type` ("event") if it has none."""
        if isinstance(event, Draft):
            return event
        try:
            attributes = dict(event)
        except (TypeError, ValueError):
            kind = type(event).__name__
            reason = f"an event is a mapping of names to values, or a Draft, not a {kind}"
            raise EventRefusedError("event", reason) from None
        if attributes.get("id") is None:
            attributes["id"] = f"{self._prefix}.{next(self._numbers)}"
        if not isinstance(attributes.get("type"), str):
            attributes["type"] = "event"
        return Draft(attributes, payload, type_)

    def batches(self, events: Iterable[Attributes | Draft], receipt: bool) -> Iterator[Publish]:
        """Yield publications of the events, in order."""
        for batch in batched(map(self.draft, events), BATCH, BATCH_BYTES):
            yield Publish(0, batch, receipt)


def batched(drafts: Iterable[Draft], most: int, most_bytes: int) -> Iterator[tuple[Draft, ...]]:
    """Yield the drafts in batches of at most `most`, and about `most_bytes` of payload and text."""
    batch: list[Draft] = []
    size = 0
    for draft in drafts:
        length = len(draft.payload) + sum(
            len(value) for value in draft.attributes.values() if isinstance(value, str)
        )
        if batch and size + length > most_bytes:
            yield tuple(batch)
            batch, size = [], 0
        batch.append(draft)
        size += length
        if len(batch) >= most:
            yield tuple(batch)
            batch, size = [], 0
    if batch:
        yield tuple(batch)


class Sent:
    """A publication that was sent over the connection `link` as its request `number`."""

    __slots__ = ("command", "link", "number")

    def __init__(self, command: Publish, link: Link, number: int) -> None:
        self.command = command
        self.link = link
        self.number = number


class SentBatches:
    """The batches that one `publish_many` has sent, and their replies, in order."""

    def __init__(self, receipt: bool) -> None:
        """`receipt`: every tree that the events visit has to accept them."""
        self._asked = receipt
        self._replies: list[Published] = []
        self._unanswered: dict[int, Sent] = {}  # by identity

    @property
    def result(self) -> PublishResult:
        """Return the result of the answered batches."""
        return result_of(self._replies, self._asked)

    def sent(self, command: Publish, link: Link, number: int) -> Sent:
        """Note that a publication was sent; `answered` or `refused` is called later."""
        made = Sent(command, link, number)
        self._unanswered[id(made)] = made
        return made

    @property
    def events(self) -> int:
        """Return the number of events that were sent."""
        replied = sum(len(reply.identities) for reply in self._replies)
        return replied + sum(len(sent.command.events) for sent in self._unanswered.values())

    def answered(self, sent: Sent, reply: Published) -> None:
        """Note the reply to a batch."""
        del self._unanswered[id(sent)]
        self._replies.append(reply)

    def refused(self, sent: Sent) -> None:
        """Note that a leaving node has published nothing of a batch."""
        del self._unanswered[id(sent)]

    def interrupted(self, error: ControlError) -> None:
        """Add to `error`, which interrupts the publication, the number of events that are published
        and of those that may be."""
        error.answered = sum(reply.count for reply in self._replies)
        error.in_doubt = sum(len(sent.command.events) for sent in self._unanswered.values())
        doubt = f", the next {error.in_doubt} may be" if error.in_doubt else ""
        error.add_note(f"the first {error.answered} events are published{doubt}, no others are")


def result_of(replies: Sequence[Published], asked: bool) -> PublishResult:
    """Combine the replies to all publications into one result. `asked`: whether a receipt was asked
    for."""
    identities: list[str] = []
    refused: list[tuple[int, str]] = []
    hosts: list[Mapping[str, str]] = []
    for reply in replies:
        refused += [(len(identities) + place, reason) for place, reason in reply.refused]
        identities += reply.identities
        if asked:
            hosts += reply.hosts
    return PublishResult(tuple(identities), tuple(refused), asked, tuple(hosts))


def check_one(result: PublishResult) -> PublishResult:
    """Return the result of a single event; EventRefusedError if the node refused it."""
    if result.refused:
        raise EventRefusedError("refused", f"the event was refused: {result.refused[0][1]}")
    return result


async def publish_all(
    node: ClientNode, batches: Iterable[Publish], receipt: bool, timeout: float
) -> PublishResult:
    """Publish `batches`, each answered within `timeout` seconds. If a ControlError interrupts this,
    the error says which events are published (`SentBatches.interrupted`)."""
    outbox = SentBatches(receipt)

    async def send(command: Publish, within: float = timeout) -> Sent:
        try:
            link, number = await node.begin(command, within)
        except EventRefusedError as error:
            raise error.behind(outbox.events) from None
        return outbox.sent(command, link, number)

    async def finish(sent: Sent) -> None:
        """Wait for the reply. A leaving node has taken nothing of a publication, so it is sent
        again until a node takes it, as long as a lost node is looked for."""
        until = time.monotonic() + min(timeout, node.patience)
        backoff = Backoff()
        while True:
            try:
                reply = await sent.link.finish(sent.number, timeout)
                outbox.answered(sent, expected(reply, Published))
                return
            except NodeLeavingError:
                outbox.refused(sent)
                delay = backoff.next()
                if time.monotonic() + delay >= until or await node.pause(delay):
                    raise
            sent = await send(sent.command, until - time.monotonic())

    try:
        await pipelined(batches, send, finish, lambda sent: sent.link.abandon(sent.number), AHEAD)
    except ControlError as error:
        outbox.interrupted(error)
        raise
    return outbox.result
