"""What both faces of the client library carry out: steps, without a node."""

from __future__ import annotations

import asyncio
import math
from types import SimpleNamespace
from typing import Any

import pytest

from canopy.client.asynchronous import AsyncSubscription
from canopy.client.blocking import carry_out
from canopy.client.resubscription import KeptSelector
from canopy.client.steps import asked
from overlay.client import Command, GetStatus


class Requests:
    """Requests by number, of which those in `failing` raise when they are finished."""

    def __init__(self, *failing: int) -> None:
        self.failing = failing
        self.open: list[int] = []
        self.most = 0
        self.abandoned: list[int] = []

    def begin(self, command: Command) -> int:
        self.open.append(command.request)
        self.most = max(self.most, len(self.open))
        return command.request

    def finish(self, number: int) -> str:
        self.open.remove(number)
        if number in self.failing:
            raise ValueError(number)
        return f"reply {number}"

    def run(self, count: int, ahead: int) -> list[str]:
        commands = [GetStatus(number) for number in range(count)]
        return carry_out(asked(commands, self.begin, self.finish, self.abandoned.append, ahead))


@pytest.mark.parametrize("ahead", [1, 3, 20])
def test_replies_come_in_order_and_only_so_many_requests_are_open(ahead: int) -> None:
    requests = Requests()
    assert requests.run(10, ahead) == [f"reply {number}" for number in range(10)]
    assert requests.most == min(ahead, 10)
    assert requests.abandoned == []


def test_an_error_abandons_what_was_begun() -> None:
    requests = Requests(4)
    with pytest.raises(ValueError, match="4"):
        requests.run(10, 3)
    assert requests.abandoned == requests.open == [5, 6]


def test_a_subscription_that_is_closed_while_its_node_is_away_opens_no_connection() -> None:
    opened: list[str] = []

    async def connect() -> Any:
        opened.append("a connection")
        raise AssertionError("it was closed")

    async def closed_meanwhile(seconds: float) -> None:
        subscription.close()

    runtime: Any = SimpleNamespace(sleep=closed_meanwhile)
    wanted = [KeptSelector("x = 1")]
    subscription = AsyncSubscription(
        runtime, connect, wanted, math.inf, 60.0, lambda consumer: None
    )
    assert asyncio.run(subscription.receive()) == []
    assert opened == []
