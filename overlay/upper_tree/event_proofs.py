"""Events that their publisher's node has signed (`tree.sign`), and what is wrong with others.

A node signs all that it publishes in one turn at once: the events are the leaves of a Merkle tree,
whose root it signs, and each event carries the signature with its own path to the root. So an event
can be looked at by itself, by whoever has it, and a signature is made, and looked at, once for a
batch. What is hashed is all that makes the event: identity, time, attributes, payload and its type.

Signatures need no certificates: the publisher's id in the event is a hash of the key that is in the
proof (overlay/links/statements.py). Hashes are cut to 16 bytes: to put another event in the place
of one takes a second preimage.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec.structs import replace

from overlay.bounded import BoundedDict
from overlay.client import Event
from overlay.links.statements import Signature, Signer, statement
from overlay.machine import Message, NodeId, Peer, Port, Uint53
from overlay.upper_tree.batches import weigh_events
from overlay.upper_tree.event_history import EventHistory, Refused
from overlay.upper_tree.messages import Deliver, EventsRefused, Undelivered, Visit
from overlay.upper_tree.visits import select_events

DIGEST: Final = 16
BATCH_MOST: Final = 4_096
"""Events under one signature at most: twelve hashes of path."""

PATH_MOST: Final = 12 * DIGEST
PROOF_MOST: Final = 160 + PATH_MOST
"""Bytes of an encoded proof at most."""

ROOTS_KEPT: Final = 16_384
"""Signatures of which it is remembered whether they hold, some 300 bytes each: an event of a batch
comes over several trees and hosts."""

AGE_MOST: Final = 7_200.0
"""Seconds after which what was signed is refused: what an earlier process has sent, or somebody
has kept. Clocks of nodes may differ by an hour (certificates); nothing waits for the other one."""

UNSIGNED: Final = "its publisher's node has not signed it"
FALSE: Final = "it is not what its publisher's node has signed"
OLD: Final = "it was signed too long ago"

Fault = Literal[
    "",
    "its publisher's node has not signed it",
    "it is not what its publisher's node has signed",
    "it was signed too long ago",
]
"""The fault of an event, for people; "": it has none."""

SignMode = bool | Literal["lenient"]
"""`tree.sign`: whether events are signed, and only signed ones are taken; lenient: signed, and
unsigned ones are taken as well."""


class EventProof(msgspec.Struct, frozen=True, array_like=True):
    """The proof that an event is the one at `place` among `count` events that its publisher has
    signed together. The `path` has the sibling hashes on the way to the root, from the leaf on."""

    key: Annotated[bytes, msgspec.Meta(max_length=32)]
    generation: Uint53
    seal: Annotated[bytes, msgspec.Meta(max_length=64)]
    at: Uint53  # when it was signed, seconds since 1970: an event's time may be its program's
    count: Annotated[int, msgspec.Meta(ge=1, le=BATCH_MOST)]
    place: Annotated[int, msgspec.Meta(ge=0, lt=BATCH_MOST)]
    path: Annotated[bytes, msgspec.Meta(max_length=PATH_MOST)]


_EVENTS: Final = msgspec.msgpack.Encoder(order="deterministic")
_PROOFS: Final = msgspec.msgpack.Decoder(EventProof)
_LEAF: Final = blake2b(digest_size=DIGEST, person=b"canopy event")
_NODE: Final = blake2b(digest_size=DIGEST, person=b"canopy batch")


def leaf_of(event: Event) -> bytes:
    """The hash of all that makes an event; attributes in order of names."""
    found = _LEAF.copy()
    found.update(
        _EVENTS.encode(
            (
                *(event.publisher, event.incarnation, event.sequence, float(event.time)),
                *(event.attributes, event.payload, event.payload_type),
            )
        )
    )
    return found.digest()


def _node(left: bytes, right: bytes) -> bytes:
    found = _NODE.copy()
    found.update(left + right)
    return found.digest()


def levels_of(leaves: Sequence[bytes]) -> list[Sequence[bytes]]:
    """The tree over these hashes (at least one), leaves first, the root last. The last hash of a
    level that has nobody beside it goes up as it is."""
    levels = [leaves]
    while len(below := levels[-1]) > 1:
        above = [_node(a, b) for a, b in zip(below[::2], below[1::2], strict=False)]
        levels.append([*above, below[-1]] if len(below) % 2 else above)
    return levels


def path_to(levels: Sequence[Sequence[bytes]], place: int) -> bytes:
    """The hashes beside the way from the leaf at `place` to the root."""
    path = b""
    for level in levels[:-1]:
        beside = place ^ 1
        if beside < len(level):
            path += level[beside]
        place //= 2
    return path


def root_of(leaf: bytes, count: int, place: int, path: bytes) -> bytes | None:
    """The root to which a path leads from the leaf at `place` of `count`; None if it is none."""
    at, found = 0, leaf
    if place >= count:
        return None
    while count > 1:
        if place ^ 1 < count:
            beside = path[at : at + DIGEST]
            at += DIGEST
            found = _node(beside, found) if place % 2 else _node(found, beside)
        place, count = place // 2, (count + 1) // 2
    return found if at == len(path) else None


def _signed(publisher: NodeId, incarnation: int, at: int, count: int, root: bytes) -> bytes:
    return statement("events", publisher, incarnation, at, count, root)


class EventProofs:
    """Signs this node's events, and looks at those of others."""

    def __init__(self, signer: Signer, mode: SignMode, wall: Callable[[], float]) -> None:
        """`wall`: seconds since 1970."""
        self._signer = signer
        self._is_strict = mode is True
        self._wall = wall
        self._known: BoundedDict[tuple[object, ...], bool] = BoundedDict(ROOTS_KEPT)

    def sign(self, events: Sequence[Event]) -> list[Event]:
        """Return this node's events, of one incarnation, with their proofs."""
        found: list[Event] = []
        for start in range(0, len(events), BATCH_MOST):
            found += self._sign(events[start : start + BATCH_MOST])
        return found

    def _sign(self, events: Sequence[Event]) -> list[Event]:
        one, count, at = events[0], len(events), int(self._wall())
        levels = levels_of([leaf_of(event) for event in events])
        (root,) = levels[-1]
        said = _signed(one.publisher, one.incarnation, at, count, root)
        signature = self._signer.sign(said)
        self._known[signature.key, signature.generation, signature.seal, said] = True
        whose = (signature.key, signature.generation, signature.seal, at, count)
        return [
            Event(
                event.publisher,
                event.incarnation,
                event.sequence,
                event.time,
                event.attributes,
                event.payload,
                event.payload_type,
                msgspec.msgpack.encode(EventProof(*whose, place, path_to(levels, place))),
                event.traced,
            )
            for place, event in enumerate(events)
        ]

    def fault(self, event: Event) -> Fault:
        """Return the fault of an event of another node; "" if there is none."""
        if event.proof is None:
            return UNSIGNED if self._is_strict else ""
        try:
            proof = _PROOFS.decode(event.proof)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return FALSE
        root = root_of(leaf_of(event), proof.count, proof.place, proof.path)
        if root is None or not self._holds(event, proof, root):
            return FALSE
        return OLD if proof.at < self._wall() - AGE_MOST else ""

    def _holds(self, event: Event, proof: EventProof, root: bytes) -> bool:
        """Whether the event's publisher has signed this root."""
        said = _signed(event.publisher, event.incarnation, proof.at, proof.count, root)
        name = (proof.key, proof.generation, proof.seal, said)
        known = self._known.get(name)
        if known is None:
            signature = Signature(event.publisher, proof.key, proof.generation, proof.seal)
            known = self._known[name] = self._signer.holds(signature, said)
        return known


