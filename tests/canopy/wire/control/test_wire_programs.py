"""The bound of connected programs (`clients.programs`): who is one too many hears why."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest
import trio

import canopy
import canopy.trio
from canopy.cli.errors import FAILURE, known_code
from canopy.client.blocking import ControlClient
from canopy.client.errors import NodeFullError
from canopy.tui.model.inbox import Inbox
from canopy.tui.model.requester import Requester, connector
from canopy.wire.config import ClientConfig, load_config
from overlay.client import GetStatus, Publish, Status
from tests.support.real.wire_rig import PATIENCE, rig

pytestmark = pytest.mark.trio
T = TypeVar("T")

REASON = r"too many programs \(2\) are connected; .*raise clients.programs"


async def outside(work: Callable[[], T]) -> T:
    """Run the blocking client in a thread, as a program would in its own process."""
    with trio.fail_after(PATIENCE):
        return await trio.to_thread.run_sync(work, abandon_on_cancel=True)


async def test_one_program_too_many_hears_why_and_those_before_it_are_served(
    tmp_path: Path,
) -> None:
    async with rig(socket=tmp_path / "control.sock", clients=ClientConfig(programs=2)) as one:

        def work() -> None:
            with ControlClient.connect(tmp_path) as first, ControlClient.connect(tmp_path) as last:
                first.ask(GetStatus(0), Status)
                last.ask(GetStatus(0), Status)
                with ControlClient.connect(tmp_path) as client:
                    with pytest.raises(NodeFullError, match=REASON) as refused:
                        client.request(GetStatus(0))
                    assert known_code(refused.value) == FAILURE
                    with pytest.raises(NodeFullError, match=REASON):
                        client.request(Publish(0, ()))
                    with pytest.raises(NodeFullError, match=REASON):
                        client.deliveries(PATIENCE)
                first.ask(GetStatus(0), Status)

        await outside(work)
        assert one.control.refused == 1
        assert "refused_client" in one.log.getvalue()


async def test_a_program_that_writes_after_it_was_refused_reads_why(tmp_path: Path) -> None:
    """Its first write fails, since the node has closed: what the node said is there to be read."""
    async with rig(socket=tmp_path / "control.sock", clients=ClientConfig(programs=1)) as one:
        keeper = await trio.open_unix_socket(one.path)
        one.streams.append(keeper)
        while not one.control.clients:
            await trio.sleep(0.005)
        late = await outside(lambda: ControlClient.connect(tmp_path))
        while not one.control.refused:
            await trio.sleep(0.005)
        with pytest.raises(NodeFullError):
            await outside(lambda: late.request(GetStatus(0)))
        late.close()
        async with canopy.trio.connect(tmp_path, reconnect=0) as client:
            while one.control.refused < 2:
                await trio.sleep(0.005)
            with pytest.raises(NodeFullError):
                await client.publish({"a": 1})


async def test_a_client_gets_in_when_another_has_gone(tmp_path: Path) -> None:
    async with rig(socket=tmp_path / "control.sock", clients=ClientConfig(programs=1)) as one:

        def work() -> None:
            keeper = ControlClient.connect(tmp_path)
            keeper.ask(GetStatus(0), Status)
            with canopy.connect(tmp_path) as client:
                with pytest.raises(canopy.NodeFullError):
                    client.publish({"a": 1})
                keeper.close()
                while True:  # the node has yet to see that
                    try:
                        client.publish({"a": 1})
                        return
                    except canopy.NodeFullError:
                        continue

        await outside(work)
        assert one.control.refused >= 1


async def test_the_terminal_ui_says_why_it_is_not_connected(tmp_path: Path) -> None:
    async with rig(socket=tmp_path / "control.sock", clients=ClientConfig(programs=1)) as one:
        keeper = await trio.open_unix_socket(one.path)
        one.streams.append(keeper)
        while not one.control.clients:
            await trio.sleep(0.005)
        states: list[tuple[bool, str]] = []
        inbox = Inbox()
        asker = Requester(
            connector(str(tmp_path)), inbox, lambda up, why, _: states.append((up, why))
        )
        asker.start()
        with trio.fail_after(PATIENCE):
            while not states:
                for callback in inbox.drain().callbacks:
                    callback()
                await trio.sleep(0.01)
        asker.stop()
        assert [up for up, _ in states] == [False], "it was never shown as connected"
        assert "too many programs (1)" in states[0][1]


async def test_the_number_is_a_setting() -> None:
    config = load_config(environment={"CANOPY_CLIENTS__PROGRAMS": "1000"})
    assert config.clients.programs == 1_000
