"""The data folder: one process, one identity, and records that survive a torn write."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from canopy.wire import state_file
from canopy.wire.durable import PRIVATE, FolderError, write_durably
from canopy.wire.folder import DataFolder, control_path


def test_the_id_stays_and_the_incarnation_grows(tmp_path: Path) -> None:
    first = DataFolder(tmp_path / "node")
    first.close()
    second = DataFolder(tmp_path / "node")
    second.close()
    assert second.node == first.node
    assert len(first.node) == 16
    assert (first.incarnation, second.incarnation) == (1, 2)


def test_a_copy_that_is_put_back_uses_no_incarnation_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With all times as they were, as in a snapshot of the whole disk."""
    node, copy = tmp_path / "node", tmp_path / "copy"
    clock, used = 1_800_000_000.0, []
    monkeypatch.setattr(time, "time", lambda: clock)

    def start() -> None:
        with contextlib.closing(DataFolder(node)) as folder:
            used.append(folder.incarnation)

    start()
    for _ in range(3):
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(node, copy)
        for wait in (0.0, 2.5, 60.0, 0.5, -3_600.0):  # the clock is set back, too
            clock += wait
            start()
        clock += 3_700.0
        shutil.rmtree(node)
        copy.rename(node)
        start()
    assert used == sorted(set(used))
    assert used[:6] == [1, 2, 3, 63, 64, 65]


def test_a_folder_without_a_founding_time_counts_its_starts(tmp_path: Path) -> None:
    DataFolder(tmp_path).close()
    path = tmp_path / "node.json"
    node = json.loads(path.read_text())["node"]
    for last, written in enumerate(("null", "1e9", "true", '"x"'), 1):
        path.write_text(f'{{"node": "{node}", "incarnation": {last}, "founded": {written}}}')
        with contextlib.closing(DataFolder(tmp_path)) as folder:
            assert folder.incarnation == last + 1


def test_the_id_of_a_certificate_is_not_used_again_without_its_state(tmp_path: Path) -> None:
    (tmp_path / "keys").mkdir()
    one, two = "a" * 32, "b" * 32
    DataFolder(tmp_path, one).close()
    DataFolder(tmp_path, one).close()
    for name in ("node.json", "state"):
        (tmp_path / name).unlink()
    with pytest.raises(FolderError, match=r"has started before: .* canopy keys renew --new-id"):
        DataFolder(tmp_path, one)
    with contextlib.closing(DataFolder(tmp_path, two)) as folder:
        assert (folder.node, folder.incarnation) == (two, 1)


def test_two_folders_have_two_ids(tmp_path: Path) -> None:
    one, two = DataFolder(tmp_path / "1"), DataFolder(tmp_path / "2")
    assert one.node != two.node
    one.close()
    two.close()


def test_the_folder_is_private(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path / "a" / "node")
    assert stat.S_IMODE(os.stat(folder.path).st_mode) == 0o700
    folder.close()


def test_a_second_process_is_refused_and_learns_who_has_it(tmp_path: Path) -> None:
    first = DataFolder(tmp_path)
    with pytest.raises(FolderError, match=rf"process {os.getpid()}.*--data"):
        DataFolder(tmp_path)
    first.close()
    DataFolder(tmp_path).close()


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"node": "x", "incarnation": 1}', '{"node": 5, "incarnation": 1}',
             '{"node": "0123456789abcdef", "incarnation": true}', "\xff"],
)  # fmt: skip
def test_a_broken_identity_is_reported_and_not_replaced(tmp_path: Path, text: str) -> None:
    (tmp_path / "node.json").write_text(text, encoding="latin-1")
    with pytest.raises(FolderError, match=r"node\.json"):
        DataFolder(tmp_path)
    assert (tmp_path / "node.json").read_text(encoding="latin-1") == text
    (tmp_path / "node.json").unlink()
    DataFolder(tmp_path).close()  # the lock was given back


def test_a_file_in_the_place_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FolderError, match="cannot use the data folder"):
        DataFolder(tmp_path / "file")


TURNS = st.lists(st.lists(st.binary(max_size=300), min_size=1, max_size=4), max_size=6)


