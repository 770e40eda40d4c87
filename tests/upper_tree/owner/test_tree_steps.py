"""C6: a change of the map has two steps, and hosts that are lost or come back meanwhile."""

from __future__ import annotations

import msgspec
import pytest

from matching import EVERYTHING
from overlay.chord.epochs import FORK
from overlay.chord.events import Elected, MemberJoined, MemberLeaving, MemberLost, RoleChanged
from overlay.chord.keys import attribute_key
from overlay.links.messages import MAX_BODY
from overlay.settings import Settings
from overlay.upper_tree.messages import (
    Assign,
    Assigned,
    Install,
    Register,
    Registered,
    TreesHosted,
    Unregister,
)
from overlay.upper_tree.owner.tree_log import MapChanged, decode
from tests.support.trees import KEY, HostNode, Rig, S, cluster_of, event, registration, served
from tests.support.world import peer


def moving(*to: str) -> Rig:
    """h1 serves x; the first of these members, who has just joined, is about to be assigned it."""
    rig = Rig("h1", *to)
    rig.register("x > 1")
    rig.members(*to)
    rig.owner.port.hear(MemberJoined(peer(to[0])))
    rig.pause(Assign)
    return rig


def prepare(rig: Rig, host: str) -> None:
    """It has its registrations, and serves."""
    rig.net.deliver(("p", host))  # Install
    rig.net.deliver(("p", host))  # Assign


# --- two steps ---


def test_the_coming_host_serves_before_the_old_one_stops() -> None:
    rig = moving("h2")
    assert rig.serving(5) == ["h1"]
    prepare(rig, "h2")
    assert rig.serving(5) == ["h1", "h2"], "prepared, not committed"
    assert rig.spread == ["h1"], "the map is not changed yet"
    rig.net.flush()
    assert rig.serving(5) == ["h2"]
    assert rig.spread == ["h2"]


def test_registrations_during_a_change_wait_for_the_hosts_of_both_maps() -> None:
    rig = moving("h2")
    rig.subscriber.add()  # hears nothing, only collects
    rig.owner.port.take(Registered)
    rig.owner.port.take(Install)
    rig.owner.port.hear(Register(1, (registration("s/9", "x", "x > 2", S),)), S)
    rig.owner.clusters.commit()
    assert [to for to, _ in rig.owner.port.sent_to(Install)] == ["h1", "h2"]
    for link in (("p", "h2"),) * 3 + (("p", "h1"),):
        rig.net.deliver(link)
    assert rig.owner.port.take(Registered) == []
    rig.net.flush()
    assert [m.ids for m in rig.owner.port.take(Registered)] == [("s/9",)]
    assert served(rig.hosts["h2"], event(1, x=5)) == ["s/0", "s/9"]


def test_one_change_at_a_time() -> None:
    rig = moving("h2", "h3")
    rig.members("h3")
    before = len(rig.owner.clusters.log)
    rig.net.run(5)  # the host h2 is slow
    assert len(rig.owner.clusters.log) == before
    rig.settle()
    assert rig.spread == ["h3"]


def test_an_answer_to_an_older_change_does_not_count() -> None:
    rig = moving("h2")
    old = rig.owner.owner.trees["x"].tree.map.version
    rig.owner.port.hear(Assigned("x", old), peer("h2"))
    assert rig.spread == ["h1"]


def test_a_change_whose_host_is_lost_is_given_up_and_tried_elsewhere() -> None:
    rig = moving("h2", "h3")
    rig.net.cut("p", "h2")
    assert rig.spread == ["h1"]
    rig.settle()
    assert rig.spread == ["h3"]
    assert rig.serving(5) == ["h3"]
    logged = [decode(e) for e in rig.owner.clusters.log[2:]]
    assert [e.version for e in logged if isinstance(e, MapChanged)] == [
        rig.owner.owner.trees["x"].tree.map.version
    ]


