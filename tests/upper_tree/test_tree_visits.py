"""Events that visit a host together are in the order of publication, whatever trees they visit."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from harness.overlays import settings
from matching import EVERYTHING, Interval, place
from overlay.client import Event
from overlay.machine import ProtocolError
from overlay.upper_tree.delivery.held_deliveries import split_by_tree
from overlay.upper_tree.host.visit_handler import check_visit
from overlay.upper_tree.messages import Accepted, Deliver, TreeMoved, Visit
from overlay.upper_tree.visits import groups_of, select_events, trees_of, visits_of
from tests.support.trees import HostNode, event, registration
from tests.support.world import peer
from tests.upper_tree.host.test_tree_hosting import assign, host, install
from tests.upper_tree.publisher.test_tree_publisher import Rig

PUB, S = peer("pub"), peer("s")

kinds = st.lists(st.sampled_from([("x",), ("y",), ("x", "y"), ("z",)]), min_size=1, max_size=12)


def grouped(trees: list[tuple[str, ...]]) -> list[tuple[tuple[str, ...], list[Event]]]:
    """Events 1, 2, … that visit these trees, as a publisher groups them."""
    found: dict[tuple[str, ...], list[Event]] = {}
    for number, names in enumerate(trees, 1):
        found.setdefault(names, []).append(event(number, **dict.fromkeys(names, 1)))
    return list(found.items())


@hypothesis_settings(deadline=None)
@given(kinds, st.integers(min_value=1, max_value=5), st.data())
def test_messages_have_all_events_in_order_and_say_which_trees_they_visit(
    trees: list[tuple[str, ...]], most: int, data: st.DataObject
) -> None:
    def cut(events: object) -> list[tuple[Event, ...]]:
        assert isinstance(events, list)
        return [tuple(events[at : at + most]) for at in range(0, len(events), most)]

    made = list(visits_of(PUB, 1, grouped(trees), cut))
    assert [e.sequence for visit in made for e in visit.events] == [*range(1, len(trees) + 1)]
    found = {e.sequence: names for v in made for names, some in groups_of(v) for e in some}
    assert found == dict(enumerate(trees, 1))
    for visit in made:
        check_visit(visit)
        visited = {name for names, _ in groups_of(visit) for name in names}
        assert visited == set(trees_of(visit)) & visited
        places = sorted(data.draw(st.sets(st.sampled_from(range(len(visit.events))))))
        part = select_events(visit, places)
        assert [e.sequence for e in part.events] == [visit.events[p].sequence for p in places]
        kept = {e.sequence: names for names, some in groups_of(part) for e in some}
        assert kept == {e.sequence: found[e.sequence] for e in part.events}


@pytest.mark.parametrize("places", [(2,), (-1,), (0, 0)])
def test_a_visit_that_names_an_event_that_is_not_there_is_refused(places: tuple[int, ...]) -> None:
    with pytest.raises(ProtocolError):
        check_visit(Visit(PUB, 1, ("x",), (event(1, x=1), event(2, x=1)), ((("x",), places),)))


@pytest.mark.parametrize("routing", ["pivot", "counting"])
def test_a_publisher_sends_each_host_one_message_in_the_order_of_publication(routing: str) -> None:
    rig = Rig(settings(tree={"routing": routing}))
    for tree, where in {"b": "h", "c": "h", "d": "i"}.items():
        rig.know(tree, where)
    rig.publish(*({name: 1} for name in "bcdbcdb"))
    sent = {to: [e.sequence for e in m.events] for to, m in rig.port.sent_to(Visit)}
    assert sent == {"h": [1, 2, 4, 5, 7], "i": [3, 6]}
    assert len(rig.port.sent_to(Visit)) == 0
    rig.port.hear(Accepted(7, ((("b",), (1, 4, 7)), (("c",), (2, 5))), ()), peer("h"))
    rig.port.hear(Accepted(7, ((("d",), (3, 6)),), ()), peer("i"))
    assert rig.publisher.unaccepted == 0


def delivered(node: HostNode) -> list[list[int]]:
    """The events of each message to the only interested node."""
    return [[e.sequence for e in message.events] for message in node.port.take(Deliver)]


@pytest.mark.parametrize("routing", ["pivot", "counting"])
@hypothesis_settings(deadline=None)
@given(trees=kinds)
def test_a_host_delivers_in_the_order_of_publication_and_answers_for_all(
    routing: str, trees: list[tuple[str, ...]]
) -> None:
    """Also where a tree is only partly here, and for a tree that is not here at all (z)."""
    node, low = host(settings(tree={"routing": routing})), Interval(place(0), place(9))
    assign(node, EVERYTHING, attribute="x")
    assign(node, low, attribute="y")
    for tree in "xy":
        made = registration(f"{tree}/0", tree, f"{tree} > 0", S, counting=routing == "counting")
        install(node, made)
    groups = grouped(trees)
    if routing == "counting":
        groups = [((name,), [e for names, some in grouped(trees) if name in names for e in some])
                  for name in "xyz" if any(name in names for names in trees)]  # fmt: skip
    for visit in visits_of(PUB, 1, groups, lambda events: (tuple(events),)):
        node.port.hear(visit, PUB)
    sent = node.port.take(Deliver)
    assert len(sent) <= 1
    events = [e.sequence for message in sent for e in message.events]
    assert events == sorted(events)
    due = [number for number, names in enumerate(trees, 1) if names != ("z",)]
    assert sorted(dict.fromkeys(events)) == due
    for part in (part for message in sent for part in split_by_tree(message)):
        assert part.interval == (EVERYTHING if part.attribute == "x" else low)
        assert all(part.attribute in e.attributes for e in part.events)
    answered = {(name, s) for m in node.port.take(Accepted)
                for names, sequences in m.taken for name in names for s in sequences}  # fmt: skip
    moved = {(m.attribute, s) for m in node.port.take(TreeMoved) for s in m.sequences}
    pairs = {(name, number) for number, names in enumerate(trees, 1) for name in names}
    assert answered | moved == pairs
    assert {name for name, _ in moved} <= {"z"}
    assert not answered & moved


def test_a_registration_of_a_tree_that_an_event_does_not_visit_here_is_passed_over() -> None:
    """Another host has the tree now, and matches the event for it."""
    node = host()
    for tree in "xy":
        assign(node, EVERYTHING, attribute=tree)
    install(node, registration("x/0", "x", "x > 0", S))
    install(node, registration("y/0", "y", "y > 1", S))
    events = (event(1, x=1, y=1), event(2, y=2), event(3, x=1, y=1), event(4, x=1))
    node.port.hear(Visit(PUB, 1, ("y",), events, ((("x",), (3,)),)), PUB)
    assert delivered(node) == [[2, 4]]


def test_what_is_passed_on_is_in_the_order_of_publication() -> None:
    node = host()
    for tree in "xy":
        assign(node, Interval(EVERYTHING.lo, place(9)), attribute=tree)
    events = (event(1, x=10, y=1), event(2, y=10), event(3, x=10, y=10))
    (visit,) = visits_of(PUB, 1, [(("x", "y"), [events[0], events[2]]), (("y",), [events[1]])],
                         lambda some: (tuple(some),))  # fmt: skip
    node.port.hear(visit, PUB)
    ((to, sent),) = node.port.sent_to(Visit)
    assert (to, [e.sequence for e in sent.events]) == ("other", [1, 2, 3])
    found = {e.sequence: set(names) for names, some in groups_of(sent) for e in some}
    assert found == {1: {"x"}, 2: {"y"}, 3: {"x", "y"}}


def test_a_visit_without_events_is_no_message() -> None:
    visit = Visit(PUB, 1, ("x",), (event(1, x=1),))
    assert msgspec.convert(msgspec.to_builtins(visit), Visit) == visit
    empty = msgspec.structs.replace(visit, events=())
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(msgspec.to_builtins(empty), Visit)
