"""C6: virtual nodes whose hosts are all silent have one more, before a link is given up."""

from __future__ import annotations

from overlay.links.events import LinkDown, LinkRecovered, LinkSuspected
from overlay.upper_tree.owner.constants import RELIEVED_FOR, SILENT_LEAST
from overlay.upper_tree.owner.host_supervisor import SilentHosts
from tests.support.trees import Rig
from tests.support.world import one_node, peer


def served(replicas: int = 1) -> Rig:
    """Two brokers; one virtual node, on as many of them."""
    rig = Rig("h1", "h2", replicas=replicas)
    rig.register("x > 1")
    rig.settle(4.0)
    assert len(hosts(rig)) == replicas
    return rig


def hosts(rig: Rig) -> list[str]:
    (entry,) = rig.owner.owner.trees["x"].tree.map.entries
    return [host.id for host in entry.hosts]


def silence(rig: Rig, host: str, seconds: float) -> None:
    """The host takes nothing more, and the owner's link to it is suspected."""
    rig.net.held[host] = None
    rig.owner.port.hear(LinkSuspected(peer(host), ()))
    rig.settle(seconds)


def wakes(rig: Rig, host: str) -> None:
    del rig.net.held[host]
    rig.owner.port.hear(LinkRecovered(peer(host)))


def version(rig: Rig) -> tuple[int, int]:
    return rig.owner.owner.trees["x"].tree.map.version


def test_another_host_serves_beside_a_silent_one_with_all_registrations() -> None:
    rig = served()
    (only,) = hosts(rig)
    (other,) = {"h1", "h2"} - {only}
    silence(rig, only, SILENT_LEAST + 1.0)
    assert hosts(rig) == [only, other]
    assert rig.serving(5, other) == [other]
    tree = rig.hosts[other].hosting.trees["x"]
    assert rig.hosts[other].hosting.assigned.has_lease(tree)
    assert sorted(tree.registrations) == ["s/0"]


def test_a_suback_waits_for_both_or_for_the_end_of_the_silent_ones_lease() -> None:
    rig = served()
    (only,) = hosts(rig)
    silence(rig, only, SILENT_LEAST + 0.6)
    rig.register("x > 2", first=1)
    owned = rig.owner.owner.trees["x"]
    assert list(owned.pending) == ["s/1"]
    wakes(rig, only)
    rig.settle(1.0)
    assert not owned.pending
    for host in rig.hosts.values():
        assert sorted(host.hosting.trees["x"].registrations) == ["s/0", "s/1"]


def test_who_is_heard_again_soon_is_not_relieved() -> None:
    rig = served()
    before = version(rig)
    (only,) = hosts(rig)
    silence(rig, only, 0.2)
    wakes(rig, only)
    rig.settle(5.0)
    assert version(rig) == before


def test_who_wakes_up_keeps_its_virtual_nodes_and_has_them_alone_after_a_while() -> None:
    rig = served()
    (only,) = hosts(rig)
    silence(rig, only, SILENT_LEAST + 1.0)
    shared = version(rig)
    assert len(hosts(rig)) == 2
    wakes(rig, only)
    rig.settle(2.0)
    silence(rig, only, 0.4)  # it stands still again: nothing changes
    wakes(rig, only)
    rig.settle(RELIEVED_FOR - 2.0)
    assert version(rig) == shared
    assert only in rig.serving(5)
    rig.settle(5.0)
    assert hosts(rig) == [only]
    assert rig.serving(5) == [only]
    after = version(rig)
    rig.settle(20.0)
    assert version(rig) == after


def test_who_is_given_up_leaves_them_to_the_other() -> None:
    rig = served()
    (only,) = hosts(rig)
    (other,) = {"h1", "h2"} - {only}
    silence(rig, only, SILENT_LEAST + 1.0)
    assert hosts(rig) == [only, other]
    rig.owner.port.hear(LinkDown(peer(only), "silent", False, ()))
    rig.settle(3.0)
    assert hosts(rig) == [other]


def test_a_virtual_node_with_another_host_that_answers_is_left_as_it_is() -> None:
    rig = served(replicas=2)
    before = version(rig)
    silence(rig, "h1", 4.0)
    assert version(rig) == before


def test_where_no_other_host_answers_the_primary_serves() -> None:
    rig = served()
    rig.net.held["h1"] = rig.net.held["h2"] = None
    for host in ("h1", "h2"):
        rig.owner.port.hear(LinkSuspected(peer(host), ()))
    rig.settle(SILENT_LEAST + 1.0)
    assert hosts(rig)[1:] == ["p"]


def test_an_owner_that_stood_still_itself_gives_hosts_time_to_be_heard() -> None:
    port = one_node("p")
    silent = SilentHosts(port)
    silent.suspected("h", port.now, 0.0)
    port.world.jump(10.0)
    assert not silent.rang()
    assert not silent.is_silent("h")
    port.world.jump(0.35)
    assert silent.rang()
    assert silent.is_silent("h")


def test_how_long_a_host_may_be_silent_follows_its_round_trips() -> None:
    port = one_node("p")
    silent = SilentHosts(port)
    silent.suspected("h", port.now, 1.0)
    port.world.jump(3.9)
    assert not silent.rang()
    port.world.jump(0.2)
    assert silent.rang()