def proofs_of(
    signer: Signer | None, mode: SignMode, wall: Callable[[], float]
) -> EventProofs | None:
    """Return the object that signs a node's events; None: they are not signed."""
    return EventProofs(signer, mode, wall) if signer is not None and mode else None


# --- messages without some of their events ---


def _of_delivery(message: Deliver, places: Sequence[int]) -> Deliver:
    new = {old: place for place, old in enumerate(places)}
    apart = [
        (attribute, interval, kept)
        for attribute, interval, some in message.apart
        if (kept := tuple([new[place] for place in some if place in new]))
    ]
    lists = ("registrations", "onward", "previous", "found")
    fields = {
        name: tuple([found[place] for place in places])
        for name in lists
        if len(found := getattr(message, name)) == len(message.events)
    }
    events = tuple([message.events[place] for place in places])
    return replace(message, events=events, apart=tuple(apart), **fields)


def _of_undelivered(message: Undelivered, places: Sequence[int]) -> Undelivered:
    return replace(message, events=tuple([message.events[place] for place in places]))


Carrier = Visit | Deliver | Undelivered
"""A message that brings events."""

SELECT: Final[dict[type, Callable[..., Carrier]]] = {
    Visit: select_events,
    Deliver: _of_delivery,
    Undelivered: _of_undelivered,
}
"""By the type of a message, what makes one with the events at some places (ascending) alone."""


# --- refusing events that their publishers have not signed, before a machine sees them ---
#
# Between the guard and the machines, so that no machine thinks of signatures, and that nothing is
# looked at which is beyond its sender's rights or quota. What is refused is as if it had not come:
# a publisher whose event was altered on its way hears of no acceptance and sends it elsewhere. It
# is counted, traced, remembered for `canopy why`, and written into the audit file, for each sender
# once in a while.

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
            self._history.note(events, Refused(sender.id, fault), sum(weigh_events(events)))
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
