"""Credits between a node and one client: never beyond them, nothing overtakes, exact losses."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canopy.wire.control.client_output import DELIVERED, GATHERED
from canopy.wire.control.credit_window import FRAME_OVERHEAD, CreditWindow, DroppedRun
from overlay.client import Event

FRAME = 400


def event(number: int) -> Event:
    return Event("p", 1, number, float(number), {})


class Way:
    """A node's side and a program's, with nothing between them; what is in a piece is its number
    and padding. Keeps book of what was offered and of all that left."""

    def __init__(self, credit: int, queue: int) -> None:
        self.window = CreditWindow(credit, queue, FRAME)
        self.credit = credit
        self.offered = 0
        self.left: list[int | DroppedRun] = []  # numbers of deliveries, and gaps
        self.unseen: list[tuple[int, int]] = []  # per frame: bytes, deliveries
        self.consumed = 0

    def offer(self, kind: int, size: int) -> None:
        """One delivery, as the control socket does it."""
        piece = b"%08d" % self.offered + bytes([kind]) * size
        if self.window.fits(len(piece)):
            self.send(kind, [piece])
        elif self.window.has_room(len(piece)):
            self.window.enqueue(kind, piece)
        else:
            self.window.drop(event(self.offered))
        self.offered += 1
        self.release()

    def release(self) -> None:
        while (found := self.window.next_run()) is not None:
            if isinstance(found, DroppedRun):
                self.left.append(found)
            else:
                self.send(found.kind, found.encoded)

    def send(self, kind: int, pieces: list[bytes]) -> None:
        before = self.window.under_way
        size = sum(map(len, pieces)) + 21
        self.window.note_sent(size)
        largest_alone = len(pieces) == 1 and before * 2 <= self.window.credit
        assert before + size <= self.window.credit or largest_alone
        assert {*b"".join(piece[8:] for piece in pieces)} <= {kind}
        self.left += [int(piece[:8]) for piece in pieces]
        self.unseen.append((size, len(pieces)))

    def consume(self, frames: int) -> None:
        """The program asks, and the library grants when that is half of the credit."""
        for size, _ in self.unseen[:frames]:
            self.consumed += size
        del self.unseen[:frames]
        if self.consumed - self.window.consumed >= self.credit // 2:
            self.window.grant(self.consumed, self.credit)
            self.release()

    @property
    def accounted(self) -> int:
        """Deliveries that left or whose loss was reported, each in its place."""
        number = 0
        for one in self.left:
            if isinstance(one, DroppedRun):
                assert one.first == event(number).identity
                assert one.since == number
                number += one.count
                assert one.last == event(number - 1).identity
                assert one.until == number - 1
            else:
                assert one == number
                number += 1
        return number


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("offer"), st.sampled_from([DELIVERED, GATHERED]), st.integers(0, 1_500)),
        st.tuples(st.just("consume"), st.just(0), st.integers(1, 10)),
    ),
    max_size=150,
)


@given(STEPS, st.integers(64, 2_000), st.integers(100, 3_000))
def test_never_beyond_the_credit_in_order_and_every_loss_reported_once(
    steps: list[tuple[str, int, int]], credit: int, queue: int
) -> None:
    way = Way(credit, queue)
    for what, kind, size in steps:
        if what == "offer":
            way.offer(kind, size)
        else:
            way.consume(size)
        assert way.window.waiting_bytes <= max(queue, 1_508)
        assert way.accounted <= way.offered
    while way.unseen:  # a program that asks gets it all, and stalls never
        way.consume(1)
    assert not way.window
    assert way.accounted == way.offered
    lost = sum(one.count for one in way.left if isinstance(one, DroppedRun))
    assert lost == way.window.dropped
    gaps = [isinstance(one, DroppedRun) for one in way.left]
    assert (True, True) not in list(pairwise(gaps)), "one gap is reported once"


def test_what_waits_is_kept_and_the_newest_is_dropped_until_half_is_free() -> None:
    way = Way(1_000, 1_000)
    for _ in range(40):
        way.offer(DELIVERED, 92)  # 100 bytes, 121 as a frame
    assert way.left == list(range(8))
    assert way.window.waiting_bytes == 1_000
    assert way.window.dropped == 40 - 8 - 10
    way.consume(8)
    assert way.left == list(range(17)), "as much as the credit allows"
    assert way.window.waiting_bytes == 100, "more than half of the queue is free"
    way.offer(DELIVERED, 92)
    assert way.window.waiting_bytes == 200, "behind what waits; the gap has its place between"
    way.consume(9)
    (gap,) = [one for one in way.left if isinstance(one, DroppedRun)]
    assert (gap.first, gap.last, gap.count) == ("p.1.18", "p.1.39", 22)
    assert way.left[17:] == [17, gap, 40]


def test_a_frames_overhead_is_reserved() -> None:
    assert FRAME_OVERHEAD >= 21


def test_a_frame_has_one_kind_and_the_order_stays() -> None:
    way = Way(1_000, 1_000)
    for number in range(40):
        way.offer((DELIVERED, GATHERED)[number // 3 % 2], 30)
    while way.unseen:
        way.consume(1)
    assert (way.accounted, way.window.dropped) == (40, 0)


def test_a_client_that_is_always_too_slow_is_informed_of_few_gaps() -> None:
    way = Way(1_000, 8_000)
    for number in range(2_000):
        way.offer(DELIVERED, 92)
        if number % 16 == 0:
            way.consume(1)  # up to four, a quarter of what comes
    ends = [place for place, one in enumerate(way.left) if isinstance(one, DroppedRun)]
    between = [after - before - 1 for before, after in pairwise(ends)]
    assert len(between) > 2
    assert min(between) >= 40, "half of the queue, though the client grants for five at a time"


def test_a_client_may_take_less_and_nothing_but_never_more_than_the_most() -> None:
    way = Way(1_000, 1 << 20)
    way.window.grant(0, 0)
    way.offer(DELIVERED, 10)
    assert way.left == [], "no credit, not even for one"
    way.window.grant(0, 1 << 40)
    assert way.window.credit == 1_000
    way.release()
    assert way.left == [0]


def test_impossible_grants_are_refused() -> None:
    way = Way(1_000, 1_000)
    way.offer(DELIVERED, 100)
    window = way.window
    assert window.sent > 100
    for consumed, credit in ((window.sent + 1, 10), (-1, 10), (0, -1)):
        with pytest.raises(ValueError, match="a grant"):
            window.grant(consumed, credit)
    window.grant(window.sent, 10)
    with pytest.raises(ValueError, match="a grant"):
        window.grant(window.sent - 1, 10)
