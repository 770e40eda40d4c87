"""`canopy status`, `peers`, `ring`, `where` and `why` against a scripted node."""

from __future__ import annotations

import json

import pytest

from canopy.cli.main import main
from overlay.client import Why
from tests.canopy.cli.scripted_node import out_of
from tests.support.real.fake_control import FakeControl

pytestmark = pytest.mark.usefixtures("no_waiting")


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
        assert "sub-healthy: cpu: 99 [x]" in shown
        (behind,) = [line for line in shown.splitlines() if "process 7" in line]
        assert behind.split() == ["process", "78", "40", "50", "3,000", "9"]

    def test_peers(self, node: FakeControl, capsys: pytest.CaptureFixture[str]) -> None:
        assert json.loads(out_of(capsys, "peers", "--json"))[0]["node"] == "b" * 16
        assert "127.0.0.1:3" in out_of(capsys, "peers")

    def test_ring(self, node: FakeControl, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["ring", "--json"]) == 5  # clusters may be missing
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
        assert main(["ring"]) == 5
        shown = capsys.readouterr().out
        assert "[x]" in shown
        assert f"the primary has led for 3 min; silent: {'b' * 16}" in shown
        assert f"sub-healthy: {'b' * 16}, disk: 97 [x]" in shown
        assert cluster["sub_healthy"] == {"b" * 16: "disk: 97 [x]"}

    def test_where(self, node: FakeControl, capsys: pytest.CaptureFixture[str]) -> None:
        found = json.loads(out_of(capsys, "where", "mag", "--json"))
        assert (found["attribute"], found["epoch"]) == ("mag", 3)
        assert found["virtual_nodes"][0]["host"] == "a" * 16
        assert found["stream"] is None
        assert "start" in out_of(capsys, "where", "mag")

    def test_where_a_stream_is(self, node: FakeControl, capsys: pytest.CaptureFixture[str]) -> None:
        found = json.loads(out_of(capsys, "where", "alarms", "--json"))
        assert [each["leader"] for each in found["stream"]["shards"]] == ["a" * 16]
        shown = out_of(capsys, "where", "alarms")
        assert "the stream alarms, 1 shard" in shown
        assert shown.index("a" * 16) < shown.index("b" * 16), "the leader first"
        assert "[north]" in shown

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
