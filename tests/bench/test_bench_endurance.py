"""The oracle of a run of endurance, what it publishes and wants, and how faults are drawn."""

from __future__ import annotations

from math import inf
from pathlib import Path
from random import Random
from typing import Any

import pytest

from bench.endurance import faults as endurance_faults
from bench.endurance.clients import PassingSubscriber
from bench.endurance.endurance import COUNTERS, TURNS
from bench.endurance.faults import (
    HOSTILE,
    PRESSURE,
    REST,
    SILENCING,
    TOGETHER,
    USUAL,
    Injector,
    Profile,
)
from bench.endurance.load import SELECTORS, attributes
from bench.endurance.oracle import HELD, AdmittedGap, Ledger
from harness.fault_proxy import SOUND, Faults
from matching import Index, compile_selector
from overlay.client import (
    Command,
    Delivery,
    Done,
    Failed,
    Reply,
    Subscribed,
    Unsubscribe,
)
from overlay.info import ClusterInfo

REFERENCE = Path(__file__).resolve().parents[2] / "canopy/wire/admin/counters.md"

LEVEL = next(n for n, wanted in enumerate(SELECTORS) if wanted.selector.startswith("level"))


def test_what_a_selector_is_said_to_mean_it_means() -> None:
    index: Index[int] = Index()
    for number, wanted in enumerate(SELECTORS):
        index.add(number, compile_selector(wanted.selector))
    found: dict[int, int] = {}
    for number in range(3_000):
        event = attributes(number)
        keys = sorted(index.match(event))
        assert keys == [n for n, wanted in enumerate(SELECTORS) if wanted.means(event)]
        found.update(dict.fromkeys(keys, number))
    assert len(found) == len(SELECTORS), "each is met by some"


def test_the_counters_that_are_reported_exist() -> None:
    text = REFERENCE.read_text()
    assert [name for name in (*COUNTERS, *TURNS) if f"`{name}`" not in text] == []


class ScriptedNode:
    """A connection to a node that acknowledges everything and delivers nothing."""

    def __init__(self) -> None:
        self.notices: list[Failed] = []
        self.asked: list[Command] = []

    def ask(self, command: Command, kind: type[Reply], timeout: float) -> Reply:
        self.asked.append(command)
        return Subscribed(0, f"s{len(self.asked)}") if kind is Subscribed else Done(0)

    def deliveries(self, timeout: float) -> list[Delivery]:
        return []


