"""Counting (C8): a set of attributes per event and conjunction, never a bare counter."""

from __future__ import annotations

from harness.overlays import settings
from matching import EVERYTHING, compile_selector
from overlay.client import Event
from overlay.machine import Peer
from overlay.upper_tree.event_history import EventHistory
from overlay.upper_tree.messages import Deliver
from overlay.upper_tree.subscriber.receiver import Arrived, Receiver
from tests.support.world import one_node

HOST = Peer("host", "host:1")


def test_a_repeated_visit_does_not_count_twice() -> None:
    port = one_node()
    receiver = Receiver(port, settings(tree={"routing": "counting"}), EventHistory(10))
    receiver.add("s", compile_selector("x = 1 AND y = 1"), {"s/0": 2})
    event = Event("publisher", 1, 1, 0.0, {"x": 1, "y": 1})

    def arrives(attribute: str) -> int:
        receiver.on_deliver(HOST, Deliver(attribute, EVERYTHING, 1, (event,), (("s/0",),)))
        return sum(isinstance(event, Arrived) for event in port.emitted)

    assert arrives("x") == 0
    assert arrives("x") == 0
    assert arrives("y") == 1
    assert arrives("y") == 1  # a duplicate is not shown again
