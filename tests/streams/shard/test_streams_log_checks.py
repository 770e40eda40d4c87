"""Logs that are read from end to end when somebody asks for it."""

from __future__ import annotations

from typing import Any

import pytest

from overlay.client import Failed
from overlay.stream_client import BeginLogCheck, GetLogCheck, LogCheck, ShardCheck
from streams.shard.hosting import log_checks
from streams.shard.hosting.log_checks import CheckNow, LogChecks
from tests.streams.shard.test_streams_repair import files, spoil, world
from tests.support.shards.shard_world import ShardWorld

__all__ = ["world"]


class Checker:
    """The machine at one node of a world of replicas."""

    def __init__(self, world: ShardWorld, place: int = 1) -> None:
        self.world, self.port = world, world.ports[world.peers[place].id]
        self.node = self.port.me.id
        self.due: float | None = None
        self.replies: list[Any] = []
        original = self.port.set_timer

        def set_timer(delay: float, timer: Any) -> None:
            if isinstance(timer, CheckNow):
                self.due = self.port.now + delay
            else:
                original(delay, timer)

        self.port.set_timer = set_timer
        self.port.reply = lambda client, reply: self.replies.append(reply)
        self.machine = LogChecks(self.port, lambda: [world.alive[self.node]], {})

    def begin(self, client: int = 1, **more: Any) -> Any:
        self.machine.begin(client, BeginLogCheck(1, **more))
        return self.replies[-1]

    def state(self) -> LogCheck:
        self.machine.get(1, GetLogCheck(2))
        found = self.replies[-1]
        assert isinstance(found, LogCheck)
        return found

    def run(self, seconds: float = 120.0) -> ShardCheck:
        until = self.port.now + seconds
        while self.due is not None and not self.state().is_over and self.port.now < until:
            self.world.run(max(self.due - self.port.now, 0.0))
            self.machine.on_check_now(CheckNow())
        assert self.state().is_over
        (shard,) = self.state().shards
        return shard


def test_a_whole_log_is_read_no_faster_than_was_asked_for(world: ShardWorld) -> None:
    checker = Checker(world)
    began = checker.port.now
    first = checker.begin(rate=64 * 1024)
    assert (first.node, first.is_over) == (checker.node, False)
    assert first.shards[0].state == "waits"
    checker.machine._run.rate = 2_000  # type: ignore[union-attr]
    shard = checker.run()
    size = len(world.bytes_of(checker.node))
    assert (shard.state, shard.found) == ("whole", 0)
    assert shard.bytes >= size == shard.size
    last = max(map(len, files(world, checker.node).values()))
    assert checker.port.now - began >= (size - last) / 2_000


def test_damage_is_mended_and_the_rest_of_the_log_is_read_as_well(world: ShardWorld) -> None:
    checker = Checker(world)
    names = list(files(world, checker.node))
    spoil(world, checker.node, names[0], 700)
    spoil(world, checker.node, names[2], 900)
    checker.begin()
    shard = checker.run()
    assert (shard.state, shard.found, shard.left, shard.refused) == ("mended", 2, 0, 0)
    assert shard.mended >= 2
    world.run(1.0)
    assert world.bytes_of(checker.node) == world.bytes_of(world.peers[0].id)
    assert Checker(world).begin().shards[0].found == 0, "what was found before is not told again"


def test_who_can_be_mended_by_nobody_just_now_is_told(
    world: ShardWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    checker = Checker(world)
    spoil(world, checker.node, next(iter(files(world, checker.node))), 700)
    for peer in (world.peers[0], world.peers[2]):
        world.crash(peer.id)
    checker.begin()
    began = checker.port.now
    shard = checker.run()
    assert (shard.state, shard.found, shard.mended) == ("mending", 1, 0)
    assert checker.port.now - began >= log_checks.PATIENCE


def test_the_only_replica_keeps_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    from streams.log import shard_log

    monkeypatch.setattr(shard_log, "SEGMENT_BYTES", 2_000)
    world = ShardWorld(1, 1, 1)
    world.run(0.1)
    world.elect(world.peers[0].id)
    for _ in range(30):
        world.append()
        world.run(0.05)
    checker = Checker(world, 0)
    spoil(world, checker.node, next(iter(files(world, checker.node))), 700)
    checker.begin()
    shard = checker.run()
    assert (shard.state, shard.found, shard.left) == ("damaged", 1, 1)
    assert world.alive[checker.node].serves


def test_one_check_at_a_time_of_what_the_node_has(world: ShardWorld) -> None:
    checker = Checker(world)
    refused = checker.begin(stream="other")
    assert (type(refused), refused.code) == (Failed, "unknown")
    checker.begin()
    refused = checker.begin(2)
    assert (type(refused), refused.code) == (Failed, "refused")
    checker.machine.get(2, GetLogCheck(3))
    assert checker.replies[-1].code == "unknown"
    checker.machine.client_gone(2)
    assert not checker.state().is_over
    checker.machine.client_gone(1)
    assert isinstance(checker.begin(2), LogCheck), "nobody waits for the former one"
