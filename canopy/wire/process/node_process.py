"""Runs one node in this process: `run_node`, from the configuration to the exit code.

Each step of its life is a line in the log: *listening* (data folder locked, incarnation raised, TCP
port open), *ready* (the node has found its way into the overlay), *draining* (SIGTERM, SIGINT or
the command Drain: the node hands over its duties), *left*. A second signal ends the process at
once. If the start fails, one line of the log says why and what to do, and the exit code is 1.
"""

from __future__ import annotations

import faulthandler
import os
import random
import secrets
import signal
import time
import traceback
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from typing import Final, TextIO

import msgspec
import trio

from canopy.traces.writer import TraceOptions, TraceWriter
from canopy.wire.addresses import is_loopback, join_address, split_address
from canopy.wire.config import NodeConfig
from canopy.wire.constants import (
    DISK_FAILED,
    END_MOST,
    FOLDER_CHECK,
    FOLDER_COPIED,
    FOLDER_REFUSED,
    INSECURE_LOG,
    RECHECK,
    SETTLE,
    SHARDS_CLOSE,
    TRACE_FLUSH,
)
from canopy.wire.control.remote import RemoteDoor
from canopy.wire.control.server import ControlServer
from canopy.wire.directory.discovery import Discovery
from canopy.wire.driver import TrioDriver, hybrid_clock
from canopy.wire.durable import CopiedFolderError, DiskError, FolderError
from canopy.wire.folder import DataFolder
from canopy.wire.log import EVERY, Log
from canopy.wire.process.copies import boot_number, explain_conflict, inform_other
from canopy.wire.process.feed import FeedError, TelemetryFeed
from canopy.wire.process.health_watch import HealthWatch
from canopy.wire.process.listener import StartError, listen, listen_at, open_mdns, raise_file_limit
from canopy.wire.process.machine_load import MachineLoad, freeze_heap, return_large_blocks
from canopy.wire.process.matching_setup import prepare_matching
from canopy.wire.process.reload import ConfigSource, Reloading, ReloadOutcome, open_schemas
from canopy.wire.process.security import NodeSecurity, prepare_keys
from canopy.wire.process.supervision import Watched
from canopy.wire.process.trace_shipper import CLIENT as SHIPPING
from canopy.wire.process.trace_shipper import TraceShipping, open_trace, secure_traces
from canopy.wire.shards.log_disk import FileLogDisk
from canopy.wire.transport.local_users import LocalUsers
from overlay.client import (
    Command,
    Done,
    Drain,
    Event,
    Failed,
    Feed,
    GetStatus,
    Published,
    Reply,
    Status,
)
from overlay.driver import DrivenNode
from overlay.health import HealthReport
from overlay.links.events import IdentityConflict
from overlay.links.hybrid_clock import HybridClock
from overlay.links.messages import OLDEST_PROTOCOL, PROTOCOL, Hello
from overlay.machine import Peer
from overlay.operator_commands import Reload, Reloaded
from overlay.tenants.policy import Bucket

INTERNAL: Final = 0
"""The client number of the process itself; those of the control socket begin at 1."""

START_FAILED: Final = 1
"""Exit code of a process that could not start, for a reason other than its data folder."""

INTERRUPTED: Final = 130
"""Exit code of a process that a second signal ended (docs/reference/commands.md)."""

ALONE_AFTER: Final = 5.0
"""Seconds without a neighbour after which a node with peers logs that it is alone: as long as a
connection may take, so that a restarted node that is answered a moment later does not log it."""

NOTES_MOST: Final = 5.0
"""The most lines in a row about finding and losing all neighbours; then one in `EVERY` seconds."""

Build = Callable[["NodeProcess"], DrivenNode]
"""Makes the node of a process; tests pass their own."""