def test_a_host_that_missed_the_end_of_a_tree_drops_it_when_it_is_back() -> None:
    rig = Rig("h1", "h2")
    rig.register("x > 1")
    rig.net.cut("p", "h1")
    rig.owner.port.hear(Unregister("x", ("s/0",)), S)
    rig.settle(8.0)
    assert not rig.owner.owner.trees
    assert rig.serving(5) == ["h1"], "it knows of nothing"
    rig.net.join("p", "h1")
    rig.net.flush()
    assert rig.serving(5) == []


def test_a_host_that_is_back_keeps_the_trees_of_other_arcs_and_epochs() -> None:
    rig = Rig("h1")
    rig.register("x > 1")
    host = rig.hosts["h1"]
    key = attribute_key("x")
    beyond = f"{int(key, 16) + 1:040x}"
    for message in (
        TreesHosted(beyond, "f" * 40, 1, ()),
        TreesHosted(KEY, KEY, 0, ()),
        TreesHosted(KEY, KEY, 1, ("x",)),
    ):
        host.port.hear(message, peer("p"))
        assert rig.serving(5) == ["h1"]
    host.port.hear(TreesHosted(KEY, KEY, 1, ()), peer("p"))
    assert rig.serving(5) == []


def test_what_a_former_primary_still_has_under_way_comes_too_late() -> None:
    rig = Rig("h1")
    rig.register("x > 1")
    host = rig.hosts["h1"]
    host.port.hear(TreesHosted(KEY, KEY, 2, ()), peer("q"))
    assert rig.serving(5) == []
    for attribute, epoch, serves in (("x", 1, False), ("y", 1, False), ("y", 2, True)):
        r = registration("s/0", attribute, f"{attribute} > 1", S)
        host.port.hear(Install(attribute, epoch, (r,)), peer("p"))
        host.port.hear(Assign(attribute, (epoch, 9), (EVERYTHING,), 1, ()), peer("p"))
        assert bool(host.hosting.trees.get(attribute)) == serves
    host.port.hear(TreesHosted(attribute_key("v"), attribute_key("w"), 7, ()), peer("q"))
    for attribute, serves in (("v", True), ("w", False)):  # an arc does not hold its start
        host.port.hear(Assign(attribute, (3, 9), (EVERYTHING,), 1, ()), peer("p"))
        assert (attribute in host.hosting.trees) == serves


def test_an_elected_primary_sends_all_members_what_of_its_trees_is_there() -> None:
    rig = Rig("h1", "h2")
    rig.register("x > 1")
    cluster = cluster_of("p", "h1", "h2", version=(2, 0))
    rig.owner.clusters.cluster = cluster
    rig.owner.port.hear(Elected(cluster, peer("q")))
    sent = rig.owner.port.sent_to(TreesHosted)
    assert [(to, m.epoch, m.attributes) for to, m in sent] == [
        ("h1", 2, ("x",)), ("h2", 2, ()), ("q", 2, ()),
    ]  # fmt: skip


@pytest.mark.parametrize("epoch", [2, FORK])
@pytest.mark.parametrize("committed", [False, True])
def test_a_primary_that_is_elected_again_gives_up_the_change_that_was_under_way(
    committed: bool, epoch: int
) -> None:
    rig = moving("h2")
    if committed:
        prepare(rig, "h2")
        rig.net.deliver(("h2", "p"))  # Installed
        rig.net.deliver(("h2", "p"))  # Assigned: now h1 has to stop
        assert rig.spread == ["h2"]
    cluster = cluster_of("p", "h2", version=(epoch, 0))
    for host in rig.hosts.values():  # they have heard it, and take nothing of before any more
        host.port.hear(TreesHosted(KEY, KEY, epoch, ("x",)), peer("p"))
    rig.owner.clusters.cluster = cluster
    rig.owner.port.hear(RoleChanged(cluster, "primary"))
    if epoch == FORK:
        rig.owner.port.hear(Elected(cluster, peer("p")))
    rig.settle()
    assert rig.spread == rig.serving(5) == ["h2"]
    assert not rig.owner.owner.trees["x"].is_changing


