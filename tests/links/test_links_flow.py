"""M3 and V3: batches, credits, cumulative acknowledgement, retransmission, digests, bounds."""

from __future__ import annotations

import zlib
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from harness.link_world import LinkWorld, Note, Urgent
from harness.list_codec import ListCodec
from overlay.links.events import TOO_LARGE, LinkCongested, LinkRelieved, MessageDropped
from overlay.links.messages import BATCH_OVERHEAD, MAX_BODY, Ack, Batch, Bye
from overlay.links.receive_buffer import unpack
from overlay.links.send_buffer import SendBuffer
from overlay.machine import ProtocolError
from overlay.settings import LinkSettings

CODEC = ListCodec(Note, Urgent)


def send_buffer(credit: int = 1 << 20, **changed: int) -> SendBuffer:
    box = SendBuffer(LinkSettings(**changed), CODEC)  # type: ignore[arg-type]
    box.credit = credit
    return box


def put(box: SendBuffer, *numbers: int, size: int = 10) -> None:
    for number in numbers:
        note = Note(number, "x" * size)
        assert box.enqueue(CODEC.encode_one(note), note)


def cut_all(box: SendBuffer) -> list[list[int]]:
    batches = []
    while (sent := box.next_batch()) is not None:
        assert CODEC.decode(sent.body) == list(sent.messages)
        batches.append([note.number for note in sent.messages if isinstance(note, Note)])
    return batches


def test_a_batch_is_cut_at_the_frames_size() -> None:
    box = send_buffer(frame=4_096)
    put(box, *range(10), size=1_000)
    assert cut_all(box) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


def test_a_message_larger_than_a_frame_goes_alone() -> None:
    box = send_buffer(frame=4_096)
    put(box, 0)
    put(box, 1, size=9_000)
    put(box, 2)
    assert cut_all(box) == [[0], [1], [2]]


def test_without_credit_nothing_goes() -> None:
    box = send_buffer(credit=0)
    put(box, 1)
    assert cut_all(box) == []
    box.acknowledge(0, 5_000)
    assert cut_all(box) == [[1]]


def test_a_message_larger_than_the_whole_credit_goes_when_nothing_else_is_under_way() -> None:
    box = send_buffer(credit=5_000)
    put(box, 0, size=3_000)
    put(box, 1, size=8_000)
    assert cut_all(box) == [[0]]
    box.acknowledge(1, 5_000)
    assert cut_all(box) == [[1]]


@pytest.mark.parametrize("size", [8_000, 4_900])
def test_it_goes_though_urgent_messages_overtake_it_all_the_time(size: int) -> None:
    """A primary's heartbeats, four a second, are always in flight where a round trip takes long;
    beside them one that is hardly smaller than the window has no room, either."""
    box = send_buffer(credit=5_000)
    put(box, 0, size=3_000)
    put(box, 1, size=size)
    assert cut_all(box) == [[0]]
    urgent = [Urgent(number) for number in range(2)]
    assert box.enqueue(CODEC.encode_one(urgent[0]), urgent[0])
    first = box.next_batch()
    assert first is not None
    assert first.messages == (urgent[0],)
    assert box.next_batch() is None, "what was sent before it has not arrived"
    assert box.enqueue(CODEC.encode_one(urgent[1]), urgent[1])
    box.acknowledge(1, 5_000)
    second = box.next_batch()
    assert second is not None
    assert second.messages == (urgent[1],)
    assert cut_all(box) == [[1]], "only what has overtaken it is under way"


def test_a_message_larger_than_the_rest_of_the_credit_waits_for_it() -> None:
    box = send_buffer(credit=20_000, frame=4_096)
    put(box, 0, size=8_000)
    put(box, 1, size=15_000)
    assert cut_all(box) == [[0]]
    box.acknowledge(1, 20_000)
    assert cut_all(box) == [[1]]


def test_small_rests_of_credit_are_saved_up() -> None:
    box = send_buffer(credit=10_000, frame=4_096)
    put(box, *range(100), size=1_000)
    before = sum(len(each) for each in cut_all(box))
    box.acknowledge(1, 10_000)
    after = cut_all(box)
    assert before >= 7
    assert all(len(each) >= 3 for each in after)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(1, 6_000)),
        st.tuples(st.just("cut"), st.just(0)),
        st.tuples(st.just("ack"), st.integers(0, 3)),
        st.tuples(st.just("credit"), st.integers(0, 20_000)),
    ),
    max_size=60,
)


