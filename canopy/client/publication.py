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
"""Events in one publication at most; larger ones were no faster (docs/lab/performance.md)."""

BATCH_BYTES: Final = 1 << 20
"""Bytes of payload and text in one publication, about; a frame may have 8 MiB."""

AHEAD: Final = 2
"""Publications without an answer at once, so that the node has work while an answer is on its way.
The node takes up to 1,024 events of a client before it reads no more."""


Attributes: TypeAlias = Mapping[str, Value | None]
"""An event: names to booleans, numbers, strings, or None."""


class PublishResult(msgspec.Struct, frozen=True):
    """The outcome of published events, in their order."""

    identities: tuple[str, ...]
    """The identity of each event, by which `canopy why` knows it; "" for a refused one."""
    refused: tuple[tuple[int, str], ...] = ()
    """(place, reason) of each event that the node refused."""
    accepted: bool = False
    """Whether every tree that the events visit has accepted them, as was asked for with `receipt`.
    Else the node has only admitted them."""
    hosts: tuple[Mapping[str, str], ...] = ()
    """With `receipt`, the ids of the nodes that have each event, by the attribute of the tree that
    each accepted it for; empty for one that is refused or that no tree wants. A node that dies
    before it has passed an event on takes it along."""

    @property
    def count(self) -> int:
        """Events that were published, without the refused ones."""
        return len(self.identities) - len(self.refused)


class Drafting:
    """Makes drafts of a program's events and names those that have no `id`."""

    def __init__(self) -> None:
        self._prefix = secrets.token_hex(6)
        self._numbers = itertools.count(1)

    def draft(self, event: Attributes | Draft, payload: bytes = b"", type_: str = "") -> Draft:
        """`event` as a draft; it gets an `id` and a `type` ("event") where it has none."""
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
        """The publications that carry the events, in order."""
        batch: list[Draft] = []
        size = 0
        for event in events:
            draft = self.draft(event)
            batch.append(draft)
            size += len(draft.payload) + sum(
                len(value) for value in draft.attributes.values() if isinstance(value, str)
            )
            if len(batch) >= BATCH or size >= BATCH_BYTES:
                yield Publish(0, tuple(batch), receipt)
                batch, size = [], 0
        if batch:
            yield Publish(0, tuple(batch), receipt)


class Sent:
    """A publication that has left over the connection `link` as its request `number`."""

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
        """The result of the batches that were answered."""
        return result_of(self._replies, self._asked)

    def sent(self, command: Publish, link: Link, number: int) -> Sent:
        """A publication has left; `answered` or `refused` follows."""
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
        """Add to `error`, which interrupts the publication, which events are published and which
        may be."""
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
    """The result of a single event; EventRefusedError if the node refused it."""
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
