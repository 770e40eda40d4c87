"""A node as a process: `run_node`, from the configuration to the exit code.

Life of the process, each step a line in the log: *listening* (data folder locked, incarnation
raised, TCP port and control socket open), *ready* (the node has found its way into the overlay),
*draining* (SIGTERM, SIGINT or the command Drain: the node leaves in order), *left*. A second signal
ends it at once. Whatever stops a start is told in one line with what to do, and the exit code is 1.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import random
import secrets
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final, TextIO

import msgspec
import trio

import matching
from canopy.traces.writer import TraceFile, TraceWriter
from canopy.wire.config import NodeConfig, is_loopback, join_address, split_address
from canopy.wire.control.server import ControlServer
from canopy.wire.directory.finding import Finding
from canopy.wire.driver import NodeInputs, TrioDriver
from canopy.wire.feed import FeedError, TelemetryFeed
from canopy.wire.folder import DataFolder, FolderError
from canopy.wire.log import Log
from canopy.wire.memory import give_back
from overlay.client import (
    Command,
    Done,
    Drain,
    Failed,
    Feed,
    GetStatus,
    Published,
    Reply,
    Status,
)
from overlay.machine import Peer

INTERNAL: Final = 0
"""The client number of the process itself; the control socket counts from 1."""

SETTLE: Final = 2.0
"""Seconds for the last frames (Bye) to leave. Wild guess."""

TRACE_FLUSH: Final = 0.5
"""Seconds between two writes of the trace buffer: what a killed process may lose. Wild guess."""

INTERRUPTED: Final = 130  # DESIGN.md, section 6, exit codes

COMPILE: Final = "import matching; matching.warm()"
"""What a process of its own does, so that the node need not compile."""

GARBAGE: Final = 20_000
"""New objects after which the youngest generation is collected: several batches of events. Wild
guess."""

WARM_LOOK: Final = 1.0
"""Seconds between looks at whether the fast matching engine is wanted. Wild guess."""


class StartError(Exception):
    """The node cannot start; says why and what to do."""


Build = Callable[["NodeProcess"], NodeInputs]
"""Makes the node of a process; tests hand in their own."""


def run_node(config: NodeConfig, out: TextIO | None = None, build: Build | None = None) -> int:
    """Run a node until it has left or failed; the exit code. Logs to `out` (standard error)."""
    log = Log(config.log, out)
    give_back()
    try:
        folder = DataFolder(config.folder)
    except FolderError as error:
        log.error("start_failed", reason=error)
        return 1
    if folder.lost:
        log.warning("state_damaged", was=folder.lost, now=folder.node, kept="state.damaged")
    try:
        process = NodeProcess(config, folder, log, build or build_node)
        return trio.run(process.run, strict_exception_groups=True)
    except BaseException as error:
        return report(error, log)
    finally:
        folder.close()


def report(error: BaseException, log: Log) -> int:
    """Say in the log why the process ends; the exit code."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, KeyboardInterrupt):  # before the signal receiver was there
        log.error("interrupted")
        return INTERRUPTED
    if isinstance(error, StartError | FolderError):
        log.error("start_failed" if isinstance(error, StartError) else "disk", reason=error)
        return 1
    steps = traceback.format_exception(error)
    log.error("crashed", error=f"{type(error).__name__}: {error}", where="".join(steps[-3:]))
    return 1


def build_node(process: NodeProcess) -> NodeInputs:
    """The real node, for `process`."""
    from canopy.wire.transport.codec import WireCodec
    from node import Node

    config = process.config
    seed = config.seed if config.seed is not None else secrets.randbits(64)
    return Node(
        process.me,
        process.folder.incarnation,
        config.settings,
        random.Random(seed),
        WireCodec(),
        process.driver,
        seeds=config.peers,
        overlay=config.overlay,
        name=config.name,
        restored=process.folder.restored,
    )


