"""A call waits for its answers from when it has asked, however long subscribing took."""

from __future__ import annotations

import pytest

from canopy.client import client
from canopy.client.client import Call
from overlay.client import Draft


def test_the_time_begins_with_the_question(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(client.time, "monotonic", lambda: now)
    call = Call(Draft({"n": 1}), 1, 5.0)
    assert call.draft.attributes == {"n": 1, "answer_to": call.address}
    now = 107.0  # the subscription was slow
    call.begin()
    assert call.left == 5.0
    now = 113.0
    assert call.left == 0.0
