"""Events that travel together are kept together, and single when something differs."""

from __future__ import annotations

from itertools import permutations

import pytest

from overlay.client import Event
from overlay.upper_tree.publisher.batched_pending import BatchedPending, Ended
from overlay.upper_tree.publisher.pending import PendingEvent


def event(sequence: int) -> Event:
    return Event("pub", 1, sequence, 0.0, {"x": 1, "y": 2})


def rig(*sequences: int) -> tuple[dict[int, PendingEvent], BatchedPending]:
    """Events under way to host h for tree x and to host i for tree y since time 5."""
    single: dict[int, PendingEvent] = {}
    bundles = BatchedPending(single)
    bundles.add([event(s) for s in sequences], {"x": ("h", 5.0), "y": ("i", 5.0)}, 5.0)
    return single, bundles


def test_a_batch_that_all_hosts_accept_whole_is_done_at_the_last() -> None:
    for order in permutations([("h", "x"), ("i", "y")]):
        single, bundles = rig(1, 2, 3)
        ended = Ended()
        for number, (host, tree) in enumerate(order):
            assert (ended.done, len(bundles)) == ([], 3)
            events = ended.take(single, bundles, host, (tree, "other"), (1, 2, 3))
            assert [e.sequence for e in events] == [1, 2, 3]
            assert ended.bundled == 3 * (number + 1)
            assert ended.since == 5.0
        assert (ended.done, len(bundles), single) == ([1, 2, 3], 0, {})


def test_a_host_that_is_behind_may_accept_a_bundle_in_parts() -> None:
    single, bundles = rig(1, 2, 3, 4)
    ended = Ended()
    for part in ((1, 2), (3,), (4,)):
        events = ended.take(single, bundles, "h", ("x",), part)
        assert [e.sequence for e in events] == list(part)
    assert (ended.bundled, ended.done, len(bundles), single) == (4, [], 4, {})
    assert [bundle.sequences for bundle in bundles.all] == [(1, 2), (3,), (4,)]
    ended.take(single, bundles, "i", ("y",), (1, 2, 3, 4))
    assert (ended.bundled, ended.done, len(bundles)) == (8, [1, 2, 3, 4], 0)


def test_bundles_that_visit_a_host_together_are_accepted_together() -> None:
    single, bundles = rig(1, 2)
    bundles.add([event(5), event(6)], {"x": ("h", 6.0)}, 6.0)
    bundles.add([event(8)], {"x": ("h", 6.0)}, 6.0)
    ended = Ended()
    events = ended.take(single, bundles, "h", ("x",), (5, 6, 1, 2, 8))
    assert [e.sequence for e in events] == [5, 6, 1, 2, 8]
    assert (ended.bundled, ended.done, len(bundles)) == (4, [5, 6], 2)
    assert [o.event.sequence for o in ended.whole] == [8]


def test_only_those_fall_apart_that_are_chosen() -> None:
    single, bundles = rig(1, 2)
    bundles.add([event(5), event(6)], {"x": ("h", 6.0)}, 6.0)
    bundles.loosen(lambda bundle: bundle.since == 5.0)
    assert (list(single), len(bundles)) == ([1, 2], 2)


@pytest.mark.parametrize("accepted", [(2, 3), (3, 2, 1), (7, 1), (1, 3)])
def test_what_is_accepted_in_parts_becomes_single_events(accepted: tuple[int, ...]) -> None:
    single, bundles = rig(1, 2, 3)
    ended = Ended()
    events = ended.take(single, bundles, "h", ("x",), accepted)
    assert [e.sequence for e in events] == [s for s in accepted if s < 7]
    assert (ended.bundled, ended.done, len(bundles)) == (0, [], 0)
    assert sorted(single) == [1, 2, 3]
    assert [(o.event.sequence, name) for o, name in ended.pairs] == [
        (s, "x") for s in accepted if s < 7
    ]
    assert all(o.since == 5.0 for o in single.values())
    single[1].pairs.clear()
    assert single[2].pairs == {"x": ("h", 5.0), "y": ("i", 5.0)}, "each has its own pairs"


def test_the_same_word_twice_counts_once() -> None:
    single, bundles = rig(1, 2)
    ended = Ended()
    for _ in range(2):
        ended.take(single, bundles, "h", ("x",), (1, 2))
    assert ended.bundled == 2
    assert ended.take(single, bundles, "h", ("x", "y"), (1, 2))
    again = Ended()
    assert again.take(single, bundles, "h", ("x", "y"), (1, 2)) == []
    assert (again.bundled, again.done, again.since) == (0, [], None)


def test_a_host_that_was_not_asked_says_nothing_about_the_time() -> None:
    single, bundles = rig(1, 2)
    ended = Ended()
    ended.take(single, bundles, "z", ("x",), (1, 2))
    assert ended.since is None
