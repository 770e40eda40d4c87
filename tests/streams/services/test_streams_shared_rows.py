"""Which selectors at the tail match which rows, and rows that readings of one node share."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from canopy.wire.transport.codec import WireCodec, collect
from harness.logs import SHARD, EventBatch, encode_batches
from matching import compile_selector
from streams.log.batches import BatchHead, Row, rows_of
from streams.log.chunk import EVENTS, Chunk, genesis, pack
from streams.programs.reader import messages as consuming
from streams.programs.reader.cursor import Shared
from streams.programs.reader.messages import LooseRows, Piece, Share, SharedRows, cost
from streams.services.read import shard_readings
from streams.services.read.chunk_rows import ChunkRows, RowPieces
from streams.services.read.shard_readings import shared
from streams.services.read.tail import ALIKE_MOST, TailIndex
from tests.streams.programs.reader.reading_world import rows_of_piece
from tests.support.examples import seeds

CODEC = WireCodec(list(collect([consuming]).values()))


def selector(rng: Random) -> str:
    """One of which some can be looked up by a value, and some cannot."""
    key = rng.choice(("a", "b"))
    value = rng.choice(("1", "2", "3", "'1'", "TRUE", "2.0"))
    other = rng.choice(("n > 3", "n < 7", "b IS NULL", "a = b", "n BETWEEN 2 AND 4"))
    return rng.choice(
        (
            f"{key} = {value}",
            f"{key} = {value} AND {other}",
            f"{key} IN (1, 3) AND {other}",
            f"a = {value} OR b = {value}",
            f"a = {value} OR {other}",
            f"{key} = {value} AND {key} <> {value}",
            other,
        )
    )


def attributes(rng: Random) -> dict[str, Any]:
    values = (1, 1.0, 2, 3, "1", True, False, None, float("nan"), "absent")
    row = {name: rng.choice(values) for name in ("a", "b")} | {"n": rng.randrange(10)}
    return {name: value for name, value in row.items() if value != "absent"}


@pytest.mark.parametrize("seed", seeds(20))
def test_the_tail_finds_what_each_selector_means(seed: int) -> None:
    rng = Random(seed)
    index, held = TailIndex(), set[str]()
    for _ in range(6):
        for text in {selector(rng) for _ in range(rng.randrange(30))}:
            if text in held:
                index.remove(text)
                held.remove(text)
            else:
                index.add(text, compile_selector(text))
                held.add(text)
        assert len(index) == len(held)
        batch = [attributes(rng) for _ in range(40)]
        expected = {}
        for text in held:
            predicate = compile_selector(text)
            if places := [n for n, row in enumerate(batch) if predicate.matches(row)]:
                expected[text] = places
        assert index.find(batch) == expected
    for text in held:
        index.remove(text)
    assert not len(index)
    assert index.find(batch) == {}


def test_a_value_that_many_want_is_left_to_the_index() -> None:
    index = TailIndex()
    texts = [f"a = 1 AND n <> {number}" for number in range(ALIKE_MOST + 5)]
    for text in texts:
        index.add(text, compile_selector(text))
    assert len(index._pins) == ALIKE_MOST
    found = index.find([{"a": 1, "n": 0}, {"a": 2, "n": 1}, {"a": 1, "n": 5}])
    assert set(found) == set(texts)
    assert found[texts[0]] == [2]
    assert found[texts[5]] == [0]
    assert found[texts[-1]] == [0, 2]


def chunks(rng: Random, count: int) -> list[RowPieces]:
    made: list[Chunk] = []
    after, first = genesis(SHARD), 0
    for number in range(count):
        rows = tuple(
            Row({"n": place}, bytes(rng.randrange(200))) for place in range(rng.randint(1, 20))
        )
        body = encode_batches([EventBatch(BatchHead("", 0, 0, len(rows)), rows)])
        chunk = pack(EVENTS, 1, after, first, len(rows), 1_000 + number, body)
        made.append(chunk)
        after, first = chunk.id, chunk.next_offset + rng.randrange(3)
    return [RowPieces(chunk, rows_of(chunk)) for chunk in made]


@pytest.mark.parametrize("seed", seeds(12))
def test_rows_are_sent_once_and_each_reading_gets_its_own(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard_readings, "MESSAGE_BYTES", 2_000)
    monkeypatch.setattr(shard_readings, "LISTED_MOST", 7)
    rng = Random(seed)
    opened = chunks(rng, 4)
    rows = ChunkRows(opened)
    number, wanted, expected = 0, [], {}
    for _ in range(rng.randint(1, 12)):
        count = len(rows.attributes())
        places = sorted(rng.sample(range(count), rng.randint(1, count)))
        marks = [(number + n, rng.randrange(50)) for n in range(rng.randint(1, 20))]
        number += len(marks)
        wanted.append((marks, places))
        expected.update({mark: rows.pieces(places) for mark in marks})
        assert rows.cost(places) == sum(map(cost, rows.pieces(places)))
    found: dict[tuple[int, int], tuple[Piece, ...]] = {}
    for message in shared(SHARD, 77, rows, wanted):
        (message,) = CODEC.decode(CODEC.encode([message]))  # type: ignore[assignment]
        assert isinstance(message, SharedRows)
        assert message.position == 77
        offsets = [c.first + place for c in message.chunks for place in c.places]
        assert offsets == sorted(set(offsets)), "each row once"
        used = {row for share in message.shares for row in share.rows}
        assert used == set(range(len(offsets))), "no row that nobody wants"
        assert sum(len(share.readings) for share in message.shares) <= 7
        size = sum(len(row) for chunk in message.chunks for row in chunk.rows)
        assert size <= 2_000 or len({share.rows for share in message.shares}) == 1
        taken = Shared(message)
        for share in message.shares:
            for mark in share.readings:
                assert mark not in found
                found[mark] = taken.pieces(share.rows)
    assert found.keys() == expected.keys()
    for mark, pieces in expected.items():
        assert [p.time for p in found[mark]] == [p.time for p in pieces]
        assert list(map(rows_of_piece, found[mark])) == list(map(rows_of_piece, pieces))


ONE = LooseRows(1, 10, (0, 2), (b"a", b"b"))


@pytest.mark.parametrize(
    ("chunk", "rows"),
    [
        (ONE, (2,)),
        (ONE, (0, 2)),
        (ONE, ()),
        (ONE, (1, 0)),
        (LooseRows(1, 10, (0,), (b"a", b"b")), (0,)),
        (LooseRows(1, 10, (), ()), (0,)),
    ],
)
def test_what_is_no_share_is_refused(chunk: LooseRows, rows: tuple[int, ...]) -> None:
    message = SharedRows(SHARD, 0, (chunk,), (Share(((1, 0),), rows),))
    with pytest.raises(ValueError, match=r"shared rows|shares rows"):
        Shared(message).pieces(rows)
