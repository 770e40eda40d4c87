"""Feeds: users' files and pipes as events: bytes in, drafts and refusals out.

`read_feed` in ``formats`` detects the format and reads the feed. Each format is a file: flat JSON
objects (``flat``) and CloudEvents (``cloudevents``), both one per line (``lines``), GeoJSON as the
USGS serves it (``geojson``), MessagePack maps (``messagepack``). ``drafts`` has the rules that all
share (docs/reference/formats.md), ``jsontext`` the JSON parser. ``raw`` has the whole events of
`canopy sub --raw`. ``documents`` reads JSON of any layout, ``table`` CSV; ``unreadable`` says what
a file looks like that is none of these. ``objects`` goes the other way: deliveries as JSON. The
commands and the gateway share all this; nothing here opens a file or a connection.
"""

from canopy.feeds.drafts import FeedEvent, Item, Refusal, id_text, weight
from canopy.feeds.formats import read_feed

__all__ = ["FeedEvent", "Item", "Refusal", "id_text", "read_feed", "weight"]
