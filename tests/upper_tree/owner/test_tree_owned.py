"""When all registrations of a tree are looked at again."""

from __future__ import annotations

from overlay.upper_tree.owner.constants import SCAN_PERIOD, SCAN_SHARE
from overlay.upper_tree.owner.owned_tree import ScanThrottle
from overlay.upper_tree.partition import PartitionMap
from tests.support.world import peer


def test_a_look_is_due_where_something_changed_and_not_for_every_little_thing() -> None:
    first, second = (PartitionMap.single((1, n), (peer("h"),)) for n in (1, 2))
    scan = ScanThrottle()
    assert scan.is_due(first, 0, 0, 0.0), "never looked"
    scan.done(first, 1000, 5.0)
    assert not scan.is_due(first, 1000, 900, 100.0), "nothing has changed"
    assert scan.is_due(second, 1000, 900, 5.0), "another map"
    assert not scan.is_due(first, 1001, 900, 5.0)
    assert scan.is_due(first, 1001, 900, 5.0 + SCAN_PERIOD), "something has, a while ago"
    assert scan.is_due(first, 1000 + 900 // SCAN_SHARE + 1, 900, 5.0), "many have"
    assert scan.is_due(first, 1001, SCAN_SHARE, 5.0), "few are not many to look at"
