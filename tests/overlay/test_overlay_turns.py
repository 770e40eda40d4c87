"""The dispatcher finds each handler, and a turn that never ends is an error, not silence."""

from __future__ import annotations

import pytest

from overlay import turns as turns_module
from overlay.machine import LocalEvent, Machine, Message, Peer, ProtocolError, handlers_of
from overlay.turns import Turns


class Ping(Message, frozen=True):
    left: int


class Echo(Machine):
    def __init__(self, turns: Turns) -> None:
        self.turns = turns

    def on_ping(self, sender: Peer, message: Ping) -> None:
        if message.left:
            self.turns.post(sender, Ping(message.left - 1))


class Rang(LocalEvent, frozen=True):
    pass


class Stopped(LocalEvent, frozen=True):
    pass


class Listener(Echo):
    def on_end(self, event: Rang | Stopped) -> None:
        pass

    def rang(self, event: Rang) -> None:
        pass


def test_a_handler_is_known_by_the_type_of_its_last_parameter() -> None:
    listener = Listener(Turns(lambda: 0.0))
    assert listener.handlers() == {
        Ping: listener.on_ping,
        Rang: listener.on_end,
        Stopped: listener.on_end,
    }


def test_two_methods_for_one_type_are_refused() -> None:
    class Twice(Listener):
        def on_rang(self, event: Rang) -> None:
            pass

    with pytest.raises(TypeError, match="Twice handles Rang twice"):
        Twice(Turns(lambda: 0.0)).handlers()


def test_two_parts_that_handle_one_type_are_refused() -> None:
    parts = Echo(Turns(lambda: 0.0)), Listener(Turns(lambda: 0.0))
    with pytest.raises(TypeError, match="Listener and another part handle"):
        handlers_of(*parts)


def test_two_handlers_that_answer_each_other_for_ever_are_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(turns_module, "MAX_TURN_MESSAGES", 100)
    turns = Turns(lambda: 0.0)
    turns.build([Echo(turns)])
    turns.dispatch(Peer("a", ""), Ping(100))
    with pytest.raises(RuntimeError, match="without end: Ping"):
        turns.dispatch(Peer("a", ""), Ping(101))


def test_what_is_refused_late_ends_nothing_else() -> None:
    """An event of a message whose handler has refused it afterwards, or a timer: no sender is at
    hand to whom it could be held."""
    late: list[str] = []
    turns = Turns(lambda: 0.0, lambda: late.append("refused"))
    turns.build([Echo(turns)])
    heard: list[str] = []

    def refuse(event: Rang) -> None:
        raise ProtocolError("no")

    turns.listen(Rang, refuse)
    turns.listen(Stopped, lambda event: heard.append("stopped"))
    for event in (Rang(), Stopped(), Rang()):
        turns.emit(event)
    turns.settle()
    assert (heard, late) == (["stopped"], ["refused", "refused"])
    turns.emit(Rang())
    with pytest.raises(ProtocolError):
        turns.dispatch(Peer("a", ""), Ping(0))
