"""Faults of the gateway: what would let somebody see, say or lose more than they may."""

from __future__ import annotations

from collections.abc import Collection

from bench.mutations.planting import fault, replace
from canopy.feeds import datatypes
from canopy.gateway.access import Access, Grant
from canopy.gateway.mqtt import topics
from canopy.gateway.mqtt.door import MqttDoor, _Session
from canopy.wire.token_file import Token, TokenFile

ATTACKS = "tests/attacks/gateway/test_attacks_gateway.py"
MQTT = "tests/canopy/gateway/test_gateway_mqtt.py"
PARTS = "tests/canopy/gateway/test_gateway_parts.py"


@fault("gateway", PARTS, "test_what_a_token_allows_is_intersected")
def gateway_token_does_not_confine() -> None:
    """A follower gets all that it asks for, not only what its token allows."""

    def unconfined(self: Grant, selector: str) -> str:
        return selector

    replace(Grant.confined, unconfined)


@fault("gateway", PARTS, "test_pages_of_others_are_refused")
def gateway_ignores_origins() -> None:
    """A page of any site may use the gateway of whoever looks at it."""

    def unchecked(self: Access, host: str, origin: str) -> None:
        pass

    replace(Access.check_browser, unchecked)


@fault("gateway", PARTS, "test_tokens_are_kept_as_hashes_in_a_private_file")
def gateway_keeps_removed_tokens() -> None:
    """The file of tokens is read once, so that one that is removed stays good."""

    def once(self: TokenFile) -> tuple[Token, ...]:
        self._tokens = self._tokens or self._read()
        return self._tokens

    replace(TokenFile.all, once)


@fault("gateway", PARTS, "test_topic_filters_mean_what_mqtt_says")
def gateway_plus_spans_levels() -> None:
    """The wildcard + of a topic filter stands for several levels."""
    replace(topics._exactly, lambda levels: lambda topic: True)


@fault(
    "gateway",
    "tests/canopy/gateway/test_gateway_cloudevents.py",
    "test_a_cloudevent_leaves_as_it_came",
)
def gateway_forgets_shared_names() -> None:
    """An extension attribute that is in the data too leaves as a field of the data only."""

    def plain(payload: bytes, media_type: str, form: str, both: Collection[str] = ()) -> str:
        return datatypes.FORM.sub("", media_type)

    replace(datatypes.payload_type, plain)


@fault("gateway", ATTACKS, "test_a_will_needs_a_token_that_is_good_when_it_comes")
def gateway_keeps_wills_of_lost_tokens() -> None:
    """The will of a client whose token was removed is published."""
    original = _Session._leave_will

    async def _leave_will(self: _Session) -> None:
        self._access = Access(None)
        await original(self)

    replace(original, _leave_will)


@fault("gateway", MQTT, "test_statements[taken_over]")
def gateway_leaves_former_sessions() -> None:
    """A client that connects again leaves its former connection as it is."""

    async def _take_over(self: MqttDoor, session: _Session) -> None:
        pass

    replace(MqttDoor._take_over, _take_over)
