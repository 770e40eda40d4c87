"""Rows from folders of segments: what is committed, what is damaged, what is chosen."""

from __future__ import annotations

from pathlib import Path

import pytest

from canopy.spark.blocks import blocks
from canopy.spark.rows import RowRange, RowsLostError, ShardEnds, SparkSourceError
from canopy.spark.segments import FolderRows
from harness.logs import LogWriter, batch


def written(*, rows: int = 3, segments: int = 2, chunks: int = 4) -> LogWriter:
    log = LogWriter()
    for _ in range(segments):
        log.begin_segment()
        for _ in range(chunks):
            log.events(batch("p", 1, log.log.next_offset, rows))
    return log


def stored(log: LogWriter, folder: Path) -> Path:
    shard = folder / "stream" / "0"
    shard.mkdir(parents=True)
    for name, data in log.files.items():
        (shard / name).write_bytes(data)
    return folder


def offsets(rows: FolderRows, begin: int, end: int, selector: str = "") -> list[int]:
    pieces = rows.read(RowRange(0, begin, end), selector)
    return [offset for block in blocks(pieces, begin, end) for offset in block.offsets.tolist()]


def test_one_folder_has_what_its_log_says_to_be_committed_and_all_folders_have_more(
    tmp_path: Path,
) -> None:
    log = written()
    one, other = stored(log, tmp_path / "a"), stored(log, tmp_path / "b")
    alone = FolderRows([str(one)], "")
    assert alone.ends() == {0: ShardEnds(0, 21)}, "the last chunk is not known to be committed"
    assert alone.stream_id == "stream"
    assert offsets(alone, 0, 21) == list(range(21))
    assert offsets(alone, 10, 13) == [10, 11, 12]
    both = FolderRows([str(one), str(other / "stream" / "0")], "stream")
    assert both.ends() == {0: ShardEnds(0, 24)}, "both of two replicas have it"
    assert offsets(both, 0, 24) == list(range(24))
    assert both.at_time(log.chunks[6].time) == {0: log.chunks[6].first}
    with pytest.raises(SparkSourceError, match="no segments of stream other"):
        FolderRows([str(one)], "other").ends()


def test_the_chunk_that_only_one_of_all_replicas_has_is_not_read(tmp_path: Path) -> None:
    log = written()
    one = stored(log, tmp_path / "a")
    newest = max(log.files)
    del log.files[newest][-len(log.chunks[-1].data) :]
    other = stored(log, tmp_path / "b")
    assert FolderRows([str(one), str(other)], "").ends() == {0: ShardEnds(0, 21)}


def test_a_damaged_chunk_is_taken_from_another_replica_and_named_if_there_is_none(
    tmp_path: Path,
) -> None:
    log = written()
    one, other = stored(log, tmp_path / "a"), stored(log, tmp_path / "b")
    path = one / "stream" / "0" / min(log.files)
    data = bytearray(path.read_bytes())
    data[len(log.chunks[0].data) + len(log.chunks[1].data) + 150] ^= 1
    path.write_bytes(data)
    with pytest.raises(SparkSourceError, match="the chunk with offset 3 is damaged"):
        offsets(FolderRows([str(one)], ""), 0, 21)
    assert offsets(FolderRows([str(one), str(other)], ""), 0, 24) == list(range(24))


def test_rows_are_chosen_by_content_and_what_is_not_kept_is_said(tmp_path: Path) -> None:
    log = written(segments=3)
    kept = dict(log.files)
    del kept[min(kept)]
    log.files = kept
    rows = FolderRows([str(stored(log, tmp_path / "a"))], "")
    first = rows.ends()[0].first
    assert first == 12
    assert offsets(rows, 12, 33, "n >= 20 AND n < 22") == [20, 21]
    assert offsets(rows, 12, 33, "who = 'q'") == []
    with pytest.raises(RowsLostError, match="12 is the first"):
        offsets(rows, 3, 20)
    with pytest.raises(RowsLostError, match="now there are 33"):
        offsets(rows, 30, 60)


def test_what_is_known_of_a_folder_is_looked_up_again_where_a_task_wants_more(
    tmp_path: Path,
) -> None:
    log = written()
    folder = stored(log, tmp_path / "a") / "stream" / "0"
    rows = FolderRows([str(tmp_path / "a")], "")
    assert offsets(rows, 0, 21) == list(range(21))
    log.events(batch("p", 1, 24, 3))
    (folder / max(log.files)).write_bytes(log.files[max(log.files)])
    assert offsets(rows, 0, 24) == list(range(24))
    (folder / min(log.files)).unlink()
    with pytest.raises(RowsLostError, match="12 is the first"):
        offsets(rows, 0, 24)
    folder.parent.rename(tmp_path / "a" / "founded again")
    wanted = RowRange(0, 12, 24, None, "founded again")
    assert sum(piece.count for piece in rows.read(wanted, "")) == 12
    with pytest.raises(SparkSourceError, match="another stream"):
        next(rows.read(wanted._replace(stream="stream"), ""))
