"""Faults in what programs of other machines and of the gateway may do, and in redacted traces."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench.mutations.planting import fault, replace
from canopy.client.remote import _check_node
from canopy.gateway.access import GatewayRules, Permission
from canopy.gateway.mqtt.door import _Session, _Subscription
from canopy.traces.writer import Redaction
from canopy.wire.control.scopes import refusal
from canopy.wire.driver import TrioDriver

PROGRAMS = "tests/attacks/test_attacks_programs.py"


@fault("A44", PROGRAMS, "test_a_token_allows_its_scopes_and_no_more")
def programs_may_ask_anything() -> None:
    """A token allows every command, whatever its scopes are."""

    replace(refusal, lambda token, command: "")


@fault("A44", PROGRAMS, "test_the_secret_is_shown_to_no_other_node")
def programs_show_their_secret_to_any_node() -> None:
    """A program does not look which node answers before it sends its token."""

    replace(_check_node, lambda secured, access: None)


@fault(
    "A39",
    "tests/attacks/test_attacks_secrets.py",
    "test_no_secret_and_with_redaction_no_value_is_written",
)
def redaction_keeps_attributes() -> None:
    """Redacted records have the values of attributes."""
    original = Redaction.apply

    def partly(self: Redaction, kind: str, fields: Mapping[str, Any]) -> dict[str, Any]:
        kept = original(self, kind, fields)
        return {**kept, "attributes": fields["attributes"]} if "attributes" in fields else kept

    replace(Redaction.apply, partly)


@fault(
    "A12",
    "tests/attacks/test_attacks_transport.py",
    "test_a_key_has_four_connections_and_the_newest_stay",
)
def keys_connect_without_bound() -> None:
    """One key may keep as many accepted connections as it opens."""

    replace(TrioDriver._bound_key, lambda self, new: None)


@fault(
    "T8", "tests/canopy/gateway/test_gateway_parts.py", "test_what_a_token_allows_is_intersected"
)
def gateway_token_does_not_confine() -> None:
    """A follower gets all that it asks for, not only what its token allows."""

    replace(Permission.confined, lambda self, selector: selector)


@fault(
    "D2",
    "tests/canopy/gateway/test_gateway_mqtt.py",
    "test_a_subscription_that_ends_cuts_no_packet_off",
)
def gateway_cuts_packets_off() -> None:
    """An MQTT client that unsubscribes gets the answer in the middle of a message."""

    def end(self: _Subscription) -> None:
        self.scope.cancel()

    replace(_Subscription.end, end)


@fault(
    "A46",
    "tests/attacks/gateway/test_attacks_gateway.py",
    "test_a_will_needs_a_token_that_is_good_when_it_comes",
)
def gateway_keeps_wills_of_lost_tokens() -> None:
    """The will of a client whose token was removed is published."""
    original = _Session._leave_will

    async def _leave_will(self: _Session) -> None:
        self._access = GatewayRules(None)
        await original(self)

    replace(original, _leave_will)
