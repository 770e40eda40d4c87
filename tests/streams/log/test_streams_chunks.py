"""Chunks: read back as they were made or not at all; what they have in them."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.logs import LogWriter, batch, naive_chunks, random_log
from streams.log import state
from streams.log.batches import MalformedChunkError, Row, heads_of, rows_of
from streams.log.chunk import CHUNK_MOST, EVENTS, HEAD, STATE, ChunkId, genesis, pack, read
from streams.log.state import ShardState, entries_of
from streams.log.zones import decode_zones, encode_zones, zone_map


@settings(max_examples=40)
@given(
    epoch=st.integers(0, 2**64 - 1),
    number=st.integers(0, 2**64 - 2),
    first=st.integers(0, 2**63),
    rows=st.binary(max_size=200),
    zones=st.binary(max_size=50),
)
def test_a_chunk_is_read_back_as_it_was_made(
    epoch: int, number: int, first: int, rows: bytes, zones: bytes
) -> None:
    made = pack(EVENTS, epoch, ChunkId(number, b"h" * 32), first, 3, 9, rows, zones=zones)
    assert read(b"..." + made.data + b"...", 3) == made
    assert (made.rows, made.zones, made.next_offset) == (rows, zones, first + 3)
    (found,) = naive_chunks(made.data)
    assert found == (number + 1, epoch, first, 3, made.hash)


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32), bit=st.integers(0, 2**32))
def test_no_flipped_bit_is_read(seed: int, bit: int) -> None:
    data = bytearray(Random(seed).choice(random_log(Random(seed), 4, 1).chunks).data)
    data[bit // 8 % len(data)] ^= 1 << bit % 8
    assert read(bytes(data)) is None


def test_a_part_of_a_chunk_is_no_chunk() -> None:
    made = pack(EVENTS, 1, genesis("s/0"), 0, 1, 0, b"rows")
    assert all(read(made.data[:size]) is None for size in range(len(made.data)))
    with pytest.raises(ValueError, match="longer"):
        pack(EVENTS, 1, genesis("s/0"), 0, 1, 0, bytes(CHUNK_MOST - HEAD.size + 1))


def test_batches_come_back_with_their_rows() -> None:
    batches = (batch("p", 2, 10, 3), batch("", 0, 0, 1))
    chunk = LogWriter()
    chunk.begin_segment()
    made = chunk.events(*batches)
    assert heads_of(made) == tuple(one.head for one in batches)
    assert rows_of(made) == tuple(row for one in batches for row in one.rows)


def test_rows_that_do_not_add_up_are_refused() -> None:
    one = LogWriter()
    one.begin_segment()
    made = one.events(batch("p", 1, 0, 3))
    for offsets, rows in ((2, made.rows), (3, made.rows[:-1]), (3, b"\xff\xff\xff\xff")):
        wrong = pack(EVENTS, 1, one.log.end, 0, offsets, 0, rows)
        with pytest.raises(MalformedChunkError):
            rows_of(wrong)
    with pytest.raises(MalformedChunkError):
        entries_of(pack(STATE, 1, one.log.end, 0, 0, 0, b"\xc1"))


VALUES = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=70)
FINITE = st.floats(allow_nan=False, allow_infinity=False)


@settings(max_examples=40)
@given(st.lists(st.dictionaries(st.sampled_from("abcd"), VALUES | FINITE), max_size=30))
def test_a_zone_map_excludes_no_row(
    found: list[dict[str, bool | int | float | str | None]],
) -> None:
    zones = decode_zones(encode_zones(zone_map(map(Row, found))))
    assert zones is not None
    for attributes in found:
        for name in "abcd":
            value, zone = attributes.get(name), zones.zones.get(name)
            if zone is None:
                assert value is None or not zones.complete
            elif value is None:
                assert zone.absent
            elif isinstance(value, bool):
                assert value in zone.booleans
            elif isinstance(value, str):
                listed = zone.texts
                assert listed[0] <= value <= listed[-1] if zone.ranged else value in listed
            else:
                assert zone.numbers is not None
                assert zone.numbers[0] <= value <= zone.numbers[1]


def test_a_zone_map_is_bounded() -> None:
    zones = zone_map([Row({f"a{n}": n for n in range(1_000)}), Row({"a0": "long" * 100})])
    assert len(zones.zones) < 100
    assert not zones.complete
    assert "a0" not in zones.zones
    assert decode_zones(b"\xc1") is None


def test_a_state_is_what_the_log_before_it_comes_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "STATE_PIECE", 512)
    made = LogWriter()
    made.begin_segment()
    made.events(batch("p", 1, 0, 2), batch("q", 1, 5, 1))
    made.events(batch("p", 1, 2, 1))
    made.cut(2)
    made.events(batch("p", 2, 0, 4))
    producer = made.state.producers["p"]
    assert (producer.session, producer.next, len(producer.window)) == (2, 4, 1)
    assert made.state.floor == 2
    for number in range(50):  # so that it takes several chunks
        made.events(batch(f"producer {number}", 1, 0, 1))
    before = list(made.state.entries())
    made.begin_segment()
    assert sum(chunk.kind == STATE for chunk in made.chunks) > 2
    again = ShardState()
    for chunk in made.chunks[-60:]:
        if chunk.kind == STATE:
            again.apply(chunk)
    assert list(again.entries()) == before


def test_a_state_counts_when_it_is_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "STATE_PIECE", 512)
    made = LogWriter()
    made.state.floor = 7
    for number in range(200):
        made.state.producers[f"p{number}"] = state.ProducerState(f"p{number}", 1, 0, ())
    made.begin_segment()
    assert len(made.chunks) > 1
    again = ShardState()
    for chunk in made.chunks[:-1]:
        again.apply(chunk)
    assert not again.producers
    again.apply(made.chunks[-1])
    assert again.same(made.state)
