"""`canopy pub --dry-run` and `canopy sub --diff`: what would happen, without that it does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from canopy.cli.main import main
from overlay.client import (
    DRY_RUN_ATTRIBUTES,
    DRY_RUN_MOST,
    Command,
    DryRun,
    Event,
    Events,
    Failed,
    GetEvents,
    GetSubscriptions,
    Publish,
    Recipients,
    Reply,
    Subscribe,
    Subscriptions,
)
from overlay.info import EventRecipients, RecipientInfo, SubscriptionInfo
from tests.support.real.fake_control import FakeControl

HERE, THERE = "a" * 16, "b" * 16
MINE = SubscriptionInfo(f"{HERE}.1.1", "quakes", "mag > 4", True, 0, ("mag",), 1)
KNOWN = [{"mag": mag, "place": place, "id": f"e{mag}"} for mag, place in
         ((5, "Nome, Alaska"), (4.2, "Adak, Alaska"), (6, "Fiji"), (1, "Rome"))]  # fmt: skip


def recipients(attributes: dict[str, Any]) -> EventRecipients:
    """Magnitudes over 4 have subscriptions; `doubt` has a tree whose host is silent."""
    if attributes.get("bad"):
        return EventRecipients("no such name")
    unanswered = (("mag", "no host of its tree answered"),) if attributes.get("doubt") else ()
    if attributes.get("mag", 0) <= 4:
        return EventRecipients("", 0, (), unanswered)
    mine = RecipientInfo(HERE, "127.0.0.1:1", 2, (f"{HERE}.1.1", f"{HERE}.1.2"))
    many = RecipientInfo(THERE, "127.0.0.1:2", 5, (f"{THERE}.1.1",))
    listed = (mine, many) if attributes.get("many") else (mine,)
    return EventRecipients("", len(listed), listed, unanswered)


def answer(command: Command) -> Iterator[Reply]:
    if isinstance(command, GetSubscriptions):
        yield Subscriptions(command.request, (MINE,))
    elif isinstance(command, DryRun):
        if any("counting" in draft.attributes for draft in command.events):
            yield Failed(command.request, "refused", "a dry run needs pivot routing")
            return
        found = tuple(recipients(dict(draft.attributes)) for draft in command.events)
        yield Recipients(command.request, found)
    elif isinstance(command, GetEvents):
        events = (Event(HERE, 1, n, 0.0, dict(each)) for n, each in enumerate(KNOWN, 1))
        yield Events(command.request, tuple(events))


@pytest.fixture(autouse=True)
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeControl]:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setenv("CANOPY_WAIT", "0")
    with FakeControl(tmp_path / "canopy" / "default", answer) as fake:
        yield fake
        assert not any(isinstance(c, Publish | Subscribe) for c in fake.commands)


class TestDryRun:
    def test_the_subscriptions_that_would_get_an_event_are_named(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["pub", "--dry-run", "mag=5", "id=q1"]) == 0
        out, err = capsys.readouterr()
        assert out.splitlines() == [
            "q1  2 subscriptions at 1 node",
            f"  {HERE} 127.0.0.1:1  quakes, {HERE}.1.2",
        ]
        assert err == "1 of 1 event would be delivered, to 1 node; nothing was published\n"
        assert main(["pub", "--dry-run", "mag=1", "id=q2"]) == 0
        assert capsys.readouterr().out == "q2  no subscription matches\n"

    def test_what_is_not_complete_is_said_to_be_least(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["pub", "--dry-run", "mag=5", "id=q1", "many=1"]) == 0
        out = capsys.readouterr().out
        assert "q1  at least 7 subscriptions at 2 nodes" in out
        assert f"{THERE}.1.1, 4 more" in out

    def test_a_host_that_did_not_answer_is_named_and_is_a_time_out(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["pub", "--dry-run", "mag=1", "id=q1", "doubt=1"]) == 5
        out = capsys.readouterr().out
        assert "q1  no subscription is known to match" in out
        assert "! attribute mag: no host of its tree answered; others may get it" in out

    def test_a_feed_is_asked_about_in_parts_and_what_is_refused_is_said(
        self, node: FakeControl, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        lines = [json.dumps({"mag": n % 10, "id": n}) for n in range(2 * DRY_RUN_MOST)]
        (tmp_path / "f").write_text("\n".join([*lines, "no", '{"bad": 1}']))
        assert main(["pub", "--dry-run", str(tmp_path / "f"), "--json"]) == 0
        out, err = capsys.readouterr()
        found = [json.loads(line) for line in out.splitlines()]
        assert [each["id"] for each in found] == [str(n) for n in range(2 * DRY_RUN_MOST)]
        assert found[5] == {
            "line": 6,
            "id": "5",
            "nodes": 1,
            "subscriptions": 2,
            "complete": True,
            "recipients": [
                {
                    "node": HERE,
                    "address": "127.0.0.1:1",
                    "subscriptions": 2,
                    "ids": [f"{HERE}.1.1", f"{HERE}.1.2"],
                }
            ],
            "unanswered": {},
        }
        assert "line 201: not JSON" in err
        assert "line 202: no such name" in err
        assert "100 of 200 events would be delivered, to 1 node" in err
        asked = [len(c.events) for c in node.commands if isinstance(c, DryRun)]
        assert max(asked) <= DRY_RUN_MOST
        assert main(["pub", "--dry-run", "--strict", str(tmp_path / "f")]) == 1

    def test_events_with_many_attributes_are_several_questions(
        self, node: FakeControl, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        lines = [json.dumps({f"a{n}.{m}": 1 for m in range(300)}) for n in range(7)]
        (tmp_path / "f").write_text("\n".join(lines))
        assert main(["pub", "--dry-run", str(tmp_path / "f"), "--json"]) == 0
        assert len(capsys.readouterr().out.splitlines()) == 7
        for command in node.commands:
            if isinstance(command, DryRun):
                assert len({n for d in command.events for n in d.attributes}) <= DRY_RUN_ATTRIBUTES

    @pytest.mark.parametrize(
        ("args", "code", "says"),
        [
            (["mag=5", "--receipt"], 2, "--dry-run publishes nothing"),
            (["bad=1"], 1, "no such name"),
            (["counting=1"], 1, "pivot routing"),
            (["nowhere.jsonl"], 2, "does not exist"),
        ],
    )
    def test_what_makes_no_sense(
        self, args: list[str], code: int, says: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["pub", "--dry-run", *args]) == code
        assert says in capsys.readouterr().err


class TestDiff:
    def test_events_and_values_that_only_one_matches_are_shown(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["sub", "--diff", "mag >= 4.5", "mag >= 4 AND place LIKE '%Alaska'"]) == 0
        assert capsys.readouterr().out.splitlines() == [
            "Of the last 4 events that this node published or got, OLD matches 2, NEW 2:",
            "  + 1 gained (only NEW matches)",
            "      e4.2  mag=4.2 place='Adak, Alaska'",
            "  - 1 lost (only OLD matches)",
            "      e6  mag=6 place=Fiji",
            "  = 1 match both, 1 neither",
            "",
            "Of any event, by the values of single attributes:",
            "  + only NEW can match if mag is >= 4 and < 4.5",
            "  - only OLD can match if place is TRUE or FALSE or any number or absent",
        ]

    def test_as_json(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["sub", "--diff", "mag >= 4.5", "mag >= 6", "--json"]) == 0
        assert json.loads(capsys.readouterr().out) == {
            "both": 1,
            "gained": 0,
            "lost": 1,
            "neither": 2,
            "gained_events": [],
            "lost_events": [f"{HERE}.1.1"],
            "attributes": {"mag": {"gained": [], "lost": [">= 4.5 and < 6"]}},
        }

    def test_the_same_by_attributes_is_not_called_the_same(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["sub", "--diff", "place LIKE '%a'", "place LIKE '%b'"]) == 0
        assert "both admit the same values; they may differ" in capsys.readouterr().out

    @pytest.mark.parametrize(
        ("args", "says"),
        [
            (["--diff", "mag >", "mag > 1"], "invalid selector"),
            (["--diff", "mag > 1", "mag ="], "invalid selector"),
            (["--diff", "mag > 1"], "requires 2 arguments"),
            (["--diff", "a = 1", "a = 2", "a = 3"], "--diff takes two selectors"),
            (["--diff", "a = 1", "a = 2", "--raw"], "--diff takes two selectors"),
            ([], "Missing argument 'SELECTOR'"),
        ],
    )
    def test_what_makes_no_sense(
        self, args: list[str], says: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["sub", *args]) == 2
        assert says in capsys.readouterr().err

    def test_a_selector_that_is_never_true_is_pointed_out(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["sub", "--diff", "a = 1", "a = 1 AND a = 2"]) == 0
        out, err = capsys.readouterr()
        assert "warning: NEW: this selector is never true" in err
        assert "only OLD can match if a is 1" in out
