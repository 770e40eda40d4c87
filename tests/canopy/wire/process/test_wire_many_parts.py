"""Counting routing in real processes, by trees of many virtual nodes on several nodes: every
delivery against what SQLite says."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path
from random import Random

import pytest

from canopy.client.blocking import ControlClient
from harness.real_overlay import PATIENCE, Overlay
from overlay.client import Draft, Located, Publish, Subscribe, Subscribed, Where

CONFIG = """
tree: {routing: counting, split_at: 8, host_entries: 16}
"""
NODES, SELECTORS, EVENTS = 2, 60, 120


def selectors(rng: Random) -> list[str]:
    """Selectors over two numbers and a text, in what SQLite and Canopy both understand."""
    found: list[str] = []
    for _ in range(SELECTORS):
        low, value = rng.randrange(90), rng.randrange(100)
        found.append(
            rng.choice(
                [
                    f"a BETWEEN {low} AND {low + 10}",
                    f"a > {low} AND b < {value}",
                    f"a IN ({low}, {value}) OR b BETWEEN {low} AND {low + 5}",
                    f"NOT (a < {value} OR b > {low}) AND place LIKE 'N%'",
                    f"b IS NULL AND a * 2 > {value}",
                ]
            )
        )
    return found


def by_sqlite(wanted: list[str], events: list[dict[str, object]]) -> list[tuple[int, str]]:
    """The number of each selector with the id of each event that it is for."""
    base = sqlite3.connect(":memory:")
    base.execute("PRAGMA case_sensitive_like = ON")
    base.execute("CREATE TABLE e (id TEXT, a NUMERIC, b NUMERIC, place TEXT)")
    rows = [tuple(event.get(name) for name in ("id", "a", "b", "place")) for event in events]
    base.executemany("INSERT INTO e VALUES (?, ?, ?, ?)", rows)
    found = [
        (number, str(identity))
        for number, where in enumerate(wanted)
        for (identity,) in base.execute(f"SELECT id FROM e WHERE {where}")
    ]
    base.close()
    return found


def until_cut(client: ControlClient) -> None:
    """Wait until both trees have several virtual nodes, on both nodes."""
    until = time.monotonic() + PATIENCE
    while True:
        trees = [client.ask(Where(0, name), Located, PATIENCE).virtual_nodes for name in "ab"]
        hosts = {part.host for tree in trees for part in tree}
        if min(map(len, trees)) > 1 and sum(map(len, trees)) > 4 and len(hosts) > 1:
            return
        assert time.monotonic() < until, trees
        time.sleep(0.1)


@pytest.mark.process
def test_counting_over_trees_of_many_virtual_nodes_delivers_what_sqlite_says(
    tmp_path: Path,
) -> None:
    rng = Random(5)
    overlay = Overlay(tmp_path, CONFIG)
    try:
        overlay.grow(NODES)
        clients = overlay.clients
        wanted = selectors(rng)
        names: dict[str, int] = {}
        for number, selector in enumerate(wanted):
            client = clients[number % NODES]
            names[client.ask(Subscribe(0, selector), Subscribed, PATIENCE).subscription] = number
        until_cut(clients[0])
        events: list[dict[str, object]] = []
        for number in range(EVENTS):
            event: dict[str, object] = {"id": str(number), "a": rng.randrange(100)}
            if rng.random() < 0.7:
                event["b"] = rng.randrange(100)
            if rng.random() < 0.8:
                event["place"] = rng.choice(["Nome", "Næss", "north", "Fiji"])
            events.append(event)
        for start, client in enumerate(clients):
            drafts = tuple([Draft(event) for event in events[start::NODES]])
            client.request(Publish(0, drafts), PATIENCE)
        expected = by_sqlite(wanted, events)
        shown: list[tuple[int, str]] = []
        for number, client in enumerate(clients):
            count = sum(selector % NODES == number for selector, _ in expected)
            before = len(shown)
            while len(shown) < before + count:
                news = client.deliveries(PATIENCE)
                assert news, f"{len(shown) - before} of {count} came"
                shown += [
                    (names[one.subscription], str(one.event.attributes["id"])) for one in news
                ]
        assert len(expected) > 300
        assert sorted(shown) == sorted(expected)
        assert [client.deliveries(0.05) for client in clients] == [[]] * NODES
    finally:
        overlay.stop()
