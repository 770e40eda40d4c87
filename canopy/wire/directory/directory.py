"""The directory: Kademlia maps names to addresses (docs/design/chord-ring.md).

It is soft state that helps a new node with one peer to find the rest, and the halves of a split
ring to find each other. Found addresses are only dialled: the handshake of the link verifies the
node. Entries expire unless they are announced again.

If nodes have no keys the directory is on loopback, and every program on this machine can write
anything into it: so an entry is a bounded list of loopback addresses. If nodes have keys it is on
the node's own address, and an entry has records that nodes have signed, each with its own address
(`signed_kademlia`).

It runs in a daemon thread with an asyncio loop, because the library needs one. A failure of the
thread is logged, and the node continues without a directory. Results return to the trio thread
through `trio.lowlevel.TrioToken`.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from hashlib import sha1
from typing import TYPE_CHECKING, Any

import msgspec
import trio

from canopy.wire.addresses import is_every_address, is_loopback, split_address
from canopy.wire.constants import ENTRY_ADDRESSES, FOUND_MOST, THREAD_STOP_WAIT
from canopy.wire.directory.signed_records import DirectoryKeys, entry_key
from canopy.wire.log import Forward, Log

if TYPE_CHECKING:
    from canopy.wire.directory.kademlia_fixes import HardenedServer
    from canopy.wire.directory.signed_kademlia import SignedServer

Found = Callable[[tuple[str, ...]], None]
Addresses = msgspec.json.Decoder(list[str])


def sound_addresses(text: str | None) -> tuple[str, ...]:
    """Return the loopback addresses of an entry; () if `text` is not a valid entry."""
    if text is None:
        return ()
    try:
        addresses = Addresses.decode(text)
    except (msgspec.MsgspecError, ValueError):
        return ()
    return tuple(address for address in addresses[:ENTRY_ADDRESSES] if is_dialable(address, True))


def is_dialable(address: str, locally: bool = False) -> bool:
    """Return whether `address` is HOST:PORT with a port that can be dialled, at a host that others
    reach, or (`locally`) on loopback."""
    try:
        host, port = split_address(address)
    except ValueError:
        return False
    return port > 0 and (is_loopback(host) if locally else not is_every_address(host))


class Directory:
    """The directory of one overlay, seen from the trio thread. All methods return at once."""

    def __init__(
        self, overlay: str, node: str, log: Log, keys: DirectoryKeys | None = None
    ) -> None:
        """`keys`: the node's keys; None: nodes have no keys, and the directory is on loopback."""
        self._overlay = overlay
        self._node = node
        self._log = log
        self._keys = keys
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server: HardenedServer | None = None
        self._thread: threading.Thread | None = None
        self._token: trio.lowlevel.TrioToken | None = None

    @property
    def running(self) -> bool:
        """Whether the directory's UDP port is open and its thread serves."""
        return self._server is not None

    def start(self, host: str, port: int, on_running: Callable[[], None]) -> None:
        """Listen on UDP `port` of `host`, then call `on_running` in the trio thread.

        If that fails the directory stays off, and the log says why.
        """
        self._token = trio.lowlevel.current_trio_token()
        self._thread = threading.Thread(
            target=self._serve, args=(host, port, on_running), name="directory", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """End the thread; waits at most `THREAD_STOP_WAIT` seconds."""
        loop, thread = self._loop, self._thread
        if loop is not None and thread is not None:
            try:
                loop.call_soon_threadsafe(loop.stop)
            except RuntimeError:
                return  # closed already
            thread.join(THREAD_STOP_WAIT)

    def join(self, addresses: Sequence[str], then: Callable[[], None]) -> None:
        """Contact the directories at `addresses` if no other is known yet; then call `then`."""
        places = [split_address(address) for address in self._dialable(addresses)]

        async def bootstrap(server: HardenedServer) -> None:
            if server.alone and places:
                await server.bootstrap(await resolved(server, places))

        self._run(bootstrap, lambda _: then())

    def put(self, name: str, addresses: Sequence[str]) -> None:
        """Announce the addresses of `name`; if nodes have keys, only the first, which must be this
        node's own. The entry expires after `VALUE_AGE` seconds."""
        sound = self._dialable(addresses)[:ENTRY_ADDRESSES]
        if not sound:
            return

        async def store(server: HardenedServer) -> None:
            await server.set(self._key(name), msgspec.json.encode(sound).decode())

        async def store_signed(server: SignedServer) -> None:
            record = server.records.make(name, sound[0])
            await server.set_digest(entry_key(self._overlay, name), record)

        self._run(store if self._keys is None else store_signed, lambda _: None)

    def get(self, name: str, found: Found) -> None:
        """Look up `name`, and call `found` with its addresses, or (), in the trio thread."""

        async def look(server: HardenedServer) -> tuple[str, ...]:
            value = await server.get(self._key(name))
            return sound_addresses(value if isinstance(value, str) else None)

        async def look_at_signed(server: SignedServer) -> tuple[str, ...]:
            addresses = await server.addresses(entry_key(self._overlay, name))
            return tuple(filter(is_dialable, addresses))[:FOUND_MOST]

        self._run(look if self._keys is None else look_at_signed, lambda each: found(each or ()))

    def _dialable(self, addresses: Sequence[str]) -> list[str]:
        return [address for address in addresses if is_dialable(address, self._keys is None)]

    def _key(self, name: str) -> str:
        return f"canopy/{self._overlay}/{name}"

    def _run(
        self,
        job: Callable[[Any], Coroutine[Any, Any, Any]],
        then: Callable[[Any], None],
    ) -> None:
        """Run `job` in the directory's thread, then `then` with its result in trio.

        If `job` raises, the result is None; without a running directory neither is called.
        """
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

    def _serve(self, host: str, port: int, on_running: Callable[[], None]) -> None:
        loop = asyncio.new_event_loop()
        try:
            silence_libraries(self._log, "kademlia", "rpcudp", "asyncio")
            loop.set_exception_handler(self._on_fault)
            server = self._make_server(is_loopback(host))
            loop.run_until_complete(server.listen(port, interface=host))
            self._server, self._loop = server, loop
            self._call(on_running)
            loop.run_forever()
            server.stop()
            loop.run_until_complete(asyncio.sleep(0))  # the transport closes in the next step
        except Exception as error:  # the node goes on without a directory
            self._log.warning("directory_off", reason=f"{type(error).__name__}: {error}")
        finally:
            self._server = None
            cancel_all(loop)
            loop.close()

    def _make_server(self, is_local: bool) -> HardenedServer:
        """Import the library and make the server. The import takes a tenth of a second, and no node
        waits for it."""
        if self._keys is not None:
            from canopy.wire.directory.signed_kademlia import SignedServer

            return SignedServer(self._node, self._keys, time.monotonic, is_local)
        from canopy.wire.directory.kademlia_fixes import HardenedServer

        return HardenedServer(sha1(self._node.encode()).digest(), time.monotonic)

    def _on_fault(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self._log.debug("directory", reason=context.get("exception") or context.get("message"))


async def resolved(
    server: HardenedServer, places: Sequence[tuple[str, int]]
) -> list[tuple[str, int]]:
    """Return the numeric addresses of these places, of the address family that `server` has."""
    loop = asyncio.get_running_loop()
    family = server.transport.get_extra_info("socket").family
    found = []
    for host, port in places:
        try:
            known = await loop.getaddrinfo(host, port, family=family, type=socket.SOCK_DGRAM)
        except OSError:
            continue
        found += [(str(each[4][0]), port) for each in known[:1]]
    return found


def cancel_all(loop: asyncio.AbstractEventLoop) -> None:
    """Cancel the tasks of a loop that has stopped."""
    tasks = list(asyncio.all_tasks(loop))
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))


def silence_libraries(log: Log, *names: str) -> None:
    """Make the libraries' loggers write to `log` on level debug, and nowhere else."""
    for name in names:
        logger = logging.getLogger(name)
        if not logger.handlers:
            logger.addHandler(Forward(log))
            logger.setLevel(logging.WARNING)
            logger.propagate = False
