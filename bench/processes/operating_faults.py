"""Faults in what operators rely on: versions, reloads, checks, metrics, traces of OpenTelemetry."""

from __future__ import annotations

from typing import Any

import msgspec

from bench.mutations.planting import fault, replace, replace_constant
from canopy.traces.otlp.trace_context import FORM, TraceContext, read_traceparent
from canopy.wire.admin import checks, http
from canopy.wire.config import NodeConfig
from canopy.wire.process import reloading
from canopy.wire.process.operating import Watched
from canopy.wire.process.service_manager import ServiceManager
from overlay.links import handshake, messages
from overlay.links.messages import PROTOCOL, Hello, Welcome
from overlay.links.session import LinkSession
from overlay.machine import Message
from overlay.operating.clock_offsets import ClockOffsets
from overlay.operating.messages import AskClock, ClockTold

VERSION_TESTS = "tests/links/test_links_versions.py"
UPGRADE_TESTS = "tests/overlay/test_overlay_upgrade.py"
OPERATING_TESTS = "tests/canopy/wire/process/test_wire_operating.py"
ADMIN_TESTS = "tests/canopy/wire/admin/test_wire_admin.py"


@fault(
    "upgrade: one overlay",
    UPGRADE_TESTS,
    "test_nodes_are_upgraded_one_by_one_under_load_and_nothing_is_lost",
)
def other_version_refused() -> None:
    """A node refuses a peer whose newest version of the protocol is not its own."""

    def agreed_version(greeting: Hello | Welcome, newest: int) -> int:
        return newest if max(greeting.protocol, greeting.newest) == newest else 0

    replace(messages.agreed_version, agreed_version)


@fault(
    "upgrade: capabilities",
    VERSION_TESTS,
    "test_what_a_peer_does_not_know_is_not_sent_to_it",
)
def unknown_message_sent() -> None:
    """A node sends optional messages to peers that have not named the capability."""

    def understands(self: LinkSession, message: Message) -> bool:
        return True

    replace(LinkSession.understands, understands)


@fault(
    "upgrade: held back",
    VERSION_TESTS,
    "test_a_node_that_is_held_back_says_nothing_of_the_new_version",
)
def version_not_held_back() -> None:
    """A node offers its newest version, whatever `links.protocol` says."""

    def offer_newest(self: handshake.Handshake) -> None:
        original(self)
        self._newest = PROTOCOL

    original = handshake.Handshake.__post_init__
    replace(original, offer_newest)


@fault(
    "clocks: half a round trip",
    UPGRADE_TESTS,
    "test_nodes_are_upgraded_one_by_one_under_load_and_nothing_is_lost",
)
def round_trip_forgotten() -> None:
    """The way of the answer counts as a difference of the clocks."""

    def on_ask_clock(self: ClockOffsets, sender: Any, message: AskClock) -> None:
        late = self._wall() // 1_000 - 50_000_000
        self.port.send(sender, ClockTold(message.number, late))

    replace(ClockOffsets.on_ask_clock, on_ask_clock)


@fault(
    "reload: all or nothing",
    OPERATING_TESTS,
    "test_a_node_is_watched_reloads_and_tells_the_service_manager",
)
def cold_setting_taken_on() -> None:
    """A reload takes on settings that only a restart can."""

    def adopt(before: NodeConfig, after: NodeConfig) -> NodeConfig:
        return after

    replace(reloading.adopt, adopt)


@fault(
    "reload: all or nothing",
    OPERATING_TESTS,
    "test_a_node_is_watched_reloads_and_tells_the_service_manager",
)
def invalid_configuration_resets() -> None:
    """A configuration that is invalid brings the defaults back, and is no error."""

    def reload(self: reloading.Reloading, held: NodeConfig) -> reloading.Outcome:
        found = original(self, held)
        if found.refused:
            default = msgspec.structs.replace(held, log=NodeConfig().log)
            self._apply(held, default)
        return found

    original = reloading.Reloading.reload
    replace(reloading.Reloading.reload, reload)


@fault(
    "service manager: told",
    OPERATING_TESTS,
    "test_a_node_is_watched_reloads_and_tells_the_service_manager",
)
def watchdog_silent() -> None:
    """The process does not say that its event loop turns."""

    def alive(self: ServiceManager) -> None:
        pass

    replace(ServiceManager.alive, alive)


@fault("readiness: each check", OPERATING_TESTS, "test_readiness_says_what_is_lacking")
def expired_certificate_is_ready() -> None:
    """A node whose certificate has expired says that it is ready."""

    def _certificate(self: Watched) -> str:
        return ""

    replace(Watched._certificate, _certificate)


@fault("readiness: each check", ADMIN_TESTS, "test_checks_answer_as_those_of_kubernetes")
def failing_check_answers_ok() -> None:
    """/readyz names the failing check, with the status 200."""
    replace_constant(checks, "FAILING", checks.OK)


@fault(
    "metrics: bounded",
    ADMIN_TESTS,
    "test_callers_are_bounded_and_who_says_nothing_is_disconnected",
)
def callers_unbounded() -> None:
    """Any number of callers may be connected."""

    async def _serve(self: http.AdminServer, stream: Any) -> None:
        self._callers = -1_000
        await original(self, stream)

    original = http.AdminServer._serve
    replace(http.AdminServer._serve, _serve)


@fault(
    "trace context: W3C",
    "tests/canopy/traces/otlp/test_traces_otlp.py",
    "test_a_traceparent_is_read_as_w3c_has_it",
)
def empty_trace_taken() -> None:
    """A trace context of zeros is taken for one."""

    def lenient(text: object) -> TraceContext | None:
        found = FORM.fullmatch(text) if isinstance(text, str) else None
        return TraceContext(found[2], found[3], 1) if found else None

    replace(read_traceparent, lenient)
