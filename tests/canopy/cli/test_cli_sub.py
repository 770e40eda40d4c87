"""`canopy sub` against a scripted node: what it prints, warns of, and exits with."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from canopy.cli.main import main
from canopy.cli.subscribe import sub
from overlay.client import (
    Attributes,
    BeginReading,
    Command,
    Delivered,
    Delivery,
    Done,
    Failed,
    GetAttributes,
    Reply,
    Subscribe,
    Subscribed,
)
from overlay.stream_client import AttachGroup
from tests.canopy.cli.scripted_node import answer, event, out_of
from tests.support.real.fake_control import FakeControl

pytestmark = pytest.mark.usefixtures("no_waiting")


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

    def test_a_node_that_leaves_is_looked_for_in_sight_and_then_given_up(
        self,
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        def leave(command: Command) -> Iterator[Reply]:
            yield Subscribed(command.request, "s1")
            yield Failed(0, "leaving", "the node is leaving: its subscriptions have ended")
            (tmp_path / "n" / "control.sock").unlink()
            fake.hang_up()

        monkeypatch.setattr(sub, "REMIND_EVERY", 0.2)
        with FakeControl(tmp_path / "n", leave) as fake:
            where = ["--connect", str(tmp_path / "n")]
            assert main(["sub", "TRUE", "--timeout", "1", *where]) == 3
        lines = capsys.readouterr().err.splitlines()
        found = [line for line in lines if line.startswith("!")]
        assert found[0] == (
            "! the node is leaving: its subscriptions have ended; "
            "looking for it for 1 s (--timeout)"
        )
        assert found[1].startswith("! still without the node; giving up in ")
        assert lines[-1].startswith("Error: gave up after 1 s since the node has left: ")

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
        assert "is subscribed to again; events of the last " in err
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
            "mag > 4 AND place",
            (
                "place was only ever a text, and alone is true only as the boolean TRUE: compare "
                "it (place = …), or write place IS NOT NULL for events that have it",
            ),
        ),
        (
            "NOT mag AND felt",
            (
                "mag was only ever a number, and alone is true only as the boolean TRUE: compare "
                "it (mag = …), or write mag IS NOT NULL for events that have it",
            ),
        ),
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


def test_a_stream_whose_leader_does_not_answer_is_waited_for_no_longer_than_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def silent(command: Command) -> Iterator[Reply]:
        if not isinstance(command, BeginReading | AttachGroup):
            yield Done(command.request)

    with FakeControl(tmp_path / "n", silent) as fake:
        for more in ([], ["--group", "g"]):
            words = ["sub", "--stream", "quakes", "--for", "0.2", "--connect", str(fake.data)]
            assert main([*words, *more]) == 5
            assert "within 0.2 s" in capsys.readouterr().err