def test_a_host_that_prepared_a_cancelled_change_stops_when_it_is_back() -> None:
    rig = moving("h2", "h3")
    prepare(rig, "h2")
    rig.net.cut("p", "h2")  # its answer is lost
    rig.settle()
    assert rig.serving(5) == ["h2", "h3"], "out of reach"
    rig.net.join("p", "h2")
    rig.settle()
    assert rig.serving(5) == ["h3"]


def test_long_selectors_move_in_messages_that_a_frame_can_carry() -> None:
    rig = Rig("h1", "h2", chosen=Settings())
    rig.register(*(f"x > {n} AND y <> '{'a' * 8_000}'" for n in range(200)))
    rig.members("h2")
    rig.owner.port.hear(MemberJoined(peer("h2")))
    rig.owner.port.take(Install)
    rig.settle()
    sizes = [len(msgspec.msgpack.encode(m)) for m in rig.owner.port.take(Install)]
    assert sum(sizes) > MAX_BODY > max(sizes)
    assert rig.spread == ["h2"]
    assert len(rig.hosts["h2"].hosting.trees["x"].registrations) == 200


def prepared_in_vain() -> Rig:
    """h2 serves by a map that was given up, and can be reached again; h3 serves by the true one."""
    rig = moving("h2", "h3")
    prepare(rig, "h2")
    rig.net.cut("p", "h2")
    rig.settle()
    rig.net.join("p", "h2")
    rig.owner.port.take(Registered)
    return rig


def register_and_install(rig: Rig) -> list[str]:
    """One more registration, which h3 installs at once; who is acknowledged then."""
    rig.owner.port.hear(Register(1, (registration("s/9", "x", "x > 2", S),)), S)
    rig.owner.clusters.commit()
    while rig.net.links.get(("p", "h3")):
        rig.net.deliver(("p", "h3"))
    while rig.net.links.get(("h3", "p")):
        rig.net.deliver(("h3", "p"))
    return [id_ for message in rig.owner.port.take(Registered) for id_ in message.ids]


def test_a_suback_waits_for_a_host_that_may_serve_by_a_map_that_was_given_up() -> None:
    rig = prepared_in_vain()
    assert register_and_install(rig) == []
    rig.settle()
    assert [m.ids for m in rig.owner.port.take(Registered)] == [("s/9",)]
    assert rig.serving(5) == ["h3"]


def test_a_suback_waits_until_that_host_has_stopped() -> None:
    rig = prepared_in_vain()
    rig.pause(Assign)  # ordered to stop, and has not heard it
    assert register_and_install(rig) == []
    assert rig.serving(5, "h2") == ["h2"]
    rig.net.flush()
    assert [m.ids for m in rig.owner.port.take(Registered)] == [("s/9",)]


def test_that_host_is_not_waited_for_when_it_is_lost_before_it_was_informed() -> None:
    rig = prepared_in_vain()
    assert register_and_install(rig) == []
    rig.net.cut("p", "h2")
    assert [m.ids for m in rig.owner.port.take(Registered)] == [("s/9",)]


def test_that_host_is_not_waited_for_when_it_is_lost_before_it_answers() -> None:
    rig = prepared_in_vain()
    rig.pause(Assign)
    rig.net.cut("p", "h2")
    rig.settle()
    assert not rig.owner.owner.trees["x"].is_changing
    assert register_and_install(rig) == ["s/9"]


def test_the_report_of_a_host_that_was_lost_since_does_not_count() -> None:
    rig = Rig("h1")
    rig.register("x > 1")
    rig.owner.port.take(Registered)
    rig.owner.port.hear(Register(1, (registration("s/9", "x", "x > 2", S),)), S)
    rig.net.flush()  # installed, not committed
    rig.net.cut("p", "h1")
    rig.owner.clusters.commit()
    assert rig.owner.port.take(Registered) == []


