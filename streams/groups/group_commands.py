"""What operators ask of their node about groups: look at them, deal with dead letters, change and
forget them.

Each shard's leader is asked, and asked for elsewhere while it is not the leader. What changes a
group may be asked for twice, which is the same as once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from overlay.client import NO_MAJORITY, Command, Done, Failed
from overlay.info import GroupInfo, GroupShardInfo
from overlay.machine import Machine, Message, Peer, Port, Timer
from overlay.stream_client import (
    DeadEnded,
    DeadLetter,
    EditGroup,
    EndDead,
    GetGroups,
    Groups,
    RemoveGroup,
)
from streams.consuming.messages import ReadFrom
from streams.directory.entry import StreamEntry
from streams.directory.locator import Locator, StreamLocated, StreamMissing
from streams.groups.founding import fault_of
from streams.groups.messages import (
    MOVED,
    NOT_DEAD,
    UNKNOWN_GROUP,
    AskGroups,
    ChangeGroup,
    DeadReport,
    EndDeadLetters,
    ForgetGroup,
    GroupChanged,
    GroupRefused,
    GroupsReport,
    Wanted,
)
from streams.log.batches import decode_rows

AGAIN: Final = 0.5
"""Seconds after which who has not answered is asked again."""

TRIES: Final = 16
"""How many times: for as long as two changes of a leader take."""

NANOSECONDS: Final = 1e9


Asked = GetGroups | EndDead | EditGroup | RemoveGroup
"""What operators ask."""


class AskGroupsAgain(Timer, frozen=True):
    """Ask those leaders again that have not answered."""

    ticket: int


class _Question:
    """A command, and the shards whose leaders have not answered."""

    def __init__(self, client: int, command: Asked) -> None:
        self.client = client
        self.command = command
        self.entry: StreamEntry | None = None
        self.open: dict[int, Message] = {}  # by shard, what its leader is asked
        self.hints: dict[int, Peer] = {}
        self.reports: dict[int, GroupsReport] = {}
        self.refused: GroupRefused | None = None
        self.known = False  # some shard has such a group
        self.count = 0
        self.tries = 0
        self.is_sent = False  # a leader may know of it


class GroupCommands(Machine):
    """Commands about groups that are not answered yet."""

    def __init__(self, port: Port, locator: Locator) -> None:
        super().__init__(port)
        self._locator = locator
        self._questions: dict[int, _Question] = {}
        self._ticket = 0

    def commands(self) -> dict[type, Callable[..., None]]:
        """Commands with the method that carries each out."""
        return dict.fromkeys((GetGroups, EndDead, EditGroup, RemoveGroup), self.ask)

    def ask(self, client: int, command: Asked) -> None:
        """Ask the leaders of the stream's shards."""
        if isinstance(command, EditGroup) and (fault := fault_of(_wanted(command))):
            self.port.reply(client, Failed(command.request, *fault))
            return
        self._ticket += 1
        self._questions[self._ticket] = _Question(client, command)
        self._locator.locate(command.stream)

    def on_located(self, event: StreamLocated) -> None:
        """A stream is found, or its leaders are others."""
        for ticket, question in list(self._questions.items()):
            if question.command.stream != event.name:
                continue
            places = question.open or range(len(event.entry.places))
            lists = isinstance(question.command, GetGroups)  # any leader can answer that
            fault = event.is_stuck if lists else event.no_majority
            reason = next(filter(None, map(fault, places)), "")
            if reason and not question.is_sent:
                self._fail(ticket, NO_MAJORITY, reason)
            elif question.entry is None:
                question.entry = event.entry
                for place, shard in enumerate(event.entry.shards()):
                    if asked := _asked(ticket, shard, place, question.command):
                        question.open[place] = asked
                if isinstance(question.command, EndDead) and any(
                    shard >= len(event.entry.places) for shard, _ in question.command.rows
                ):
                    self._fail(ticket, "usage", "the stream has no such shard")
                else:
                    self._send(ticket)

    def on_missing(self, event: StreamMissing) -> None:
        """There is no such stream, or nobody knows."""
        for ticket, question in list(self._questions.items()):
            if question.command.stream == event.name and question.entry is None:
                self._fail(ticket, event.code, event.reason)

    def _send(self, ticket: int) -> None:
        question = self._questions[ticket]
        question.tries += 1
        for place, asked in question.open.items():
            leader = question.hints.pop(place, None)
            leader = leader or self._locator.leader(question.command.stream, place)
            if leader is not None:
                question.is_sent = True
                self.port.send(leader, asked)
            elif question.tries > 1:
                self._locator.locate(question.command.stream)
        self.port.set_timer(AGAIN, AskGroupsAgain(ticket))

    def on_again(self, timer: AskGroupsAgain) -> None:
        """Ask those again that have not answered."""
        question = self._questions.get(timer.ticket)
        if question is None:
            return
        if question.tries < TRIES:
            self._send(timer.ticket)
        elif isinstance(question.command, GetGroups):
            self._answer(timer.ticket)
        else:
            self._fail(timer.ticket, "time-out", "a shard's leader has not answered")

    def on_report(self, sender: Peer, message: GroupsReport) -> None:
        """The groups of a shard."""
        question = self._questions.get(message.ticket)
        if question is not None and question.entry is not None:
            shards = question.entry.shards()
            if message.shard in shards:
                place = shards.index(message.shard)
                question.reports[place], question.known = message, True
                self._answered(message.ticket, place)

    def on_changed(self, sender: Peer, message: GroupChanged) -> None:
        """What was asked of a shard has happened."""
        question = self._questions.get(message.ticket)
        if question is not None and message.place in question.open:
            question.known = True
            question.count += message.count
            self._answered(message.ticket, message.place)

    def on_refused(self, sender: Peer, message: GroupRefused) -> None:
        """A shard does not know the group, or another node leads it."""
        question = self._questions.get(message.ticket)
        if question is None or message.place not in question.open:
            return
        if message.code == MOVED:
            self._locator.mistaken(question.command.stream, message.place, sender.id)
            if message.leader is not None:
                question.hints[message.place] = message.leader
            return
        repeated = question.tries > 1 and message.code in (NOT_DEAD, UNKNOWN_GROUP)
        if not repeated:  # else the first answer may have been lost
            question.refused = message
        self._answered(message.ticket, message.place)

    def _answered(self, ticket: int, place: int) -> None:
        question = self._questions[ticket]
        question.open.pop(place, None)
        if not question.open:
            self._answer(ticket)

    def _answer(self, ticket: int) -> None:
        question = self._questions[ticket]
        refused = question.refused
        if refused is not None and (not question.known or refused.code != UNKNOWN_GROUP):
            reason = refused.reason
            if isinstance(question.command, EditGroup) and question.known:
                reason = f"shard {refused.place}: {reason} (others are changed)"
            self._fail(ticket, refused.code, reason)
            return
        del self._questions[ticket]
        self.port.cancel_timer(AskGroupsAgain(ticket))
        command: Command = question.command
        if isinstance(command, GetGroups):
            answer: Any = groups_of(command, question.reports, not question.open)
        elif isinstance(command, EndDead):
            answer = DeadEnded(command.request, question.count)
        else:
            answer = Done(command.request)
        self.port.reply(question.client, answer)

    def _fail(self, ticket: int, code: str, reason: str) -> None:
        question = self._questions.pop(ticket)
        self.port.cancel_timer(AskGroupsAgain(ticket))
        self.port.reply(question.client, Failed(question.command.request, code, reason))

    def client_gone(self, client: int) -> None:
        """A program has gone."""
        for ticket in [t for t, q in self._questions.items() if q.client == client]:
            del self._questions[ticket]


