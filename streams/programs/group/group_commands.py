"""What operators ask of their node about groups: look at them, deal with dead letters, change and
forget them.

Each shard's leader is asked, and asked for elsewhere while it is not the leader. What changes a
group may be asked for twice, which is the same as once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from overlay.client import Done
from overlay.info import GroupInfo, GroupShardInfo
from overlay.machine import Message, Peer, Port, Timer
from overlay.stream_client import (
    DeadEnded,
    DeadLetter,
    EditGroup,
    EndDead,
    GetGroups,
    Groups,
    RemoveGroup,
)
from streams.access import pacing
from streams.access.ask import Ask, AskMachine, LeaderQuestion
from streams.access.locator import Locator, StreamLocated
from streams.access.reasons import TIME_OUT, Cause, no_majority, stuck
from streams.log.batches import decode_rows
from streams.programs.group.founding import fault_of
from streams.programs.group.messages import (
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
from streams.programs.reader.messages import ReadFrom

NANOSECONDS: Final = 1e9


Asked = GetGroups | EndDead | EditGroup | RemoveGroup
"""What operators ask."""


class LookAtGroupCommands(Timer, frozen=True):
    """Time to look at what was not answered."""


class _Question:
    """A command, and what the leaders of shards have answered."""

    def __init__(self, client: int, command: Asked) -> None:
        self.client = client
        self.command = command
        self.open: list[Ask] = []
        self.reports: dict[int, GroupsReport] = {}
        self.refused: GroupRefused | None = None
        self.known = False  # some shard has such a group
        self.count = 0
        self.complete = True


class GroupCommands(AskMachine):
    """Commands about groups that are not answered yet."""

    def __init__(self, port: Port, locator: Locator) -> None:
        super().__init__(port, locator, LookAtGroupCommands())

    def commands(self) -> dict[type, Callable[..., None]]:
        """Commands with the method that carries each out."""
        return dict.fromkeys((GetGroups, EndDead, EditGroup, RemoveGroup), self.ask)

    def ask(self, client: int, command: Asked) -> None:
        """Ask the leaders of the stream's shards."""
        if isinstance(command, EditGroup) and (fault := fault_of(_wanted(command))):
            self.refuse(client, command, fault)
            return
        self.held.hold(client, command.stream, command)

    def begin(self, client: int, command: Asked, located: StreamLocated) -> None:
        """As `AskMachine`: ask about each shard."""
        lists = isinstance(command, GetGroups)  # any leader can answer that
        wanting = stuck if lists else no_majority
        places = range(len(located.entry.places))
        if reason := next(filter(None, (wanting(located, place) for place in places)), None):
            self.refuse(client, command, reason)
            return
        if isinstance(command, EndDead) and any(shard not in places for shard, _ in command.rows):
            self.refuse(client, command, ("usage", "the stream has no such shard"))
            return
        question = _Question(client, command)
        for place, shard in enumerate(located.entry.shards()):
            if _asked(0, shard, place, command) is not None:
                question.open.append(self._about(question, place, shard))
        for ask in list(question.open):
            self.asks.ask(ask)

    def _about(self, question: _Question, place: int, shard: str) -> Ask:
        """What the leader of one shard is asked."""

        def make(number: int) -> Message:
            asked = _asked(number, shard, place, question.command)
            assert asked is not None, "it was asked before"
            return asked

        def then(answer: Message) -> None:
            question.open.remove(ask)
            if isinstance(answer, GroupsReport):
                question.reports[place], question.known = answer, True
            elif isinstance(answer, GroupChanged):
                question.known = True
                question.count += answer.count
            elif isinstance(answer, GroupRefused):
                repeated = ask.times > 1 and answer.code in (NOT_DEAD, UNKNOWN_GROUP)
                if not repeated:  # else the first answer may have been lost
                    question.refused = answer
            if not question.open:
                self._answer(question)

        def refused(reason: Cause) -> None:
            if isinstance(question.command, GetGroups) and reason.code == TIME_OUT:
                question.open.remove(ask)
                question.complete = False
                if not question.open:
                    self._answer(question)
            else:
                self._fail(question, reason)

        def fits(answer: Message) -> bool:
            if isinstance(answer, GroupsReport):
                return lists and answer.shard == shard
            return not (lists and isinstance(answer, GroupChanged))

        lists = isinstance(question.command, GetGroups)
        about = (question.client, question.command.stream, place, make)
        asked = LeaderQuestion(*about, is_reading=lists, fits=fits)
        ask = Ask(asked, then, refused, pacing.ASK_FOR)
        return ask

    def on_look(self, timer: LookAtGroupCommands) -> None:
        """Ask those again that have not answered."""
        self.asks.look()

    def on_report(self, sender: Peer, message: GroupsReport) -> None:
        """The groups of a shard."""
        if ask := self.asks.get(message.ticket):
            self.asks.answered(ask, sender, message)

    def on_changed(self, sender: Peer, message: GroupChanged) -> None:
        """What was asked of a shard has happened."""
        if ask := self.asks.get(message.ticket):
            self.asks.answered(ask, sender, message)

    def on_refused(self, sender: Peer, message: GroupRefused) -> None:
        """A shard does not know the group, or another node leads it."""
        ask = self.asks.get(message.ticket)
        if ask is not None and message.code == MOVED:
            self.asks.moved(ask, sender, message.leader)
        elif ask is not None:
            self.asks.answered(ask, sender, message)

    def _answer(self, question: _Question) -> None:
        """All shards have answered."""
        command, refused = question.command, question.refused
        if refused is not None and (not question.known or refused.code != UNKNOWN_GROUP):
            reason = refused.reason
            if isinstance(command, EditGroup) and question.known:
                reason = f"shard {refused.place}: {reason} (others are changed)"
            self.refuse(question.client, command, (refused.code, reason))
            return
        if isinstance(command, GetGroups):
            answer: Any = groups_of(command, question.reports, question.complete)
        elif isinstance(command, EndDead):
            answer = DeadEnded(command.request, question.count)
        else:
            answer = Done(command.request)
        self.port.reply(question.client, answer)

    def _fail(self, question: _Question, reason: Cause) -> None:
        """One shard cannot be asked: neither are the others."""
        for ask in question.open:
            self.asks.drop(ask)
        question.open.clear()
        self.refuse(question.client, question.command, reason)


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
