"""The phone book: Kademlia maps names to addresses, on loopback only (DESIGN.md, section 7).

Soft state that helps a newcomer with one peer to find the rest and a split ring to find itself
again; never an authority. Whoever is on this machine can write anything into it, so an entry is a
bounded list of loopback addresses and nothing more, and what is found there is only dialled: the
handshake of the link decides who answers. Entries fade unless they are told again.

It runs in a daemon thread with a loop of asyncio, because the library needs one; the thread's
troubles never reach the node, whose life goes on without a directory. Results come back into the
trio thread through `trio.lowlevel.TrioToken`.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from hashlib import sha1
from typing import TYPE_CHECKING, Any, Final

import msgspec
import trio

from canopy.wire.config import is_loopback, split_address
from canopy.wire.log import Forward, Log

if TYPE_CHECKING:
    from canopy.wire.directory.kademlia_fixes import MendedServer

ADDRESSES: Final = 16  # of one entry; wild guess
STOP_WAIT: Final = 1.0  # seconds for the thread to end; it is a daemon

Found = Callable[[tuple[str, ...]], None]
Addresses = msgspec.json.Decoder(list[str])


def sound_addresses(text: str | None) -> tuple[str, ...]:
    """The loopback addresses of an entry; () for anything that is no entry."""
    if text is None:
        return ()
    try:
        addresses = Addresses.decode(text)
    except (msgspec.MsgspecError, ValueError):
        return ()
    return tuple(address for address in addresses[:ADDRESSES] if is_reachable(address))


def is_reachable(address: str) -> bool:
    """Whether `address` is HOST:PORT on loopback, with a port that can be dialled."""
    try:
        host, port = split_address(address)
    except ValueError:
        return False
    return port > 0 and is_loopback(host)


class Directory:
    """The directory of one overlay, seen from the trio thread. All methods return at once."""

    def __init__(self, overlay: str, node: str, log: Log) -> None:
        self._overlay = overlay
        self._identity = sha1(node.encode()).digest()
        self._log = log
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server: MendedServer | None = None
        self._thread: threading.Thread | None = None
        self._token: trio.lowlevel.TrioToken | None = None

    @property
    def running(self) -> bool:
        """Whether it listens."""
        return self._server is not None

    def start(self, host: str, port: int, on_running: Callable[[], None]) -> None:
        """Listen on UDP `port` of loopback; `on_running` is called in the trio thread then.

        If that fails the log says so and the directory stays off.
        """
        self._token = trio.lowlevel.current_trio_token()
        self._thread = threading.Thread(
            target=self._live, args=(host, port, on_running), name="directory", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        loop, thread = self._loop, self._thread
        if loop is not None and thread is not None:
            try:
                loop.call_soon_threadsafe(loop.stop)
            except RuntimeError:
                return  # closed already
            thread.join(STOP_WAIT)

    def join(self, addresses: Sequence[str], then: Callable[[], None]) -> None:
        """Get to know the nodes at these addresses, if none is known yet; then call `then`."""
        places = [split_address(address) for address in addresses if is_reachable(address)]
        contacts = [("127.0.0.1" if host == "localhost" else host, port) for host, port in places]

        async def bootstrap(server: MendedServer) -> None:
            if server.alone and contacts:
                await server.bootstrap(contacts)

        self._run(bootstrap, lambda _: then())

    def put(self, name: str, addresses: Sequence[str]) -> None:
        """Tell where `name` is. It fades (`kademlia_mends.VALUE_AGE`) unless told again."""
        sound = [address for address in addresses if is_reachable(address)][:ADDRESSES]
        if not sound:
            return
        key, entry = self._key(name), msgspec.json.encode(sound).decode()

        async def tell(server: MendedServer) -> None:
            await server.set(key, entry)

        self._run(tell, lambda _: None)

    def get(self, name: str, found: Found) -> None:
        """Look `name` up and call `found` in the trio thread; () if nobody knows."""

        async def look(server: MendedServer) -> str | None:
            value = await server.get(self._key(name))
            return value if isinstance(value, str) else None

        self._run(look, lambda text: found(sound_addresses(text)))

    def _key(self, name: str) -> str:
        return f"canopy/{self._overlay}/{name}"

    def _run(
        self,
        job: Callable[[MendedServer], Coroutine[Any, Any, Any]],
        then: Callable[[Any], None],
    ) -> None:
        """Do `job` in the thread, and `then` with its result in trio; nothing if it fails."""
        server, loop = self._server, self._loop
        if server is None or loop is None:
            return

        async def guarded() -> None:
            try:
                result = await job(server)
            except Exception as error:
                self._log.debug("directory", reason=f"{type(error).__name__}: {error}")
                result = None
            self._call(then, result)

        try:
            asyncio.run_coroutine_threadsafe(guarded(), loop)
        except RuntimeError:
            self._server = None  # the loop is closed

    def _call(self, function: Callable[..., None], *arguments: Any) -> None:
        """Call `function` in the trio thread, if there still is one."""
        assert self._token is not None
        try:
            self._token.run_sync_soon(function, *arguments)
        except trio.RunFinishedError:
            return

    # In the directory's thread.

    def _live(self, host: str, port: int, on_running: Callable[[], None]) -> None:
        loop = asyncio.new_event_loop()
        try:
            from canopy.wire.directory.kademlia_fixes import MendedServer

            silence_libraries(self._log)
            loop.set_exception_handler(self._on_fault)
            server = MendedServer(self._identity, time.monotonic)
            loop.run_until_complete(server.listen(port, interface=host))
            self._server, self._loop = server, loop
            self._call(on_running)
            loop.run_forever()
            server.stop()
            loop.run_until_complete(asyncio.sleep(0))  # the transport closes in the next step
        except Exception as error:  # whatever it is: the node lives without a directory
            self._log.warning("directory_off", reason=f"{type(error).__name__}: {error}")
        finally:
            self._server = None
            cancel_all(loop)
            loop.close()

    def _on_fault(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self._log.debug("directory", reason=context.get("exception") or context.get("message"))


def cancel_all(loop: asyncio.AbstractEventLoop) -> None:
    """Cancel what is under way in a loop that has stopped."""
    tasks = list(asyncio.all_tasks(loop))
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))


def silence_libraries(log: Log) -> None:
    """Their loggers write to our log on level debug, and nowhere else."""
    for name in ("kademlia", "rpcudp", "asyncio"):
        logger = logging.getLogger(name)
        if not logger.handlers:
            logger.addHandler(Forward(log))
            logger.setLevel(logging.WARNING)
            logger.propagate = False
