"""Nodes of the lower layer for tests of walks: on one port, or on a fixed graph."""

from __future__ import annotations

from collections.abc import Callable

from overlay.links.events import LinkUp
from overlay.lower_random.access_points import AccessPoints
from overlay.lower_random.crawl import Crawl
from overlay.lower_random.messages import AccessPoint, Walk, WalkHit, WalkMiss
from overlay.lower_random.view import View
from overlay.machine import Message, Peer
from overlay.settings import ViewSettings, WalkSettings
from tests.support.fake_port import FakePort
from tests.support.machine_world import MachineNode, MachineWorld


def peer(name: str) -> Peer:
    return Peer(name, f"{name}:1")


def walker(port: FakePort, *neighbours: str, **changed: float) -> tuple[Crawl, AccessPoints]:
    """A node whose neighbours do not change."""
    view_settings = ViewSettings(size=max(1, len(neighbours)))
    points = AccessPoints(port, view_settings)
    view = View(port, view_settings, points)
    crawl = Crawl(port, WalkSettings(**changed), view, points)  # type: ignore[arg-type]
    port.add(points, view, crawl)
    for name in neighbours:
        view.on_link_up(LinkUp(peer(name), True))
    port.sent.clear()
    port.emitted.clear()
    return crawl, points


def woods(
    links: dict[str, str], seed: int = 1, **changed: float
) -> tuple[MachineWorld, dict[str, tuple[MachineNode, Crawl, AccessPoints]]]:
    """A fixed graph: node -> its neighbours' letters."""
    world = MachineWorld(seed)
    nodes = {}
    for name, neighbours in links.items():
        member = world.member(name)
        crawl, points = walker(member, *neighbours, **changed)
        nodes[name] = (member, crawl, points)
    world.forget()  # the views' first shuffles: the graph shall stay as it is
    return world, nodes


def point(attribute: str, name: str, version: tuple[int, int] = (1, 1)) -> AccessPoint:
    return AccessPoint(attribute, peer(name), version, 0)


def record(world: MachineWorld, describe: Callable[[Message], str]) -> list[str]:
    """A list that grows by a line "sender -> receiver: message" for each message sent."""
    lines: list[str] = []
    carry = world.carry

    def write_down(sender: MachineNode, to: Peer, message: Message) -> None:
        lines.append(f"{sender.me.id} -> {to.id}: {describe(message)}")
        carry(sender, to, message)

    world.carry = write_down  # type: ignore[method-assign]
    return lines


def describe_walk(message: Message) -> str:
    """A message of CRAWL as a line of a transcript."""
    if isinstance(message, Walk):
        trace = " ".join(each.id for each in message.trace)
        return (
            f"walk for {' '.join(message.attributes)}, hop {message.hop}, {message.left} of "
            f"{message.limit} left, trace {trace}"
        )
    if isinstance(message, WalkHit):
        found = " ".join(f"{each.attribute} at {each.peer.id}" for each in message.found)
        return f"hit at hop {message.hop}: {found}"
    if isinstance(message, WalkMiss):
        return f"miss at hop {message.hop}: {' '.join(message.attributes)}"
    return type(message).__name__