@given(TURNS, st.data())
@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_whatever_is_cut_off_the_whole_turns_before_it_are_there(
    tmp_path_factory: pytest.TempPathFactory, turns: list[list[bytes]], data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("folder")
    folder = DataFolder(path)
    ends = [(path / "state").stat().st_size]
    for turn in turns:
        folder.state.store(*turn)
        folder.state.sync()
        ends.append((path / "state").stat().st_size)
    folder.close()
    cut = data.draw(st.integers(min_value=ends[0], max_value=ends[-1]))
    os.truncate(path / "state", cut)
    folder = DataFolder(path)
    whole = sum(end <= cut for end in ends) - 1
    before = [record for turn in turns[:whole] for record in turn]
    assert folder.restored == before
    assert folder.cut == cut - ends[whole]
    assert not folder.lost
    folder.state.store(b"after")
    folder.state.sync()
    folder.close()
    again = DataFolder(path)
    assert again.restored == [*before, b"after"]
    again.close()


def stored(path: Path, *turns: bytes) -> str:
    """A folder with one record per turn; the node's id."""
    folder = DataFolder(path)
    for record in turns:
        folder.state.store(record)
        folder.state.sync()
    folder.close()
    return folder.node


def turn_a_bit(path: Path, of: bytes) -> None:
    state = bytearray((path / "state").read_bytes())
    state[state.index(of)] ^= 1
    (path / "state").write_bytes(state)


def test_a_bit_that_turned_in_the_last_turn_is_taken_for_a_torn_tail(tmp_path: Path) -> None:
    node = stored(tmp_path, b"one", b"two", b"three")
    turn_a_bit(tmp_path, b"three")
    again = DataFolder(tmp_path)
    assert (again.restored, again.node, again.lost) == ([b"one", b"two"], node, "")
    again.close()


def test_who_lost_what_was_durable_begins_as_another_node(tmp_path: Path) -> None:
    node = stored(tmp_path, b"one", b"two", b"three")
    turn_a_bit(tmp_path, b"two")
    again = DataFolder(tmp_path)
    assert (again.restored, again.lost, again.incarnation) == ([], node, 1)
    assert again.node != node
    assert b"three" in (tmp_path / "state.damaged").read_bytes()
    again.state.store(b"new")
    again.state.sync()
    again.close()
    third = DataFolder(tmp_path)
    assert (third.restored, third.node, third.incarnation) == ([b"new"], again.node, 2)
    third.close()


@pytest.mark.parametrize("how", ["gone", "empty", "garbage"])
def test_who_lost_the_whole_state_begins_as_another_node(tmp_path: Path, how: str) -> None:
    node = stored(tmp_path, b"one")
    (tmp_path / "state").unlink()
    if how != "gone":
        (tmp_path / "state").write_bytes(b"" if how == "empty" else bytes(range(256)))
    again = DataFolder(tmp_path)
    assert (again.restored, again.lost) == ([], node)
    again.close()


def test_what_replaces_the_file_takes_the_place_of_all_that_was_there(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path)
    for number in range(5):
        folder.state.store(b"old %d" % number)
        folder.state.sync()
    folder.state.store(b"never written")
    folder.state.store(b"all", b"of it", replace=True)
    folder.state.store(b"and this")
    size = (tmp_path / "state").stat().st_size
    folder.state.sync()
    assert (tmp_path / "state").stat().st_size < size
    folder.state.store(b"later")
    folder.state.sync()
    folder.close()
    again = DataFolder(tmp_path)
    assert again.restored == [b"all", b"of it", b"and this", b"later"]
    again.close()


def test_zeros_of_a_file_that_grew_before_its_bytes_came_are_no_records(tmp_path: Path) -> None:
    stored(tmp_path, b"one")
    with (tmp_path / "state").open("ab") as out:
        out.write(bytes(4_096))
    again = DataFolder(tmp_path)
    assert (again.restored, again.cut, again.lost) == ([b"one"], 4_096, "")
    again.close()


def test_nothing_is_on_disk_before_sync(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path)
    folder.state.store(b"record")
    assert b"record" not in (tmp_path / "state").read_bytes()
    folder.state.sync()
    assert b"record" in (tmp_path / "state").read_bytes()
    folder.close()


def test_the_state_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_file, "STATE_LIMIT", 200)
    folder = DataFolder(tmp_path)
    folder.state.store(b"x" * 100)
    with pytest.raises(FolderError, match="would exceed 200 bytes"):
        folder.state.store(b"x" * 70)
    folder.close()


def test_the_control_socket_lies_in_the_folder(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path)
    assert folder.prepare_socket() == control_path(tmp_path) == tmp_path / "control.sock"
    folder.close()


def test_a_long_path_has_its_socket_elsewhere(tmp_path: Path) -> None:
    deep = tmp_path / ("x" * 100) / ("y" * 100)
    folder = DataFolder(deep)
    path = folder.prepare_socket()
    assert len(os.fsencode(path)) < 108
    assert control_path(deep) == path
    assert stat.S_IMODE(os.stat(path.parent).st_mode) == 0o700
    path.touch()
    again = folder.prepare_socket()  # as after a kill
    assert again != path
    assert not path.parent.exists()
    again.touch()
    folder.close()
    assert not again.parent.exists()
    assert json.loads((deep / "node.json").read_text())["incarnation"] == 1


def test_a_private_file_is_private_over_the_draft_of_a_crash(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    path.with_name("tokens.json.new").write_text("half of a file")
    path.with_name("tokens.json.new").chmod(0o644)
    write_durably(path, "whole", PRIVATE)
    assert (path.read_text(), stat.S_IMODE(path.stat().st_mode)) == ("whole", 0o600)
    assert os.listdir(tmp_path) == ["tokens.json"]