@settings(max_examples=150, deadline=None)
@given(STEPS)
@example([("put", 1), ("put", 1), ("credit", 82), ("cut", 0)])  # the joined list's own head
def test_credit_is_never_exceeded_and_nothing_overtakes(steps: list[tuple[str, int]]) -> None:
    box = send_buffer(credit=9_000, frame=4_096)
    number = 0
    sent: list[int] = []
    for step, amount in steps:
        if step == "put":
            put(box, number, size=amount)
            number += 1
        elif step == "ack":
            box.acknowledge(min(box.acknowledged + amount, box.number), box.credit)
        elif step == "credit":
            box.acknowledge(box.acknowledged, amount)
        else:
            before = box.in_flight_bytes
            batch = box.next_batch()
            if batch is None:
                continue
            sent += [note.number for note in batch.messages if isinstance(note, Note)]
            assert box.in_flight_bytes <= box.credit or (before == 0 and len(batch.messages) == 1)
        assert box.in_flight_bytes == sum(len(one.body) + BATCH_OVERHEAD for one in box.in_flight)
        assert box.queued_bytes == sum(len(encoded) for encoded, _ in box.queued)
    assert sent == list(range(len(sent)))
    waiting = [note.number for _, note in box.queued if isinstance(note, Note)]
    assert sent + waiting == list(range(number))
    assert len(box.undelivered()) == number - sum(
        1
        for each in sent
        if each not in [n.number for n in box.undelivered() if isinstance(n, Note)]
    )


def test_an_acknowledgement_is_cumulative_and_old_ones_are_ignored() -> None:
    box = send_buffer()
    for number in range(5):
        put(box, number)
        box.next_batch()
    assert box.acknowledge(3, 1_000)
    assert [sent.number for sent in box.in_flight] == [3, 4]
    assert not box.acknowledge(2, 9)
    assert box.credit == 1_000
    assert not box.acknowledge(3, 2_000)
    assert box.credit == 2_000


@pytest.mark.parametrize(("acknowledged", "credit"), [(2, 10), (0, -1)])
def test_impossible_acknowledgements_break_the_protocol(acknowledged: int, credit: int) -> None:
    box = send_buffer()
    put(box, 0)
    box.next_batch()
    with pytest.raises(ProtocolError):
        box.acknowledge(acknowledged, credit)


def test_a_gap_is_mended_once_for_the_same_number() -> None:
    box = send_buffer()
    for number in range(4):
        put(box, number)
        box.next_batch()
    box.acknowledge(1, 1 << 20)
    assert [sent.number for sent in box.fill_gap(1, 3)] == [1, 2], "the last is there"
    assert box.fill_gap(1, 3) == []
    assert box.fill_gap(0, 3) == []
    box.acknowledge(2, 1 << 20)
    assert box.fill_gap(2, 3) == [], "what is left of it is on its way"
    assert [sent.number for sent in box.fill_gap(2, 4)] == [2, 3]
    assert [sent.number for sent in box.fill_gap(2, 3)] == [2], "lost again, and 3 is there"
    assert box.fill_gap(2, 4) == []
    box.acknowledge(3, 1 << 20)
    assert box.fill_gap(3, 1) == [], "nonsense"


def batch(number: int, body: bytes = b"\x90", compressed: bool = False) -> Batch:
    return Batch(number, 0, 1 << 20, zlib.crc32(body), compressed, body)


def test_large_bodies_are_compressed_where_it_pays() -> None:
    box = SendBuffer(LinkSettings(compress=True), CODEC)
    box.credit = 1 << 20
    put(box, *range(50), size=100)
    sent = box.next_batch()
    assert sent is not None
    assert sent.compressed
    assert len(sent.body) < 1_000
    packed = Batch(0, 0, 0, sent.digest, True, sent.body)
    assert CODEC.decode(unpack(packed.body)) == list(sent.messages)
    put(box, 1)
    small = box.next_batch()
    assert small is not None
    assert not small.compressed
    noise = Note(1, "".join(chr(Random(1).randrange(32, 0x10000)) for _ in range(400)))
    assert box.enqueue(Random(2).randbytes(4_000), noise)
    random = box.next_batch()
    assert random is not None
    assert not random.compressed


@pytest.mark.parametrize(
    "body",
    [
        zlib.compress(b"\0" * (MAX_BODY + 1)),
        zlib.compress(b"\0" * 100 * MAX_BODY, 9),
        zlib.compress(b"hello hello hello")[:-3],
        zlib.compress(b"hello") + b"more",
        b"no zlib",
        b"",
    ],
)
def test_compressed_bodies_that_are_broken_or_bombs_break_the_protocol(body: bytes) -> None:
    with pytest.raises(ProtocolError):
        unpack(body)


def test_the_largest_body_is_unpacked() -> None:
    assert len(unpack(zlib.compress(b"\0" * MAX_BODY))) == MAX_BODY


def test_a_full_queue_drops_the_newest_counts_and_traces() -> None:
    world = LinkWorld()
    a = world.host("a", queue=4_096)
    b = world.host("b")
    a.send(b, *range(10), text="x" * 1_000)
    assert a.counts["link_dropped"] == 6
    kind, fields = a.traces[-1]
    assert kind == "drop"
    assert fields["peer"] == "b"
    assert fields["size"] > 1_000
    assert "queue full" in fields["reason"]
    world.run(1.0)
    assert b.numbers(a) == [0, 1, 2, 3]


def test_a_message_too_large_for_any_frame_is_dropped_and_the_rest_arrives() -> None:
    world = LinkWorld()
    a, b = world.host("a"), world.host("b")
    a.links.send(b.peer, Note(1, "x" * (1 << 20)))
    a.send(b, 2)
    world.run(1.0)
    assert b.numbers(a) == [2]
    assert a.counts["link_dropped"] == 1