# --- lost and leaving hosts ---


def test_virtual_nodes_of_a_lost_host_move() -> None:
    rig = Rig("h1", "h2")
    rig.register("x > 1")
    rig.net.cut("p", "h1")
    rig.members("h2")
    rig.owner.port.hear(MemberLost(peer("h1")))
    rig.settle()
    assert rig.spread == ["h2"]
    assert rig.serving(5, "h2") == ["h2"]


def test_an_install_that_was_lost_with_the_link_is_sent_again() -> None:
    rig = Rig("h1")
    rig.register("x > 1")
    rig.owner.port.hear(Register(1, (registration("s/9", "x", "x > 2", S),)), S)
    rig.owner.clusters.commit()
    rig.net.cut("p", "h1")
    rig.net.join("p", "h1")
    rig.owner.port.take(Registered)
    rig.settle()
    assert [m.ids for m in rig.owner.port.take(Registered)] == [("s/9",)]
    assert served(rig.hosts["h1"], event(1, x=5)) == ["s/0", "s/9"]


def test_a_restarted_host_is_given_everything_again() -> None:
    rig = Rig("h1")
    rig.register("x > 1")
    rig.net.cut("p", "h1")
    rig.hosts["h1"] = HostNode(rig.net.node("h1"), rig.settings)
    rig.net.join("p", "h1")
    assert rig.serving(5) == []
    rig.settle()
    assert served(rig.hosts["h1"], event(1, x=5)) == ["s/0"]


def test_what_ended_while_a_host_was_cut_off_is_gone_when_it_is_back() -> None:
    rig = Rig("h1")
    rig.register("x > 1", "x > 2")
    rig.net.cut("p", "h1")
    rig.owner.port.hear(Unregister("x", ("s/0",)), S)
    rig.net.flush()
    rig.net.join("p", "h1")
    rig.settle()
    assert served(rig.hosts["h1"], event(1, x=5)) == ["s/1"]


@pytest.mark.parametrize("who", ["h1", "idle"])
def test_a_leaving_member_is_released_when_it_hosts_nothing(who: str) -> None:
    rig = Rig("h1", "h2")
    rig.register("x > 1")
    rig.owner.port.hear(MemberLeaving(peer(who)))
    rig.net.run(1.0)  # looked at, but no host has answered yet
    assert rig.owner.clusters.released == ([] if who == "h1" else ["idle"])
    rig.settle()
    assert rig.owner.clusters.released == [who]
    assert rig.spread == (["h2"] if who == "h1" else ["h1"])


def test_a_small_cluster_hosts_at_its_standby_or_at_its_primary() -> None:
    rig = Rig("h1")
    rig.owner.clusters.cluster = cluster_of("p", standby="h1")
    rig.register("x > 1")
    assert rig.spread == ["h1"]
    rig.owner.clusters.cluster = cluster_of("p")
    rig.owner.port.hear(MemberLost(peer("h1")))
    rig.settle()
    assert rig.spread == ["p"]
    assert rig.owner.hosting.trees["x"].served.intervals


def test_a_change_whose_hosts_were_fenced_is_begun_again_after_an_election() -> None:
    """A fork has assigned the hosts otherwise: none of them answers the epoch of before."""
    rig = moving("h2", "h3")
    rig.net.links["p", "h2"].clear()  # what was ordered they did not take
    rig.settle()
    assert rig.spread == ["h1"]
    rig.owner.clusters.cluster = cluster = cluster_of("p", "h2", "h3", version=(9, 0))
    rig.owner.port.hear(Elected(cluster, peer("p")))
    rig.settle()
    assert rig.serving(5) == rig.spread
    assert rig.spread != ["h1"]
    assert not rig.owner.owner.trees["x"].stale_hosts
