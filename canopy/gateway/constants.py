"""The bounds of the gateway. Times are seconds, sizes bytes. *Guess*: it was never measured."""

from __future__ import annotations

from typing import Final

from canopy.feeds.constants import EVENT_LIMIT

CONNECTIONS: Final = 1_000
"""The most connections at a time, unless configured. Each follower also needs one of the node's
`clients.programs`."""

HEAD_LIMIT: Final = 16 * 1024
"""The largest head of a request. Servers accept 8 KiB or more; a selector alone may have as
much."""

BODY_LIMIT: Final = 8 * EVENT_LIMIT
"""The largest body of a request: a batch of events. Guess."""

MESSAGE_LIMIT: Final = 2 * EVENT_LIMIT
"""The largest WebSocket message or MQTT packet: one event in its JSON form."""

HEAD_TIMEOUT: Final = 10.0
"""Seconds that a new connection may take to send the head of a request, or an MQTT CONNECT. Ends
connections that send nothing (slow loris)."""

BODY_TIMEOUT: Final = 30.0
"""Seconds that the body of a request may take to arrive."""

IDLE_TIMEOUT: Final = 60.0
"""The longest pause between two requests of a connection."""

SEND_TIMEOUT: Final = 30.0
"""Seconds that a follower may take to read what is written to it, before it is disconnected: its
waiting events use memory at the node."""

KEEP_ALIVE: Final = 15.0
"""The longest silence towards a follower. Proxies close connections after 30 to 60 s of silence."""

RECHECK: Final = 5.0
"""The pause between two checks whether a follower's token is still valid."""

RETRY_AFTER: Final = 2
"""The delay after which browsers and clients are asked to try again."""

PUBLISH_TIMEOUT: Final = 30.0
"""Seconds that the node may take to answer a publication."""

ANSWER_TIMEOUT: Final = 10.0
"""Seconds that the node may take to answer a question of the console. Some questions go around the
ring."""

SUBSCRIBE_TIMEOUT: Final = 30.0
"""Seconds that the overlay may take to acknowledge a subscription."""

IN_FLIGHT: Final = 64
"""The most unacknowledged MQTT messages of quality of service 1 to a client, and the most
unpublished messages from it (MQTT's Receive Maximum)."""

PUBLISHED_TOGETHER: Final = 100
"""The most MQTT messages of one client that are published by one request, if they have arrived
together. With a request for each, a message took ten times the processor time."""

FILTERS: Final = 64
"""The most subscriptions of one MQTT connection."""

OPENED_TOGETHER: Final = 16
"""The most subscriptions of one MQTT packet that wait for the overlay at the same time."""
