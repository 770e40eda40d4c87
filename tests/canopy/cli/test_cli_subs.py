"""`canopy subs` and `canopy stop` against a scripted node."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from canopy.cli.main import main
from overlay.client import (
    Command,
    Done,
    Drain,
    Ended,
    EndSubscription,
    Failed,
    GetStatus,
    GetSubscriptions,
    Reply,
    Status,
    Subscribe,
    Subscribed,
    Subscriptions,
)
from overlay.info import ClientInfo, SubscriptionInfo
from tests.support.real.fake_control import FakeControl

STATUS = Status(
    0, "a" * 16, "127.0.0.1:1", True, False, 1, "none", "", "", 1, 1, 2, 0, 0, "pivot", {}, {},
    pid=77, clients=(ClientInfo(1, 77, 0, 0, 0, 0),),
)  # fmt: skip
SUBS = (
    SubscriptionInfo("a.1.1", "[b]big", "mag > 4", True, 1_234, ("mag",), client=1),
    SubscriptionInfo("a.1.2", "", "TRUE", False, 0, ("$all",), client=9),
)


def answer(command: Command) -> Iterator[Reply]:
    n = command.request
    if isinstance(command, GetStatus):
        yield msgspec.structs.replace(STATUS, request=n)
    elif isinstance(command, GetSubscriptions):
        yield Subscriptions(n, SUBS)
    elif isinstance(command, EndSubscription):
        known = command.subscription in {one.subscription for one in SUBS}
        yield (
            Done(n) if known else Failed(n, "unknown", f"no subscription {command.subscription!r}")
        )


@pytest.fixture(autouse=True)
def _connect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANOPY_CONNECT", str(tmp_path / "n"))
    monkeypatch.setenv("CANOPY_WAIT", "0")


@pytest.fixture
def node(tmp_path: Path) -> Iterator[FakeControl]:
    with FakeControl(tmp_path / "n", answer) as fake:
        yield fake


class TestSubs:
    def test_all_programs_subscriptions_are_listed(
        self, node: FakeControl, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["subs", "--json"]) == 0
        big, all_ = json.loads(capsys.readouterr().out)
        assert (big["subscription"], big["delivered"], big["pid"]) == ("a.1.1", 1_234, 77)
        assert (all_["acknowledged"], all_["pid"]) == (False, 0)
        assert main(["subs"]) == 0
        rows = [line.split() for line in capsys.readouterr().out.splitlines()]
        assert ["a.1.1", "[b]big", "mag", ">", "4", "acknowledged", "1,234", "77"] in rows
        assert ["a.1.2", "TRUE", "registering", "0", "-"] in rows

    def test_a_program_whose_session_is_kept_is_shown_as_away(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        away = ClientInfo(1, 77, 0, 0, 4_000, 0, parked_for=12.0)

        def parked(command: Command) -> Iterator[Reply]:
            for reply in answer(command):
                if isinstance(reply, Status):
                    reply = msgspec.structs.replace(reply, clients=(away,))
                yield reply

        with FakeControl(tmp_path / "n", parked):
            assert main(["subs"]) == 0
            assert "77, away for 12 s" in capsys.readouterr().out
            assert main(["subs", "--json"]) == 0
            assert [one["parked_for"] for one in json.loads(capsys.readouterr().out)] == [
                12.0,
                -1.0,
            ]
            assert main(["status"]) == 0
            out = capsys.readouterr().out
        assert "0 connected, 1 session parked" in out
        assert "process 77, away for 12 s" in out

    def test_rm_ends_those_that_are_named(
        self, node: FakeControl, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["subs", "rm", "a.1.1", "a.1.2"]) == 0
        ended = [c.subscription for c in node.commands if isinstance(c, EndSubscription)]
        assert ended == ["a.1.1", "a.1.2"]
        assert capsys.readouterr().out == "ended a.1.1\nended a.1.2\n"

    def test_rm_of_what_is_not_there_fails_and_says_what_was_done(
        self, node: FakeControl, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["subs", "rm", "a.1.1", "nope", "a.1.2", "--json"]) == 1
        out, err = capsys.readouterr()
        assert json.loads(out) == {"ended": ["a.1.1"]}
        assert "no subscription 'nope'" in err

    def test_rm_takes_the_node_before_or_behind_its_name(
        self, node: FakeControl, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("CANOPY_CONNECT", "/nowhere")
        where = ["--connect", str(node.data)]
        assert main(["subs", *where, "rm", "a.1.1"]) == 0
        assert main(["subs", "rm", "a.1.1", *where]) == 0
        assert main(["subs", "rm", "a.1.1"]) == 3

    def test_a_subscription_that_is_ended_by_another_program_ends_sub(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def end(command: Command) -> Iterator[Reply]:
            if isinstance(command, Subscribe):
                yield Subscribed(command.request, "s1")
                yield Ended(0, "ended", "subscription s1 was ended by another program", "s1")
            else:
                yield Failed(command.request, "unknown", "")

        with FakeControl(tmp_path / "n", end) as fake:
            assert main(["sub", "TRUE", "--for", "20"]) == 1
            assert "was ended by another program" in capsys.readouterr().err
            subscribes = [one for one in fake.commands if isinstance(one, Subscribe)]
            assert len(subscribes) == 1, "and it is not made again"


class TestStop:
    def test_stop_waits_for_the_end_of_the_process(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        code = "import sys; sys.stdin.read()"
        with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE) as process:

            def drain(command: Command) -> Iterator[Reply]:
                if isinstance(command, GetStatus):
                    if any(isinstance(one, Drain) for one in fake.commands):
                        fake.hang_up()
                        assert process.stdin is not None
                        process.stdin.close()
                        return
                    yield msgspec.structs.replace(STATUS, request=command.request, pid=process.pid)
                else:
                    yield Done(command.request)

            with FakeControl(tmp_path / "n", drain) as fake:
                assert main(["stop", "--json"]) == 0
            assert process.wait(0) == 0, "it has ended before the command has"
        found = json.loads(capsys.readouterr().out)
        assert (found["node"], found["pid"], found["stopped"]) == ("a" * 16, process.pid, True)

    def test_a_node_that_goes_on_is_a_time_out(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def go_on(command: Command) -> Iterator[Reply]:
            if isinstance(command, GetStatus):
                yield msgspec.structs.replace(STATUS, request=command.request)
            else:
                yield Done(command.request)

        with FakeControl(tmp_path / "n", go_on) as fake:
            assert main(["stop", "--timeout", "0.3"]) == 5
            assert any(isinstance(one, Drain) for one in fake.commands)
        assert "goes on draining; kill -9 77" in capsys.readouterr().err

    def test_no_node_is_unreachable(self) -> None:
        assert main(["stop"]) == 3
