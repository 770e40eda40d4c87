"""A registration's predicate is compiled once in a process, and shared."""

from __future__ import annotations

import pytest

from matching import Predicate, compile_selector
from overlay.bounded import BoundedDict
from overlay.machine import ProtocolError
from overlay.upper_tree import compiled_selectors as module
from overlay.upper_tree.compiled_selectors import boxes_of, compiled, keep


def test_a_part_of_a_subscription_is_shared_by_its_text() -> None:
    whole = compile_selector("b >= 2 AND a < 1 OR c = 3")
    for conjunction in whole.conjunctions:
        part = Predicate.of(conjunction)
        keep(part)
        assert compiled(part.text) is part
        assert part.conjunctions[0] is conjunction
    assert boxes_of("c = 3")[0] == tuple(whole.conjunctions[1].pivots())


def test_only_some_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_kept", BoundedDict(3))
    parts = [Predicate.of(compile_selector(f"x = {n}").conjunctions[0]) for n in range(5)]
    for part in parts:
        keep(part)
    assert list(module._kept) == ["x = 2", "x = 3", "x = 4"]
    assert compiled("x = 4") is parts[4]
    assert compiled("x = 0") == parts[0]
    assert compiled("x = 0") is compiled("x = 0")


def test_what_does_not_compile_is_the_senders_fault() -> None:
    with pytest.raises(ProtocolError, match="does not compile"):
        compiled("x =")
