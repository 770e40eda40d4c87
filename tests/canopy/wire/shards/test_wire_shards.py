"""The disk of shards over real files: order, group commit, faults, and what a crash leaves."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import io
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import trio

from canopy.wire.driver import TrioDriver
from canopy.wire.durable import sync_data
from canopy.wire.log import Log
from canopy.wire.shards import log_disk, shard_files
from harness.logs import SHARD, batch
from overlay.machine import LocalEvent
from streams.disk import DiskFailed, ReadDone, Written
from tests.support.real.echo_node import EchoNode, NoOutputs
from tests.support.real.wire_rig import PATIENCE
from tests.support.shards.disk_rig import Gate, Rig, piece_of, small_log

OTHER = "stream/1"


# --- what is written ---


def test_what_is_written_is_there_when_the_folder_is_opened_again(
    tmp_path: Path, rigs: Callable[..., Rig]
) -> None:
    one, log = rigs(tmp_path), small_log()
    assert not one.opened().found.log.end.number
    one.disk.put(SHARD, b"old")
    one.append(log)
    log.begin_segment()
    log.events(batch("p", 1, 6, 1))
    one.append(log, first=5)
    one.answer(one.disk.put(SHARD, b"new"), Written)
    for again in (one, rigs(tmp_path)):
        opened = again.opened()
        assert not opened.found.torn
        assert not opened.found.holes
        assert opened.found.log.end == log.log.end
        assert (opened.hard_state, opened.damaged) == (b"new", False)
    line = log.log.line(2)
    assert line is not None
    ticket = one.disk.read(SHARD, line.segment, line.at, line.length)
    assert one.answer(ticket, ReadDone).data == log.chunks[1].data
    assert one.answer(one.disk.read(SHARD, line.segment, 10**6, 5), ReadDone).data == b""


def test_a_segment_is_cut_and_dropped(tmp_path: Path, rigs: Callable[..., Rig]) -> None:
    one, log = rigs(tmp_path), small_log()
    one.opened()
    one.append(log)
    line = log.log.line(3)
    assert line is not None
    one.disk.cut(SHARD, line.segment, line.at)
    assert one.opened().found.log.end.number == 2
    one.disk.drop(SHARD, line.segment)
    one.disk.drop(SHARD, line.segment)
    one.disk.cut(SHARD, line.segment, 0)
    assert not one.opened().found.log.segments


def test_answers_come_in_the_order_of_the_requests(
    tmp_path: Path, rigs: Callable[..., Rig]
) -> None:
    one = rigs(tmp_path)
    logs = {shard: small_log(shard, 20) for shard in (SHARD, OTHER)}
    for shard in logs:
        one.disk.open(shard)
    last = 0
    for place in range(20):
        for shard, log in logs.items():
            line = log.log.line(place + 1)
            assert line is not None
            one.disk.write(shard, line.segment, line.at, log.chunks[place].data)
            if place % 5 == 0:
                one.disk.put(shard, b"%d" % place)
            last = one.disk.read(shard, line.segment, line.at, 4)
    one.answer(last, ReadDone)
    for shard in logs:
        answered = [e for e in one.events if getattr(e, "shard", "") == shard]
        tickets = [getattr(event, "ticket", 0) for event in answered]
        assert tickets == sorted(tickets)
        assert len(tickets) == 1 + 20 * 2 + 4


def test_what_comes_during_a_sync_shares_the_next_one(
    tmp_path: Path, rigs: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = rigs(tmp_path)
    logs = {shard: small_log(shard, 50) for shard in (SHARD, OTHER)}
    for shard in logs:
        one.opened(shard)
    gate = Gate(monkeypatch)
    one.disk.write(SHARD, *piece_of(logs[SHARD], 1))
    one.disk.hand_over()
    gate.entered()
    last = 0
    for shard, log in logs.items():
        for number in range(2, 40):
            last = one.disk.write(shard, *piece_of(log, number))
            one.disk.hand_over()
    gate.open()
    one.answer(last, Written)
    assert gate.calls == 1 + len(logs)
    for shard, log in logs.items():
        assert one.opened(shard).found.log.end == log.chunks[38].id


def test_nothing_is_answered_before_it_is_synced(
    tmp_path: Path, rigs: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, log = rigs(tmp_path), small_log()
    one.opened()
    gate = Gate(monkeypatch)
    ticket = one.append(log)
    gate.entered()
    assert not [event for event in one.look() if isinstance(event, Written)]
    gate.open()
    one.answer(ticket, Written)


def test_what_a_read_has_handed_to_the_system_is_synced_too(
    tmp_path: Path, rigs: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read needs what is to be written before it in the file; that is not durable by the write
    that follows."""
    one, log = rigs(tmp_path), small_log()
    one.opened()
    synced: list[int] = []
    sync = os.fdatasync

    def noted(file: int) -> None:
        synced.append(os.fstat(file).st_size)
        sync(file)

    gate = Gate(monkeypatch)  # so that the requests below are carried out together
    first = piece_of(log, 1)
    one.disk.write(SHARD, *first)
    one.disk.hand_over()
    gate.entered()
    monkeypatch.setattr(os, "fdatasync", noted)
    one.disk.write(SHARD, *piece_of(log, 2))
    one.disk.read(SHARD, first[0], 0, 4)
    ticket = one.disk.write(SHARD, *piece_of(log, 3))
    gate.open()
    one.answer(ticket, Written)
    assert synced == [sum(len(chunk.data) for chunk in log.chunks[:3])]


