"""A turn that never ends is an error, not silence."""

from __future__ import annotations

from typing import Any

import pytest

from overlay import turns as turns_module
from overlay.machine import Machine, Message, Peer
from overlay.turns import Turns


class Ping(Message, frozen=True):
    left: int


class Echo(Machine):
    def __init__(self, turns: Turns) -> None:
        self.turns = turns

    def handlers(self) -> Any:
        return {Ping: self.on_ping}

    def on_ping(self, sender: Peer, message: Ping) -> None:
        if message.left:
            self.turns.post(sender, Ping(message.left - 1))


def test_two_handlers_that_answer_each_other_for_ever_are_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(turns_module, "MAX_TURN_MESSAGES", 100)
    turns = Turns(lambda: 0.0)
    turns.build([Echo(turns)])
    turns.dispatch(Peer("a", ""), Ping(100))
    with pytest.raises(RuntimeError, match="without end: Ping"):
        turns.dispatch(Peer("a", ""), Ping(101))