def test_a_program_that_comes_and_goes_ends_its_sessions_with_a_word_or_without(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bench.endurance.clients.STAY", (0.0, 0.0))
    ledger, node = Ledger(), ScriptedNode()
    program = PassingSubscriber("1", "", ledger, Random(1))
    for _ in range(12):
        program.work(node)  # type: ignore[arg-type]
    assert len(ledger.sessions) == 24
    assert all(session.since <= session.until < inf for session in ledger.sessions)
    assert len({session.wanted for session in ledger.sessions}) > 6
    ended = [each.subscription for each in node.asked if isinstance(each, Unsubscribe)]
    assert 0 < len(ended) < 24
    assert ended == sorted(set(ended), key=ended.index), "each once"
    assert not ledger.quiet


def wanted_numbers(ledger: Ledger, count: int, at: float) -> list[int]:
    """Publish at `at` until so many events are wanted by `LEVEL`; their numbers."""
    found: list[int] = []
    while len(found) < count:
        (number,) = ledger.ask(1, at)
        if SELECTORS[LEVEL].means(attributes(number)):
            found.append(number)
    return found


def test_the_oracle_distinguishes_lost_duplicate_spurious_and_excused() -> None:
    ledger = Ledger()
    session = ledger.begin(LEVEL, "a", since=10.0)
    early = wanted_numbers(ledger, 1, 9.0)
    good, twice, lost = wanted_numbers(ledger, 3, 20.0)
    (silent,) = wanted_numbers(ledger, 1, 21.0)  # no receipt
    (flying,) = wanted_numbers(ledger, 1, 100.0)
    for number in (*early, good, twice, lost):
        ledger.answer(range(number, number + 1), 22.0)
    ledger.answer(range(flying, flying + 1), 100.5)
    ledger.silences.append(("a", 101.0, 115.0))
    ledger.kills.append((115.0 + HELD, "z", "z"))
    unwanted = next(n for n in range(silent) if not SELECTORS[LEVEL].means(attributes(n)))
    for number in (good, twice, twice, unwanted):
        session.take(number, 0.1)
    found = ledger.verdict(0.0)
    assert (found["lost"], found["lost_in_flight"], found["owed"]) == (1, 1, 4)
    assert (found["duplicates"], found["spurious"]) == (1, 1)
    assert [each["event"] for each in found["missing"]] == [lost]
    assert found["without_receipt"] == found["published"] - 5


def test_what_a_gap_covers_is_reported_and_not_lost() -> None:
    ledger = Ledger()
    session = ledger.begin(LEVEL, "a", since=10.0)
    (before,) = wanted_numbers(ledger, 1, 20.0)
    (inside,) = wanted_numbers(ledger, 1, 21.0)
    for number in (before, inside):
        ledger.answer(range(number, number + 1), 22.0)
    session.gaps.append(AdmittedGap(20.5, 21.5, 1, is_stamped=True))
    found = ledger.verdict(0.0)
    assert (found["lost"], found["lost_reported"], found["lost_in_flight"]) == (1, 1, 0)
    assert [each["event"] for each in found["missing"]] == [before]
    assert (found["gaps"], found["reported"]) == (1, 1)
    ledger.kill("b", 23.0)
    found = ledger.verdict(0.0)
    assert (found["lost"], found["lost_reported"], found["lost_in_flight"]) == (0, 0, 2)


def test_a_gap_in_matching_covers_what_was_accepted_in_it() -> None:
    ledger = Ledger()
    session = ledger.begin(LEVEL, "a", since=10.0)
    early, late = wanted_numbers(ledger, 2, 20.0)
    ledger.answer(range(early, early + 1), 21.0)
    ledger.answer(range(late, late + 1), 35.0)
    session.gaps.append(AdmittedGap(30.0, 40.0))
    found = ledger.verdict(0.0)
    assert [each["event"] for each in found["missing"]] == [early]


def test_what_a_node_accepted_before_it_left_is_expected() -> None:
    ledger = Ledger()
    ledger.begin(LEVEL, "b", since=0.0)
    (accepted,) = wanted_numbers(ledger, 1, 10.0)
    ledger.answer(range(accepted, accepted + 1), 10.1)
    ledger.leave("a", 10.2)
    assert ledger.verdict(0.0)["lost"] == 1
    ledger.kill("a", 10.2)
    assert ledger.verdict(0.0)["lost_in_flight"] == 1


@pytest.mark.parametrize(("killed", "elsewhere"), [("host", 0), ("other", 1)])
def test_a_loss_is_put_down_to_a_killed_host_only_if_the_receipt_names_it(
    killed: str, elsewhere: int
) -> None:
    ledger = Ledger()
    ledger.begin(LEVEL, "b", since=0.0)
    (accepted,) = wanted_numbers(ledger, 1, 10.0)
    ledger.answer(range(accepted, accepted + 1), 10.1, [{"level": "host"}])
    ledger.kill("a", 10.2, killed)
    found = ledger.verdict(0.0)
    assert (found["lost_in_flight"], found["lost_in_flight_elsewhere"]) == (1, elsewhere)


def test_what_was_under_way_at_the_end_of_a_session_is_not_expected() -> None:
    ledger = Ledger()
    ledger.begin(LEVEL, "a", since=0.0)
    (before,) = wanted_numbers(ledger, 1, 1.0)
    (late,) = wanted_numbers(ledger, 1, 40.0)
    ledger.answer(range(before, before + 1), 2.0)
    ledger.answer(range(late, late + 1), 41.0)
    ledger.kill("a", 42.0)
    assert [number for number, _ in ledger.missing()[1]] == [before]
    assert ledger.sessions[0].until == 42.0


class Clock:
    """Time that passes when a thread sleeps."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Overlay:
    """Nodes that only note what is done to them; the injector's rules are checked at each step."""

    class Node:
        id = ""
        is_up = True
        is_paused = False

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.proxy = self
        self.nodes = {str(n): self.Node() for n in range(9)}
        self.silent: dict[str, str] = {}
        self.rested: dict[str, float] = {}
        self.ways: dict[tuple[str, str], Faults] = {}
        self.most = 0

    def begin(self, name: str, what: str) -> None:
        assert name not in self.silent
        assert self.clock.now - self.rested.get(name, -inf) >= REST
        self.silent[name] = what
        if list(self.silent.values()).count("killed") < 3:  # else it is a cluster
            self.most = max(self.most, len(self.silent))

    def end(self, name: str) -> None:
        del self.silent[name]
        self.rested[name] = self.clock.now

    def kill(self, name: str) -> None:
        self.begin(name, "killed")

    def leave(self, name: str) -> None:
        self.begin(name, "left")

    def restart(self, name: str, wiped: bool) -> None:
        self.end(name)

    def pause(self, name: str) -> None:
        self.begin(name, "paused")

    def resume(self, name: str) -> None:
        self.end(name)

    def spoil(self, sender: str, receiver: str, faults: Faults) -> None:
        self.ways[sender, receiver] = faults

    def close(self, one: str, other: str) -> int:
        return 1

    def heal(self) -> None:
        self.ways.clear()

    def status(self, name: str) -> None:
        return None

    def named(self, id_: str) -> str:
        return id_

    def clusters(self, avoid: Any = ()) -> tuple[ClusterInfo, ...]:
        return tuple(
            ClusterInfo("k", "k", 1, str(n), str(n + 1), (str(n + 2),), (), {}) for n in (0, 3, 6)
        )


@pytest.mark.parametrize("profile", [USUAL, HOSTILE], ids=["usual", "hostile"])
@pytest.mark.parametrize("seed", range(5))
def test_faults_of_all_kinds_are_survivable_and_end(
    monkeypatch: pytest.MonkeyPatch, seed: int, profile: Profile
) -> None:
    clock = Clock()
    monkeypatch.setattr(endurance_faults, "time", clock)
    overlay, ledger = Overlay(clock), Ledger()
    pressed: list[str] = []

    def press(kind: str, _: Random) -> str:
        pressed.append(kind)
        return kind

    injector = Injector(overlay, ledger, seed, 200, 5.0, profile, press)  # type: ignore[arg-type]
    injector.run()
    assert injector.done == sum(injector.kinds.values()) == 200
    assert sorted(injector.kinds) == sorted(kind for kind, _ in profile.kinds)
    assert len(pressed) == sum(injector.kinds[kind] for kind in PRESSURE)
    assert not overlay.silent
    assert all(faults == SOUND for faults in overlay.ways.values())
    assert overlay.most == TOGETHER
    assert sum(injector.kinds[kind] for kind in SILENCING) > 30
    assert len(ledger.kills) > 20