class NodeProcess:
    """What belongs to one running node. Carries out the commands that are not the node's own."""

    def __init__(self, config: NodeConfig, folder: DataFolder, log: Log, build: Build) -> None:
        self.config = config
        self.folder = folder
        self.log = log
        self.me = Peer(folder.node, "")  # the address is known when we listen
        self._build = build
        self._began = time.monotonic()
        self._traces = self._open_traces()
        self.driver = TrioDriver(log, folder, self._traces, config.links.connect_timeout)
        self._control = ControlServer(self.driver, self, log, queue=config.clients.queue)
        self._control.fill_status = self._fill_status
        self.driver.replies = self._reply
        self.driver.after_turn.append(self._watch)
        self._feed = TelemetryFeed(self.driver, folder, config.name, log, INTERNAL)
        self._finding = Finding(self.driver, config, log)
        self._last_status: Status | None = None
        self._ready = self._draining = False
        self._nursery: trio.Nursery | None = None
        self._over = trio.Event()
        self._code = 0

    async def run(self) -> int:
        """From listening to left; the exit code."""
        raise_file_limit()
        listeners, self.me = await listen(self.config, self.folder.node)
        self.driver.attach(self._build(self))
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                nursery.start_soon(self._obey, signals)
                nursery.start_soon(self._write_traces)
                nursery.start_soon(self._warm_matching)
                nursery.start_soon(self._feed.run)
                self.log.info(
                    "listening",
                    node=self.me.id,
                    address=self.me.address,
                    data=self.folder.path,
                    incarnation=self.folder.incarnation,
                    peers=",".join(self.config.peers),
                )
                await nursery.start(self.driver.run, listeners)
                await nursery.start(self._control.serve, self.folder.place_socket())
                self.folder.say_address(self.me.address)
                if self.config.directory and is_loopback(split_address(self.me.address)[0]):
                    await self._finding.start(nursery, self.me)
                await self._over.wait()
                await self._leave()
                nursery.cancel_scope.cancel()
        self._finding.stop()
        return self._code

    # Commands (from the control socket).

    def commands(self, client: int, commands: Sequence[Command]) -> None:
        """Carry out the process's own command; hand others to the node."""
        command = commands[0]
        if isinstance(command, Feed):
            try:
                self._feed.set(command.name, command.period)
            except FeedError as error:
                self._control.reply(client, Failed(command.request, "usage", str(error)))
            else:
                self._control.reply(client, Done(command.request))
        elif isinstance(command, Drain):
            self._control.reply(client, Done(command.request))
            self.drain("command")
        else:
            self.driver.turn(self.driver.node.commands, client, commands)

    def client_gone(self, client: int) -> None:
        """End the subscriptions of a client."""
        self.driver.turn(self.driver.node.client_gone, client)

    def drain(self, reason: str) -> None:
        """Begin to leave; a second call changes nothing."""
        if self._draining:
            return
        self._draining = True
        self.log.info("draining", reason=reason, at_most=self.config.drain_timeout)
        self._feed.stop()
        assert self._nursery is not None
        self._nursery.start_soon(self._limit_drain)
        self.driver.turn(self.driver.node.drain)

    # From the node.

    def _reply(self, client: int, reply: Reply) -> None:
        if client != INTERNAL:
            self._control.reply(client, reply)
        elif isinstance(reply, Status):
            self._last_status = reply
        elif isinstance(reply, Published | Failed):
            self._feed.answered(reply)

    def _fill_status(self, status: Status) -> Status:
        """What the node does not know of itself (DESIGN.md, section 6: `status`)."""
        moved = self.driver.counters
        counters = dict(status.counters)
        counters.update({f"wire_{name}": getattr(moved, name) for name in moved.__slots__})
        counters["client_dropped"] = self._control.dropped
        counters["traces_lost"] = self._traces.lost if self._traces else 0
        uptime, pid, lost = time.monotonic() - self._began, os.getpid(), self.folder.lost
        clients = self._control.clients
        return msgspec.structs.replace(
            status, pid=pid, uptime=uptime, replaced=lost, counters=counters, clients=clients
        )

    def _watch(self) -> None:
        """At the end of each turn: has the node become ready, or drained?"""
        if not self._ready and self.driver.node.ready:
            self._ready = True
            lay_aside()
            self.log.info("ready", node=self.me.id, address=self.me.address)
        if self._draining and self.driver.node.drained:
            self._over.set()

    # Tasks.

    async def _obey(self, signals: AsyncIterator[int]) -> None:
        """SIGTERM and SIGINT: the first drains, the second ends."""
        async for number in signals:
            name = signal.Signals(number).name
            if self._draining:
                self.log.warning("interrupted", reason=name)
                self._code = INTERRUPTED
                self._over.set()
            else:
                self.drain(name)

    async def _limit_drain(self) -> None:
        """Leave after the time-out, whatever is still under way."""
        await trio.sleep(self.config.drain_timeout)
        self.log.warning("drain_timeout", after=self.config.drain_timeout)
        self._over.set()

    async def _leave(self) -> None:
        """The last moments: final counters into the traces, last frames out."""
        self.driver.turn(self.driver.node.commands, INTERNAL, (GetStatus(0),))
        late = self._draining and not self.driver.node.drained
        self.driver.turn(self.driver.node.leave, "drain time-out" if late else "drained")
        if self._code == 0:
            with trio.move_on_after(SETTLE):
                await self._control.settle()
                await self.driver.settle()
        counters = self._last_status.counters if self._last_status else {}
        self.driver.trace(
            "stop",
            {
                "data_messages": counters.get("data_messages", 0),
                "other_messages": counters.get("other_messages", 0),
                "bytes": self.driver.counters.bytes_out,
                "reason": "time-out" if late else "drained",
            },
        )
        if self._traces is not None:
            self._traces.close()
            if self._traces.lost:
                self.log.warning("traces", lost=self._traces.lost, reason=self._traces.error)
        self.log.info("left", node=self.me.id, drained=not late)

    async def _write_traces(self) -> None:
        while True:
            await trio.sleep(TRACE_FLUSH)
            if self._traces is not None:
                self._traces.flush()

    async def _warm_matching(self) -> None:
        """Make the fast matching engine ready, once some index has become large.

        Compiling, once per machine and version, takes seconds, holds up this process's other
        threads and leaves 200 MB behind; a process of its own does it and keeps the result on
        disk, from where a thread here loads it.
        """
        while not matching.warm_wanted():
            await trio.sleep(WARM_LOOK)
        begun = trio.current_time()
        if await trio.to_thread.run_sync(matching.warm_is_slow):
            await compile_apart()
        await trio.to_thread.run_sync(matching.warm, abandon_on_cancel=True)
        lay_aside()
        self.log.info("matching_warm", seconds=round(trio.current_time() - begun, 1))

    def _open_traces(self) -> TraceWriter | None:
        config = self.config
        if not config.trace.enabled:
            return None
        root = str(config.trace_folder)
        return TraceWriter(
            open_trace, self.folder.node, time.time, sample=config.trace.sample, root=root
        )


