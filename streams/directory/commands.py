"""Programs' commands about streams: found, change, remove, list, describe."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Final

import msgspec

from overlay.chord.events import RingWalked
from overlay.chord.ring.ring import Ring
from overlay.client import Done, Failed, GetStreams, RemoveStream, Streams
from overlay.command_faults import fault_in_stream_name
from overlay.consensus import majority
from overlay.info import ShardInfo, StreamInfo
from overlay.machine import Machine, Message, NodeId, Peer, Port, Timer, by_id
from overlay.stream_client import AddStream, EditStream
from streams.directory.entry import StreamEntry, StreamOptions, fault_in_options, unfit
from streams.directory.messages import (
    AskShards,
    AskStream,
    AskStreams,
    ChangeStream,
    EraseStream,
    FoundStream,
    ShardsStatus,
    ShardStatus,
    StreamFound,
    StreamsReport,
    replica_info,
)
from streams.directory.questions import Answer, CircleSearch, OwnerQuestions, said

WAIT: Final = 2.0
"""Seconds for which nodes may answer: then the answer has what is known."""


INTAKE_WAIT: Final = 20.0
"""Seconds for which a stream's capture may be acknowledged: its shards elect their leaders, and
owners acknowledge the subscriptions of all replicas."""

INTAKE_AGAIN: Final = 0.2
"""Seconds between two looks at a capture."""


CAPTURES: Final = "captures"
"""State of a replica whose capture is acknowledged (`overlay.info.IntakeInfo`)."""


class LookAtIntake(Timer, frozen=True):
    """Check again whether a stream's capture is acknowledged."""

    client: int
    request: int
    name: str
    until: float


class StreamsTimeout(Timer, frozen=True):
    """The time for other nodes' answers is over."""

    ticket: int


class _Look:
    """A description of one stream, with the state of its replicas."""

    def __init__(self, client: int, request: int, found: StreamFound, until: float) -> None:
        self.client, self.request, self.found = client, request, found
        self.until = until
        """The time until which it is repeated while the capture is not acknowledged; 0: never."""
        self.asked: dict[NodeId, Peer] = {}
        self.heard: dict[NodeId, dict[str, ShardStatus]] = {}


class _List:
    """All streams, cluster by cluster."""

    def __init__(self, client: int, request: int) -> None:
        self.client, self.request = client, request
        self.open: dict[str, Peer] = {}  # primaries with streams to come, by the cluster's key
        self.entries: dict[str, StreamEntry] = {}
        self.complete = True
        self.walked = False


