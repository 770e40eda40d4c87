"""Nodes of the lower layer for tests of walks: on one port, or on a fixed graph."""

from __future__ import annotations

from collections.abc import Callable

from overlay.health import Health
from overlay.links.events import LinkUp
from overlay.lower_random.access_points import AccessPoints
from overlay.lower_random.crawl import Crawl
from overlay.lower_random.messages import AccessPoint, Walk, WalkHit, WalkMiss
from overlay.lower_random.view import View
from overlay.machine import Message
from overlay.settings import ViewSettings, WalkSettings
from tests.support.world import World, WorldNode, peer


def walker(
    port: WorldNode, *neighbours: str, health: Health | None = None, **changed: float
) -> tuple[Crawl, AccessPoints]:
    """A node whose neighbours do not change."""
    view_settings = ViewSettings(size=max(1, len(neighbours)))
    points = AccessPoints(port, view_settings)
    view = View(port, view_settings, points)
    chosen = WalkSettings(**changed)  # type: ignore[arg-type]
    crawl = Crawl(port, chosen, view, points, health)
    port.add(points, view, crawl)
    for name in neighbours:
        view.on_link_up(LinkUp(peer(name), True))
    port.sent.clear()
    port.emitted.clear()
    return crawl, points


def woods(
    links: dict[str, str], seed: int = 1, **changed: float
) -> tuple[World, dict[str, tuple[WorldNode, Crawl, AccessPoints]]]:
    """A fixed graph: node -> its neighbours' letters."""
    world = World(seed, delay=(0.01, 0.01), notice=0.01)
    nodes = {}
    for name, neighbours in links.items():
        member = world.node(name)
        crawl, points = walker(member, *neighbours, **changed)
        nodes[name] = (member, crawl, points)
    world.forget()  # the views' first shuffles: the graph shall stay as it is
    world.sent.clear()
    return world, nodes


def point(attribute: str, name: str, version: tuple[int, int] = (1, 1)) -> AccessPoint:
    return AccessPoint(attribute, peer(name), version, 0)


def steps(world: World, describe: Callable[[Message], str]) -> list[str]:
    """A line "sender -> receiver: message" for each message that was sent."""
    return [f"{sender} -> {to}: {describe(message)}" for sender, to, message in world.sent]


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
        end = "lost" if message.lost else "miss"
        return f"{end} at hop {message.hop}: {' '.join(message.attributes)}"
    return type(message).__name__
