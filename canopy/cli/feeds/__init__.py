"""Feeds: what users have, as events of ours. Pure parsing: bytes in, drafts and refusals out.

`read_feed` is the door. Each format has its file: flat JSON objects (`flat`), CloudEvents
(`cloudevents`), GeoJSON as the USGS serves it (`geojson`), MessagePack maps (`messagepack`);
`formats` finds out which it is. DESIGN.md, section 6, Events, has the rules that they share.
"""

from canopy.cli.feeds.drafts import Entry, Item, Refusal, id_text, weight
from canopy.cli.feeds.formats import FORMATS, read_feed

__all__ = ["FORMATS", "Entry", "Item", "Refusal", "id_text", "read_feed", "weight"]