def run_node(
    config: NodeConfig,
    out: TextIO | None = None,
    build: Build | None = None,
    source: ConfigSource | None = None,
) -> int:
    """Run a node until it has left or failed. Returns the exit code; logs to `out`, or stderr.
    `source`: reads the configuration again on SIGHUP; None: it cannot be read again."""
    log = Log(config.log.level, out, format_=config.log.format)
    process: NodeProcess | None = None
    return_large_blocks()
    try:
        security = prepare_keys(config, log)
        if security is not None:
            config = msgspec.structs.replace(config, overlay=security.overlay)
        folder = DataFolder(config.folder, "" if security is None else security.own.principal.id)
    except (FolderError, StartError) as error:
        return report(error, log)
    if folder.lost:
        event = "state_damaged" if folder.kept else "state_missing"
        log.warning(event, was=folder.lost, now=folder.node, kept=folder.kept or "nothing")
    try:
        process = NodeProcess(config, folder, log, build or build_node, security, source)
        freeze_heap()  # here nothing waits for it: it takes 0.1 s
        return trio.run(process.run, strict_exception_groups=True)
    except BaseException as error:
        code = report(error, log)
        if code == FOLDER_COPIED and process is not None:
            process.inform_other()
        return code
    finally:
        faulthandler.cancel_dump_traceback_later()
        if process is not None:
            process.close_shards()
        folder.close()


def report(error: BaseException, log: Log) -> int:
    """Log why the process ends. Returns the exit code."""
    while isinstance(error, BaseExceptionGroup):
        disk, others = error.split(FolderError)  # what follows from it may be beside it
        error = (disk or others or error).exceptions[0]
    if isinstance(error, KeyboardInterrupt):  # before the signal receiver was open
        log.error("interrupted")
        return INTERRUPTED
    if isinstance(error, CopiedFolderError):
        log.error("identity_conflict", reason=error)
        return FOLDER_COPIED
    if isinstance(error, DiskError):
        log.error("disk_failed", reason=error)
        return DISK_FAILED
    if isinstance(error, StartError | FolderError):
        log.error("start_failed", reason=error)
        return FOLDER_REFUSED if isinstance(error, FolderError) else START_FAILED
    steps = traceback.format_exception(error)
    log.error("crashed", error=f"{type(error).__name__}: {error}", where="".join(steps[-3:]))
    return 1


def build_node(process: NodeProcess) -> DrivenNode:
    """Return the overlay's node (`node.Node`) for `process`."""
    from canopy.wire.transport.codec import WireCodec
    from node import Credentials, LocalNode, Node

    config, security = process.config, process.security
    incarnation, boot = process.folder.incarnation, process.boot
    keys: Credentials | None = None
    if security is not None:
        own = security.own.principal
        keys = Credentials(own.role, own.tenant, security, security.policy, security.signer())
    return Node(
        LocalNode(process.me, incarnation, config.overlay, config.name, boot),
        config.settings,
        random.Random(config.seed if config.seed is not None else secrets.randbits(64)),
        WireCodec(),
        process.driver,
        process.peers,
        process.folder.restored,
        keys,
    )


