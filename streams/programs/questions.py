"""The questions of operators to the leaders of shards: groups and dead letters, which they also
change and remove, and the fate of one row (`canopy why --stream`).

The leader of each shard concerned is asked. A change may be asked for twice, since carrying it out
twice is the same as once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import asdict

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
    RowExplained,
    RowReader,
    WhyRow,
)
from streams.access import pacing
from streams.access.ask import Ask, AskMachine, LeaderQuestion
from streams.access.locator import StreamLocated, StreamLocator
from streams.access.reasons import MOVED, NOT_DEAD, TIME_OUT, UNKNOWN_GROUP, Cause
from streams.log.batches import decode_rows
from streams.log.chunk import NANOSECONDS
from streams.programs.group.messages import (
    AskGroups,
    ChangeGroup,
    DeadReport,
    EndDeadLetters,
    ForgetGroup,
    GroupChanged,
    GroupRefused,
    GroupsReport,
)
from streams.programs.group.options import fault_of, wanted_by
from streams.programs.reader.messages import AskRow, RowFacts

Asked = WhyRow | GetGroups | EndDead | EditGroup | RemoveGroup
"""The commands of operators."""


class LookAtQuestions(Timer, frozen=True):
    """The timer of operators' questions."""


class OperatorQuestions(AskMachine):
    """Carries commands about groups and rows to the leaders of their streams, and answers with what
    these say."""

    def __init__(self, port: Port, locator: StreamLocator) -> None:
        super().__init__(port, locator, LookAtQuestions())

    def commands(self) -> dict[type, Callable[..., None]]:
        """Return the method that carries out each command."""
        return dict.fromkeys((WhyRow, GetGroups, EndDead, EditGroup, RemoveGroup), self.ask)

    def ask(self, client: int, command: Asked) -> None:
        """Locate the stream of a command, and ask its leaders."""
        if isinstance(command, EditGroup) and (fault := fault_of(wanted_by(command))):
            self.refuse(client, command, fault)
            return
        self.held.hold(client, command.stream, command)

    def begin(self, client: int, command: Asked, located: StreamLocated) -> None:
        """As `AskMachine`: ask the leader of each shard that the command concerns."""
        count = len(located.entry.places)
        meant = _shards(command)
        if unknown := [shard for shard in meant if not 0 <= shard < count]:
            reason = f"{located.name} has no shard {min(unknown)}"
            self.refuse(client, command, ("usage", reason))
            return
        is_reading = isinstance(command, WhyRow | GetGroups)  # any leader can answer that
        places = sorted(meant) or range(count)
        why = located.stuck if is_reading else located.no_majority
        if cause := next(filter(None, map(why, places)), None):
            self.refuse(client, command, cause)
            return

        def question(place: int) -> LeaderQuestion:
            shard = located.entry.shard(place)
            return LeaderQuestion(
                client,
                located.name,
                place,
                lambda number: _message(number, shard, place, command),
                is_reading=is_reading,
                fits=lambda answer: _fits(command, shard, answer),
            )

        self.ask_all(
            [question(place) for place in places],
            lambda asks: self._all_answered(client, command, asks),
            pacing.GIVE_UP,
        )

    def on_look(self, timer: LookAtQuestions) -> None:
        """Repeat questions without an answer."""
        self.asks.look()

    def on_answer(
        self, sender: Peer, message: GroupsReport | GroupChanged | RowFacts | GroupRefused
    ) -> None:
        """Take the answer of a leader, or ask another one."""
        ask = self.asks.get(message.ticket)
        if ask is None:
            return
        if isinstance(message, GroupRefused) and message.code == MOVED:
            self.asks.moved(ask, sender, message.leader)
        else:
            self.asks.answered(ask, sender, message)

    def _all_answered(self, client: int, command: Asked, asks: Mapping[int, Ask]) -> None:
        """Answer a command whose shards have all answered."""
        answers = [ask.answer for ask in asks.values()]
        is_known = any(isinstance(answer, GroupsReport | GroupChanged) for answer in answers)
        if (refused := self._refusal(command, asks, is_known)) is not None:
            place, cause = refused
            if isinstance(command, EditGroup) and is_known:
                cause = Cause(cause.code, f"shard {place}: {cause.text} (others are changed)")
            self.refuse(client, command, cause)
        elif isinstance(command, WhyRow):
            self.port.reply(client, _explained(command, answers[0]))
        elif isinstance(command, GetGroups):
            self.port.reply(client, groups_of(command, asks))
        elif isinstance(command, EndDead):
            changed = [answer for answer in answers if isinstance(answer, GroupChanged)]
            self.port.reply(client, DeadEnded(command.request, sum(a.count for a in changed)))
        else:
            self.port.reply(client, Done(command.request))

    def _refusal(
        self, command: Asked, asks: Mapping[int, Ask], is_known: bool
    ) -> tuple[int, Cause] | None:
        """Return the shard that refuses the command, and the reason; None: none does. A list of
        groups is complete enough without a shard that does not answer."""
        found = None
        for place, ask in asks.items():
            answer = ask.answer
            if isinstance(answer, Cause):
                if not isinstance(command, GetGroups) or answer.code != TIME_OUT:
                    return place, answer
            elif isinstance(answer, GroupRefused):
                may_be_done = ask.times > 1 and answer.code in (NOT_DEAD, UNKNOWN_GROUP)
                if not may_be_done and not (is_known and answer.code == UNKNOWN_GROUP):
                    found = place, Cause(answer.code, answer.reason)
        return found