class StreamCommands(Machine):
    """The commands about streams without an answer so far."""

    def __init__(self, port: Port, ring: Ring, questions: OwnerQuestions) -> None:
        super().__init__(port)
        self.ring = ring
        self.questions = questions
        self._looks: dict[int, _Look] = {}
        self._lists: dict[int, _List] = {}
        self._ticket = 0

    def commands(self) -> dict[type, Callable[..., None]]:
        """Commands with the method that carries each out."""
        return {
            AddStream: self.add,
            EditStream: self.edit,
            RemoveStream: self.remove,
            GetStreams: self.get,
        }

    def client_gone(self, client: int) -> None:
        """A program has gone: nobody waits for its answers."""
        for asked in (self._looks, self._lists):
            for ticket in [ticket for ticket, each in asked.items() if each.client == client]:
                del asked[ticket]
                self.port.cancel_timer(StreamsTimeout(ticket))

    # -- found and remove ------------------------------------------------------------------------

    def add(self, client: int, command: AddStream) -> None:
        """Check the options of a new stream, and have the owner of its name found it."""
        try:
            options = msgspec.convert(
                {f: getattr(command, f) for f in StreamOptions.__struct_fields__}, StreamOptions
            )
            fault = fault_in_stream_name(command.name) or fault_in_options(options)
        except msgspec.ValidationError as error:
            fault = unfit(error)
        if fault:
            self._fail(client, command.request, "usage", fault)
            return
        id_ = f"{self.port.rng.getrandbits(64):016x}"

        def looked(circle: tuple[str, ...]) -> None:
            if circle:
                self._fail(client, command.request, "usage", said(circle))
            elif search.missing:
                named = ", ".join(search.missing)
                reason = f"there is no stream {named} to copy: found it first"
                self._fail(client, command.request, "unknown", reason)
            else:
                self._ask(
                    client,
                    command,
                    lambda ticket: FoundStream(ticket, command.name, id_, options),
                    lambda found: self._look_until_captured(client, command.request, found),
                )

        search = CircleSearch(self.questions, command.name, options, looked)
        search.start()

    def edit(self, client: int, command: EditStream) -> None:
        """Have the owner of the name change a stream's options, once those given are valid."""
        fields = [f for f in ChangeStream.__struct_fields__ if f not in ("ticket", "name")]
        wanted = {field: getattr(command, field) for field in fields}
        try:
            given = {field: value for field, value in wanted.items() if value is not None}
            msgspec.convert(given, StreamOptions)
        except msgspec.ValidationError as error:
            self._fail(client, command.request, "usage", unfit(error))
            return
        self._ask(
            client,
            command,
            lambda ticket: ChangeStream(ticket, command.name, **wanted),
            lambda found: self._look_until_captured(client, command.request, found),
        )

    def remove(self, client: int, command: RemoveStream) -> None:
        """Have the owner of the name remove a stream."""
        self._ask(
            client,
            command,
            lambda ticket: EraseStream(ticket, command.name),
            lambda found: self.port.reply(client, Done(command.request)),
        )

    def _ask(
        self,
        client: int,
        command: AddStream | EditStream | RemoveStream | GetStreams | LookAtIntake,
        message: Callable[[int], Message],
        then: Callable[[StreamFound], None],
    ) -> None:
        """Ask the owner of the stream that a command names; its refusal is the answer to the
        program."""

        def answered(answer: Answer) -> None:
            if isinstance(answer, StreamFound):
                then(answer)
            else:
                self._fail(client, command.request, answer.code, answer.reason)

        self.questions.ask(command.name, message, answered)

    def _fail(self, client: int, request: int, code: str, reason: str) -> None:
        self.port.reply(client, Failed(request, code, reason))

    # -- one stream ------------------------------------------------------------------------------

    def get(self, client: int, command: GetStreams) -> None:
        """Describe one stream, or all."""
        if not command.name:
            self._ticket += 1
            self._lists[self._ticket] = _List(client, command.request)
            self.port.set_timer(WAIT, StreamsTimeout(self._ticket))
            self.ring.walk()
            return

        self._describe(client, command, 0.0)

    def on_look_at_intake(self, timer: LookAtIntake) -> None:
        """Describe the stream once more."""
        self._describe(timer.client, timer, timer.until)

    def _describe(self, client: int, asked: GetStreams | LookAtIntake, until: float) -> None:
        self._ask(
            client,
            asked,
            lambda ticket: AskStream(ticket, asked.name),
            lambda found: self._look(client, asked.request, found, until),
        )

    def _look_until_captured(self, client: int, request: int, found: StreamFound) -> None:
        """Describe a stream when its capture is acknowledged, if it has one."""
        captures = bool(found.entry.options.capture)
        self._look(client, request, found, self.port.now + INTAKE_WAIT if captures else 0.0)

    def _look(self, client: int, request: int, found: StreamFound, until: float) -> None:
        """Ask all replicas for their state."""
        self._ticket += 1
        look = self._looks[self._ticket] = _Look(client, request, found, until)
        places = found.entry.places
        look.asked = by_id(itertools.chain.from_iterable(place.replicas for place in places))
        self.port.set_timer(WAIT, StreamsTimeout(self._ticket))
        for peer in look.asked.values():
            self.port.send(peer, AskShards(self._ticket, found.entry.shards()))

    def on_shards_status(self, sender: Peer, message: ShardsStatus) -> None:
        """Keep a node's state of its shards; answer when all nodes have sent theirs."""
        look = self._looks.get(message.ticket)
        if look is not None:
            look.heard[sender.id] = {status.shard: status for status in message.shards}
            if look.heard.keys() >= look.asked.keys():
                self._answer_look(message.ticket)

    def _answer_look(self, ticket: int) -> None:
        look = self._looks.pop(ticket)
        self.port.cancel_timer(StreamsTimeout(ticket))
        info = stream_info(look.found.entry, look.found.leaders, look.heard)
        if not look.until or takes_in(info):
            self.port.reply(look.client, Streams(look.request, (info,)))
        elif self.port.now < look.until:
            again = LookAtIntake(look.client, look.request, info.name, look.until)
            self.port.set_timer(INTAKE_AGAIN, again)
        else:
            reason = (
                "the stream is there, but its capture is not acknowledged at all replicas yet; "
                "they go on with it"
            )
            self._fail(look.client, look.request, "time-out", reason)

    # -- all streams -----------------------------------------------------------------------------

    def on_ring_walked(self, event: RingWalked) -> None:
        """Ask each cluster of the ring for its streams."""
        for ticket, listing in list(self._lists.items()):
            if not listing.walked:
                listing.walked, listing.complete = True, event.complete
                listing.open = {cluster.key: cluster.primary for cluster in event.clusters}
                for primary in listing.open.values():
                    self.port.send(primary, AskStreams(ticket, ""))
                if not listing.open:
                    listing.complete = False
                    self._answer_list(ticket)

    def on_streams_report(self, sender: Peer, message: StreamsReport) -> None:
        """Add streams of a cluster; ask for the next ones, or answer."""
        listing = self._lists.get(message.ticket)
        if listing is None or message.key not in listing.open:
            return
        listing.entries.update((entry.name, entry) for entry in message.entries)
        if message.more and message.entries:
            self.port.send(sender, AskStreams(message.ticket, message.entries[-1].name))
        else:
            del listing.open[message.key]
            if not listing.open:
                self._answer_list(message.ticket)

    def _answer_list(self, ticket: int) -> None:
        listing = self._lists.pop(ticket)
        self.port.cancel_timer(StreamsTimeout(ticket))
        entries = [listing.entries[name] for name in sorted(listing.entries)]
        infos = tuple(stream_info(entry, (), None) for entry in entries)
        self.port.reply(listing.client, Streams(listing.request, infos, listing.complete))

    def on_streams_timeout(self, timer: StreamsTimeout) -> None:
        """Answer with the nodes' answers so far."""
        if timer.ticket in self._looks:
            self._answer_look(timer.ticket)
        elif timer.ticket in self._lists:
            self._lists[timer.ticket].complete = False
            self._answer_list(timer.ticket)


