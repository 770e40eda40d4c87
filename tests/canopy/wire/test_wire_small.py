"""Log lines, the telemetry sampler, and what the node asks of the directory."""

from __future__ import annotations

import io
import logging
import math
import time

import pytest

from canopy.wire.config import NodeConfig
from canopy.wire.directory import discovery as discovery_module
from canopy.wire.directory.discovery import Discovery
from canopy.wire.driver import TrioDriver
from canopy.wire.log import Forward, Log, logfmt
from canopy.wire.process.telemetry import Sampler
from matching import check_value
from overlay.machine import Peer
from tests.support.real.echo_node import EchoNode, NoOutputs


def test_a_log_line_has_time_level_event_and_fields() -> None:
    out = io.StringIO()
    log = Log("info", out, clock=lambda: 1_700_000_000.25)
    log.debug("hidden")
    log.info("ready", node="ab", address="127.0.0.1:1", share=0.5)
    assert out.getvalue() == (
        "2023-11-14T22:13:20.250Z info ready node=ab address=127.0.0.1:1 share=0.5\n"
    )


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("plain", "plain"),
        ("", '""'),
        ("two words", '"two words"'),
        ('a "b" \\', '"a \\"b\\" \\\\"'),
        ("line\nbreak", '"line\\nbreak"'),
        ("\x1b[31mred", '"\\u001b[31mred"'),
        ("a=b", '"a=b"'),
        (7, "7"),
    ],
)
def test_a_value_never_breaks_its_line_or_the_terminal(value: object, shown: str) -> None:
    assert logfmt(value) == shown


def test_a_value_is_bounded() -> None:
    assert len(logfmt("x" * 1_000_000)) < 3_000


def test_a_log_without_a_reader_blocks_nothing() -> None:
    out = io.StringIO()
    out.close()
    Log("info", out).error("anything")


def test_what_libraries_say_is_debug() -> None:
    out = io.StringIO()
    logger = logging.Logger("library")
    logger.addHandler(Forward(Log("debug", out)))
    logger.error("no reply\nfrom %s", "x")
    assert 'debug library name=library message="no reply\\nfrom x"' in out.getvalue()


def test_a_sample_is_flat_valid_and_has_unique_ids() -> None:
    now = 0.0
    sampler = Sampler("00000000000000aa", "1.1", lambda: now, "it")
    first = sampler.sample()
    now = 2.0
    second = sampler.sample()
    everything = [draft.attributes for draft in first + second]
    assert {"cpu", "memory", "load"} <= {str(attributes["type"]) for attributes in everything}
    ids = [attributes["id"] for attributes in everything]
    assert len(set(ids)) == len(ids)
    for attributes in everything:
        assert attributes["node"] == "00000000000000aa"
        assert all(name.replace("_", "a").isalnum() for name in attributes)
        assert [check_value(v) for v in attributes.values()] == [None] * len(attributes)
    with_rates = [draft.attributes for draft in second if draft.attributes["type"] == "network"]
    assert all(attributes["sent_kbps"] >= 0 for attributes in with_rates)  # type: ignore[operator]


def test_a_rate_needs_two_samples_and_is_kilobits_per_second() -> None:
    sampler = Sampler("00000000000000aa", "1.1", lambda: 0.0)
    assert sampler._rates("x", math.inf, 1_000.0) == ()
    assert sampler._rates("x", 2.0, 251_000.0) == (1_000.0,)
    assert sampler._rates("x", 2.0, 0.0) == (0.0,)  # the counter began again


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="Linux has two such clocks")
def test_a_nodes_clock_goes_on_while_its_machine_is_suspended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clocks = {time.CLOCK_BOOTTIME: 500.0, time.CLOCK_MONOTONIC: 100.0}
    monkeypatch.setattr(time, "clock_gettime", clocks.__getitem__)
    monkeypatch.setattr(time, "monotonic", lambda: clocks[time.CLOCK_MONOTONIC])
    assert TrioDriver(Log("error", io.StringIO())).clock() == 500.0


def test_found_addresses_are_seeds_and_those_named_longest_ago_leave(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(discovery_module, "FOUND_MOST", 3)
    log = Log("error", io.StringIO())
    driver = TrioDriver(log)
    node = EchoNode(driver)
    driver.attach(node, NoOutputs())
    discovery = Discovery(driver, NodeConfig(peers=("127.0.0.1:1",)), log)
    discovery._own = Peer("00000000000000aa", "127.0.0.1:2").address
    discovery._take(("127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3", "127.0.0.1:3"))
    discovery._take(("127.0.0.1:3", "127.0.0.1:4"))
    discovery._take(("127.0.0.1:5",))
    assert node.seeds == ["127.0.0.1:3", "127.0.0.1:4", "127.0.0.1:5"]
    discovery._take(("127.0.0.1:3",))  # is still there: another one leaves
    discovery._take(("127.0.0.1:6",))
    assert node.seeds == ["127.0.0.1:3", "127.0.0.1:5", "127.0.0.1:6"]
    discovery._take([f"127.0.0.1:{port}" for port in range(10, 20)])
    assert node.seeds == ["127.0.0.1:10", "127.0.0.1:11", "127.0.0.1:12"]
