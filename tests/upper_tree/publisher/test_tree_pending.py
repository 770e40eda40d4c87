"""An event that is not accepted has one record, and each of its trees one state. Events that are
sent together share a record, and get records of their own when something differs."""

from __future__ import annotations

from itertools import permutations, product

import pytest

from overlay.client import Event
from overlay.upper_tree.events import EventsAccepted, RoomAgain
from overlay.upper_tree.publisher.constants import WINDOW_LEAST
from overlay.upper_tree.publisher.location_cache import LocationCache
from overlay.upper_tree.publisher.pending_event import (
    PAIR_MOVES,
    SENT,
    PairMove,
    PairMoveError,
    PairState,
    PairStatus,
)
from overlay.upper_tree.publisher.pending_store import PendingStore
from overlay.upper_tree.publisher.replicas import ReplicaSelector
from tests.support.world import one_node, peer


def event(sequence: int) -> Event:
    return Event("pub", 1, sequence, 0.0, {"x": 1, "y": 2})


class Rig:
    """A store; `send` adds a batch that leaves for host h (tree x) and host i (tree y)."""

    def __init__(self, *sequences: int, capacity: int = 1_000, most: int = 1 << 20) -> None:
        self.port = one_node("pub")
        locations = LocationCache(100, ReplicaSelector("pub", 3.0))
        self.store = PendingStore(self.port, capacity, most, locations)
        if sequences:
            self.send(*sequences)

    def send(self, *sequences: int, **hosts: str) -> None:
        hosts = hosts or {"h": "x", "i": "y"}
        way = {host: (peer(host), (tree,)) for host, tree in hosts.items()}
        self.store.add_batch([event(s) for s in sequences], way, 100)

    def accept(self, host: str, trees: tuple[str, ...], *sequences: int) -> list[int]:
        """The events that waited for it."""
        (events,) = self.store.accept(host, [(trees, sequences)]).events
        return [one.sequence for one in events]

    @property
    def batches(self) -> list[tuple[int, ...]]:
        return [batch.sequences for batch in self.store._batches.values()]

    def done(self) -> list[int]:
        found = [s for e in self.port.of(EventsAccepted) for s in e.sequences]
        self.port.emitted.clear()
        return found


def test_a_batch_that_all_hosts_accept_whole_is_done_at_the_last() -> None:
    for order in permutations([("h", "x"), ("i", "y")]):
        rig = Rig(1, 2, 3)
        for number, (host, tree) in enumerate(order):
            assert (rig.done(), len(rig.store)) == ([], 3)
            accepted = rig.store.accept(host, [((tree, "other"), (1, 2, 3))])
            assert [e.sequence for e in accepted.events[0]] == [1, 2, 3]
            assert accepted.sent_at == rig.port.now
            assert rig.store.pairs == 3 * (1 - number)
        assert (rig.done(), len(rig.store), rig.batches) == ([1, 2, 3], 0, [])


def test_a_batch_without_hosts_is_done_at_once() -> None:
    rig = Rig()
    rig.store.add_batch([event(1), event(2)], {}, 100)
    assert (rig.done(), len(rig.store), rig.store.pairs) == ([1, 2], 0, 0)


def test_a_host_that_is_behind_may_accept_a_batch_in_parts() -> None:
    rig = Rig(1, 2, 3, 4)
    for part in ((1, 2), (3,), (4,)):
        assert rig.accept("h", ("x",), *part) == list(part)
    assert (rig.store.pairs, rig.done(), len(rig.store)) == (4, [], 4)
    assert (rig.batches, list(rig.store._single)) == ([(1, 2)], [3, 4])
    rig.accept("i", ("y",), 1, 2, 3, 4)
    assert (rig.store.pairs, rig.done(), len(rig.store)) == (0, [1, 2, 3, 4], 0)


def test_batches_that_visit_a_host_together_are_accepted_together() -> None:
    rig = Rig(1, 2)
    rig.send(5, 6, h="x")
    rig.send(8, h="x")
    assert rig.accept("h", ("x",), 5, 6, 1, 2, 8) == [5, 6, 1, 2, 8]
    assert (rig.store.pairs, rig.done(), rig.batches) == (2, [5, 6, 8], [(1, 2)])


def test_only_batches_that_wait_for_a_suspected_host_are_broken_up() -> None:
    rig = Rig(1, 2)
    rig.send(5, 6, j="x")
    rig.store._locations.replicas.suspect_silent("j", rig.port.now)
    rig.store.retry()
    assert (list(rig.store._single), rig.batches) == ([5, 6], [(1, 2)])


@pytest.mark.parametrize("accepted", [(2, 3), (3, 2, 1), (7, 2), (1, 3)])
def test_what_is_accepted_in_parts_becomes_single_events(accepted: tuple[int, ...]) -> None:
    rig = Rig(1, 2, 3)
    own = [s for s in accepted if s < 7]
    assert rig.accept("h", ("x",), *accepted) == own
    assert (rig.done(), rig.batches, rig.store.pairs) == ([], [], 6 - len(own))
    single = rig.store._single
    assert sorted(single) == [1, 2, 3]
    assert all(one.since == rig.port.now for one in single.values())
    for sequence, one in single.items():  # each has its own pairs
        left = {"y": "i"} if sequence in own else {"x": "h", "y": "i"}
        assert one.pairs == {t: PairStatus(SENT, rig.port.now, at) for t, at in left.items()}


