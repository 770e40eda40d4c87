"""The commands against a scripted node: what they ask, print, and exit with."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from canopy.cli.main import COMMANDS, main
from overlay.client import (
    Attributes,
    Command,
    Delivered,
    Delivery,
    Done,
    Dropped,
    Event,
    Explained,
    Failed,
    GetAttributes,
    GetPeers,
    GetRing,
    GetStatus,
    Located,
    Peers,
    Publish,
    Published,
    Reply,
    RingClusters,
    Status,
    Subscribe,
    Subscribed,
    Unsubscribe,
    Where,
    Why,
)
from overlay.info import ClientInfo, ClusterInfo, ExplanationLine, PeerInfo, Reason, VirtualNodeInfo
from tests.support.fake_control import FakeControl

CLUSTER = ClusterInfo(
    "ff" * 20, "00" * 20, 3, "a" * 16, "", ("b" * 16,), ("mag", "[x]"), {}, 192.0, ("b" * 16,)
)


def event(number: int, **attributes: Any) -> Event:
    return Event("a" * 16, 1, number, 1_000.5, {"id": f"e{number}", "type": "t", **attributes})


def answer(command: Command) -> Iterator[Reply]:
    n = command.request
    if isinstance(command, GetStatus):
        yield Status(
            n, "a" * 16, "127.0.0.1:1", True, False, 2, "primary", "ff" * 20, "11" * 20, 3, 4, 5, 0,
            6, "pivot", {"127.0.0.1:2": "refused"}, {"delivered": 7}, 4242, 61.0, "[b]x",
            clients=(ClientInfo(1, 77, 1_048_576, 20, 0, 0), ClientInfo(2, 78, 50, 40, 3_000, 9)),
        )  # fmt: skip
    elif isinstance(command, GetPeers):
        yield Peers(n, (PeerInfo("b" * 16, "127.0.0.1:3", "connected", 1, True, 10, 20),))
    elif isinstance(command, GetRing):
        yield RingClusters(n, (CLUSTER,), complete=False)
    elif isinstance(command, Where):
        tree = (VirtualNodeInfo("start", "5", "a" * 16, 2),)
        yield Located(n, command.attribute, CLUSTER, (3, 1), tree)
    elif isinstance(command, Why):
        if command.event == "nope":
            yield Failed(n, "unknown", "no such event here")
            return
        if command.event == "published":
            at = (("b" * 16, "127.0.0.1:7001"),)
            yield Explained(n, "x.1.9", "published", {}, (), (), at, 12, ("x.1.8", "x.1.7"))
            return
        if command.event == "elsewhere":
            yield Explained(n, "x.1.9", "elsewhere", {}, (), ())
            return
        verdicts = (
            ExplanationLine(0, "mag > 3", "false", "2 [x]"),
            ExplanationLine(1, "a = 1", "unknown", ""),
        )
        reason = Reason("s", "mine", "mag > 3 AND a = 1", False, "not all is true", verdicts)
        yield Explained(n, "x.1.1", command.event, {"mag": 2}, ("published here",), (reason,))
    elif isinstance(command, Unsubscribe):
        yield Done(n)
    elif isinstance(command, GetAttributes):
        yield Attributes(n, ("mag", "place", "odd name"))
    elif isinstance(command, Subscribe):
        yield Subscribed(n, "s1")
        for number, mag in enumerate((1, 2.5, None), 1):
            if number == 3:
                yield Dropped(0, "overflow", "9 deliveries were dropped", 9, "x", "y", 0.0, 1.0)
            yield Delivered(0, (Delivery("s1", event(number, mag=mag), "mag", "a", "b", 2, 1.5),))
    elif isinstance(command, Publish):
        refused = tuple((i, "no") for i, d in enumerate(command.events) if "bad" in d.attributes)
        yield Published(n, len(command.events), "x", 1, 1, refused)


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANOPY_WAIT", "0")


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeControl]:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    with FakeControl(tmp_path / "canopy" / "default", answer) as fake:
        yield fake


def out_of(capsys: pytest.CaptureFixture[str], *args: str, code: int = 0) -> str:
    assert main(args) == code
    return capsys.readouterr().out


class TestLooking:
    def test_status(self, node: FakeControl, capsys: pytest.CaptureFixture[str]) -> None:
        found = json.loads(out_of(capsys, "status", "--json"))
        assert (found["node"], found["pid"], found["address"], found["ready"]) == (
            "a" * 16,
            4242,
            "127.0.0.1:1",
            True,
        )
        assert "request" not in found
        assert [(one["pid"], one["dropped"]) for one in found["clients"]] == [(77, 0), (78, 9)]
        shown = out_of(capsys, "status")
        assert "[b]x" in shown  # a name is no markup
        assert "2 connected" in shown
        (behind,) = [line for line in shown.splitlines() if "process 7" in line]
        assert behind.split() == ["process", "78", "40", "50", "3,000", "9"]

    def test_peers(self, node: FakeControl, capsys: pytest.CaptureFixture[str]) -> None:
        assert json.loads(out_of(capsys, "peers", "--json"))[0]["node"] == "b" * 16
        assert "127.0.0.1:3" in out_of(capsys, "peers")

    def test_ring(self, node: FakeControl, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["ring", "--json"]) == 0
        both = capsys.readouterr()
        (cluster,) = json.loads(both.out)
        assert {k: cluster[k] for k in ("key", "epoch", "primary", "standby", "brokers")} == {
            "key": "ff" * 20,
            "epoch": 3,
            "primary": "a" * 16,
            "standby": "",
            "brokers": ["b" * 16],
        }
        assert cluster["attributes"] == ["mag", "[x]"]
        assert "not traversed" in both.err
        assert (cluster["led_for"], cluster["silent"]) == (192.0, ["b" * 16])
        shown = out_of(capsys, "ring")
        assert "[x]" in shown
        assert f"the primary has led for 3 min; silent: {'b' * 16}" in shown

    def test_where(self, node: FakeControl, capsys: pytest.CaptureFixture[str]) -> None:
        found = json.loads(out_of(capsys, "where", "mag", "--json"))
        assert (found["attribute"], found["epoch"]) == ("mag", 3)
        assert found["virtual_nodes"][0]["host"] == "a" * 16
        assert "start" in out_of(capsys, "where", "mag")

    def test_why_says_where_to_ask_and_which_of_several_was_explained(
        self, node: FakeControl, capsys: pytest.CaptureFixture[str]
    ) -> None:
        shown = out_of(capsys, "why", "published")
        assert f"the event was shown at {'b' * 16} (127.0.0.1:7001), ask there" in shown
        assert "12 events have this id; this is the newest of them. Others: x.1.8, x.1.7 …" in shown
        assert "ask at the node where it was made" in out_of(capsys, "why", "elsewhere")

    def test_why(self, node: FakeControl, capsys: pytest.CaptureFixture[str]) -> None:
        found = json.loads(out_of(capsys, "why", "e1", "--json"))
        assert found["reasons"][0]["verdicts"][0]["verdict"] == "false"
        shown = out_of(capsys, "why", "e1", "mine")
        assert "✗ mag > 3  saw 2 [x]" in shown
        assert "    ? a = 1" in shown
        assert isinstance(node.commands[-1], Why)
        assert node.commands[-1].subscription == "mine"


class TestSub:
    def test_json_is_one_object_a_line_and_nothing_else(
        self, node: FakeControl, capsys: pytest.CaptureFixture[str]
    ) -> None:
        lines = out_of(capsys, "sub", "mag > 1", "--json", "--count", "3").splitlines()
        found = [json.loads(line) for line in lines]
        assert [f["id"] for f in found] == ["e1", "e2", "e3"]
        assert found[1]["attributes"] == {"id": "e2", "type": "t", "mag": 2.5}
        keys = {"id", "event", "subscription", "type", "time", "latency_ms", "attributes"}
        assert keys <= found[0].keys()

    def test_people_see_the_selectors_attributes_first(
        self, node: FakeControl, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert "e2  t  mag=2.5" in out_of(capsys, "sub", "mag > 1", "--count", "2")

    def test_fewer_than_count_in_time_is_a_time_out(
        self, node: FakeControl, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["sub", "TRUE", "--json", "--count", "9", "--for", "0.3"]) == 5
        out, err = capsys.readouterr()
        assert (len(out.splitlines()), "! 9 deliveries were dropped" in err) == (3, True)
        out_of(capsys, "sub", "TRUE", "--for", "0.1", code=0)

    def test_a_bad_selector_shows_its_place(
        self, node: FakeControl, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["sub", "mag >"]) == 2
        message = capsys.readouterr().err
        assert message.splitlines()[1:3] == ["mag >", "     ^"]
        assert not node.commands

    def test_a_node_that_goes_and_stays_away_is_unreachable(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def leave(command: Command) -> Iterator[Reply]:
            yield Subscribed(command.request, "s1")
            (tmp_path / "n" / "control.sock").unlink()
            fake.hang_up()

        with FakeControl(tmp_path / "n", leave) as fake:
            where = ["--connect", str(tmp_path / "n")]
            assert main(["sub", "TRUE", "--timeout", "0.5", *where]) == 3
        err = capsys.readouterr().err
        assert "! the node at" in err
        assert "has gone" in err
        assert "gave up after 0.5 s" in err

    def test_a_node_that_comes_back_is_subscribed_to_again(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def leave_once(command: Command) -> Iterator[Reply]:
            yield Subscribed(command.request, f"s{len(fake.commands)}")
            if len(fake.commands) == 1:
                fake.hang_up()
            else:
                yield Delivered(0, (Delivery("s2", event(1), "id", "", "", 1),))

        with FakeControl(tmp_path / "n", leave_once) as fake:
            where = ["--connect", str(tmp_path / "n")]
            assert main(["sub", "TRUE", "--count", "1", *where]) == 0
        out, err = capsys.readouterr()
        assert "e1" in out
        assert "subscribed to again; events in between may be missing" in err
        assert [type(command) for command in fake.commands[:2]] == [Subscribe, Subscribe]

    def test_ctrl_c_is_130_and_a_closed_pipe_is_quiet(self, node: FakeControl) -> None:
        command = [sys.executable, "-m", "canopy", "sub", "TRUE", "--json"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdout is not None
            for _ in range(3):  # flushed line by line, while the command goes on
                assert json.loads(process.stdout.readline())["type"] == "t"
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=30)
        assert process.returncode == 130
        assert out == b""
        assert b"Traceback" not in err
        reading, writing = os.pipe()
        os.close(reading)
        ended = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, timeout=30)
        os.close(writing)
        assert ended.returncode == 0
        assert b"rror" not in ended.stderr


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
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 130
            assert process.stderr is not None
            assert b"published 1 event, id " in process.stderr.read()

    def test_a_terminal_says_that_it_is_read(
        self, node: FakeControl, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        master, terminal = os.openpty()
        os.write(master, b'{"a": 1}\n\x04')  # Ctrl-D
        monkeypatch.setattr("canopy.cli.pub.STDIN", terminal)
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


class TestWaiting:
    def test_a_node_that_starts_is_waited_for(self, tmp_path: Path) -> None:
        def start() -> None:
            time.sleep(0.3)
            fake.__enter__()

        fake = FakeControl(tmp_path / "n", answer)
        starting = threading.Thread(target=start)
        starting.start()
        try:
            assert main(["status", "--connect", str(tmp_path / "n"), "--wait", "30"]) == 0
        finally:
            starting.join()
            fake.__exit__()

    def test_a_long_wait_is_said(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr("canopy.cli.connect.WAIT_SILENTLY", 0.0)
        where = str(tmp_path / "none")
        assert main(["status", "--connect", where, "--wait", "0.2"]) == 3
        first, last = capsys.readouterr().err.splitlines()
        assert first.startswith("waiting 0.2 s for a node: there is no node at")
        assert last.startswith("Error: there is no node at")


class TestStandardOutput:
    def test_a_reader_that_had_enough_of_a_table_is_no_failure(self, node: FakeControl) -> None:
        assert reader_leaves("status", node.data) == (0, b"")

    def test_a_reader_that_goes_ends_a_subscription_that_gets_nothing(self, tmp_path: Path) -> None:
        def quiet(command: Command) -> Iterator[Reply]:
            yield Subscribed(command.request, "s1")

        with FakeControl(tmp_path / "n", quiet) as fake:
            code, err = reader_leaves("sub", fake.data, "TRUE")
        assert (code, err) == (0, b"subscribed (s1)\n")

    @pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
    @pytest.mark.parametrize("command", [("status",), ("sub", "TRUE", "--count", "1")])
    def test_a_full_disk_is_no_bug(self, node: FakeControl, command: tuple[str, ...]) -> None:
        with open("/dev/full", "wb") as full:
            found = subprocess.run(
                [sys.executable, "-m", "canopy", *command], stdout=full, stderr=subprocess.PIPE
            )
        assert found.returncode == 1
        assert found.stderr.endswith(b"Error: cannot write: No space left on device\n")


def reader_leaves(command: str, data: Path, *args: str) -> tuple[int, bytes]:
    """Exit code and standard error of a command whose output nothing reads any more."""
    reading, writing = os.pipe()
    os.close(reading)
    found = subprocess.run(
        [sys.executable, "-m", "canopy", command, *args, "--connect", str(data)],
        stdout=writing,
        stderr=subprocess.PIPE,
        timeout=60,
    )
    os.close(writing)
    return found.returncode, found.stderr


class TestExitCodes:
    def test_no_node(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        for command in (["status"], ["peers"], ["ring"], ["where", "a"], ["why", "e"], ["pub"]):
            assert main([*command, "--connect", str(tmp_path / "none")]) == 3
            assert "canopy node --data" in capsys.readouterr().err

    def test_connect_by_environment(
        self, node: FakeControl, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("CANOPY_CONNECT", "/nowhere")
        assert main(["status"]) == 3
        monkeypatch.setenv("CANOPY_CONNECT", str(node.data))
        assert main(["status"]) == 0

    def test_an_address_needs_tls(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["status", "--connect", "127.0.0.1:4470"]) == 2
        assert "TLS" in capsys.readouterr().err

    def test_a_silent_node_is_a_time_out(self, tmp_path: Path) -> None:
        with FakeControl(tmp_path / "n", lambda _: ()):
            where = ["--connect", str(tmp_path / "n"), "--timeout", "0.2"]
            assert main(["status", *where]) == 5
            assert main(["sub", "TRUE", *where]) == 5

    def test_what_the_node_refuses(
        self, node: FakeControl, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["why", "nope"]) == 1
        assert "no such event here" in capsys.readouterr().err
        for code, exit_code in (("usage", 2), ("selector", 2), ("refused", 1), ("time-out", 5)):

            def refuse(command: Command, code: str = code) -> list[Reply]:
                return [Failed(command.request, code, "x")]

            with FakeControl(tmp_path / code, refuse):
                assert main(["status", "--connect", str(tmp_path / code)]) == exit_code

    def test_usage(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["statsu"]) == 2
        assert "'status'" in capsys.readouterr().err
        assert main(["sub"]) == 2
        assert main(["sub", "TRUE", "--count", "0"]) == 2

    def test_a_fault_of_ours_is_one_line_unless_asked(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def broken(*_: object) -> None:
            raise RuntimeError("two\nlines")

        monkeypatch.setattr("canopy.cli.inspection.show.open_client", broken)
        monkeypatch.delenv("CANOPY_DEBUG", raising=False)
        assert main(["status"]) == 1
        message = capsys.readouterr().err
        assert message.splitlines() == [
            "Error: RuntimeError: two lines (a bug in canopy; CANOPY_DEBUG=1 shows where)"
        ]
        monkeypatch.setenv("CANOPY_DEBUG", "1")
        assert main(["status"]) == 1
        assert "Traceback" in capsys.readouterr().err


class TestConfig:
    def test_a_good_file(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (tmp_path / "c.yaml").write_text("listen: 127.0.0.1:7\ntree: {routing: counting}\n")
        found = json.loads(out_of(capsys, "config", "check", str(tmp_path / "c.yaml"), "--json"))
        assert (found["listen"], found["tree"]["routing"]) == ("127.0.0.1:7", "counting")
        assert "is valid" in out_of(capsys, "config", "check", str(tmp_path / "c.yaml"))

    @pytest.mark.parametrize(
        ("text", "says"),
        [
            ("lisen: x", "did you mean listen"),
            ("tree: {split_at: many}", "tree.split_at"),
            ("a: [", "line"),
            ("listen: 0.0.0.0:1", "--insecure"),
        ],
    )
    def test_a_bad_file(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, says: str
    ) -> None:
        (tmp_path / "c.yaml").write_text(text)
        assert main(["config", "check", str(tmp_path / "c.yaml")]) == 2
        assert says in capsys.readouterr().err
        assert main(["node", "--config", str(tmp_path / "c.yaml")]) == 2


def test_every_command_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    for section in COMMANDS.values():
        for name in section:
            shown = out_of(capsys, name, "--help")
            assert "Usage: canopy" in shown
    for name in ("node", "demo", "tui", "sub", "pub", "why", "status", "ring", "where"):
        assert f"\n  canopy {name}" in out_of(capsys, name, "--help")
    shown = out_of(capsys, "--help")
    assert all(f"  {name}  " in shown for section in COMMANDS.values() for name in section)


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import io, sys; from canopy.cli.main import main; sys.stdout = io.StringIO();"
        "main(['--help']);"
        "print([m for m in ('trio', 'pyspark', 'textual', 'lark', 'msgspec', 'rich', 'yaml')"
        " if m in sys.modules], file=sys.stderr)"
    )
    ended = subprocess.run([sys.executable, "-c", code], stderr=subprocess.PIPE, timeout=60)
    assert ended.stderr.strip() == b"[]"


def test_a_node_loads_no_spark_and_no_textual() -> None:
    code = (
        "import sys; import canopy.cli.main, canopy.cli.node, node;"
        "import canopy.wire.process.node_process;"
        "print([m for m in ('pyspark', 'textual', 'matplotlib', 'psutil') if m in sys.modules])"
    )
    ended = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, timeout=60)
    assert ended.stdout.strip() == b"[]"


def test_unprintable_characters_stay_off_the_terminal() -> None:
    from canopy.cli.output import print_json, printable

    assert "\x1b" not in printable("\x1b[2J")
    old, sys.stdout = sys.stdout, io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    try:
        print_json({"a": "ü"})
        sys.stdout.seek(0)
        assert json.loads(sys.stdout.read()) == {"a": "ü"}
    finally:
        sys.stdout = old


@pytest.mark.parametrize(
    ("selector", "remarks"),
    [
        ("mag > 1 AND \"odd name\" = 'Alaska'", ()),
        ("TRUE", ()),
        (
            'place = "Alaska"',
            ("no attribute \"Alaska\" was seen yet; a text has single quotes: 'Alaska'",),
        ),
        ("magnitud > 1 AND mag > 1", ("not seen yet: magnitud",)),
        (
            "mag > 5 AND mag < 3",
            ("this selector is never true: no event can match it",),
        ),
        ("FALSE", ("this selector is never true: no event can match it",)),
        (
            "mag > 5 OR (mag = 1 AND mag = 2)",
            ("this part is never true: mag = 1 AND mag = 2",),
        ),
    ],
)
def test_an_odd_selector_is_subscribed_with_a_warning(
    node: FakeControl,
    capsys: pytest.CaptureFixture[str],
    selector: str,
    remarks: tuple[str, ...],
) -> None:
    out_of_it = main(["sub", selector, "--count", "1"])
    out, err = capsys.readouterr()
    assert (out_of_it, len(out.splitlines())) == (0, 1)
    assert err.splitlines()[0].startswith("subscribed")
    warned = [line for line in err.splitlines() if line.startswith("warning: ")]
    assert warned == [f"warning: {remark}" for remark in remarks]


def test_a_node_without_names_gets_no_warning_of_every_attribute(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def knows_nothing(command: Command) -> Iterator[Reply]:
        if isinstance(command, GetAttributes):
            yield Attributes(command.request, ())
        else:
            yield from answer(command)

    with FakeControl(tmp_path, knows_nothing):
        where = ["--connect", str(tmp_path), "--count", "1"]
        assert main(["sub", "mag > 1", *where]) == 0
        assert "warning" not in capsys.readouterr().err
        assert main(["sub", 'place = "Alaska"', *where]) == 0
        assert "single quotes: 'Alaska'" in capsys.readouterr().err
