"""Whole overlays in which whoever answers about streams says something else now and then.

Nobody there is believed to tell the truth, so what programs are told meanwhile is not judged: no
node ends, and when everybody is honest again, a program appends and reads as ever.
"""

from __future__ import annotations

from random import Random
from typing import Any
from unittest.mock import patch

from canopy.sim.world.world import World
from harness.logs import WrongError
from harness.overlays import grown
from overlay.client import (
    AppendEvents,
    BeginReading,
    Draft,
    EventsAppended,
    EventsTaken,
    GetStreams,
    ReadingReady,
    Streams,
    TakeEvents,
)
from overlay.links.links import Links
from overlay.machine import Message, Peer
from overlay.stream_client import (
    AddStream,
    AttachGroup,
    DecideTransaction,
    EditGroup,
    GetGroups,
    GetTransactions,
    PrepareEvents,
    TakeRows,
    WhyRow,
)
from streams.directory import messages as directory
from streams.programs.group import messages as groups
from streams.programs.producer import messages as producing
from streams.programs.reader import messages as reading
from streams.programs.transaction import messages as halves
from streams.services.fork import fork_copies
from tests.support.mutated import mutated

ANSWERS = (
    *(reading.ReadingBegan, reading.StreamRows, reading.SharedRows, reading.ReadingsScanned),
    *(reading.ReadingsKept, reading.PositionCommitted, reading.ReadingRefused),
    *(reading.ReadingsMoved, reading.RowFacts),
    *(groups.GroupJoined, groups.LeasedRows, groups.LeasesSettled, groups.MembersKept),
    *(groups.MemberRefused, groups.MembersMoved, groups.GroupsReport, groups.GroupChanged),
    *(groups.GroupRefused, groups.LeaderConfirmed),
    *(producing.ProducerIsOpen, producing.RowsAppended, producing.AppendRefused),
    *(producing.ForkIsOpen, producing.ForkRefused, fork_copies.ForkChunkCopied),
    *(halves.HalfIsPrepared, halves.HalfDecided, halves.HalfRefused, halves.HalvesFound),
    *(halves.ReviewHalf, directory.StreamFound, directory.StreamRefused),
    *(directory.StreamElsewhere, directory.StreamsReport, directory.ShardsStatus),
)
"""What leaders, followers and the owners of names answer."""

STREAMS: dict[str, dict[str, Any]] = {
    "one": {},
    "two": {"shards": 2, "by": "k"},
    "both": {"sources": (("one", ""), ("two", "n > 3"))},
    "mirror": {"mirror": "one"},
    "table": {"key": "k"},
}


class Liars:
    """Replaces `Links.send` of all nodes."""

    def __init__(self, rng: Random, chance: float) -> None:
        self.rng, self.chance = rng, chance
        self.is_honest = True
        self.lies = 0
        self._send = Links.send

    def send(self, links: Links, peer: Peer, message: Message) -> None:
        """As `Links.send`, or something else."""
        is_answer = isinstance(message, ANSWERS) and not self.is_honest
        if is_answer and self.rng.random() < self.chance:
            message = mutated(message, self.rng)
            self.lies += 1
        self._send(links, peer, message)


def trial_of_liars(seed: int, rounds: int = 40) -> tuple[int, int]:
    """Returns how many answers were others, and how many were refused. WrongError if an honest
    overlay does not serve a program any more."""
    rng = Random(seed)
    liars = Liars(rng, 0.25)
    with patch.object(Links, "send", lambda links, peer, m: liars.send(links, peer, m)):
        world = grown(5, seed)
        for name, options in STREAMS.items():
            assert isinstance(ask(world, "n0", AddStream, name, **options), Streams)
        world.run(3.0)
        liars.is_honest = False
        for number in range(rounds):
            begin(world, f"n{rng.randrange(5)}", number, rng)
            world.run(rng.choice((0.2, 1.0)))
        counted = sum(
            world.node(n).counters.get("stream_answers_refused", 0) for n in world.names()
        )
        liars.is_honest = True
        world.run(30.0)
        serves(world)
    return liars.lies, counted


def ask(world: World, node: str, command: type[Any], *arguments: Any, **more: Any) -> Any:
    return world.ask(node, command(world.clients.request(), *arguments, **more))


def begin(world: World, node: str, number: int, rng: Random) -> None:
    """One command of a program, which waits for no answer."""
    request = world.clients.request()
    stream = rng.choice(("one", "two"))
    rows = tuple(Draft({"n": n, "k": f"k{n % 3}"}) for n in range(rng.randrange(1, 6)))
    start = {"selector": rng.choice(("", "n > 1")), "start": "first", "packed": rng.random() < 0.3}
    any_stream = rng.choice(tuple(STREAMS))
    made: tuple[Any, ...] = (
        *(AppendEvents(request, stream, rows), AppendEvents(request, "table", rows)),
        *(BeginReading(request, any_stream, **start), AttachGroup(request, stream, "g")),
        *(GetGroups(request, stream), WhyRow(request, stream, 0, 2), GetStreams(request, stream)),
        BeginReading(request, "table", "", "keys"),
        EditGroup(request, stream, "g", lease=rng.choice((5.0, 60.0))),
        PrepareEvents(request, stream, f"t{number}", "p", rows),
        DecideTransaction(request, stream, f"t{max(number - rng.randrange(9), 0)}", True),
        GetTransactions(request, stream),
    )
    command = rng.choice(made)
    driver = world.drivers[node]
    driver.command(1, command)
    world.run(rng.choice((0.2, 1.0)))
    if isinstance(command, BeginReading):
        driver.command(1, TakeEvents(world.clients.request(), request))
    elif isinstance(command, AttachGroup):
        driver.command(1, TakeRows(world.clients.request(), request, 10))


def serves(world: World) -> None:
    """A program appends and reads. (A node that was told of another stream of that name says so
    once.)"""
    row = (Draft({"n": 1, "k": "x"}),)
    answers = [ask(world, "n3", AppendEvents, "one", row) for _ in range(2)]
    if not isinstance(answers[-1], EventsAppended):
        raise WrongError(f"nothing is appended: {answers}")
    begun = BeginReading(world.clients.request(), "one", "", "first")
    ready = world.ask("n2", begun)
    if not isinstance(ready, ReadingReady):
        raise WrongError(f"nothing is read: {ready}")
    taken = ask(world, "n2", TakeEvents, begun.request)
    if not isinstance(taken, EventsTaken) or not taken.events:
        raise WrongError(f"nothing is read: {taken}")