def lay_aside() -> None:
    """What is there now stays: the garbage collector need not look at it again, and looks at what
    is new less often, since a batch of events is more than its default of 700 objects."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(GARBAGE)


async def compile_apart() -> None:
    """Fill the cache of compiled kernels from another process. Should that fail, whoever needs them
    compiles them."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    with contextlib.suppress(OSError):
        await trio.run_process(
            [sys.executable, "-c", COMPILE],
            env=environment,
            check=False,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )


def open_trace(path: str) -> TraceFile:
    """Open a trace file for appending; its folders are made."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    return open(path, "ab", buffering=0)  # TraceWriter buffers, and closes it


async def listen(config: NodeConfig, node: str) -> tuple[list[trio.SocketListener], Peer]:
    """Open the TCP port; the listeners, and this node with the address that others dial.

    Raises StartError when the port is in use or the address is not ours.
    """
    host, port = split_address(config.listen)
    try:
        listeners = await trio.open_tcp_listeners(port, host=host)
    except OSError as error:
        raise StartError(f"cannot listen on {config.listen}: {listen_fault(error)}") from None
    for listener in listeners[1:]:  # a name with two addresses: one is enough, and one port
        await listener.aclose()
    name = listeners[0].socket.getsockname()
    address = config.advertise or join_address(name[0], name[1])
    return listeners[:1], Peer(node, address)


def listen_fault(error: OSError) -> str:
    """Why a port cannot be had, and what to do."""
    if error.errno == errno.EADDRINUSE:
        return "the port is in use by another program; choose another with --listen HOST:PORT"
    if error.errno == errno.EACCES:
        return "ports below 1024 are for the system; choose another with --listen HOST:PORT"
    if error.errno == errno.EADDRNOTAVAIL:
        return "this machine does not have that address"
    return error.strerror or str(error)


def raise_file_limit() -> None:
    """Allow as many open files as the system lets us: each link is one."""
    if sys.platform == "win32":
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (ValueError, OSError):
            return  # macOS names a hard limit that it does not grant