def _shards(command: Asked) -> set[int]:
    """Return the shards that a command names; empty: it concerns all."""
    if isinstance(command, WhyRow):
        return {command.shard}
    return {shard for shard, _ in command.rows} if isinstance(command, EndDead) else set()


def _message(ticket: int, shard: str, place: int, command: Asked) -> Message:
    """Return the question to the leader of a shard."""
    if isinstance(command, WhyRow):
        return AskRow(shard, ticket, command.offset)
    if isinstance(command, GetGroups):
        return AskGroups(ticket, shard, place, command.group)
    if isinstance(command, EditGroup):
        return ChangeGroup(ticket, shard, place, command.group, wanted_by(command))
    if isinstance(command, RemoveGroup):
        return ForgetGroup(ticket, shard, place, command.group)
    offsets = tuple(offset for number, offset in command.rows if number == place)
    return EndDeadLetters(ticket, shard, place, command.group, offsets, command.retry)


def _fits(command: Asked, shard: str, answer: Message) -> bool:
    """Whether an honest leader can give this answer."""
    if isinstance(command, WhyRow):
        return isinstance(answer, RowFacts)
    if isinstance(answer, GroupsReport):
        return isinstance(command, GetGroups) and answer.shard == shard
    return isinstance(answer, GroupRefused) or (
        isinstance(answer, GroupChanged) and not isinstance(command, GetGroups)
    )


def _explained(command: WhyRow, facts: Any) -> RowExplained:
    """Return a leader's answer about a row, for a program."""
    about = asdict(facts)
    del about["shard"], about["ticket"]
    about["time"] /= NANOSECONDS
    about["readers"] = tuple(RowReader(*reader) for reader in facts.readers)
    return RowExplained(command.request, **about)


def groups_of(command: GetGroups, asks: Mapping[int, Ask]) -> Groups:
    """Join the reports of shards by group."""
    options: dict[str, Any] = {}
    shards: dict[str, list[GroupShardInfo]] = {}
    letters = []
    for place, ask in asks.items():
        report = ask.answer
        if not isinstance(report, GroupsReport):
            continue
        for one in report.groups:
            about = asdict(one)
            name, has = about.pop("name"), about.pop("options")
            options.setdefault(name, has)
            info = GroupShardInfo(place, end=report.end, **about)
            shards.setdefault(name, []).append(info)
        letters += [_letter(place, each) for each in report.dead]
    infos = [
        GroupInfo(name, **asdict(options[name]), shards=tuple(shards[name]))
        for name in sorted(options)
    ]
    is_complete = not any(isinstance(ask.answer, Cause) for ask in asks.values())
    return Groups(command.request, tuple(infos), tuple(letters), is_complete)


def _letter(shard: int, dead: DeadReport) -> DeadLetter:
    about = (shard, dead.offset, dead.deliveries, dead.reason, dead.time / NANOSECONDS)
    if not dead.row:
        return DeadLetter(*about)
    try:
        (row,) = decode_rows(dead.row, 1)
    except ValueError:
        return DeadLetter(*about)
    return DeadLetter(*about, row.attributes, row.payload, row.payload_type)
