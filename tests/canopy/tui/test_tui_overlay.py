"""The overlay screen: this node, neighbours, the ring as a picture, trees with virtual nodes."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from textual.widgets import TabbedContent

from canopy.tui.widgets.ring_picture import arc, bar, circle, fraction, members
from canopy.tui.widgets.synced_table import SyncedTable
from overlay.client import GetPeers, GetRing, Where
from overlay.info import Incident
from tests.canopy.tui.tui_fake_node import NODES, cluster
from tests.canopy.tui.tui_pilot import Rig, play


async def tab(rig: Rig, name: str) -> None:
    await rig.until(lambda: rig.app.attachment.up)
    await rig.press("2")
    await rig.until(lambda: getattr(rig.app.main_screen, "TITLE", "") == "overlay")
    rig.app.screen.query_one("#tabs", TabbedContent).active = name
    await rig.pilot.pause()


@pytest.mark.parametrize("size", [(130, 44), (80, 24)])
def test_the_tabs_of_node_and_ring_show_state_neighbours_and_every_cluster(
    size: tuple[int, int],
) -> None:
    async def scenario(rig: Rig) -> None:
        await tab(rig, "node")
        await rig.sees(NODES[0], "● ready", "primary of 3333333333", "12,345", "22222222")
        await rig.sees("Neighbours (5) and other links", "connected")
        rig.app.screen.query_one("#this-node").scroll_end(animate=False)
        await rig.sees("1 of 2 reached", "✗ 10.0.0.9:4000")
        rig.app.screen.query_one("#tabs", TabbedContent).active = "ring"
        await rig.pilot.pause()
        await rig.sees("Ring of 3 clusters", "▸1", "30.0%", "★ primary", "☆ standby")
        await rig.sees("█", " 1 ", " 2 ", " 3 ")
        await rig.sees("5 trees")
        rig.app.screen.query_one("#clusters").focus()
        await rig.press("down", "down")
        await rig.sees("cluster e66666666666", "1 attribute tree  depth")

    play(scenario, size=size)


def test_the_trees_tab_shows_virtual_nodes_and_failures() -> None:
    async def scenario(rig: Rig) -> None:
        await tab(rig, "trees")
        await rig.sees("magnitude", "●  magnitude", "○  odd name", "only seen")
        table = rig.app.screen.query_one("#attributes", SyncedTable)
        table.focus()
        await rig.press("down")
        await rig.sees("[4 … 6.5)", "256", "3 virtual nodes", "version  3.7", "▸11111111")
        await rig.press(*["down"] * 4)
        await rig.sees("✗ odd name: the ring did not answer")
        assert {command.attribute for command in rig.node.asked(Where)} >= {"depth", "odd name"}

    play(scenario)


def test_the_incidents_tab_shows_what_happened_and_when() -> None:
    async def scenario(rig: Rig) -> None:
        await tab(rig, "incidents")
        await rig.sees("Incidents (2)", "★", "1 min 15 s", "elected", NODES[1][:8], "in place of")
        rig.node.incidents = (
            Incident(2.0, "link down", NODES[4], "", 0, "connection refused"),
            *rig.node.incidents,
        )
        await rig.press("r")
        await rig.sees("Incidents (3)", "✗", "link down", NODES[4][:8], "connection")

    play(scenario, size=(80, 24))


def test_a_silent_member_is_marked() -> None:
    async def scenario(rig: Rig) -> None:
        first, *others = rig.node.clusters
        sick = {first.primary: "disk: 97"}
        aged = replace(first, led_for=190.0, silent=(first.standby,), sub_healthy=sick)
        rig.node.clusters = (aged, *others)
        await tab(rig, "ring")
        await rig.sees("the primary has led for 3 min", "✗ silent", "sub-healthy: disk: 97")

    play(scenario)


def test_only_the_screen_in_sight_asks() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.until(lambda: rig.app.attachment.status)
        assert not rig.node.asked(GetPeers)
        await tab(rig, "node")
        await rig.until(lambda: rig.node.asked(GetPeers))
        assert not rig.node.asked(GetRing)
        await rig.press("right_square_bracket")
        await rig.until(lambda: rig.node.asked(GetRing))
        await rig.press("o")
        await rig.sees("Subscriptions")

    play(scenario)


def test_a_ring_that_changes_is_followed() -> None:
    async def scenario(rig: Rig) -> None:
        await tab(rig, "ring")
        await rig.sees("Ring of 3 clusters")
        rig.node.clusters = (cluster(0.5, 0.5, NODES[:1], "magnitude"),)
        await rig.press("r")
        await rig.sees("Ring of 1 cluster ", "100.0%")

    play(scenario)


def test_arcs_share_the_whole_circle() -> None:
    ring = (cluster(0.9, 0.2, NODES[:1]), cluster(0.2, 0.55, NODES[:1]), cluster(0.55, 0.9, NODES))
    arcs = [arc(one) for one in ring]
    assert sum(a.share for a in arcs) == pytest.approx(1.0)
    for hundredth in range(100):
        place = (hundredth + 0.5) / 100
        assert sum(a.contains(place) for a in arcs) == 1
    assert arcs[0].contains(0.95)
    assert arcs[0].contains(0.1)
    assert fraction("8" + "0" * 39) == 0.5
    assert fraction("no key") == 0.0


def test_a_cluster_alone_owns_everything() -> None:
    one = arc(cluster(0.3, 0.3, NODES[:1]))
    assert one.share == 1.0
    assert all(one.contains(place) for place in (0.0, 0.3, 0.9))


def test_members_are_named_once_each() -> None:
    assert members(cluster(0.1, 0.2, NODES[:3])) == [
        ("primary", NODES[0]), ("standby", NODES[1]), ("broker", NODES[2]),
    ]  # fmt: skip


@pytest.mark.parametrize("rows", [9, 14, 30])
def test_the_circle_fits_and_numbers_every_arc(rows: int) -> None:
    ring = (cluster(0.9, 0.2, NODES[:1]), cluster(0.2, 0.55, NODES[:1]), cluster(0.55, 0.9, NODES))
    lines = circle(ring, ring[1].key, rows).plain.splitlines()
    assert len(lines) == rows
    assert all(len(line) == 2 * rows for line in lines)
    assert all(f" {number} " in "\n".join(lines) for number in (1, 2, 3))


def test_the_bar_gives_each_cluster_its_share() -> None:
    ring = (cluster(0.0, 0.25, NODES[:1]), cluster(0.25, 1 - 1e-9, NODES[:1]))
    line = bar(ring, ring[1].key, 40).plain
    assert line == "1" + "─" * 9 + "2" + "━" * 29
