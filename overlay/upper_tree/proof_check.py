"""Refuses events that their publishers have not signed, before a machine sees them (`tree.sign`).

Between the guard and the machines, so that no machine thinks of signatures, and that nothing is
looked at which is beyond its sender's rights or quota. What is refused is as
if it had not come: a publisher whose event was altered on its way hears of no acceptance and sends
it elsewhere. It is counted, traced, remembered for `canopy why`, and written into the audit file,
for each sender once in a while.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from overlay.bounded import BoundedDict
from overlay.client import Event
from overlay.machine import Message, NodeId, Peer, Port
from overlay.upper_tree.event_history import EventHistory, Refused
from overlay.upper_tree.event_proofs import SELECT, UNSIGNED, Carrier, EventProofs, Fault
from overlay.upper_tree.messages import EventsRefused, Visit

NOTE_AGAIN: Final = 60.0
"""Seconds between two notes about one sender in the audit file."""

SENDERS_MOST: Final = 1_024
"""Senders of which it is remembered when they were noted."""


class ProofCheck:
    """Refuses events in messages of other nodes that their publishers have not signed as they are,
    and dispatches the rest."""

    def __init__(
        self,
        proofs: EventProofs,
        history: EventHistory,
        port: Port,
        dispatch: Callable[[Peer, Message], None],
        note: Callable[[str, dict[str, Any]], None],
    ) -> None:
        """`dispatch` takes permitted messages; `note` writes into the audit file."""
        self._proofs = proofs
        self._dispatch = dispatch
        self._history = history
        self._port = port
        self._note = note
        self._noted: BoundedDict[NodeId, tuple[float, int]] = BoundedDict(SENDERS_MOST)

    def dispatch(self, sender: Peer, message: Message) -> None:
        """Dispatch the message without the events that are refused."""
        taken = self.taken(sender, message)
        if taken is not None:
            self._dispatch(sender, taken)

    def taken(self, sender: Peer, message: Message) -> Message | None:
        """The message without the events that are refused; None: all that it had are."""
        if type(message) not in SELECT:
            return message
        assert isinstance(message, Carrier)
        faults = [self._proofs.fault(event) for event in message.events]
        if not any(faults):
            return message
        self._refuse(sender, message, faults)
        places = [place for place, fault in enumerate(faults) if not fault]
        return SELECT[type(message)](message, places) if places else None

    def _refuse(self, sender: Peer, message: Carrier, faults: Sequence[Fault]) -> None:
        by_fault: dict[Fault, list[Event]] = {}
        for event, fault in zip(message.events, faults, strict=True):
            if fault:
                by_fault.setdefault(fault, []).append(event)
        kind = type(message).__name__
        for fault, events in by_fault.items():
            self._port.count("events_unproven", len(events))
            self._history.refused(events, Refused(sender.id, fault))
            for event in events:
                self._port.trace(
                    "drop", event=event.identity, peer=sender.id, reason=f"{kind}: {fault}", size=0
                )
        self._write_down(sender.id, kind, by_fault)
        unsigned = by_fault.get(UNSIGNED, [])
        if unsigned and isinstance(message, Visit) and message.origin.id == sender.id:
            sequences = tuple([event.sequence for event in unsigned])
            reason = "this node takes only events that are signed: set tree.sign"
            self._port.send(sender, EventsRefused(unsigned[0].incarnation, sequences, 0, reason))

    def _write_down(self, sender: NodeId, kind: str, by_fault: dict[Fault, list[Event]]) -> None:
        at, count = self._noted.get(sender, (float("-inf"), 0))
        count += sum(map(len, by_fault.values()))
        if self._port.now < at + NOTE_AGAIN:
            self._noted[sender] = (at, count)
            return
        self._noted[sender] = (self._port.now, 0)
        fault, (first, *_) = next(iter(by_fault.items()))
        said = {"sender": sender, "message": kind, "events": count, "reason": fault}
        self._note("events refused", {**said, "event": first.identity})
