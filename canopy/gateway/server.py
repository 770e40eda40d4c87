"""The gateway's process: it opens the doors, limits their connections, and shuts down."""

from __future__ import annotations

import signal
import ssl
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import msgspec
import trio

import canopy.trio
from canopy.gateway.access import GatewayRules
from canopy.gateway.constants import CONNECTIONS, HEAD_TIMEOUT
from canopy.gateway.http.exchange import first_cause
from canopy.gateway.http.paths import HttpDoor
from canopy.wire.addresses import is_loopback, join_address, split_address
from canopy.wire.log import Log
from canopy.wire.process.listener import StartError, bind_fault, raise_file_limit
from canopy.wire.token_file import TokenFile
from canopy.wire.transport.accept_limits import AcceptLimits

Serve = Callable[[trio.abc.Stream, str, Callable[[], None]], Awaitable[None]]
"""Serves a connection. Its address is for the log; the connection's handler calls the function when
the client has shown that it may use the gateway. Until then the connection may be closed to make
room."""


class Options(msgspec.Struct, frozen=True):
    """The options of a gateway. `http` and `mqtt` are addresses; "": without that door."""

    node: str | None = None
    http: str = "127.0.0.1:8470"
    mqtt: str = ""
    tokens: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    origins: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    connections: int = CONNECTIONS
    insecure: bool = False


def check_options(options: Options) -> None:
    """Raise StartError for options that would admit strangers, or cannot work."""
    if not options.http and not options.mqtt:
        raise StartError("there is nothing to serve: give --http or --mqtt an address")
    if (options.certificate is None) != (options.key is None):
        raise StartError("--certificate and --key belong together")
    for address in filter(None, (options.http, options.mqtt)):
        try:
            host, _ = split_address(address)
        except ValueError as error:
            raise StartError(str(error)) from None
        if is_loopback(host) or options.insecure:
            continue
        lacking = []
        if options.tokens is None:
            lacking.append("tokens (canopy gateway token add NAME, then --tokens FILE)")
        if options.certificate is None:
            lacking.append("TLS (--certificate FILE --key FILE)")
        if lacking:
            raise StartError(
                f"{address} can be reached from other machines and lacks {' and '.join(lacking)}; "
                f"--insecure starts without"
            )


def tls_context(options: Options) -> ssl.SSLContext | None:
    """Return the TLS context of the doors; None without a certificate. Raises StartError."""
    if options.certificate is None or options.key is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(options.certificate, options.key)
    except (OSError, ssl.SSLError) as error:
        where = f"{options.certificate} and {options.key}"
        raise StartError(f"no certificate and key in {where}: {error}") from None
    return context


def run(options: Options, log: Log, ready: Callable[[dict[str, str]], None]) -> None:
    """Run `serve` to its end, and raise its first error."""
    try:
        trio.run(partial(serve, options, log, ready))
    except BaseExceptionGroup as group:
        raise first_cause(group) from None


async def serve(options: Options, log: Log, ready: Callable[[dict[str, str]], None]) -> None:
    """Serve until SIGTERM or SIGINT. `ready` is called with the address of each door. Raises
    StartError, and a ControlError if no node runs."""
    check_options(options)
    context = tls_context(options)
    raise_file_limit()
    tokens = TokenFile(options.tokens) if options.tokens is not None else None
    if tokens is not None and not tokens.all():
        log.warning("no_tokens", file=str(options.tokens), hint="canopy gateway token add NAME")
    async with canopy.trio.connect(options.node) as client, trio.open_nursery() as nursery:
        doors: dict[str, str] = {}
        bound = Doors(context, options.connections, log)
        if options.http:
            host, _ = split_address(options.http)
            hosts = (*options.hosts, host) if tokens is None and is_loopback(host) else ()
            http = HttpDoor(client, GatewayRules(tokens, options.origins, hosts), log)
            doors["http"] = await bound.open(nursery, "--http", options.http, http.serve)
        if options.mqtt:
            from canopy.gateway.mqtt.door import MqttDoor

            mqtt = MqttDoor(client, GatewayRules(tokens), log)
            doors["mqtt"] = await bound.open(nursery, "--mqtt", options.mqtt, mqtt.serve)
        ready(doors)
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            async for number in signals:
                log.info("stopping", signal=signal.Signals(number).name)
                break
        nursery.cancel_scope.cancel()


class Doors:
    """Accepts connections, with one limit for all doors."""

    def __init__(self, context: ssl.SSLContext | None, most: int, log: Log) -> None:
        self._context = context
        self._most = most
        self._log = log
        self._open = 0
        self._unknown: OrderedDict[object, trio.CancelScope] = OrderedDict()
        """Connections that have not shown a valid token yet, the oldest first."""
        self._limits = AcceptLimits(per_second=100.0, awaiting=most)

    async def open(self, nursery: trio.Nursery, option: str, address: str, serve: Serve) -> str:
        """Listen at `address`, and call `serve` for each connection. `option`: the option with the
        address. Returns the address. Raises StartError."""
        host, port = split_address(address)
        try:
            listeners = await trio.open_tcp_listeners(port, host=host)
        except OSError as error:
            raise StartError(
                f"cannot listen on {address}: {bind_fault(error, f'{option} HOST:PORT')}"
            ) from None
        name = listeners[0].socket.getsockname()

        async def accepted(stream: trio.SocketStream) -> None:
            await self._serve(stream, serve)

        nursery.start_soon(trio.serve_listeners, accepted, listeners[:1])
        for listener in listeners[1:]:
            await listener.aclose()
        return join_address(name[0], name[1])

    async def _serve(self, stream: trio.SocketStream, serve: Serve) -> None:
        try:
            peer = stream.socket.getpeername()
            host, where = str(peer[0]), join_address(str(peer[0]), peer[1])
        except OSError:  # it has gone already
            await trio.aclose_forcefully(stream)
            return
        is_local = is_loopback(host)
        if not (self._has_room() and (is_local or self._limits.admits(host, trio.current_time()))):
            self._log.debug("turned_away", peer=where)
            await trio.aclose_forcefully(stream)
            return
        self._open += 1
        place = object()

        def welcome() -> None:
            self._unknown.pop(place, None)

        try:
            with trio.CancelScope() as scope:
                self._unknown[place] = scope
                secured: trio.abc.Stream | None = stream
                if self._context is not None:
                    secured = await self._secure(stream, where)
                if secured is not None:
                    await serve(secured, where, welcome)
        except Exception as error:  # one client's fault, or ours, ends its connection only
            cause = first_cause(error)
            self._log.warning("failed", peer=where, error=f"{type(cause).__name__}: {cause}")
        finally:
            self._open -= 1
            welcome()
            if not is_local:
                self._limits.done(host)
            await trio.aclose_forcefully(stream)

    def _has_room(self) -> bool:
        """Return whether one more connection can be accepted. If there is no place, close the
        oldest connection that has not shown a valid token."""
        if self._open >= self._most and self._unknown:
            _, oldest = self._unknown.popitem(last=False)
            oldest.cancel()
            return True
        return self._open < self._most

    async def _secure(self, stream: trio.SocketStream, peer: str) -> trio.abc.Stream | None:
        assert self._context is not None
        secured: trio.SSLStream[trio.SocketStream] = trio.SSLStream(
            stream, self._context, server_side=True, https_compatible=True
        )
        with trio.move_on_after(HEAD_TIMEOUT):
            try:
                await secured.do_handshake()
                return secured
            except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
                self._log.debug("no_tls", peer=peer, reason=str(error.__cause__ or error))
        return None