def test_a_window_smaller_than_what_is_sent_only_costs_round_trips() -> None:
    world = LinkWorld(delay=0.05)
    a, b = world.host("a"), world.host("b", window=8_192)
    a.send(b, *range(200), text="x" * 500)
    most = 0
    for _ in range(400):
        world.run(0.05)
        [status] = a.links.sessions()
        most = max(most, status.in_flight_bytes)
    assert b.numbers(a) == list(range(200))
    assert 4_096 < most <= 8_192


def test_acknowledgements_ride_on_batches() -> None:
    world = LinkWorld(delay=0.001)
    a, b = world.host("a"), world.host("b")
    b.on_message = lambda peer, note: b.links.send(peer, note)
    a.send(b, 0)
    world.run(0.5)
    acks = len(b.frames(Ack))
    for number in range(1, 50):
        a.send(b, number)
        world.run(0.005)
    assert len(b.frames(Batch)) == 50
    assert len(b.frames(Ack)) == acks
    [status] = a.links.sessions()
    assert status.in_flight_bytes == 0


def test_a_damaged_frame_costs_the_connection_and_is_sent_again() -> None:
    world = LinkWorld(delay=0.01)
    a, b = world.host("a"), world.host("b")
    a.send(b, 0)
    world.run(2.0)
    world.change(damage=1.0)
    a.send(b, 1)
    world.change(damage=0.0)
    world.run(3.0)
    assert b.numbers(a) == [0, 1]
    assert b.counts["link_errors"] >= 1
    assert not a.downs()
    assert not b.downs()


def test_a_link_that_is_damaged_again_and_again_is_not_taken_for_dead() -> None:
    world = LinkWorld(delay=0.01)
    a, b = world.host("a"), world.host("b")
    for number in range(12):
        world.change(damage=1.0)
        a.send(b, number)
        world.change(damage=0.0)
        world.run(5.0)  # well within the minute that makes each fault worse
    assert b.numbers(a) == list(range(12))
    assert b.counts["link_errors"] >= 10
    assert not a.downs()
    assert not b.downs()


def test_a_body_that_does_not_decode_ends_the_session_with_a_reason() -> None:
    world = LinkWorld()
    a, b = world.host("a"), world.host("b")
    a.send(b, 0)
    world.run(1.0)
    [connection] = b.links.connections()
    b.links.on_frame(connection, batch(1, b"\xc1"))
    world.run(0.1)
    assert len(b.downs()) == 1
    assert len(b.frames(Bye)) == 1
    assert len(a.downs()) == 1
    assert b.counts["link_errors"] == 1


@pytest.mark.parametrize("frame", [Ack(77, 1), Ack(0, -5), batch(0)])
def test_what_contradicts_the_session_is_an_error_or_ignored_but_never_taken(
    frame: Ack | Batch,
) -> None:
    world = LinkWorld()
    a, b = world.host("a"), world.host("b")
    a.send(b, 0)
    world.run(1.0)
    [connection] = b.links.connections()
    b.links.on_frame(connection, frame)
    assert len(b.downs()) == (1 if isinstance(frame, Ack) else 0)
    assert b.numbers(a) == [0]


def test_idle_counts_the_data_plane_only() -> None:
    world = LinkWorld()
    a, b = world.host("a"), world.host("b")
    a.send(b, 0)
    assert not a.links.unacknowledged()  # a Note is maintenance
    assert a.links.sessions()[0].queued_bytes > 0


def test_the_deadline_is_kept_cheaply() -> None:
    world = LinkWorld()
    a, b = world.host("a"), world.host("b")
    for number in range(2_000):
        a.send(b, number)
        world.run(0.005)
    world.run(0.1)
    assert b.numbers(a) == list(range(2_000))
    assert len(a.links._deadlines) <= 16  # not one entry per frame
    assert len(a.links._acks) <= 1


def test_a_link_on_which_too_much_waits_is_congested_until_it_has_drained() -> None:
    world = LinkWorld(delay=0.05)
    a = world.host("a", queue=64_000, window=4_096)
    b = world.host("b", window=4_096)
    a.send(b, 0)
    world.run(1.0)
    a.send(b, *range(1, 8), text="x" * 1_000)
    assert not a.of(LinkCongested), "some may wait"
    a.send(b, *range(8, 30), text="x" * 1_000)
    assert [event.peer.id for event in a.of(LinkCongested)] == ["b"], "said once"
    assert not a.of(LinkRelieved)
    world.run(5.0)
    assert b.numbers(a) == list(range(30))
    assert [event.peer.id for event in a.of(LinkRelieved)] == ["b"]


def test_what_is_dropped_is_named() -> None:
    world = LinkWorld()
    a = world.host("a", queue=4_096)
    b = world.host("b")
    a.send(b, *range(5), text="x" * 1_000)
    a.links.send(b.peer, Note(5, "x" * (1 << 20)))
    dropped = a.of(MessageDropped)
    assert [(one.peer.id, one.message.number, one.reason) for one in dropped] == [
        ("b", 4, "queue full"),
        ("b", 5, TOO_LARGE),
    ]
