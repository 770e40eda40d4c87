"""Feeds: users' files and pipes as events: bytes in, drafts and refusals out.

`read_feed` in ``formats`` detects the format and reads the feed; ``source`` allows to look ahead in
it. JSON is one value per line, or of any layout (``lines``), or a sequence (``sequence``); in each
value ``elements`` finds the events: flat objects, CloudEvents (``cloudevents``, with ``context``
for their attributes and ``datatypes`` for their data), GeoJSON (``geojson``) and the whole events
of `canopy sub --raw` (``raw``). ``messagepack`` reads maps, ``table`` CSV. ``drafts`` has the rules
that all share (docs/reference/formats.md), ``jsontext`` the JSON parser and flat objects,
``constants`` the bounds. ``objects`` and ``structured`` convert deliveries to JSON and CloudEvents.
The commands and the gateway share all this; nothing here opens a file or a connection.
"""

from canopy.feeds.drafts import FeedEvent, Item, Refusal, id_text, weight
from canopy.feeds.formats import read_feed

__all__ = ["FeedEvent", "Item", "Refusal", "id_text", "read_feed", "weight"]
