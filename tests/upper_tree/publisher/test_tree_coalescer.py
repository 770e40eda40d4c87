"""Events are held back while many are in flight, and no longer than `HOLD_MOST`."""

from __future__ import annotations

from overlay.upper_tree.batches import BATCH_ITEMS
from overlay.upper_tree.messages import Visit
from overlay.upper_tree.publisher.constants import HOLD_MOST, IN_FLIGHT_LEAST
from overlay.upper_tree.publisher.pending_store import HoldOver
from tests.support.trees import event
from tests.upper_tree.publisher.test_tree_publisher import Rig


def rig(in_flight: int) -> Rig:
    """A publisher whose only host has accepted nothing yet."""
    made = Rig()
    made.know("x", "h")
    made.publish(*({"x": number} for number in range(in_flight)))
    assert [len(m.events) for _, m in made.port.sent_to(Visit)] == [in_flight]
    return made


def test_few_events_in_flight_hold_nothing_back() -> None:
    one = rig(IN_FLIGHT_LEAST)
    one.publish({"x": 1})
    assert one.visits() == [("h", ("x",), [IN_FLIGHT_LEAST + 1])]


def test_many_do_also_when_they_are_accepted_meanwhile() -> None:
    one = rig(IN_FLIGHT_LEAST + 1)
    one.publish({"x": 1})
    assert one.visits() == []
    assert one.publisher.unaccepted == IN_FLIGHT_LEAST + 2
    one.accept("h", "x", *range(1, IN_FLIGHT_LEAST + 2))
    assert one.visits() == []
    assert one.publisher.unaccepted == 1
    one.publish({"x": 2})
    assert one.visits() == [("h", ("x",), [IN_FLIGHT_LEAST + 2, IN_FLIGHT_LEAST + 3])], (
        "now few are in flight"
    )
    one.accept("h", "x", IN_FLIGHT_LEAST + 2, IN_FLIGHT_LEAST + 3)
    assert one.publisher.unaccepted == 0
    assert sorted(one.done()) == [*range(1, IN_FLIGHT_LEAST + 4)]


def test_a_full_message_is_not_held_back() -> None:
    one = rig(IN_FLIGHT_LEAST + 1)
    one.publish(*({"x": number} for number in range(BATCH_ITEMS - 1)))
    assert one.visits() == []
    one.publish({"x": 1})
    assert [len(sequences) for _, _, sequences in one.visits()] == [BATCH_ITEMS]


def test_nothing_is_held_back_longer_than_that() -> None:
    one = rig(IN_FLIGHT_LEAST + 1)
    one.publish({"x": 1})
    one.port.advance(HOLD_MOST)
    assert one.visits() == [("h", ("x",), [IN_FLIGHT_LEAST + 2])]
    one.port.hear(HoldOver())
    assert one.visits() == []


def test_a_receipt_waits_for_events_that_are_held_back() -> None:
    one = rig(IN_FLIGHT_LEAST + 1)
    made = one.publish({"x": 1})
    other = event(IN_FLIGHT_LEAST + 2, x=1)
    assert list(one.publisher.pending.await_receipts([*made, other])) == [IN_FLIGHT_LEAST + 2]