class NodeProcess:
    """One running node with its files, sockets and tasks.

    Carries out the commands that concern the process (Feed, Drain) and hands the others to the
    node.
    """

    def __init__(
        self,
        config: NodeConfig,
        folder: DataFolder,
        log: Log,
        build: Build,
        security: NodeSecurity | None = None,
        source: ConfigSource | None = None,
    ) -> None:
        self.config = config
        """The present configuration, with the changes of reloads."""
        self.security = security
        """The node's keys; None: it has none."""
        self.peers = config.peers or (() if security is None else security.introducers)
        self.folder = folder
        self.log = log
        self.me = Peer(folder.node, "")  # the address follows when the port is open
        self.boot = boot_number()
        self._build = build
        self._began = time.monotonic()
        hybrid = hybrid_clock()
        self._traces = self._open_traces(hybrid)
        self._shards = FileLogDisk(folder.path, folder.node, log)
        schemas = open_schemas(config)
        self.driver = TrioDriver(
            log,
            folder,
            self._traces,
            config.links.connect_timeout,
            hybrid,
            self._shards,
            security,
            LocalUsers() if security is None and not config.insecure else None,
            schemas,
        )
        self._control = ControlServer(
            self.driver.trace, self.commands, self.client_gone, log, config.clients
        )
        self._door: RemoteDoor | None = None
        self._shipping = self._open_shipping()
        self._feed = TelemetryFeed(self.driver, folder, config.name, log, INTERNAL)
        self._discovery = Discovery(self.driver, config, log, self.peers, security)
        self._machine_load = MachineLoad(folder.path)
        self._health = HealthWatch(config.health, log, time.time, self._update_health)
        self._watched = Watched(
            folder, self.driver.turn_times, log, self._ask_status, self._certificate_ends
        )
        self._reloading = Reloading(source, log, self._apply, security, schemas)
        self._last_status: Status | None = None
        self._traces_reported = False
        self._conflict: IdentityConflict | None = None  # the last that was logged
        self._ready = self._draining = False
        self._alone: bool | None = None  # None: not known before it is ready
        self._alone_since: float | None = None  # since when it has peers, and none is a neighbour
        self._notes = Bucket()  # of lines about neighbours
        self._nursery: trio.Nursery | None = None
        self._over = trio.Event()
        self._cut_short = ""  # why it does not wait until the node is drained
        self._code = 0

    async def run(self) -> int:
        """Listen, serve until drained or interrupted, leave. Returns the exit code."""
        raise_file_limit()
        role = None if self.security is None else self.security.own.principal.role
        near = open_mdns(self.driver, self.config, self.peers, role, self.log)
        listeners, self.me = await listen(self.config, self.folder.node)
        self.driver.attach(self._build(self), self)
        with (
            closing(listeners[0].socket),
            trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals,
        ):
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                nursery.start_soon(self._obey, signals)
                nursery.start_soon(self._write_traces)
                nursery.start_soon(self._watch_folder)
                nursery.start_soon(self._measure_health)
                nursery.start_soon(self._health.run)
                nursery.start_soon(self._watched.run)
                nursery.start_soon(prepare_matching, self.log)
                nursery.start_soon(self._feed.run)
                if self._shipping is not None:
                    nursery.start_soon(self._shipping.run)
                nursery.start_soon(self._keep_secure)
                self.log.info(
                    "listening",
                    node=self.me.id,
                    address=self.me.address,
                    data=self.folder.path,
                    incarnation=self.folder.incarnation,
                    peers=",".join(self.peers),
                    tls=self.security is not None,
                )
                await nursery.start(self.driver.run, listeners)
                await nursery.start(self._control.serve, self.folder.prepare_socket())
                self.folder.publish_address(self.me.address)
                await self._serve_remote(nursery)
                bound = listeners[0].socket.getsockname()[:2]
                if near is not None:
                    nursery.start_soon(near.run, self.me.address, bound[0])
                if self.config.directory:
                    await self._discovery.start(nursery, self.me, bound)
                await self._watched.listen(self.config.metrics.listen)
                self._watched.manager.ready("looks for its way into the overlay")
                await self.end_of_service()
                await self._leave()
                nursery.cancel_scope.cancel()
        self._discovery.stop()
        return self._code

    async def _serve_remote(self, nursery: trio.Nursery) -> None:
        """Serve programs on other machines, if that is configured. Raises StartError."""
        address = self.config.clients.listen
        if not address:
            return
        if self.security is None:
            raise StartError(f"clients.listen: {address}: this node has no keys")
        listeners = await listen_at("clients.listen", address)
        self._door = RemoteDoor(self.folder.path, self.security, self.log, time.monotonic)
        nursery.start_soon(self._control.serve_remote, listeners, self._door)
        at = join_address(*listeners[0].socket.getsockname()[:2])
        self.log.info("programs", address=at, tokens=self.folder.path / "tokens")

    # Commands from the control socket.

    def commands(self, client: int, commands: Sequence[Command]) -> None:
        """Carry out one command, or several publications in one turn of the node."""
        command = commands[0]
        if isinstance(command, Feed):
            try:
                self._feed.set(command.name, command.period)
            except FeedError as error:
                self._control.reply(client, Failed(command.request, "usage", str(error)))
            else:
                self._control.reply(client, Done(command.request))
        elif isinstance(command, Reload):
            outcome = self.reload()
            if outcome.refused:
                self._control.reply(client, Failed(command.request, "usage", outcome.refused))
            else:
                self._control.reply(
                    client, Reloaded(command.request, outcome.read, outcome.changed)
                )
        elif isinstance(command, Drain):
            self._control.reply(client, Done(command.request))
            self.drain("command")
        else:
            self.driver.turn(self.driver.node.commands, client, commands)

    def client_gone(self, client: int, unread_for: float = 0.0) -> None:
        """End the subscriptions of a client that has disconnected, or of its session."""
        self.driver.turn(self.driver.node.client_gone, client, unread_for)

    def drain(self, reason: str) -> None:
        """Begin to leave the overlay; further calls do nothing."""
        if self._draining:
            return
        self._draining = True
        self.log.info("draining", reason=reason, at_most=self.config.drain_timeout)
        self._watched.manager.stopping(reason)
        self._feed.stop()
        assert self._nursery is not None
        self._nursery.start_soon(self._limit_drain)
        self.driver.turn(self.driver.node.drain)

    # Reloading, and what is told to who watches.

    def reload(self) -> ReloadOutcome:
        """Read configuration and keys again, and apply the changes that take effect at once."""
        manager = self._watched.manager
        manager.reloading()
        outcome = self._reloading.reload(self.config)
        text = "a reload was refused, goes on as before" if outcome.refused else "serves"
        manager.ready(text)
        return outcome

    def _apply(self, held: NodeConfig, config: NodeConfig) -> None:
        """Apply the settings that take effect at once."""
        self.config = config
        self.log.configure(config.log.level, config.log.format)
        self._control.configure(config.clients)
        self._health.watch(config.health)
        if config.peers != held.peers:
            self.driver.turn(self.driver.node.add_seeds, config.peers)
        if config.metrics != held.metrics:
            assert self._nursery is not None
            self._nursery.start_soon(self._listen_again, held.metrics.listen)

    async def _listen_again(self, before: str) -> None:
        """Serve monitoring at another address; if that fails, continue at the old one."""
        try:
            await self._watched.listen(self.config.metrics.listen)
        except StartError as error:
            self.log.error("setting_refused", reason=error, keeps=before or "nowhere")
            held = msgspec.structs.replace(self.config.metrics, listen=before)
            self.config = msgspec.structs.replace(self.config, metrics=held)

    def _ask_status(self) -> Status:
        """Return the node's present status, as programs get it."""
        self.driver.turn(self.driver.node.commands, INTERNAL, (GetStatus(0),))
        assert self._last_status is not None
        return self._fill_status(self._last_status)

    def _certificate_ends(self) -> float:
        return 0.0 if self.security is None else self.security.own.ends

    # What the node says (`canopy.wire.driver.NodeOutputs`).

    def reply(self, client: int, reply: Reply) -> None:
        """Queue a reply for a program, or handle a reply to the process's own request."""
        if client == SHIPPING:
            assert self._shipping is not None
            self._shipping.answered(reply)
        elif client != INTERNAL:
            if isinstance(reply, Status):
                reply = self._fill_status(reply)
            self._control.reply(client, reply)
        elif isinstance(reply, Status):
            self._last_status = reply
        elif isinstance(reply, Published | Failed):
            self._feed.answered(reply)

    def share(self, events: Sequence[Event], places: Mapping[int, Sequence[int]]) -> None:
        """Queue events for programs that gather."""
        self._control.share(events, places)

    def announce(self, name: str, addresses: tuple[str, ...]) -> None:
        """Announce in the directory the addresses at which `name` is reached."""
        self._discovery.publish(name, addresses)

    def check_turn(self) -> None:
        """Raise an error, so that no output of the turn leaves, if another process with this node's
        id has to continue instead."""
        if self.driver.node.conflict is not self._conflict:
            self._on_conflict(self.driver.node.conflict)

    def end_turn(self) -> None:
        """Send the output queued for programs. Log when the node is ready, and stop when it is
        drained."""
        self._control.flush()
        if not self._ready and self.driver.node.ready:
            self._ready = True
            self.log.info("ready", node=self.me.id, address=self.me.address)
            self._watched.manager.status(f"ready at {self.me.address}")
        if self._ready:
            self._log_neighbours()
        if self.driver.node.drained:
            self._over.set()

    def _on_conflict(self, conflict: IdentityConflict | None) -> None:
        """Handle that another process has this node's id: stop if this process has to, else log
        it."""
        self._conflict = conflict
        if conflict is None:
            return
        if conflict.must_stop and self._is_alone_with_its_id():
            reason = f"{conflict.peer.address} says it has this node's id, which is locked here"
            self.log.seldom("identity_refused", reason=reason, node="goes on")
            return
        text = explain_conflict(conflict, self.folder.path)
        if conflict.must_stop:
            raise CopiedFolderError(text)
        self.log.seldom("identity_conflict", reason=text)

    def _is_alone_with_its_id(self) -> bool:
        """Return whether there can be no later process with this id: the id is locked on this
        machine, the port is reachable only from here, and without keys any program could claim the
        id."""
        is_local = is_loopback(split_address(self.config.listen)[0]) and not self.config.insecure
        return self.security is None and is_local and self.folder.holds_id

    def inform_other(self) -> None:
        """If this process has stopped for another one with its node's id, send that one a Hello."""
        if self._conflict is not None and self.security is None:
            incarnation, overlay = self.folder.incarnation, self.config.overlay
            hello = Hello(
                OLDEST_PROTOCOL,
                overlay,
                self.me,
                incarnation,
                0,
                0,
                0,
                boot=self.boot,
                newest=PROTOCOL,
            )
            trio.run(inform_other, self._conflict.peer.address, hello)

    def close_shards(self) -> None:
        """Let the disk of the shards finish the requested work, for a bounded time."""
        if not self._shards.close(SHARDS_CLOSE):
            self.log.warning("shards_unfinished", after=SHARDS_CLOSE)

    def silence(self) -> None:
        """Write nothing more to any program over the control socket."""
        self._control.silence()

    def _log_neighbours(self) -> None:
        """Log when the node finds its first neighbour, and when it has none, or none left."""
        count = self.driver.node.neighbours
        alone = count == 0
        if not alone or not self.peers:
            self._alone_since = None
        elif self._alone_since is None:
            self._alone_since = time.monotonic()
        if self._alone_since is not None and time.monotonic() < self._alone_since + ALONE_AFTER:
            return  # the peers are being dialled
        now = time.monotonic()
        if alone is self._alone or not self._notes.take(1.0, 1.0 / EVERY, NOTES_MOST, now):
            return  # what is so then is written later: strangers come and go as they like
        self._alone = alone
        if not alone:
            self.log.info("joined", neighbours=count)
        elif self.peers:
            reason = "no peer lets it in: an overlay of its own; goes on dialling"
            unreached = self.driver.node.unreached
            why = "; ".join(f"{address}: {why}" for address, why in unreached.items())
            self.log.warning("alone", reason=reason, peers=why or ",".join(self.peers))
        else:
            self.log.info("alone", reason="the first node of its overlay")

    def _fill_status(self, status: Status) -> Status:
        """Return `status` with the facts that the node does not have: process id, uptime, bytes,
        clients."""
        counters = dict(status.counters)
        counters.update({f"wire_{name}": n for name, n in asdict(self.driver.counters).items()})
        counters["client_dropped"] = self._control.dropped
        counters["clients_refused"] = self._control.refused
        counters["programs_refused"] = self._door.refused if self._door else 0
        counters["sessions_resumed"] = self._control.sessions_resumed
        counters["sessions_ended"] = self._control.sessions_ended
        counters["longest_turn"] = round(self.driver.longest_turn * 1_000)
        counters["longest_turn_cpu"] = round(self.driver.longest_turn_cpu * 1_000)
        counters["traces_lost"] = self._traces.lost if self._traces else 0
        counters["traces_unsent"] = self._shipping.unsent if self._shipping else 0
        counters["health_ignored"] = self._health.ignored
        uptime, pid, lost = time.monotonic() - self._began, os.getpid(), self.folder.lost
        clients = self._control.clients
        return msgspec.structs.replace(
            status, pid=pid, uptime=uptime, replaced=lost, counters=counters, clients=clients
        )

    # Tasks.

    async def _obey(self, signals: AsyncIterator[int]) -> None:
        """Drain on the first SIGTERM or SIGINT, end on the second. SIGHUP: `reload`."""
        async for number in signals:
            name = signal.Signals(number).name
            if number == signal.SIGHUP:  # by default it would end the process
                self.reload()
            elif self._draining:
                self.log.warning("interrupted", reason=name)
                self._code = INTERRUPTED
                self._cut_short = "interrupted"
                self._over.set()
            else:
                self.drain(name)

    async def _limit_drain(self) -> None:
        """Leave after `drain_timeout` even if the node is not drained. A process that does not end
        within `END_MOST` seconds then writes its stack to stderr, and is ended."""
        faulthandler.dump_traceback_later(self.config.drain_timeout + END_MOST, exit=True)
        await trio.sleep(self.config.drain_timeout)
        self.log.warning("drain_timeout", after=self.config.drain_timeout)
        self._cut_short = self._cut_short or "time-out"
        self._over.set()

    async def end_of_service(self) -> None:
        """Wait until the node is drained, or has to leave nevertheless. A turn after the one in
        which it was drained may have brought new work, so the last check is made at a point where
        no other task runs before the node has left."""
        while not self._cut_short and not self.driver.node.drained:
            await self._over.wait()
            if not self._cut_short:
                self._over = trio.Event()

    async def _leave(self) -> None:
        """Say goodbye to all peers, and write the last trace record with the final counters.
        Unfinished work is logged with its counts."""
        self.driver.turn(self.driver.node.commands, INTERNAL, (GetStatus(0),))
        unfinished = self.driver.node.unfinished
        reason = self._cut_short if unfinished else "drained"
        if unfinished:
            self.log.warning("unfinished", reason=reason, **unfinished)
        self.driver.turn(self.driver.node.leave, reason)
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
                "reason": reason,
                "lost": self._traces.lost if self._traces else 0,
                **self.driver.node.numbered,
            },
        )
        if self._traces is not None:
            self._traces.close()
            if self._traces.lost:
                self.log.warning("traces", lost=self._traces.lost, reason=self._traces.error)
        self.log.info("left", node=self.me.id, drained=not unfinished, reason=reason)

    async def _keep_secure(self) -> None:
        """Renew the certificate, accept revocations, and check the connected nodes. A node without
        keys that other machines can reach logs a warning once an hour."""
        if self.security is None:
            while not is_loopback(split_address(self.config.listen)[0]):
                self.log.warning("insecure", reason="no keys: others can join, read and forge")
                await trio.sleep(INSECURE_LOG)
            return
        self.security.changed = self._on_keys_changed
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.security.run)
            while True:
                await trio.sleep(RECHECK)
                self.driver.recheck()

    def _on_keys_changed(self) -> None:
        self.driver.recheck()
        self.driver.turn(self.driver.node.on_documents)

    async def _write_traces(self) -> None:
        while True:
            await trio.sleep(TRACE_FLUSH)
            if self._traces is not None:
                self._traces.flush()
                self._report_lost_traces(self._traces)

    def _report_lost_traces(self, traces: TraceWriter) -> None:
        """Log once that traces are lost and the node continues; `traces_lost` counts them."""
        if traces.lost and not self._traces_reported:
            self._traces_reported = True
            self.log.warning("traces", lost=traces.lost, reason=traces.error, node="goes on")

    async def _watch_folder(self) -> None:
        while True:
            await trio.sleep(FOLDER_CHECK)
            self.folder.check()

    async def _measure_health(self) -> None:
        """Every `health.period` seconds, let the node assess its health, and write a health
        record."""
        while True:
            await trio.sleep(self.config.health.period)
            vitals = msgspec.structs.asdict(self.driver.node.vitals())
            clients = self._control.connected
            measured = {**self._machine_load.measure(), "clients": clients, **vitals}
            self.driver.node.judge_health(measured)
            self.driver.trace("health", measured)

    def _update_health(self, report: HealthReport) -> None:
        self.driver.node.update_health(report)

    def _open_shipping(self) -> TraceShipping | None:
        trace, own = self.config.trace, self.folder
        if not (trace.enabled and trace.stream):
            return None
        root = self.config.trace_folder
        return TraceShipping(self.driver, own.path, root, own.node, trace.stream, self.log)

    def _open_traces(self, hybrid: HybridClock) -> TraceWriter | None:
        config = self.config
        if not config.trace.enabled:
            return None
        secure_traces(config.trace_folder)
        root = str(config.trace_folder)
        return TraceWriter(
            open_trace,
            self.folder.node,
            time.time,
            TraceOptions(config.trace.sample, config.trace.rate, config.trace.redact),
            hybrid=hybrid.read,
            run=self.folder.incarnation,
            overlay=config.overlay,
            root=root,
        )
