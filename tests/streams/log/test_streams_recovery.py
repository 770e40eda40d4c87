"""A shard's folder read at start, after everything that a disk or a crash does to it."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.logs import SHARD, LogWriter, batch, naive_chunks, random_log
from streams.log.chunk import BEGINS, genesis
from streams.log.recovery import Recovered, recover
from streams.log.shard_log import ShardLog, parse_name
from streams.log.state import ShardState

SEEDS = st.integers(0, 2**32)


def recovered(made: LogWriter, files: dict[str, bytes] | None = None) -> Recovered:
    there = {name: bytes(data) for name, data in made.files.items()} if files is None else files
    return recover(SHARD, [*there, "promise", "x.log"], lambda name: there[name])


@settings(max_examples=40)
@given(SEEDS)
def test_a_whole_folder_is_read_from_its_newest_segment(seed: int) -> None:
    made = random_log(Random(seed))
    read: list[str] = []
    found = recover(SHARD, list(made.files), lambda name: (read.append(name), made.load(name))[1])
    assert not found.torn
    assert not found.holes
    assert read == [max(made.files)]
    assert found.log.end == made.log.end
    assert found.log.position == made.log.position
    assert found.log.next_offset == made.log.next_offset
    assert found.state.same(made.state)
    assert found.committed == made.log.end.number - 1


@settings(max_examples=40)
@given(SEEDS)
def test_a_torn_tail_leaves_what_is_before_it(seed: int) -> None:
    rng = Random(seed)
    made = random_log(rng)
    newest = max(made.files)
    whole = made.load(newest)
    at = rng.randrange(len(whole))
    how = rng.randrange(3)
    torn = whole[:at]
    if how == 1:
        torn += bytes(len(whole) - at)
    elif how == 2:  # a crash in an overwritten sector
        torn += rng.randbytes(len(whole) - at)
    found = recovered(made, {**made.files, newest: torn})
    left = naive_chunks(torn)
    expected = left[-1][0] if left else parse_name(newest)[1] - 1  # type: ignore[index]
    assert found.log.end.number == expected
    assert found.log.end.hash == made.chunks[expected - 1].hash
    assert not found.holes
    ends = sum(len(made.chunks[number - 1].data) for number, *_ in left)
    assert found.torn == (ends < len(torn) or not left)
    assert found.surplus == ([] if left else [newest])
    state = ShardState()
    for chunk in made.chunks[:expected]:
        state.apply(chunk)
    assert found.state.same(state)


@settings(max_examples=40)
@given(SEEDS)
def test_damage_in_the_middle_is_a_hole_and_the_position_stays(seed: int) -> None:
    rng = Random(seed)
    made = random_log(rng, 14, 2)
    newest = max(made.files)
    first = parse_name(newest)[1]  # type: ignore[index]
    data = bytearray(made.load(newest))
    last = len(made.chunks[-1].data)
    at = rng.randrange(len(data) - last)
    data[at] ^= 1 << rng.randrange(8)
    found = recovered(made, {**made.files, newest: bytes(data)})
    assert found.torn or found.holes
    assert not found.torn
    assert found.log.end == made.log.end
    (hole,) = [each.hole for each in found.holes if each.segment == newest]
    assert hole.first == hole.last >= first
    damaged = made.chunks[hole.first - 1]
    assert hole.hash == damaged.hash
    assert hole.end - hole.at == len(damaged.data)
    assert hole.at <= at < hole.end
    assert bytes(data[hole.at : hole.end]) != damaged.data
    served = {line.number for line in found.log.lines}
    assert hole.first not in served


def test_a_chunk_that_was_altered_with_its_crc_is_a_hole() -> None:
    made, other = random_log(Random(1), 6, 1), random_log(Random(1), 6, 1)
    assert made.files == other.files
    victim = made.chunks[3]
    changed = LogWriter()
    changed.log.end, changed.log.next_offset = made.chunks[2].id, victim.first
    changed.log.segments = made.log.segments[:1]
    changed.time = victim.time - 7
    forged = changed.events(batch("forged", 1, 0, victim.offsets), epoch=victim.epoch)
    (name,) = made.files
    at = sum(len(chunk.data) for chunk in made.chunks[:3])
    data = made.load(name)
    found = recovered(made, {name: data[:at] + forged.data + data[at + len(victim.data) :]})
    (hole,) = [each.hole for each in found.holes]
    assert (hole.first, hole.last, hole.hash) == (4, 4, victim.hash)


def test_a_segment_that_lost_its_end_before_another_one_is_a_hole() -> None:
    made = LogWriter()
    made.begin_segment()
    made.events(batch("p", 1, 0, 2))
    made.log.segments[-1].began = -10  # no state is complete in the next one
    pieces = made.state.pieces()
    made._add(8, 1, pieces[0][0], flags=BEGINS)
    made.events(batch("p", 1, 2, 2))
    first, second = sorted(made.files)
    whole = recovered(made)
    assert not whole.torn
    assert not whole.holes
    found = recovered(made, {first: made.load(first)[:-1], second: made.load(second)})
    (each,) = found.holes
    assert (each.segment, each.hole.first, each.hole.last) == (first, 2, 2)
    assert each.hole.hash == made.chunks[1].hash
    assert found.log.end == made.log.end


def test_an_empty_folder_is_an_empty_log() -> None:
    found = recover(SHARD, [], lambda name: b"")
    assert not found.torn
    assert not found.holes
    assert found.log.end == genesis(SHARD)
    assert found.log.position == (0, 0)


@settings(max_examples=40)
@given(SEEDS)
def test_a_chunk_follows_on_the_end(seed: int) -> None:
    rng = Random(seed)
    made = random_log(rng)
    log = recover(SHARD, list(made.files), made.load).log
    full = ShardLog(genesis(SHARD))
    for chunk in made.chunks:
        full.add(chunk)
    with pytest.raises(ValueError, match="not follow"):
        full.add(made.chunks[0])
    assert log.has(made.log.end)


@settings(max_examples=40)
@given(SEEDS)
def test_places_by_number_offset_and_time(seed: int) -> None:
    made = random_log(Random(seed))
    log = ShardLog(genesis(SHARD))
    for chunk in made.chunks:
        log.add(chunk)
    wanted = Random(seed).choice(made.chunks)
    for number, first in (
        (wanted.number, wanted.first),
        log.before_time(wanted.time),
        log.before_offset(wanted.first) if wanted.offsets else (wanted.number, wanted.first),
    ):
        assert first <= wanted.first
        place = log.at_number(number)
        assert place is not None
        there = naive_chunks(made.load(place.segment)[place.at :])
        later = [made.load(name) for name in sorted(made.files) if name > place.segment]
        numbers = [number for number, *_ in there]
        numbers += [number for data in later for number, *_ in naive_chunks(data)]
        assert wanted.number in numbers
    assert log.at_number(log.end.number + 1) is None


def test_retention_keeps_what_recovery_needs() -> None:
    made = random_log(Random(3), 20, 4)
    names = sorted(made.files)
    log = recover(SHARD, names, made.load).log
    assert log.retain(0, log.end.number) == []
    second = parse_name(names[1])
    assert second is not None
    assert log.retain(second[0], log.end.number) == names[:1]
    assert log.retain(log.next_offset, second[1]) == []
    assert log.retain(log.next_offset, log.end.number) == names[1:-1]
    assert [segment.name for segment in log.segments] == names[-1:]
    assert log.before_offset(0) == (log.start, log.first_offset)
