"""Programs of a simulated overlay that look for their nodes again, and what they owe nobody.

Each keeps its subscription as the client library does (`canopy.client.resubscription`), through
kills, restarts, pauses and departures of its node. The oracle holds all that was published with a
receipt against what came: what is missing lies in a gap that the program was told, or was under way
through another node that died; and nothing comes that was accepted before it was subscribed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

from canopy.client.errors import UnreachableError
from canopy.client.notices import Gap
from canopy.client.resubscription import KeptSelector, Resubscription
from canopy.sim.world.clients import Publication
from canopy.sim.world.driver import SimDriver
from canopy.sim.world.world import World
from canopy.wire.control.client_output import timed
from canopy.wire.transport.codec import WireCodec
from matching import compile_selector
from overlay.client import CompleteUntil, Delivered, Dropped, Failed, Lapsed, Reply, Subscribed
from overlay.settings import Settings

FIRST_CLIENT = 100

LOOKS = 0.25
"""Virtual seconds between two attempts to reach a node."""


@dataclass
class Session:
    """One acknowledged subscription, in virtual seconds."""

    asked: float
    acknowledged: float
    got: dict[str, float] = field(default_factory=dict)


class Program:
    """A program at `node` with one selector, on the client that has its number."""

    def __init__(self, world: LastingWorld, node: str, selector: str, client: int) -> None:
        self.world = world
        self.node = node
        self.client = client
        self.predicate = compile_selector(selector)
        self.state = Resubscription(gathers=False)
        self.state.add(KeptSelector(selector))
        self.sessions: list[Session] = []
        self.gaps: list[tuple[float, Gap]] = []
        """With when each was told (wall clock)."""
        self.complete = 0.0
        self._driver: SimDriver | None = None
        self._asked: dict[int, float] = {}
        self._is_open = False

    @property
    def wall(self) -> float:
        return self.world.wall(self.node)

    def look(self) -> None:
        """Notice that the node is gone, or is back."""
        driver = self.world.drivers[self.node]
        if self._driver is not None and not self._driver.alive:
            self._lost()
        if self._driver is None and driver.alive:
            self._driver = driver
            for command in self.state.opening():
                request = self.world.clients.request()
                self._asked[request] = self.world.now
                self.world.routes[request] = self
                driver.command(self.client, type(command)(request, *_rest(command)))

    def _lost(self) -> None:
        self._driver = None
        self._asked.clear()
        if self._is_open:
            self._is_open = False
            self.state.left_at(None, self.complete)
            self.complete = 0.0
            self.state.lost(UnreachableError("gone"), self.world.now, self.wall)

    def take(self, driver: SimDriver, reply: Reply) -> None:
        """What the node says."""
        if driver is not self._driver:
            return
        if isinstance(reply, CompleteUntil):
            self.complete = reply.until
        elif isinstance(reply, Subscribed):
            self._is_open = True
            gap = self.state.opened([reply], self.wall)
            if gap is not None:
                self.gaps.append((self.wall, gap))
            asked = self._asked.pop(reply.request)
            self.sessions.append(Session(asked, self.world.now))
        elif isinstance(reply, Delivered):
            for one in reply.deliveries:
                self.sessions[-1].got.setdefault(one.event.identity, self.world.now)
        elif reply.request == 0 and isinstance(reply, Failed):
            if isinstance(reply, Dropped | Lapsed):
                reply = timed(reply, self.wall)
            notice = self.state.notice(reply, self.wall)
            if isinstance(notice, Gap):
                self.gaps.append((self.wall, notice))

    # --- the oracle ---

    def covers(self, event: Publication) -> bool:
        """Whether a gap was told in which the event was published."""
        return any(
            gap.since - 1e-6 <= event.stamped <= (gap.until or told) + 1e-6
            for told, gap in self.gaps
        )

    def untold(self, until: float) -> list[Publication]:
        """What it misses of what was accepted before `until`, and in no gap, unless it may have
        been under way through another node that died."""
        got = {identity for session in self.sessions for identity in session.got}
        since = self.sessions[0].acknowledged
        return [
            event
            for event in self.world.clients.publications
            if since < event.published
            and event.admitted is not None
            and event.admitted < until
            and self.predicate.matches(event.attributes)
            and event.identity not in got
            and not self.covers(event)
            and not self._was_under_way(event)
        ]

    def _was_under_way(self, event: Publication) -> bool:
        """Whether another node died that had it, while this one could be reached."""
        for crash in self.world.clients.crashes:
            if crash.node == self.node or not event.published <= crash.time:
                continue
            stood_still = any(
                node == self.node and since <= crash.time and event.published <= until
                for node, since, until in self.world.pauses
            )
            if not stood_still and crash.may_have_lost(event, self.node):
                return True
        return False

    def early(self) -> list[str]:
        """What came to a session and was accepted before it was asked for."""
        accepted = {e.identity: e.admitted for e in self.world.clients.publications}
        return [
            identity
            for session in self.sessions
            for identity in session.got
            if (at := accepted[identity]) is not None and at < session.asked
        ]


def _rest(command: Any) -> tuple[Any, ...]:
    return tuple(getattr(command, name) for name in command.__struct_fields__[1:])


class LastingWorld(World):
    """A world with such programs, which are found by the number of their client."""

    def __init__(self, seed: int, settings: Settings) -> None:
        super().__init__(seed, WireCodec(), settings)
        self.programs: dict[int, Program] = {}
        self.routes: dict[int, Program] = {}
        self.pauses: list[tuple[str, float, float]] = []
        """Node, from, to (inf: until it died): when one stood still, in virtual seconds."""

    def add_program(self, node: str, selector: str) -> Program:
        client = FIRST_CLIENT + len(self.programs)
        program = self.programs[client] = Program(self, node, selector, client)
        self._look(program)
        return program

    def _look(self, program: Program) -> None:
        program.look()
        self.at(self.now + LOOKS, self._look, program)

    def replied(self, driver: SimDriver, client: int, reply: Reply) -> None:
        program = self.programs.get(client)
        if program is None or not driver.alive:
            super().replied(driver, client, reply)
        else:
            program.take(driver, reply)

    def stand_still(self, name: str, seconds: float) -> None:
        """Pause a node, and let it go on after so long if it still lives."""
        driver = self.drivers[name]
        driver.pause()
        began = self.now
        place = len(self.pauses)
        self.pauses.append((name, began, float("inf")))

        def go_on() -> None:
            if driver.alive:
                self.pauses[place] = (name, began, self.now)
                driver.resume()

        self.at(began + seconds, go_on)


def churn(world: LastingWorld, rng: Random, names: list[str], seconds: float) -> None:
    """Kill, stop and send away nodes at random, one or two at a time, and publish meanwhile."""
    end = world.now + seconds
    until: dict[str, float] = {}
    number = 0
    next_fault = world.now + 2.0
    while world.now < end:
        busy = [name for name in names if until.get(name, 0.0) > world.now]
        if world.now >= next_fault and len(busy) < 2:
            name = rng.choice([each for each in names if each not in busy])
            until[name] = world.now + _harm(world, rng, name) + 6.0
            next_fault = world.now + rng.uniform(1.0, 6.0)
        for _ in range(4):
            source = rng.choice(names)
            driver = world.drivers[source]
            if driver.alive and not driver.is_paused and driver.node.ready:
                number += 1
                world.publish(source, {"x": number, "y": number % 7}, receipt=True)
        world.run(0.2)


def _harm(world: LastingWorld, rng: Random, name: str) -> float:
    """Do something to a node; after so many seconds it is back."""
    if not world.drivers[name].alive:
        return 0.0
    kind = rng.choice(["kill", "pause", "pause then kill", "leave"])
    away, still = rng.uniform(0.5, 5.0), rng.uniform(2.0, 20.0)
    world.happened.append((world.now, f"{kind} {name}"))
    if kind == "pause":
        world.stand_still(name, still)
        return still
    if kind == "pause then kill":
        world.stand_still(name, 2 * still)
        world.at(world.now + still, _kill, world, name)
        world.at(world.now + still + away, _restart, world, name)
        return still + away
    if kind == "kill":
        world.crash(name)
        world.at(world.now + away, _restart, world, name)
        return away
    world.drain(name)
    world.at(world.now + away + 5.0, _restart, world, name)
    return away + 5.0


def _kill(world: LastingWorld, name: str) -> None:
    if world.drivers[name].alive:
        world.crash(name)


def _restart(world: LastingWorld, name: str) -> None:
    if world.drivers[name].alive:
        if world.drivers[name].node.draining:
            world.at(world.now + 1.0, _restart, world, name)
        return
    world.introduce(name, [other for other in world.drivers if other != name])
    world.restart(name)
