"""`canopy pub`: publish events from files, pipes and arguments, or append them to a stream.

``pub`` is the command. ``feed_batches`` opens the feeds, reads them ahead in batches
(`canopy/feeds/` has the formats), and counts; ``stream_append`` writes to streams, ``dry_run``
shows who would receive events. ``schema`` validates events against JSON Schemas.
"""