def _wanted(command: EditGroup) -> Wanted:
    """What a group is to have."""
    about = (command.selector, command.lease, command.deliveries, command.by)
    return Wanted(ReadFrom("new"), *about, command.priority, command.delay, command.delay_seconds)


def _asked(ticket: int, shard: str, place: int, command: Asked) -> Message | None:
    """What the leader of a shard is asked; None: nothing."""
    if isinstance(command, GetGroups):
        return AskGroups(ticket, shard, place, command.group)
    if isinstance(command, EditGroup):
        return ChangeGroup(ticket, shard, place, command.group, _wanted(command))
    if isinstance(command, RemoveGroup):
        return ForgetGroup(ticket, shard, place, command.group)
    offsets = tuple(offset for number, offset in command.rows if number == place)
    if command.rows and not offsets:
        return None
    return EndDeadLetters(ticket, shard, place, command.group, offsets, command.retry)


def groups_of(command: GetGroups, reports: dict[int, GroupsReport], complete: bool) -> Groups:
    """What the leaders of shards have said, by group."""
    options: dict[str, Any] = {}
    shards: dict[str, list[GroupShardInfo]] = {}
    letters = []
    for place in sorted(reports):
        report = reports[place]
        for one in report.groups:
            options.setdefault(one.name, one.options)
            shards.setdefault(one.name, []).append(
                GroupShardInfo(
                    *(place, one.floor, report.end, one.scanned, one.open),
                    *(one.leased, one.delayed, one.dead, one.members, one.former),
                )
            )
        letters += [_letter(place, each) for each in report.dead]
    infos = []
    for name in sorted(options):
        has = options[name]
        infos.append(
            GroupInfo(
                *(name, has.selector, has.lease, has.deliveries, has.by, has.priority),
                *(has.delay, has.delay_seconds, tuple(shards[name])),
            )
        )
    return Groups(command.request, tuple(infos), tuple(letters), complete)


def _letter(shard: int, dead: DeadReport) -> DeadLetter:
    about = (shard, dead.offset, dead.deliveries, dead.reason, dead.time / NANOSECONDS)
    if not dead.row:
        return DeadLetter(*about)
    try:
        (row,) = decode_rows(dead.row, 1)
    except ValueError:
        return DeadLetter(*about)
    return DeadLetter(*about, row.attributes, row.payload, row.payload_type)
