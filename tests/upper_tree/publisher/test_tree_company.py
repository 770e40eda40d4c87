"""Events wait for company while many are under way, and no longer than a moment."""

from __future__ import annotations

from overlay.upper_tree.batches import BATCH_ITEMS
from overlay.upper_tree.messages import Visit
from overlay.upper_tree.publisher.coalescer import FEW, MOMENT, CompanyDue
from tests.support.tree_net import event
from tests.upper_tree.publisher.test_tree_publisher import Rig


def rig(under_way: int) -> Rig:
    """A publisher whose only host has accepted nothing yet."""
    made = Rig()
    made.know("x", "h")
    made.publish(*({"x": number} for number in range(under_way)))
    assert [len(m.events) for _, m in made.port.sent_to(Visit)] == [under_way]
    return made


def test_few_events_under_way_hold_nothing_back() -> None:
    one = rig(FEW)
    one.publish({"x": 1})
    assert one.visits() == [("h", ("x",), [FEW + 1])]


def test_many_do_also_when_they_are_accepted_meanwhile() -> None:
    one = rig(FEW + 1)
    one.publish({"x": 1})
    assert one.visits() == []
    assert one.publisher.waited_for == FEW + 2
    one.accept("h", "x", *range(1, FEW + 2))
    assert one.visits() == []
    assert one.publisher.waited_for == 1
    one.publish({"x": 2})
    assert one.visits() == [("h", ("x",), [FEW + 2, FEW + 3])], "now few are under way"
    one.accept("h", "x", FEW + 2, FEW + 3)
    assert one.publisher.waited_for == 0
    assert sorted(one.done()) == [*range(1, FEW + 4)]


def test_a_full_message_waits_for_nobody() -> None:
    one = rig(FEW + 1)
    one.publish(*({"x": number} for number in range(BATCH_ITEMS - 1)))
    assert one.visits() == []
    one.publish({"x": 1})
    assert [len(sequences) for _, _, sequences in one.visits()] == [BATCH_ITEMS]


def test_nothing_waits_longer_than_a_moment() -> None:
    one = rig(FEW + 1)
    one.publish({"x": 1})
    one.port.advance(MOMENT)
    assert one.visits() == [("h", ("x",), [FEW + 2])]
    one.port.hear(CompanyDue())
    assert one.visits() == []


def test_a_receipt_waits_for_events_that_wait_for_company() -> None:
    one = rig(FEW + 1)
    made = one.publish({"x": 1})
    other = event(FEW + 2, x=1)
    assert list(one.publisher.under_way([*made, other])) == [FEW + 2]
