"""The bench of a registration's stages runs, and every stage that it names takes time."""

from __future__ import annotations

import argparse

from bench.node.registering import WATCHED, measure
from overlay.upper_tree.subscriber.receiver import Receiver


def test_every_stage_of_a_registration_is_timed() -> None:
    add = Receiver.add_many
    found = measure(argparse.Namespace(selectors=64, seed=3))
    assert found["us_per_registration"] > 0
    for _, _, stage in WATCHED:
        assert found["stages"][stage] > 0, stage
    assert len(found["stages"]) == len(WATCHED) + 4
    assert Receiver.add_many is add, "the methods are as they were"