def test_the_same_acceptance_twice_counts_once() -> None:
    rig = Rig(1, 2)
    for _ in range(2):
        rig.accept("h", ("x",), 1, 2)
    assert rig.store.pairs == 2
    assert rig.accept("h", ("x", "y"), 1, 2) == [1, 2]
    assert rig.done() == [1, 2]
    rig.send(5, 6)
    again = rig.store.accept("h", [(("x", "y"), (1, 2))])
    assert (again.events, again.sent_at, rig.done(), rig.store.pairs) == ([[]], None, [], 4)
    assert rig.batches == [(5, 6)], "which others repeat does not concern it"


def test_a_host_that_was_not_asked_says_nothing_about_the_time() -> None:
    rig = Rig(1, 2)
    assert rig.store.accept("z", [(("x",), (1, 2))]).sent_at is None


def test_a_pair_waits_for_its_tree_and_is_named_once() -> None:
    rig = Rig()
    x, y = rig.store.add_single([event(1)], ["x", "y"], 100)
    rig.store.seek(x)
    rig.store.sent(y, "i")
    assert (rig.store.located("x"), rig.store.located("x"), rig.store.located("y")) == ([x], [], [])
    assert rig.store.host_lost("i") == [y]
    rig.store.drop([x])
    assert rig.done() == []
    rig.store.drop([y, y])
    assert (rig.done(), len(rig.store), rig.store.pairs) == ([1], 0, 0)


def test_a_pair_is_in_one_state_and_no_move_is_made_that_the_table_has_not() -> None:
    """Whatever happens to the pairs of an event, in any order: what the store would do with a pair
    agrees with its state, and what the table does not have raises and changes nothing."""
    moves = {
        PairMove.ROUTED: lambda store, pair: store.sent(pair, "h"),
        PairMove.UNLOCATED: lambda store, pair: store.seek(pair),
        PairMove.POSTPONED: lambda store, pair: store.enqueue([pair], PairMove.POSTPONED, False),
        PairMove.LOCATED: lambda store, pair: store.enqueue(
            store.located("x") or [pair], PairMove.LOCATED, False
        ),
        PairMove.FAILED: lambda store, pair: store.enqueue([pair], PairMove.FAILED, False),
    }
    for happens in product(PairMove, repeat=4):
        rig = Rig()
        (pair,) = rig.store.add_single([event(1)], ["x"], 100)
        state = PairState.NEW
        for move in happens:
            if (state, move) in PAIR_MOVES:
                state = PAIR_MOVES[state, move]
                moves[move](rig.store, pair)
            else:
                with pytest.raises(PairMoveError):
                    moves[move](rig.store, pair)
            assert pair[0].pairs["x"].state is state
            assert rig.store.host_lost("h") == [pair] * (state is SENT)
        queued = rig.store.queue.take()
        assert (queued is not None and queued[0] == [pair]) == (state is PairState.QUEUED)
        assert rig.store.located("x") == [pair] * (state is PairState.SEEKING)
        assert rig.store.accept("late", [(("x",), (1,))]).events == [pair[0].events]
        assert (rig.done(), len(rig.store), rig.store.pairs, rig.store.bytes) == ([1], 0, 0, 0)
        assert rig.store.queue.take() in (None, ([], False)), "what has ended is not routed"


def test_what_is_lost_twice_before_it_is_routed_is_routed_once() -> None:
    rig = Rig(1, 2)
    rig.store.enqueue(rig.store.host_lost("h"), PairMove.FAILED, True)
    assert rig.store.host_lost("h") == rig.store.moved("x", [1, 1, 2]) == []
    queued = rig.store.queue.take()
    assert queued is not None
    assert [record.sequences for record, _ in queued[0]] == [(1,), (2,)]
    assert len(rig.store.moved("y", [1, 1, 2])) == 2, "a host may name an event twice"


def test_room_is_announced_when_there_is_some_again() -> None:
    rig = Rig(1, 2, capacity=4)
    assert not rig.store.room
    rig.store.await_room()
    rig.accept("h", ("x",), 1, 2)
    assert (bool(rig.store.room), rig.port.of(RoomAgain)) == (True, [RoomAgain()])
    rig.accept("i", ("y",), 1, 2)
    assert rig.port.of(RoomAgain) == [RoomAgain()]


def test_room_is_announced_also_if_the_window_became_larger_before_the_next_acceptance() -> None:
    count = WINDOW_LEAST // 2  # events of two pairs each
    rig = Rig(*range(1, count + 1), capacity=10_000)
    assert not rig.store.room
    rig.store.await_room()
    (x,) = rig.store.moved("x", [1])
    rig.store.seek(x)
    assert rig.store.room, "while a tree is looked for more may be pending"
    rig.accept("i", ("y",), *range(1, count + 1))
    assert rig.port.of(RoomAgain) == [RoomAgain()]


def test_bytes_bound_what_is_pending_as_pairs_do() -> None:
    rig = Rig(1, 2, 3, most=250)  # each counts for 100
    assert not rig.store.room
    rig.store.await_room()
    assert rig.store.bytes == 300
    rig.accept("h", ("x",), 1, 2, 3)
    assert not rig.store.room, "the other tree has not accepted"
    rig.accept("i", ("y",), 1)
    assert rig.store.room
    assert rig.port.of(RoomAgain) == [RoomAgain()]
    rig.store.host_lost("i")  # gives each event its own record
    rig.accept("i", ("y",), 2)
    assert rig.store.bytes == 100
    rig.accept("i", ("y",), 3)
    assert rig.store.bytes == 0


def test_what_needs_no_host_leaves_room() -> None:
    rig = Rig(most=250)
    pairs = rig.store.add_single([event(1), event(2)], ["x", "y"], 150)
    assert not rig.store.room
    rig.store.drop(pairs[:2])
    assert rig.store.bytes == 150
    assert rig.store.room
