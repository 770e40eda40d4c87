"""`canopy sample` prints what `canopy pub` reads, and in which selectors find something."""

from __future__ import annotations

import io

import pytest

from canopy.cli.sample import SAMPLES
from canopy.feeds import FeedEvent, read_feed
from matching import compile_selector

FOUND = {
    "earthquakes": "mag >= 4.5 AND place LIKE '%Alaska'",
    "orders": "state = 'paid' AND total > 100",
    "readings": "celsius > 25 AND region = 'us'",
}


@pytest.mark.parametrize("name", SAMPLES)
def test_a_sample_is_read_whole_and_is_the_same_each_time(name: str) -> None:
    text = "\n".join(SAMPLES[name](200, 1))
    found = list(read_feed(io.BytesIO(text.encode())))
    events = [item.draft.attributes for item in found if isinstance(item, FeedEvent)]
    assert len(events) == len(found) == 200
    assert len({each["id"] for each in events}) == 200
    assert text == "\n".join(SAMPLES[name](200, 1)) != "\n".join(SAMPLES[name](200, 2))
    selector = compile_selector(FOUND[name])
    assert 5 < sum(selector.matches(each) is True for each in events) < 100
