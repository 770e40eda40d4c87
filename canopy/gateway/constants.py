"""The bounds of the gateway. Times are seconds, sizes bytes. *Guess*: it was never measured."""

from __future__ import annotations

from typing import Final

from canopy.feeds.constants import EVENT_LIMIT

CONNECTIONS: Final = 1_000
"""At a time, unless configured. A follower needs one of the node's `clients.programs`, too."""

HEAD_LIMIT: Final = 16 * 1024
"""The head of a request. Servers take 8 KiB and more; a selector may have as much."""

BODY_LIMIT: Final = 8 * EVENT_LIMIT
"""The body of a request: a batch of events. Guess."""

MESSAGE_LIMIT: Final = 2 * EVENT_LIMIT
"""One message of a WebSocket, one MQTT packet: an event, with what JSON adds."""

HEAD_TIMEOUT: Final = 10.0
"""For the head of a request, or an MQTT CONNECT, once a connection is open: who opens one and says
nothing (slow loris) holds it no longer."""

BODY_TIMEOUT: Final = 30.0
"""For the body of a request."""

IDLE_TIMEOUT: Final = 60.0
"""Between two requests of a connection."""

SEND_TIMEOUT: Final = 30.0
"""For a follower to take what is written to it; it is then disconnected, since what waits for it
takes room at the node."""

KEEP_ALIVE: Final = 15.0
"""Between two signs of life to a follower. Proxies close after 30 to 60 s of silence."""

RECHECK: Final = 5.0
"""Between two looks whether a follower's token is still good."""

RETRY_AFTER: Final = 2
"""Seconds after which a browser or a client is asked to try again."""

PUBLISH_TIMEOUT: Final = 30.0
"""For the node to answer a publication."""

ANSWER_TIMEOUT: Final = 10.0
"""For the node to answer a question of the console, some of which go around the ring."""

SUBSCRIBE_TIMEOUT: Final = 30.0
"""For the overlay to acknowledge a subscription."""

IN_FLIGHT: Final = 64
"""MQTT messages to a client with quality of service 1 that it has not acknowledged, and those from
it that are not published yet (MQTT's Receive Maximum)."""

PUBLISHED_TOGETHER: Final = 100
"""MQTT messages of one client that are one request to the node, if they have come together. With
one request each, a message took ten times the processor time (`bench.gateway.figures`)."""

FILTERS: Final = 64
"""Subscriptions of one MQTT connection."""

OPENED_TOGETHER: Final = 16
"""Subscriptions of one MQTT packet that wait for the overlay at once."""
