"""P8: what happens is reported: losses, elections and recoveries, as each node sees them."""

from __future__ import annotations

from canopy.sim.world.world import World
from canopy.traces.schema import FIELDS, KINDS
from harness.overlays import grown, settings, wait, with_role
from overlay.chord.events import Fenced, MemberLost, RoleChanged
from overlay.chord.messages import Cluster
from overlay.client import GetIncidents, GetRing, Incidents, RingClusters
from overlay.incidents import MAX_INCIDENTS, IncidentLog
from overlay.info import Incident
from overlay.links.events import LinkDown, LinkUp
from overlay.machine import Peer
from tests.support.world import WorldNode, one_node


def incidents(world: World, node: str) -> list[Incident]:
    """The oldest first."""
    reply = world.ask(node, GetIncidents(world.clients.request()))
    assert isinstance(reply, Incidents)
    return list(reversed(reply.incidents))


def ring(world: World, node: str) -> RingClusters:
    reply = world.ask(node, GetRing(world.clients.request()))
    assert isinstance(reply, RingClusters)
    return reply


def id_of(world: World, name: str) -> str:
    return world.drivers[name].disk.node


def test_members_report_a_killed_primary_and_the_next() -> None:
    world = grown(6, 1, settings(cluster={"size": 3}))
    wait(world, lambda: len(with_role(world, "broker")) == 1, 30, "a full cluster")
    (old,), (broker,) = with_role(world, "primary"), with_role(world, "broker")
    world.crash(old, silent=True)
    wait(world, lambda: len(with_role(world, "primary")) == 1, 3, "another primary")
    world.run(10)
    (new,) = with_role(world, "primary")
    for name in {new: None, broker: None}:
        noted = incidents(world, name)
        whats = [one.what for one in noted if one.node in (id_of(world, old), id_of(world, new))]
        assert whats.count("elected") == 1
        assert whats.index("silent") < whats.index("elected") < whats.index("link down")
        (elected,) = [one for one in noted if one.what == "elected"]
        assert (elected.node, elected.epoch) == (id_of(world, new), 2)
        assert elected.text.startswith(f"in place of {id_of(world, old)}")
        assert "after it was suspected" in elected.text
        assert 7.0 < elected.ago < 14.0
        assert world.status(name).counters["incidents_elected"] == 1
    records = [record.fields for record in world.recorder.records if record.kind == "incident"]
    assert {fields["what"] for fields in records} >= {"silent", "elected", "link down", "role"}
    assert all(tuple(fields) == KINDS["incident"] for fields in records)
    assert {*KINDS["incident"]} <= {*FIELDS}


def test_the_ring_reports_since_when_a_primary_leads_and_who_is_silent() -> None:
    world = grown(6, 2, settings(cluster={"size": 3}))
    wait(world, lambda: len(with_role(world, "broker")) == 1, 30, "a full cluster")
    world.run(20)
    (broker,) = with_role(world, "broker")
    (outside, *_) = with_role(world, "none")
    (before,) = ring(world, outside).clusters
    assert before.led_for > 20
    assert before.silent == ()
    world.drivers[broker].pause()
    world.run(2)
    (cluster,) = ring(world, outside).clusters
    assert cluster.silent == (id_of(world, broker),)
    world.drivers[broker].resume()
    world.run(2)
    assert ring(world, outside).clusters[0].silent == ()


def watched() -> tuple[WorldNode, IncidentLog]:
    port = one_node()
    incident_log = IncidentLog(port)
    port.add(incident_log)
    return port, incident_log


def test_a_peer_that_left_in_order_is_no_incident_and_one_that_is_back_is() -> None:
    port, incident_log = watched()
    port.hear(LinkDown(Peer("p", "p:1"), "left", True))
    port.hear(LinkUp(Peer("p", "p:1"), True))
    assert not incident_log.records
    port.hear(LinkDown(Peer("p", "p:1"), "connection refused", False))
    port.world.jump(1.5)
    port.hear(LinkDown(Peer("p", "p:1"), "connection refused", False))  # it was dialled again
    port.world.jump(1.0)
    port.hear(LinkUp(Peer("p", "p:1"), True))
    port.hear(LinkUp(Peer("p", "p:1"), False))
    assert [(one.what, one.text) for one in incident_log.records] == [
        ("link down", "connection refused"),
        ("back", "after 2.5 s"),
    ]
    assert port.counts["incidents_link_down"] == 1


def test_who_said_that_it_leaves_is_not_lost_when_it_is_dialled_afterwards() -> None:
    port, incident_log = watched()
    port.hear(LinkUp(Peer("p", "p:1"), True))
    port.hear(LinkDown(Peer("p", "p:1"), "left", True))
    port.hear(LinkDown(Peer("p", "p:1"), "connection refused", False))
    assert not incident_log.records
    port.hear(LinkUp(Peer("p", "p:1"), True))
    port.hear(LinkDown(Peer("p", "p:1"), "connection refused", False))
    assert [one.what for one in incident_log.records] == ["link down"], "it was back"


def test_fencing_is_reported_and_what_is_remembered_is_bounded() -> None:
    port, incident_log = watched()
    old = Cluster("ring", "8" * 40, "8" * 40, (1, 0), port.me)
    new = Cluster("ring", "8" * 40, "8" * 40, (2, 0), Peer("q", "q:1"))
    port.hear(RoleChanged(old, "primary"))
    port.hear(Fenced(new))
    port.hear(RoleChanged(new, "broker"))
    assert [one.what for one in incident_log.records] == ["role", "fenced", "elected", "role"]
    port.hear(MemberLost(Peer("m0", "")))
    for number in range(MAX_INCIDENTS + 5):
        port.hear(MemberLost(Peer(f"m{number}", "")))
    assert len(incident_log.records) == MAX_INCIDENTS
    assert port.counts["incidents_member_gone"] == MAX_INCIDENTS + 5
