"""Work that nodes of a simulated overlay do in a turn, counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from node import Node


class TurnWork:
    """Calls of some methods by the nodes of a world, in all and by the turn with most of them: what
    is done in one turn is counted, not timed."""

    def __init__(
        self, patch: pytest.MonkeyPatch, **methods: tuple[type, str] | tuple[type, str, Any]
    ) -> None:
        """`methods`: by a name of the test's, class and method; a third item, called with the
        method's arguments, says how much one call counts for."""
        self.total: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        """In one turn of one node."""
        self._turn: Counter[str] = Counter()
        for name, (owner, method, *weigh) in methods.items():
            patch.setattr(owner, method, self._counted(name, getattr(owner, method), *weigh))
        patch.setattr(Node, "_finish_turn", self._ending(Node._finish_turn))

    def begin(self) -> None:
        """Count again from here on."""
        self.total.clear()
        self.most.clear()

    def _counted(
        self, name: str, original: Callable[..., Any], weigh: Callable[..., int] = lambda *_: 1
    ) -> Callable[..., Any]:
        def counted(*arguments: Any, **named: Any) -> Any:
            self._turn[name] += weigh(*arguments)
            return original(*arguments, **named)

        return counted

    def _ending(self, original: Callable[[Node], None]) -> Callable[[Node], None]:
        def _finish_turn(node: Node) -> None:
            original(node)
            self.total += self._turn
            self.most |= self._turn
            self._turn.clear()

        return _finish_turn
