"""Each parser on its seeds and on some hundred inputs near them; `make fuzz` goes on from there."""

from __future__ import annotations

from itertools import islice
from random import Random

import pytest

from tests.fuzz.mutating import mutated
from tests.fuzz.targets import TARGETS

INPUTS = 150


# The codec of MQTT leaves an exception behind when it panics (canopy/gateway/mqtt/packets.py).
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("name", TARGETS)
def test_bad_input_is_refused_and_nothing_else(name: str) -> None:
    target = TARGETS[name]
    seeds = target.seeds()
    for data in (*seeds, b"", *islice(mutated(seeds, Random(name)), INPUTS)):
        target.run(data)
