"""What is damaged in files of replicas leaves every row whole on some disk."""

from __future__ import annotations

import time
from itertools import combinations
from pathlib import Path
from random import Random

import pytest

from bench.processes import set_clock
from bench.streams.hostile.disks import (
    Altered,
    Damage,
    Deleted,
    delete_segment,
    file_of,
    flip_bits,
    segments,
)
from streams.log.chunk import CHUNK_MOST

SIZE = 12 * CHUNK_MOST


@pytest.mark.parametrize("seed", range(3))
def test_no_place_is_damaged_in_two_replicas(tmp_path: Path, seed: int) -> None:
    rng = Random(seed)
    for node in "012":
        for shard in "01":
            for name in ("0-1.log", "70-9.log"):
                path = tmp_path / node / "streams" / "abc" / shard / name
                path.parent.mkdir(parents=True, exist_ok=True)
                with path.open("wb") as file:
                    file.truncate(SIZE)
    done: list[Damage] = []
    for _ in range(60):
        node = rng.choice("012")
        way = rng.choice((flip_bits, flip_bits, flip_bits, delete_segment))
        found = way(node, segments(tmp_path / node), rng, done)
        done += [found] if found is not None else []
    assert {type(each) for each in done} == {Altered, Deleted}
    assert all(each.is_there() for each in done)
    for one, other in combinations(done, 2):
        if file_of(one.path) == file_of(other.path) and one.node != other.node:
            assert isinstance(one, Altered)
            assert isinstance(other, Altered)
            assert abs(one.at - other.at) >= 2 * CHUNK_MOST


def test_what_was_written_again_is_not_damaged_any_more(tmp_path: Path) -> None:
    path = tmp_path / "streams" / "abc" / "0" / "0-1.log"
    path.parent.mkdir(parents=True)
    path.write_bytes(bytes(SIZE))
    altered = flip_bits("0", segments(tmp_path), Random(1), ())
    assert altered is not None
    path.write_bytes(bytes(SIZE))
    assert not altered.is_there()
    deleted = delete_segment("0", segments(tmp_path), Random(1), ())
    assert deleted is not None
    assert deleted.is_there()
    path.write_bytes(bytes(SIZE))
    assert not deleted.is_there()


def test_a_nodes_wall_clock_follows_its_file_and_the_others_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(set_clock, "time", clock := Clock())
    file = tmp_path / "clock"
    set_clock.set_ahead(file, 0.0)
    set_clock.shift(file)
    assert clock.time() == 1_000.0
    set_clock.set_ahead(file, -300.5)
    assert (clock.time(), clock.time_ns()) == (699.5, 699_500_000_000)
    assert time.time() > 1e9


class Clock:
    """A machine's clock that stands still."""

    def time(self) -> float:
        return 1_000.0

    def time_ns(self) -> int:
        return 1_000_000_000_000