def test_what_comes_before_a_vote_is_durable_before_it_and_the_vote_before_the_rest(
    tmp_path: Path, rigs: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later write that is on disk without the promise before it would be taken for one of the
    epoch that was promised earlier."""
    one, log = rigs(tmp_path), small_log()
    one.opened()
    steps: list[str] = []

    def note(name: str) -> None:
        original = getattr(os, name)

        def noted(*arguments: object, **named: object) -> object:
            steps.append(name)
            assert name != "pwritev" or arguments[3] == shard_files.DURABLY
            return original(*arguments, **named)

        monkeypatch.setattr(os, name, noted)

    gate = Gate(monkeypatch)  # so that the requests below are carried out together
    one.disk.write(SHARD, *piece_of(log, 1))
    one.disk.hand_over()
    gate.entered()
    for name in ("pwritev", "rename", "replace", "fsync"):
        note(name)
    one.disk.write(SHARD, *piece_of(log, 2))
    one.disk.put(SHARD, b"promise")
    ticket = one.disk.write(SHARD, *piece_of(log, 3))
    gate.open()
    one.answer(ticket, Written)
    steps = [step.replace("rename", "replace") for step in steps]
    while steps[0] != "pwritev":  # of the write before
        steps.pop(0)
    assert steps == ["pwritev", "fsync", "replace", "fsync", "pwritev"]


@pytest.mark.parametrize("lines", [1, 40, 300])
def test_what_was_answered_survives_the_kill_of_its_process(
    tmp_path: Path, rigs: Callable[..., Rig], lines: int
) -> None:
    command = [sys.executable, "-m", "tests.support.real.shard_writer", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        said = [int(child.stdout.readline()) for _ in range(lines)]
        child.kill()
        said += [int(line) for line in child.stdout.read().splitlines() if line]
    opened = rigs(tmp_path).opened()
    assert opened.hard_state == b"promise"
    assert not opened.found.holes
    assert opened.found.log.end.number >= max(said) == len(said)


# --- faults ---


@pytest.mark.parametrize(
    ("number", "full"),
    [(errno.EIO, False), (errno.ENOSPC, True), (errno.EROFS, False), (errno.EACCES, False)],
)
@pytest.mark.parametrize("name", ["pwritev", "fdatasync"])
@pytest.mark.parametrize("own", [False, True])
def test_a_refused_write_fails_all_later_ones_of_its_shard_until_it_is_opened(
    tmp_path: Path,
    rigs: Callable[..., Rig],
    monkeypatch: pytest.MonkeyPatch,
    idle: float,
    number: int,
    full: bool,
    name: str,
    own: bool,
) -> None:
    if name == "fdatasync":
        monkeypatch.setattr(shard_files, "DURABLY", 0)  # as where the system has no such writes
    one = rigs(tmp_path)
    one.idle = idle if own else 0.0
    mine, other = small_log(), small_log(OTHER)
    for shard in (SHARD, OTHER):
        one.opened(shard)
    one.answer(one.disk.write(SHARD, *piece_of(mine, 1)), Written)
    with monkeypatch.context() as patch:
        patch.setattr(os, name, _refusing(getattr(os, name), number, tmp_path / "streams" / SHARD))
        failed = one.answer(one.disk.write(SHARD, *piece_of(mine, 2)), DiskFailed)
        assert (failed.shard, failed.full) == (SHARD, full)
        assert failed.reason == os.strerror(number)
    assert "shard_failed" in one.log.getvalue()
    again = one.disk.write(SHARD, *piece_of(mine, 3))
    read = one.disk.read(SHARD, piece_of(mine, 1)[0], 0, 4)
    put = one.disk.put(SHARD, b"promise")
    whole = one.append(other, OTHER)
    for ticket in (again, read, put):
        one.answer(ticket, DiskFailed)
    one.answer(whole, Written)
    opened = one.opened()
    assert opened.found.log.end.number in (1, 2)
    assert opened.hard_state is None
    first = opened.found.log.end.number + 1
    one.answer(one.append(mine, first=first), Written)
    assert one.opened().found.log.end == mine.log.end


def test_a_failure_that_repeats_is_one_line_of_the_log(
    rigs: Callable[..., Rig], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard_files, "DURABLY", 0)
    one = rigs(tmp_path)
    log = small_log(chunks=9)

    def write(*, fails: bool) -> None:
        following = piece_of(log, one.opened().found.log.end.number + 1)
        with monkeypatch.context() as patch:
            if fails:
                folder = tmp_path / "streams" / SHARD
                patch.setattr(os, "fdatasync", _refusing(os.fdatasync, errno.EIO, folder))
            one.answer(one.disk.write(SHARD, *following), DiskFailed if fails else Written)

    lines = []
    for fails in (False, True, True, False, True):
        write(fails=fails)
        lines.append(one.log.getvalue().count("shard_failed"))
    assert lines == [0, 1, 1, 1, 2]


def test_macos_writes_through_the_cache_of_the_drive(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no fdatasync, and its fsync leaves data there."""
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.delattr(os, "fdatasync")
    monkeypatch.setattr(fcntl, "F_FULLFSYNC", 51, raising=False)
    monkeypatch.setattr(fcntl, "fcntl", lambda *arguments: asked.append(arguments))
    sync_data(7)
    assert asked == [(7, 51)]


def _refusing(
    original: Callable[..., int], number: int, folder: Path
) -> Callable[[int, object, int], int]:
    """`os.pwritev` or `os.fdatasync` that refuses for files in `folder`."""

    def refuse(file: int, *rest: object) -> int:
        if folder in Path(os.readlink(f"/proc/self/fd/{file}")).parents:
            raise OSError(number, os.strerror(number))
        return original(file, *rest)

    return refuse


def test_a_full_file_system_fails_a_shard_until_there_is_room(
    tmp_path: Path, rigs: Callable[..., Rig]
) -> None:
    mount = ["mount", "-t", "tmpfs", "-o", "size=96k", "tmpfs", str(tmp_path)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("only root may mount a small file system")
    try:
        one, log = rigs(tmp_path), small_log()
        one.opened()
        one.answer(one.disk.put(SHARD, b"promise"), Written)
        (tmp_path / "other").write_bytes(bytes(60_000))
        log.events(batch("p", 1, 6, 1, 50_000))
        failed = one.answer(one.append(log), DiskFailed)
        assert failed.full
        (tmp_path / "other").unlink()
        opened = one.opened()
        assert opened.hard_state == b"promise"
        assert opened.found.torn or opened.found.log.end.number < log.log.end.number
        one.answer(one.append(log, first=opened.found.log.end.number + 1), Written)
        assert one.opened().found.log.end == log.log.end
        one.disk.close(PATIENCE)
    finally:
        subprocess.run(["umount", "-l", str(tmp_path)], check=True)


def test_a_folder_that_was_deleted_under_the_node_fails_its_shard(
    tmp_path: Path, rigs: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard_files, "LOOK", 0.0)
    one, log = rigs(tmp_path), small_log()
    one.opened()
    one.answer(one.disk.write(SHARD, *piece_of(log, 1)), Written)
    for file in (tmp_path / "streams" / SHARD).iterdir():
        file.unlink()
    (tmp_path / "streams" / SHARD).rmdir()
    assert "deleted" in one.answer(one.disk.write(SHARD, *piece_of(log, 2)), DiskFailed).reason
    assert one.opened().damaged


@pytest.mark.parametrize(
    "shard",
    [
        *("", "0", "stream", "../stream/0", "/stream/0", "../0", "a/../0", "a/00", "a/-1"),
        *("a/0/", "a/0\n", "A/0", "a b/0", "a\0/0", "quarantine/0", "stream/1234567", ".a/0"),
    ],
)
def test_a_name_that_is_no_shard_is_refused(
    tmp_path: Path, rigs: Callable[..., Rig], shard: str
) -> None:
    one = rigs(tmp_path / "data")
    (tmp_path / "data").mkdir()
    segment = piece_of(small_log(), 1)[0]
    for ticket in (
        one.disk.open(shard),
        one.disk.put(shard, b"promise"),
        one.disk.write(shard, segment, 0, b"x"),
        one.disk.destroy(shard),
    ):
        assert "no name of a shard" in one.answer(ticket, DiskFailed).reason
    assert list(tmp_path.rglob("*")) == [tmp_path / "data"]


@pytest.mark.parametrize("segment", ["", "promise", "../../state", "/state", "a.log"])
def test_a_name_that_is_no_segment_is_refused(
    tmp_path: Path, rigs: Callable[..., Rig], segment: str
) -> None:
    one = rigs(tmp_path)
    for ask in (
        lambda: one.disk.write(SHARD, segment, 0, b"x"),
        lambda: one.disk.cut(SHARD, segment, 0),
        lambda: one.disk.drop(SHARD, segment),
        lambda: one.disk.read(SHARD, segment, 0, 1),
    ):
        one.opened()
        assert "no name of a segment" in one.answer(ask(), DiskFailed).reason


def test_a_block_that_cannot_be_read_is_damage_of_that_place_only(
    tmp_path: Path, rigs: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, log = rigs(tmp_path), small_log(chunks=300)
    one.opened()
    one.answer(one.append(log), Written)
    name, bad = log.log.segments[-1].name, 3 * 4096 + 17
    pread = os.pread

    def fails(file: int, size: int, at: int) -> bytes:
        if at <= bad < at + size:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return pread(file, size, at)

    monkeypatch.setattr(os, "pread", fails)
    data = bytes(log.files[name])
    expected = data[: 3 * 4096] + bytes(4096) + data[4 * 4096 :]
    read = one.answer(one.disk.read(SHARD, name, 0, 1 << 20), ReadDone)
    assert read.data == expected
    found = one.opened().found
    assert found.log.end == log.log.end
    (hole,) = found.holes
    assert hole.hole.at <= bad < hole.hole.end


def test_a_damaged_promise_is_not_taken_for_none(tmp_path: Path, rigs: Callable[..., Rig]) -> None:
    one = rigs(tmp_path)
    one.opened()
    one.answer(one.disk.put(SHARD, b"promise"), Written)
    path = tmp_path / "streams" / SHARD / "promise"
    data = bytearray(path.read_bytes())
    for place in range(len(data)):
        path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        opened = one.opened()
        assert (opened.hard_state, opened.damaged) == (None, True)
    path.write_bytes(b"")
    assert one.opened().damaged


def test_a_copy_of_a_segment_is_kept_and_is_none(tmp_path: Path, rigs: Callable[..., Rig]) -> None:
    one = rigs(tmp_path)
    one.opened()
    log = small_log()
    one.append(log)
    name = min(log.files)
    one.answer(one.disk.save(SHARD, name), Written)
    one.answer(one.disk.cut(SHARD, name, 10), Written)
    kept = tmp_path / "streams" / SHARD / f"{name}.damaged"
    assert kept.read_bytes() == bytes(log.files[name])
    assert f"kept={kept}" in one.log.getvalue()
    assert f"{name}.damaged" not in {each.name for each in one.opened().found.log.segments}


# --- which shards there are ---


def filled(path: Path, make: Callable[..., Rig], shards: Sequence[str] = (SHARD,)) -> None:
    """Write a log and a promise into each shard, and end."""
    one = make(path)
    for shard in shards:
        one.opened(shard)
        one.append(small_log(shard), shard)
        one.answer(one.disk.put(shard, b"promise"), Written)
    assert one.disk.close(PATIENCE)


def test_a_shard_whose_folder_is_gone_is_damaged_and_not_new(
    tmp_path: Path, rigs: Callable[..., Rig]
) -> None:
    filled(tmp_path, rigs)
    (tmp_path / "streams").rename(tmp_path / "elsewhere")
    for _ in range(2):
        one = rigs(tmp_path)
        assert list(one.disk.shards()) == [SHARD]
        assert "shard_missing" in one.log.getvalue()
        opened = one.opened()
        assert (opened.hard_state, opened.damaged) == (None, True)
        one.answer(one.disk.put(SHARD, b"another"), DiskFailed)
    (tmp_path / "elsewhere").rename(tmp_path / "streams")
    opened = rigs(tmp_path).opened()
    assert (opened.hard_state, opened.damaged) == (b"promise", False)


def test_a_shard_whose_files_are_gone_is_damaged_and_not_new(
    tmp_path: Path, rigs: Callable[..., Rig]
) -> None:
    filled(tmp_path, rigs)
    one = rigs(tmp_path)
    assert not one.opened(OTHER).damaged, "one that has promised nothing yet"
    assert not rigs(tmp_path).opened(OTHER).damaged
    for shard in (SHARD, OTHER):
        for path in (tmp_path / "streams" / shard).iterdir():
            path.unlink()
        for _ in range(2):
            opened = rigs(tmp_path).opened(shard)
            assert (opened.hard_state, opened.damaged) == (None, True)


def test_a_folder_that_is_not_listed_is_set_aside_with_an_alarm(
    tmp_path: Path, rigs: Callable[..., Rig]
) -> None:
    filled(tmp_path, rigs, (SHARD, OTHER))
    for _ in range(2):
        other = tmp_path / "streams" / "other" / "7"
        other.mkdir(parents=True)
        (other / "data").write_bytes(b"x")
        for number in (8, 9):
            (tmp_path / "streams" / "other" / str(number)).mkdir()
        (tmp_path / "streams" / "other" / "9" / "promise").write_bytes(bytes(4))
        one = rigs(tmp_path)
        assert list(one.disk.shards()) == [SHARD, OTHER]
        assert "shard_set_aside shard=other/7" in one.log.getvalue()
        assert "other/8" not in one.log.getvalue()
        assert "other/9" not in one.log.getvalue()
        assert not list((tmp_path / "streams" / "other").iterdir())
    kept = tmp_path / "streams" / "quarantine"
    assert [(kept / name / "data").read_bytes() for name in ("other.7", "other.7.1")] == [b"x"] * 2
    assert not one.opened("other/7").damaged


def test_a_lost_list_is_made_from_the_folders(tmp_path: Path, rigs: Callable[..., Rig]) -> None:
    filled(tmp_path, rigs)
    path = tmp_path / "shards"
    whole = path.read_bytes()
    for content in (None, b"", whole[:-3], whole.replace(SHARD.encode(), OTHER.encode())):
        path.unlink() if content is None else path.write_bytes(content)
        one = rigs(tmp_path)
        assert "shard_list_lost" in one.log.getvalue()
        assert list(one.disk.shards()) == [SHARD]
        assert one.opened().hard_state == b"promise"
        assert path.read_bytes() == whole


def test_under_another_id_a_node_has_none_of_its_shards(
    tmp_path: Path, rigs: Callable[..., Rig]
) -> None:
    filled(tmp_path, rigs)
    one = rigs(tmp_path, "b" * 16)
    assert not one.disk.shards()
    assert (tmp_path / "streams" / "quarantine" / "stream.0" / "promise").exists()
    opened = one.opened()
    assert (opened.hard_state, opened.damaged) == (None, False)


def test_a_destroyed_shard_is_gone_also_after_a_crash_in_between(
    tmp_path: Path, rigs: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(tmp_path, rigs, (SHARD, OTHER))
    one = rigs(tmp_path)
    one.opened(OTHER)
    one.answer(one.disk.destroy(OTHER), Written)
    assert not (tmp_path / "streams" / OTHER).exists()
    one.answer(one.disk.destroy(OTHER), Written)

    def crash(path: Path) -> None:
        raise OSError(errno.EIO, "no power")

    with monkeypatch.context() as patch:
        patch.setattr("shutil.rmtree", crash)
        one.answer(one.disk.destroy(SHARD), DiskFailed)
    assert (tmp_path / "streams" / SHARD).exists()
    assert not rigs(tmp_path).disk.shards()
    assert list((tmp_path / "streams").iterdir()) == []
    assert not rigs(tmp_path).opened().damaged


# --- the thread, and the node ---


def test_what_was_asked_for_is_durable_when_the_process_ends(
    tmp_path: Path, rigs: Callable[..., Rig]
) -> None:
    one, log = rigs(tmp_path), small_log(chunks=40)
    one.disk.open(SHARD)
    one.append(log)
    assert one.disk.close(PATIENCE)
    assert rigs(tmp_path).opened().found.log.end == log.log.end


def test_a_disk_that_does_not_answer_does_not_hold_up_the_end(
    tmp_path: Path, rigs: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, log = rigs(tmp_path), small_log()
    one.opened()
    gate = Gate(monkeypatch)
    one.append(log)
    gate.entered()
    assert not one.disk.close(0.01)
    gate.open()


def test_files_of_shards_that_are_not_written_are_closed(
    tmp_path: Path, rigs: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_disk, "SHARDS_OPEN", 2)
    one = rigs(tmp_path)
    for _ in range(2):
        for number in range(4):
            shard = f"stream/{number}"
            one.opened(shard)
            one.answer(one.append(small_log(shard), shard), Written)
    assert len(_open_below(tmp_path)) == 2


def _open_below(folder: Path) -> list[str]:
    """The files that this process has open in `folder`."""
    names = []
    for file in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # closed since
            names.append(os.readlink(f"/proc/self/fd/{file}"))
    return [name for name in names if name.startswith(f"{folder}/")]


@pytest.mark.trio
async def test_a_driver_hands_the_answers_that_are_there_to_its_node_in_one_turn(
    tmp_path: Path, rigs: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = rigs(tmp_path).disk
    driver = TrioDriver(Log("debug", io.StringIO()), shards=disk)
    node = EchoNode(driver)
    driver.attach(node, NoOutputs())
    log = small_log()
    driver.logs.open(SHARD)

    async def answered(count: int) -> list[tuple[LocalEvent, ...]]:
        with trio.fail_after(PATIENCE):
            while True:
                turns = [each[1:] for each in node.inputs if each[0] == "disk"]
                if sum(map(len, turns)) >= count:
                    return turns
                await trio.sleep(0.001)

    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        await nursery.start(driver.run, listeners)
        await answered(1)
        gate = Gate(monkeypatch)
        driver.turn(driver.logs.write, SHARD, *piece_of(log, 1))
        await trio.to_thread.run_sync(gate.entered)
        for number in range(2, 5):
            driver.turn(driver.logs.write, SHARD, *piece_of(log, number))
        gate.open()
        turns = await answered(5)
        nursery.cancel_scope.cancel()
    # The three that waited are one group commit; the first may still wait with them.
    assert len(turns[-1]) in (3, 4)
    assert all(isinstance(event, Written) for turn in turns[1:] for event in turn)


@pytest.mark.trio
async def test_a_fault_of_the_program_in_the_thread_ends_the_process(
    tmp_path: Path, rigs: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = rigs(tmp_path).disk
    driver = TrioDriver(Log("debug", io.StringIO()), shards=disk)
    driver.attach(EchoNode(driver), NoOutputs())

    def wrong(self: object) -> list[str]:
        raise ZeroDivisionError

    monkeypatch.setattr("canopy.wire.shards.shard_files.ShardFiles.open", wrong)
    driver.logs.open(SHARD)
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    with pytest.RaisesGroup(ZeroDivisionError):
        await driver.run(listeners)
