"""When all registrations of a tree are looked at again."""

from __future__ import annotations

from overlay.upper_tree.owner.owned_tree import LOOK_PERIOD, LOOK_SHARE, Look
from overlay.upper_tree.partition import PartitionMap
from tests.support.tree_net import peer


def test_a_look_is_due_where_something_changed_and_not_for_every_little_thing() -> None:
    first, second = (PartitionMap.single((1, n), (peer("h"),)) for n in (1, 2))
    look = Look()
    assert look.is_due(first, 0, 0, 0.0), "never looked"
    look.done(first, 1000, 5.0)
    assert not look.is_due(first, 1000, 900, 100.0), "nothing has changed"
    assert look.is_due(second, 1000, 900, 5.0), "another map"
    assert not look.is_due(first, 1001, 900, 5.0)
    assert look.is_due(first, 1001, 900, 5.0 + LOOK_PERIOD), "something has, a while ago"
    assert look.is_due(first, 1000 + 900 // LOOK_SHARE + 1, 900, 5.0), "many have"
    assert look.is_due(first, 1001, LOOK_SHARE, 5.0), "few are not many to look at"
