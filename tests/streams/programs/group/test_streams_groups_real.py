"""A group of real processes: a member and the shard's leader are killed, and each row is done."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import trio

import canopy.trio
from canopy.client.client import connect
from harness.real_overlay import PATIENCE, Overlay, status
from overlay.stream_client import GetGroups, GroupRow, Groups

MEMBER = """
import sys, time, canopy
with canopy.connect(sys.argv[1]) as client:
    with client.group("grouped", "g", "even = TRUE", start="first", credit=10) as member:
        rows = member.take(most=10)
        member.ack(*rows[:4])
        member.flush()
        print(*(row.offset for row in rows), flush=True)
        time.sleep(60)
"""


pytestmark = pytest.mark.process


def test_a_group_goes_on_when_a_member_and_the_leader_are_killed(overlay: Overlay) -> None:
    with connect(overlay.folder / "0") as client:
        made = client.add_stream("grouped", sources=(), keep_bytes=0)
    nodes = {status(client).node: place for place, client in enumerate(overlay.clients)}
    stays = next(p for n, p in nodes.items() if n not in {r.node for r in made.shards[0].replicas})
    node = overlay.folder / str(stays)
    with connect(node) as client:
        client.append("grouped", [{"n": number, "even": number % 2 == 0} for number in range(60)])
        member = subprocess.Popen([sys.executable, "-c", MEMBER, str(node)], stdout=subprocess.PIPE)
        assert member.stdout is not None
        its = [int(offset) for offset in member.stdout.readline().split()]
        member.kill()  # as kill -9
        member.wait()
        member.stdout.close()
        client.edit_group("grouped", "g", lease=20, delay=0)
        rows = trio.run(shared, node, overlay, nodes)
        offsets = [row.offset for row in rows]
        assert set(offsets) | set(its[:4]) == set(range(0, 60, 2))
        assert not set(offsets) & set(its[:4]), "what was acknowledged does not come again"
        assert {row.offset for row in rows if row.deliveries == 2} >= set(its[4:10])
        group = client.ask(GetGroups(0, "grouped", "g"), Groups, PATIENCE).groups[0]
    assert (group.selector, group.shards[0].dead) == ("even = TRUE", 0)
    assert (group.lease, group.deliveries, group.delay_seconds) == (20.0, 9, 0.0)
    assert group.shards[0].floor >= 59


async def shared(node: Path, overlay: Overlay, nodes: dict[str, int]) -> list[GroupRow]:
    """What another member gets, when the leader is killed after half of it."""
    rows: list[GroupRow] = []
    async with (
        canopy.trio.connect(node, reconnect=PATIENCE) as client,
        client.group("grouped", "g", credit=8) as member,
    ):
        async for row in member:
            rows.append(row)
            await member.ack(row)
            if len(rows) == 13:
                await client.edit_group("grouped", "g", max_deliver=9)
                await member.flush()
                assert (
                    await client.edit_stream("grouped", keep_seconds=3_600)
                ).keep_seconds == 3_600
                assert "grouped" in [each.name for each in await client.streams()]
                overlay.kill(nodes[(await client.stream("grouped")).shards[0].leader])
            if len({row.offset for row in rows}) == 26:
                break
        await member.flush()
    return rows
