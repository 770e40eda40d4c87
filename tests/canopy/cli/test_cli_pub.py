"""`canopy pub` against a scripted node: what it publishes, refuses, and exits with."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from canopy.cli.main import main
from overlay.client import Command, GetStatus, Publish, Reply, Status
from tests.canopy.cli.scripted_node import answer, out_of
from tests.support.real.fake_control import FakeControl

pytestmark = pytest.mark.usefixtures("no_waiting")


class TestPub:
    feed = '{"a": 1}\n{"a": NaN}\n\n{"bad": 1}\n{"id": "x"}\n'

    def test_valid_events_are_published_and_the_others_reported(
        self, node: FakeControl, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (tmp_path / "f.jsonl").write_text(self.feed)
        assert main(["pub", str(tmp_path / "f.jsonl"), "--json"]) == 0
        both = capsys.readouterr()
        ids = [
            d.attributes["id"] for c in node.commands if isinstance(c, Publish) for d in c.events
        ]
        assert json.loads(both.out) == {
            "published": 2,
            "refused": 2,
            "first_id": ids[0],
            "last_id": "x",
            "refused_lines": [
                {"line": 2, "reason": '"a": NaN is no value'},
                {"line": 4, "reason": "no"},
            ],
        }
        assert "line 2:" in both.err
        session, line = ids[0].split("-")
        assert ids == [f"{session}-{line}", f"{session}-4", "x"]
        assert (len(session), line) == (6, "1")
        assert f", first id {ids[0]}, last x, refused 2\n" in both.err
        assert main(["pub", str(tmp_path / "f.jsonl"), "--strict"]) == 1

    def test_nothing_published_is_a_failure(
        self, node: FakeControl, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (tmp_path / "f").write_text("no\n")
        assert main(["pub", str(tmp_path / "f")]) == 1
        (tmp_path / "f").write_text("")
        assert main(["pub", str(tmp_path / "f")]) == 1
        assert "published 0 events" in capsys.readouterr().err

    def test_a_feed_without_events_and_a_table_of_one_column(
        self, node: FakeControl, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (tmp_path / "f").write_text("")
        assert main(["pub", str(tmp_path / "f")]) == 1
        assert capsys.readouterr().err == "published 0 events: there was none to read\n"
        (tmp_path / "one.csv").write_text("mag\n5\n6\n")
        (tmp_path / "one.csv.gz").write_bytes(gzip.compress(b"mag\n7\n"))
        assert main(["pub", str(tmp_path / "one.csv"), str(tmp_path / "one.csv.gz")]) == 0
        drafts = [draft for c in node.commands if isinstance(c, Publish) for draft in c.events]
        assert [draft.attributes["mag"] for draft in drafts] == [5, 6, 7]

    def test_one_event_is_given_on_the_command_line(self, node: FakeControl) -> None:
        assert main(["pub", "mag=5.1", "place=Nome", "n=3", "zip=01234"]) == 0
        assert main(["pub", "--data", '{"mag": 4}']) == 0
        first, second = [c.events[0] for c in node.commands if isinstance(c, Publish)]
        assert {n: first.attributes[n] for n in ("mag", "place", "n", "zip")} == {
            "mag": 5.1, "place": "Nome", "n": 3, "zip": "01234",
        }  # fmt: skip
        assert second.attributes["mag"] == 4

    def test_events_without_an_id_get_another_one_in_each_feed(
        self, node: FakeControl, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (tmp_path / "a").write_text('{"n": 1}\n')
        (tmp_path / "b").write_text('[{"n": 2}, {"id": 7}]\n{"$attributes": {"n": 4}}\n')
        assert main(["pub", str(tmp_path / "a"), str(tmp_path / "b")]) == 0
        drafts = [draft for c in node.commands if isinstance(c, Publish) for draft in c.events]
        first, second, third, fourth = (draft.attributes.get("id") for draft in drafts)
        assert (third, fourth) == (7, None), (
            "an event keeps its own, and a whole one stays as it is"
        )
        assert str(first).endswith("-1")
        assert str(second).endswith("-1.1")
        assert str(first).split("-")[0] != str(second).split("-")[0]
        assert f"published 4 events, first id {first}, last x." in capsys.readouterr().err

    def test_what_is_printed_of_one_event_is_what_why_takes(
        self, node: FakeControl, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["pub", "mag=5"]) == 0
        said = capsys.readouterr().err.rstrip()
        (command,) = (c for c in node.commands if isinstance(c, Publish))
        assert said == f"published 1 event, id {command.events[0].attributes['id']}"
        assert main(["pub", "mag=5", "id=mine"]) == 0
        assert capsys.readouterr().err == "published 1 event, id mine\n"

    @pytest.mark.parametrize(
        "args", [["a=1", "a=2"], ["=1"], ["a=1", "pyproject.toml"], ["x", "--data", "{}"],
                 ["f.csv", "--types", "a=number"]]
    )  # fmt: skip
    def test_what_makes_no_sense_is_a_usage_error(self, node: FakeControl, args: list[str]) -> None:
        assert main(["pub", *args]) == 2
        assert not node.commands

    def test_several_files_and_a_reason_that_comes_again_is_one_line(
        self, node: FakeControl, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (tmp_path / "a.csv").write_text("zip,n\n9,1\n8,2\n")
        (tmp_path / "b").write_text("no\n" * 1_000 + '{"n": 3}\n')
        files = [str(tmp_path / "a.csv"), str(tmp_path / "b")]
        assert main(["pub", *files, "--types", "zip=text", "--json"]) == 0
        out, err = capsys.readouterr()
        drafts = [draft for c in node.commands if isinstance(c, Publish) for draft in c.events]
        assert err.splitlines() == [
            f"{files[1]}, line 1: not JSON: expecting value at column 1",
            "… 999 more lines: not JSON: expecting value at column 1",
            f"published 3 events, first id {drafts[0].attributes['id']}, "
            f"last {drafts[2].attributes['id']}, refused 1000",
        ]
        assert json.loads(out)["refused_lines"][0]["file"] == files[1]
        assert [draft.attributes["n"] for draft in drafts] == [1, 2, 3]
        assert drafts[0].attributes["zip"] == "9"

    def test_a_node_that_reached_none_of_its_peers_is_said_to_be_alone(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        seeds: dict[str, str] = {}

        def lonely(command: Command) -> Iterator[Reply]:
            for reply in answer(command):
                if isinstance(reply, Status):
                    reply = msgspec.structs.replace(reply, neighbours=0, seeds=seeds)
                yield reply

        (tmp_path / "f").write_text('{"a": 1}\n')
        with FakeControl(tmp_path / "n", lonely) as fake:
            where = ["--connect", str(fake.data)]
            assert main(["pub", str(tmp_path / "f"), *where]) == 0
            assert "alone" not in capsys.readouterr().err, "the first node of an overlay"
            seeds["127.0.0.1:2"] = "refused"
            assert main(["pub", str(tmp_path / "f"), *where]) == 0
            assert "! this node is alone: it reached none of its peers" in capsys.readouterr().err
            assert "ready, alone" in out_of(capsys, "status", *where)

    def test_a_node_that_goes_when_all_is_published_makes_no_failure(self, tmp_path: Path) -> None:
        def goes(command: Command) -> Iterator[Reply]:
            if isinstance(command, GetStatus):
                (tmp_path / "n" / "control.sock").unlink()
                fake.hang_up()
            yield from answer(command)

        with FakeControl(tmp_path / "n", goes) as fake:
            assert main(["pub", "a=1", "--timeout", "2", "--connect", str(fake.data)]) == 0

    def test_ctrl_c_ends_it_while_standard_input_is_idle(self, node: FakeControl) -> None:
        command = [sys.executable, "-m", "canopy", "pub"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdin is not None
            process.stdin.write(b'{"a": 1}\n')
            process.stdin.flush()
            until = time.monotonic() + 30
            while not node.commands and time.monotonic() < until:
                time.sleep(0.01)
            time.sleep(1.0)  # for the answer, which nothing shows
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 130
            assert process.stderr is not None
            assert b"published 1 event, id " in process.stderr.read()

    def test_a_terminal_says_that_it_is_read(
        self, node: FakeControl, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        master, terminal = os.openpty()
        os.write(master, b'{"a": 1}\n\x04')  # Ctrl-D
        monkeypatch.setattr("canopy.cli.publish.feed_batches.STDIN", terminal)
        assert main(["pub"]) == 0
        os.close(master)
        os.close(terminal)
        assert "reading events from the terminal" in capsys.readouterr().err

    def test_standard_input_is_read_as_it_comes(self, node: FakeControl) -> None:
        command = [sys.executable, "-m", "canopy", "pub", "-"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdin is not None
            process.stdin.write(b'{"a": 1}\n')
            process.stdin.flush()
            until = time.monotonic() + 30
            while not node.commands and time.monotonic() < until:
                time.sleep(0.01)
            assert len(node.commands) == 1  # though the input is still open
            _, err = process.communicate(b'{"a": 2}\n', timeout=30)
        assert process.returncode == 0
        assert b"published 2 events" in err

    def test_many_events_travel_in_batches(self, node: FakeControl, tmp_path: Path) -> None:
        (tmp_path / "f").write_text("".join(f'{{"n": {n}}}\n' for n in range(3_000)))
        assert main(["pub", str(tmp_path / "f")]) == 0
        sent = [c for c in node.commands if isinstance(c, Publish)]
        numbers = [d.attributes["n"] for c in sent for d in c.events]
        assert numbers == list(range(3_000))
        assert len(sent) < 1_500

    def test_a_broken_file_name_is_a_usage_error(self, node: FakeControl) -> None:
        assert main(["pub", "nowhere.jsonl"]) == 2