def stream_info(
    entry: StreamEntry,
    leaders: tuple[Peer | None, ...],
    heard: dict[NodeId, dict[str, ShardStatus]] | None,
) -> StreamInfo:
    """A stream for people and programs. `heard`: the answers of its nodes; None: they were not
    asked."""
    shards = []
    for number, place in enumerate(entry.places):
        leader = leaders[number] if number < len(leaders) else None
        shard = entry.shard(number)
        replicas = tuple(
            replica_info(peer, None if heard is None else heard.get(peer.id, {}).get(shard))
            for peer in place.replicas
        )
        shards.append(ShardInfo(number, "" if leader is None else leader.id, replicas))
    options = msgspec.structs.asdict(entry.options)
    options["sources"] = tuple((source.stream, source.where) for source in entry.options.sources)
    options["shards"] = tuple(shards)
    return StreamInfo(entry.name, entry.id, **options)


def takes_in(info: StreamInfo) -> bool:
    """Whether each shard has a leader and a majority of replicas that answer, and all of these
    capture with the stream's selector."""
    for shard in info.shards:
        there = [r for r in shard.replicas if r.state in ("leads", "follows")]
        if len(there) < majority(len(shard.replicas)) or all(r.state != "leads" for r in there):
            return False
        for one in there:
            intake = one.intake
            if intake is None or (intake.state, intake.selector) != (CAPTURES, info.capture):
                return False
    return True
