"""The publications of programs, until they are answered (overlay/client.py)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from overlay.client import LEAVING, Event, Failed, Publish, Published
from overlay.info import AcceptedEvents
from overlay.lower_random.policies import POLICY, Policies
from overlay.machine import Machine, NodeId, Port
from overlay.upper_tree.events import (
    EventsAccepted,
    PublicationsCame,
    PublicationsRefused,
    RoomAgain,
)
from overlay.upper_tree.publisher.admission import fits, refusal, settled, uniform_batch
from overlay.upper_tree.publisher.constants import PUBLISH_TOGETHER
from overlay.upper_tree.publisher.publisher import Publisher


class PendingReceipt(msgspec.Struct):
    """An answer that is due when all its events are accepted."""

    client: int
    answer: Published
    pending: dict[int, None]  # sequence numbers of the others
    hosts: dict[int, Mapping[str, NodeId]] = {}  # of those that are accepted


def refuse_leaving(port: Port, client: int, request: int) -> None:
    """Answer what a leaving node does not carry out; request 0 ends the client's
    subscriptions."""
    if request:
        port.count("refused_leaving")
    what = "it carries out nothing new" if request else "its subscriptions have ended"
    port.reply(client, Failed(request, LEAVING, f"the node is leaving: {what}"))


class Publications(Machine):
    """The publications of this node's programs: admits them while the publisher has room, and gives
    receipts."""

    def __init__(self, port: Port, publisher: Publisher, policies: Policies) -> None:
        super().__init__(port)
        self.publisher = publisher
        self._policies = policies
        self._queue: deque[tuple[int, Publish]] = deque()  # that wait for room
        self.receipts: dict[int, PendingReceipt] = {}  # by sequence
        self._leaving = False

    def commands(self) -> dict[type, Callable[..., None]]:
        """Commands with the method that carries each out."""
        return {Publish: self.publish}

    def leave(self) -> None:
        """Leave: refuse further publications, and those that still wait for room."""
        self._leaving = True
        queue, self._queue = self._queue, deque()
        for client, command in queue:
            refuse_leaving(self.port, client, command.request)

    @property
    def waiting(self) -> int:
        """Number of events that wait for the publisher's room."""
        return sum(len(command.events) for _, command in self._queue)

    def publish(self, client: int, command: Publish) -> None:
        """Admitted at the end of the turn, or when there is room; each client waits for its answers
        before it sends more, which bounds the queue by the number of clients."""
        if self._leaving:
            refuse_leaving(self.port, client, command.request)
            return
        if not self._queue:
            self.port.emit(PublicationsCame())
        self._queue.append((client, command))

    def on_publications_came(self, event: PublicationsCame | RoomAgain) -> None:
        """Publish what waits, while the publisher has room."""
        while self._queue and (room := self.publisher.pending.room):
            together = [self._queue.popleft()]
            size = len(together[0][1].events)
            most = min(PUBLISH_TOGETHER, room)
            while self._queue and size + len(self._queue[0][1].events) <= most:
                together.append(self._queue.popleft())
                size += len(together[-1][1].events)
            self._admit(together)
        if self._queue:
            self.publisher.pending.await_room()

    def _admit(self, together: list[tuple[int, Publish]]) -> None:
        """Publications whose events look alike set out as one batch."""
        drafts = [draft for _, command in together for draft in command.events]
        alike = uniform_batch(drafts)
        is_fit = alike is not None and fits(self.port, drafts)
        if not is_fit or self._policies.denied([draft.attributes for draft in drafts]):
            for client, command in together:
                self._admit_closely(client, command)
            return
        events = self.publisher.publish(drafts, alike)
        start = 0
        for client, command in together:
            end = start + len(command.events)
            self._answer(client, command, events[start:end], ())
            start = end

    def _admit_closely(self, client: int, command: Publish) -> None:
        """Check each event by itself."""
        drafts = list(command.events)
        reasons = [refusal(draft) for draft in drafts]
        for number, draft in enumerate(drafts):
            if reasons[number] is None and self.port.schemas is not None:
                drafts[number], reason = settled(self.port, draft)
                is_other = drafts[number] is not draft  # and may be too large
                reasons[number] = refusal(drafts[number]) if is_other else reason
        denied = self._policies.denied([draft.attributes for draft in drafts])
        if denied:
            denial = self._policies.publication_denial()
            self.port.count("policy_refused", sum(denied))
            reasons = [r or denial * d for r, d in zip(reasons, denied, strict=True)]
        refused = tuple([(number, reason) for number, reason in enumerate(reasons) if reason])
        for _, reason in refused:
            self.port.count("refused")
            self.port.trace("refused", reason=reason)
        good = [d for d, reason in zip(drafts, reasons, strict=True) if not reason]
        self._answer(client, command, self.publisher.publish(good), refused)

    def _answer(
        self,
        client: int,
        command: Publish,
        events: Sequence[Event],
        refused: tuple[tuple[int, str], ...],
    ) -> None:
        """Answer now, or where a receipt is asked for when all events are accepted."""
        answer = Published.of(command.request, events, refused)
        pending = self.publisher.pending.await_receipts(events) if command.receipt else {}
        if pending:
            receipt = PendingReceipt(client, answer, pending)
            self.receipts.update(dict.fromkeys(pending, receipt))
        else:
            self.port.reply(client, answer)

    def on_publications_refused(self, event: PublicationsRefused) -> None:
        """A host knows a policy that permits less than the one that was looked at here, or has a
        quota."""
        for sequence in event.sequences:
            receipt = self.receipts.pop(sequence, None)
            if receipt is not None:
                for other in receipt.pending:
                    self.receipts.pop(other, None)
                self.port.reply(
                    receipt.client, Failed(receipt.answer.request, POLICY, event.reason)
                )

    def on_events_accepted(self, event: EventsAccepted) -> None:
        """Answer each publication with a receipt whose last event has now been accepted by all its
        trees."""
        if not self.receipts:
            return
        for sequence in event.sequences:
            receipt = self.receipts.pop(sequence, None)
            if receipt is not None:
                receipt.pending.pop(sequence)
                receipt.hosts[sequence] = event.hosts[sequence]
                if not receipt.pending:
                    accepted = AcceptedEvents.of(receipt.hosts)
                    answer = replace(receipt.answer, accepted=accepted)
                    self.port.reply(receipt.client, answer)
